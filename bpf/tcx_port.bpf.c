// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tcx ingress of a veth or tap port: follow a flow, or hand the packet to the
 * collector.
 *
 * The source port id travels in the hardware-accelerated VLAN tag, all sixteen
 * bits of it. A tag that the packet itself carries moves into the packet first,
 * which is what bpf_skb_vlan_push does. The packet stays whole: the collector's
 * transmit end has its offloads off, so the kernel segments it and completes
 * its checksum on the way.
 */
#include "account.h"
#include "flow_tcx.h"
#include "gso.h"

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

/* What headers of a cut packet take at most, about; they count towards its frames. */
#define HEADERS_GUESS 128

/* A function of its own, as header_bytes() is. */
static __noinline int to_collector(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct port_counters *counted;
	struct collector_ends *collector;
	struct port_config *port;
	__u32 packets, account, length, bank;

	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return TC_ACT_UNSPEC;
	counted = counters_of(port->port_id);
	bank = port->bank;
	collector = bpf_map_lookup_elem(&collectors, &bank);
	if (!counted || !collector || !find_account(port, port->queue, &account))
		return settings.outlives ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	packets = wire_packets(skb);
	length = skb->gso_size ? skb->gso_size + HEADERS_GUESS : skb->len;
	add(&counted->offered_packets, packets);
	if (!admit(counted, account, packets, length))
		return TC_ACT_SHOT;
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), port->port_id)) {
		add(&counted->refused_packets, packets);
		return TC_ACT_SHOT;
	}
	skb->queue_mapping = port->queue + 1;
	return bpf_redirect(collector->transmit_ifindex, 0);
}

SEC("tcx/ingress")
int tcx_port(struct __sk_buff *skb)
{
	struct near_port *near = near_port(skb->ifindex);
	int followed = near ? follow_packet(skb, near->port_id) : NOT_FOLLOWED;

	return followed == NOT_FOLLOWED ? to_collector(skb) : followed;
}
