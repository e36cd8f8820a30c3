/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The classes of a packet's deeper fields, where rules look deeper than its
 * addresses. What cannot be told here is left to user space, which reads the
 * same fields in crates/wire/src/network.rs.
 *
 * The daemon changes the classes while no flow is followed: who has read them
 * looks at the epoch once more.
 */
#ifndef FOREBAY_CLASSES_H
#define FOREBAY_CLASSES_H

#include "flow.h"

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#define IPV4_OFFSET 0x1fff

/* Where a packet's bytes are had from. */
enum packet_in {
	IN_SKB,
	IN_XDP,
};

struct ports {
	__be16 source;
	__be16 destination;
};

struct addresses {
	struct prefix_key source;
	struct prefix_key destination;
};

static __always_inline int load_bytes(void *ctx, enum packet_in in, __u32 at, void *to, __u32 bytes)
{
	return in == IN_SKB ? bpf_skb_load_bytes(ctx, at, to, bytes) :
			      bpf_xdp_load_bytes(ctx, at, to, bytes);
}

static __always_inline struct number_classes classes_of_number(__u32 number)
{
	struct number_classes *classes = bpf_map_lookup_elem(&number_classes, &number);

	return classes ? *classes : (struct number_classes){};
}

static __always_inline __u64 class_of_prefix(struct prefix_key *key)
{
	__u32 *class = bpf_map_lookup_elem(&prefix_classes, key);

	return class ? *class : 0;
}

/* Of protocols that have ports; the bytes behind later fragments' headers are no ports. */
static __always_inline __u64 classes_of_ports(void *ctx, enum packet_in in, __u32 at, __u8 protocol)
{
	struct ports ports;

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP && protocol != IPPROTO_SCTP)
		return 0;
	if (load_bytes(ctx, in, at, &ports, sizeof(ports)))
		return 0;
	return (__u64)classes_of_number(bpf_ntohs(ports.source)).source_port << 32 |
	       (__u64)classes_of_number(bpf_ntohs(ports.destination)).destination_port << 48;
}

/* 0, or -1: user space knows more about such packets. */
static __always_inline int classify_v4(void *ctx, enum packet_in in, __u32 at, __u16 deeper,
				       struct flow_key *key)
{
	struct prefix_key address = {};
	struct iphdr ip;

	if (load_bytes(ctx, in, at, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return -1;
	if (deeper & DEEPER_PROTOCOL)
		key->words[3] |= classes_of_number(ip.protocol).protocol;
	address.bits = 64;
	if (deeper & DEEPER_SOURCE) {
		address.which = PREFIX_OF_SOURCE_V4;
		__builtin_memcpy(address.address, &ip.saddr, 4);
		key->words[2] |= class_of_prefix(&address);
	}
	if (deeper & DEEPER_DESTINATION) {
		address.which = PREFIX_OF_DESTINATION_V4;
		__builtin_memcpy(address.address, &ip.daddr, 4);
		key->words[2] |= class_of_prefix(&address) << 16;
	}
	if (deeper & DEEPER_PORTS && !(ip.frag_off & bpf_htons(IPV4_OFFSET)))
		key->words[2] |= classes_of_ports(ctx, in, at + ip.ihl * 4, ip.protocol);
	return 0;
}

/* 0, or -1 */
static __always_inline int classify_v6(void *ctx, enum packet_in in, __u32 at, __u16 deeper,
				       struct flow_key *key)
{
	struct prefix_key address;
	struct ipv6hdr ip;

	if (load_bytes(ctx, in, at, &ip, sizeof(ip)) || ip.version != 6)
		return -1;
	switch (ip.nexthdr) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
		return -1;
	}
	if (deeper & DEEPER_PROTOCOL)
		key->words[3] |= classes_of_number(ip.nexthdr).protocol;
	address.bits = 160;
	if (deeper & DEEPER_SOURCE) {
		address.which = PREFIX_OF_SOURCE_V6;
		__builtin_memcpy(address.address, &ip.saddr, sizeof(ip.saddr));
		key->words[2] |= class_of_prefix(&address);
	}
	if (deeper & DEEPER_DESTINATION) {
		address.which = PREFIX_OF_DESTINATION_V6;
		__builtin_memcpy(address.address, &ip.daddr, sizeof(ip.daddr));
		key->words[2] |= class_of_prefix(&address) << 16;
	}
	if (deeper & DEEPER_PORTS)
		key->words[2] |= classes_of_ports(ctx, in, at + sizeof(ip), ip.nexthdr);
	return 0;
}

/* Adds a packet's classes to its key: those that `deeper` names, of a packet whose network header is at `at`. 0 or -1. */
static __always_inline int classify(void *ctx, enum packet_in in, __be16 ethertype, __u32 at,
				    __u16 deeper, struct flow_key *key)
{
	key->words[3] = 1ull << 32;
	if (deeper & DEEPER_ETHERTYPE)
		key->words[3] |= (__u64)classes_of_number(bpf_ntohs(ethertype)).ethertype << 16;
	if (ethertype == bpf_htons(ETH_P_IP))
		return classify_v4(ctx, in, at, deeper, key);
	if (ethertype == bpf_htons(ETH_P_IPV6))
		return classify_v6(ctx, in, at, deeper, key);
	return 0;
}

/* Looks again where a decision asks for it. 1, or 0: nothing is known. */
static __always_inline int decide_deeper(void *ctx, enum packet_in in, __be16 ethertype, __u32 at,
					 __u64 epoch, struct flow_key *key,
					 struct decision *decision)
{
	if (decision->says.action != FLOW_DEEPER)
		return 1;
	if (classify(ctx, in, ethertype, at, decision->says.vid, key))
		return 0;
	order_loads();
	if (current_epoch() != epoch)
		return 0;
	return find_flow(key, epoch, decision);
}

#endif
