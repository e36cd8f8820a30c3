// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tcx ingress of a veth or tap port: hand the packet to the collector.
 *
 * The source port id travels in the hardware-accelerated VLAN tag, all sixteen
 * bits of it. A tag that the packet itself carries moves into the packet first,
 * which is what bpf_skb_vlan_push does. The packet stays whole: the collector's
 * transmit end has its offloads off, so the kernel segments it and completes
 * its checksum on the way.
 */
#include "account.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>

#define MAX_VLAN_TAGS 4
/* What headers of a cut packet take at most, about; they count towards its frames. */
#define HEADERS_GUESS 128

struct vlan_header {
	__be16 tci;
	__be16 ethertype;
};

static __always_inline __u32 ipv4_header_bytes(struct __sk_buff *skb, __u32 at, __u8 *protocol)
{
	__u8 header[10];

	if (bpf_skb_load_bytes(skb, at, header, sizeof(header)))
		return 0;
	*protocol = header[9];
	return (header[0] & 0xf) * 4;
}

static __always_inline __u32 ipv6_header_bytes(struct __sk_buff *skb, __u32 at, __u8 *protocol)
{
	if (bpf_skb_load_bytes(skb, at + 6, protocol, 1))
		return 0;
	return 40;
}

/* Bytes up to the L4 payload of a GSO packet; 0 where they cannot be told. */
static __always_inline __u32 header_bytes(struct __sk_buff *skb)
{
	__u32 at = ETH_HLEN, ip;
	__be16 ethertype;
	__u8 protocol, offset;

	if (bpf_skb_load_bytes(skb, ETH_HLEN - 2, &ethertype, sizeof(ethertype)))
		return 0;
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_header tag;

		if (ethertype != bpf_htons(ETH_P_8021Q) && ethertype != bpf_htons(ETH_P_8021AD))
			break;
		if (bpf_skb_load_bytes(skb, at, &tag, sizeof(tag)))
			return 0;
		ethertype = tag.ethertype;
		at += sizeof(tag);
	}
	if (ethertype == bpf_htons(ETH_P_IP))
		ip = ipv4_header_bytes(skb, at, &protocol);
	else if (ethertype == bpf_htons(ETH_P_IPV6))
		ip = ipv6_header_bytes(skb, at, &protocol);
	else
		return 0;
	if (!ip)
		return 0;
	at += ip;
	if (protocol == IPPROTO_UDP)
		return at + 8;
	if (protocol != IPPROTO_TCP || bpf_skb_load_bytes(skb, at + 12, &offset, 1))
		return 0;
	return at + (offset >> 4) * 4;
}

/*
 * Packets that this one becomes on the wire. The stack knows for what it made
 * itself; a guest's packets come from a tap without that number.
 */
static __always_inline __u32 wire_packets(struct __sk_buff *skb)
{
	__u32 headers;

	if (!skb->gso_size)
		return 1;
	if (skb->gso_segs)
		return skb->gso_segs;
	headers = header_bytes(skb);
	if (!headers || skb->len <= headers)
		return 1;
	return (skb->len - headers + skb->gso_size - 1) / skb->gso_size;
}

SEC("tcx/ingress")
int tcx_port(struct __sk_buff *skb)
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
		return TC_ACT_UNSPEC;
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
