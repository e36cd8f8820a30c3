/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a GSO packet becomes on the wire.
 *
 * Senders are not believed: a container or a guest writes gso_size as it likes,
 * and the count of segments is 0 or wrong. What cannot be read counts as the most
 * that it could be, so that nobody takes more of the pool than is in his account.
 */
#ifndef FOREBAY_GSO_H
#define FOREBAY_GSO_H

#include "maps.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>

#define MAX_VLAN_TAGS 4
/* Extension headers of IPv6 that are read. */
#define MAX_EXTENSIONS 6

/* A gso_size: SCTP has made the parts before, and they differ. GSO_BY_FRAGS, include/linux/skbuff.h, Linux 6.12. */
#define PARTS_DIFFER 0xffff
/* Bytes of SCTP's own header, and of the shortest chunk with data. */
#define LEAST_SCTP_BYTES 28

/*
 * Bytes of headers that may follow the headers that were read. A tunnel (VXLAN or
 * Geneve, Ethernet, IP, TCP) has at most about TUNNEL_BYTES. IPv6 with more extension
 * headers than are read may have any number.
 */
#define TUNNEL_BYTES 256
#define ANY_BYTES 0xffff

struct vlan_header {
	__be16 tci;
	__be16 ethertype;
};

/*
 * What a packet is cut into. One number, because programs return no structures:
 * packets, bytes of headers in front of each part as far as they were read << 32,
 * and bytes of headers that may follow them << 48.
 */
typedef __u64 cut_t;

#define CUT_PACKETS(cut) ((__u32)(cut))
#define CUT_HEADERS(cut) ((__u16)((cut) >> 32))
#define CUT_MORE(cut) ((__u16)((cut) >> 48))

static __always_inline __u32 ipv4_header_bytes(struct __sk_buff *skb, __u32 at, __u8 *protocol)
{
	__u8 header[10];

	if (bpf_skb_load_bytes(skb, at, header, sizeof(header)))
		return 0;
	*protocol = header[9];
	return (header[0] & 0xf) * 4;
}

static __always_inline int is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_DSTOPTS;
}

/* With extension headers, which the kernel repeats in front of each part. */
static __always_inline __u32 ipv6_header_bytes(struct __sk_buff *skb, __u32 at, __u8 *protocol)
{
	__u32 bytes = 40;

	if (bpf_skb_load_bytes(skb, at + 6, protocol, 1))
		return 0;
	for (int i = 0; i < MAX_EXTENSIONS && is_extension(*protocol); i++) {
		__u8 extension[2];

		if (bpf_skb_load_bytes(skb, at + bytes, extension, sizeof(extension)))
			break;
		*protocol = extension[0];
		bytes += (extension[1] + 1) * 8;
	}
	return bytes;
}

/* Bytes up to the L4 payload of a GSO packet as far as they can be read, and << 16 those that may follow. */
static __always_inline __u32 read_headers(struct __sk_buff *skb)
{
	__u32 at = ETH_HLEN;
	__be16 ethertype;
	__u8 protocol, offset;

	if (bpf_skb_load_bytes(skb, ETH_HLEN - 2, &ethertype, sizeof(ethertype)))
		return at | TUNNEL_BYTES << 16;
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_header tag;

		if (ethertype != bpf_htons(ETH_P_8021Q) && ethertype != bpf_htons(ETH_P_8021AD))
			break;
		if (bpf_skb_load_bytes(skb, at, &tag, sizeof(tag)))
			return at | TUNNEL_BYTES << 16;
		ethertype = tag.ethertype;
		at += sizeof(tag);
	}
	protocol = IPPROTO_RAW;
	if (ethertype == bpf_htons(ETH_P_IP))
		at += ipv4_header_bytes(skb, at, &protocol);
	else if (ethertype == bpf_htons(ETH_P_IPV6))
		at += ipv6_header_bytes(skb, at, &protocol);
	if (protocol == IPPROTO_UDP)
		return (at + 8) | TUNNEL_BYTES << 16;
	if (protocol == IPPROTO_TCP && !bpf_skb_load_bytes(skb, at + 12, &offset, 1))
		return at + (offset >> 4) * 4;
	if (ethertype == bpf_htons(ETH_P_IPV6) && is_extension(protocol))
		return at | (__u32)ANY_BYTES << 16;
	return at | TUNNEL_BYTES << 16;
}

static __always_inline __u32 parts_of(__u32 length, __u32 headers, __u32 part)
{
	return length > headers ? (length - headers + part - 1) / part : 1;
}

/*
 * The length and the size of a part decide. What the stack has counted decides
 * only where headers cannot be read, and within what is possible. Not static, so
 * that the verifier looks at it once and not once for each way that leads here.
 */
__noinline cut_t forebay_cut_gso(struct __sk_buff *skb)
{
	__u32 read = read_headers(skb), headers = read & 0xffff, more = read >> 16;
	__u32 part = skb->gso_size, counted = skb->gso_segs, least = 1, packets;

	if (part == PARTS_DIFFER)
		part = LEAST_SCTP_BYTES;
	else
		least = parts_of(skb->len, headers + more, part);
	packets = parts_of(skb->len, headers, part);
	if (counted && counted < packets)
		packets = counted < least ? least : counted;
	return packets | (__u64)read << 32;
}

static __always_inline cut_t cut_of(struct __sk_buff *skb)
{
	return skb->gso_size ? forebay_cut_gso(skb) : 1;
}

#endif
