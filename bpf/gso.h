/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a GSO packet becomes on the wire. */
#ifndef FOREBAY_GSO_H
#define FOREBAY_GSO_H

#include "maps.h"

#include <linux/if_ether.h>
#include <linux/in.h>

#define MAX_VLAN_TAGS 4

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

/*
 * Bytes up to the L4 payload of a GSO packet; 0 where they cannot be told. A
 * function of its own: without CAP_PERFMON no stack slot that held a pointer is
 * used again.
 */
static __noinline __u32 header_bytes(struct __sk_buff *skb)
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

#endif
