// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tcx ingress of a port: follow a flow, or hand the packet to the collector. On
 * an XDP port there comes only what XDP has passed on.
 *
 * The source port id travels in the hardware-accelerated VLAN tag, all sixteen
 * bits of it. A tag that the packet itself carries moves into the packet first,
 * which is what bpf_skb_vlan_push does. The packet stays whole: the collector's
 * transmit end has its offloads off, so the kernel segments it and completes
 * its checksum on the way. A long TCP packet takes the worker's long queue, whole.
 */
#include "account.h"
#include "flow_tcx.h"
#include "gso.h"
#include "probe.h"
#include "steer.h"
#include "tag.h"

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

/* Frames of all packets that this one becomes; each begins in a frame of its own. */
static __noinline __u32 frames_of(struct __sk_buff *skb, cut_t cut)
{
	__u32 length = skb->len + (skb->vlan_present ? TAG_BYTES : 0);
	__u32 longest = CUT_HEADERS(cut) + CUT_MORE(cut) + skb->gso_size;

	if (skb->gso_size == PARTS_DIFFER)
		return CUT_PACKETS(cut) + frames_for(1, length);
	return frames_for(CUT_PACKETS(cut), skb->gso_size && longest < length ? longest : length);
}

/*
 * Packets that one packet may become: half of what the receiving end of a
 * collector holds (VETH_RING_SIZE, drivers/net/veth.c, Linux 6.12). The kernel
 * hands all of them over in one go, and whose come meanwhile must find room.
 */
#define MOST_PARTS 128

/* A tag lies beside the packet. 1 or 0. */
static __always_inline int packet_is_probe(struct __sk_buff *skb, __u32 port_id)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 tag = 0;

	if (skb->vlan_present) {
		if (skb->vlan_proto != bpf_htons(ETH_P_8021Q))
			return 0;
		tag = PROBE_TAGGED | skb->vlan_tci;
	}
	return take_probe(data, data + 2 * ETH_ALEN, end, port_id, tag);
}

/* Packet sockets take no such packet with an unfinished checksum if only its tag makes it longer than the MTU. */
static __always_inline int has_service_tag(struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_8021AD) ||
	       (skb->vlan_present && skb->vlan_proto == bpf_htons(ETH_P_8021AD));
}

/* The netdev of the long queue that the packet takes, or 0. Only TCP itself does, and no packet that is to have hints. */
static __noinline __u32 long_queue_of(struct __sk_buff *skb, __u32 port_id, __u32 queue, __u32 number)
{
	struct ring_account *account = bpf_map_lookup_elem(&ring_accounts, &number);
	__u32 *ifindex = bpf_map_lookup_elem(&long_queues, &queue);
	__u32 *is_hinted = bpf_map_lookup_elem(&hinted, &port_id);
	__u64 now;

	if (!account || !ifindex || !*ifindex || (is_hinted && *is_hinted) ||
	    skb->gso_size == PARTS_DIFFER)
		return 0;
	if (!skb->gso_size && !account->long_at)
		return 0;
	now = bpf_ktime_get_coarse_ns();
	if (!skb->gso_size && now - account->long_at > LONG_AFTER_NS)
		return 0;
	if (has_service_tag(skb) || read_headers(skb) >> 16)
		return 0;
	if (frames_used(&account->long_taken, &account->long_settled) >= LONG_FRAMES)
		return 0;
	if (skb->gso_size)
		account->long_at = now;
	return *ifindex;
}

/*
 * Hands the packet over as it is. The kind of its tag names the account that
 * holds its frames: the one of the port's own ring, or the one of the shared ring.
 */
static __noinline int to_long_queue(struct __sk_buff *skb, __u32 port_id, __u32 account, __u32 ifindex)
{
	__u32 length = skb->len + (skb->vlan_present ? TAG_BYTES : 0);
	struct port_counters *counted = counters_of(port_id);
	__be16 whose = bpf_htons(account >= settings.shared_ring * settings.queues ? ETH_P_8021AD :
										     ETH_P_8021Q);

	if (!counted)
		return TC_ACT_SHOT;
	add(&counted->slow_path_packets, 1);
	if (!admit(counted, account, 1, frames_for(1, length), 1))
		return TC_ACT_SHOT;
	if (bpf_skb_vlan_push(skb, whose, port_id)) {
		add(&counted->refused_packets, 1);
		return TC_ACT_SHOT;
	}
	add(&counted->collected_packets, 1);
	return bpf_redirect(ifindex, 0);
}

/* A function of its own: without CAP_PERFMON no stack slot that held a pointer is used again. */
static __noinline int to_collector(struct __sk_buff *skb, int followed)
{
	__u32 ifindex = skb->ifindex;
	struct port_counters *counted;
	struct collector_ends *collector;
	struct port_config *port;
	__u32 packets, account, bank, queue, whole;
	cut_t cut;

	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return TC_ACT_UNSPEC;
	if (packet_is_probe(skb, port->port_id))
		return TC_ACT_SHOT;
	counted = counters_of(port->port_id);
	bank = port->bank;
	collector = bpf_map_lookup_elem(&collectors, &bank);
	cut = cut_of(skb);
	packets = CUT_PACKETS(cut);
	/* XDP passed it on for a flow that has gone, and sockets on the netdev take from XDP alone. */
	if (counted && bank == BANK_DIRECT) {
		add(&counted->slow_path_packets, packets);
		add(&counted->refused_packets, packets);
		return TC_ACT_SHOT;
	}
	queue = steered_queue(skb, port, followed);
	if (!counted || !collector || queue >= settings.queues || !find_account(port, queue, &account))
		return settings.outlives ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	if (is_far(port, queue))
		add(&counted->far_packets, packets);
	whole = packets > MOST_PARTS ? 0 : long_queue_of(skb, port->port_id, queue, account);
	if (whole)
		return to_long_queue(skb, port->port_id, account, whole);
	add(&counted->slow_path_packets, packets);
	if (packets > MOST_PARTS) {
		add(&counted->too_big_packets, packets);
		return TC_ACT_SHOT;
	}
	if (!admit(counted, account, packets, frames_of(skb, cut), 0))
		return TC_ACT_SHOT;
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), port->port_id)) {
		add(&counted->refused_packets, packets);
		return TC_ACT_SHOT;
	}
	skb->queue_mapping = queue + 1;
	return bpf_redirect(collector->transmit_ifindex, 0);
}

SEC("tcx/ingress")
int tcx_port(struct __sk_buff *skb)
{
	struct near_port *near = near_port(skb->ifindex);
	int followed = near ? follow_packet(skb, near->port_id) : NOT_FOLLOWED;

	return followed <= NOT_FOLLOWED ? to_collector(skb, followed) : followed;
}
