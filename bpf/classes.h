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
#define IPV4_MORE 0x2000

/* Kinds of tags, in the order of DEEPER_CUSTOMER_TAG and DEEPER_SERVICE_TAG. */
#define CUSTOMER_TAG 1
#define SERVICE_TAG 2

/* Where a packet's bytes are had from. */
enum packet_in {
	IN_SKB,
	IN_XDP,
};

/* The tags behind the outer 802.1Q tag, as far as they are looked at. */
struct stack {
	__be16 ethertype; /* what comes next, which may announce a further tag, */
	__u16 kinds;	  /* the tags before it, */
	__u32 tags;	  /* their number, with one that lies beside the packet, */
	__u32 at;	  /* and where what `ethertype` announces begins */
};

struct further_tag {
	__be16 tci;
	__be16 ethertype;
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

static __always_inline int is_tag(__be16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

/*
 * FLOW_STACKED, or 0. It has no branch, because each branch doubles what the
 * verifier looks at without CAP_PERFMON. The product is 0 if the EtherType is one of the two.
 */
static __always_inline __u64 stacked_flag(__be16 ethertype, __u32 tags)
{
	__u64 product = (__u64)(ethertype ^ bpf_htons(ETH_P_8021Q)) *
			(ethertype ^ bpf_htons(ETH_P_8021AD));

	asm volatile("" : "+r"(product));
	return ((product - 1) >> 63 | tags) * FLOW_STACKED;
}

/* The stack behind all tags, as one number: it is not negative. */
#define KINDS_SHIFT 16
#define TAGS_SHIFT 18

static __always_inline int last_of_stack(void *ctx, enum packet_in in, struct stack stack)
{
	for (int i = 0; i <= MAX_FURTHER_TAGS; i++) {
		struct further_tag tag;

		if (!is_tag(stack.ethertype))
			return stack.ethertype | stack.kinds << KINDS_SHIFT | stack.tags << TAGS_SHIFT;
		if (stack.tags == MAX_FURTHER_TAGS ||
		    load_bytes(ctx, in, stack.at, &tag, sizeof(tag)))
			return -1;
		stack.kinds |= stack.ethertype == bpf_htons(ETH_P_8021Q) ? CUSTOMER_TAG : SERVICE_TAG;
		stack.ethertype = tag.ethertype;
		stack.at += sizeof(tag);
		stack.tags++;
	}
	return -1;
}

/*
 * These and forebay_classify_*: functions that the verifier looks at by themselves,
 * once. In their callers each number of tags would be a state of its own, and
 * without CAP_PERFMON there would be too many.
 */
__noinline int forebay_stack_of_skb(struct __sk_buff *skb, __u16 ethertype, __u32 at, __u32 tags)
{
	struct stack stack = { ethertype, tags ? SERVICE_TAG : 0, tags, at };

	return last_of_stack(skb, IN_SKB, stack);
}

__noinline int forebay_stack_of_xdp(struct xdp_md *ctx, __u16 ethertype, __u32 at)
{
	struct stack stack = { ethertype, 0, 0, at };

	return last_of_stack(ctx, IN_XDP, stack);
}

/* What comes behind all tags. 0, or -1: there are too many of them, or one is cut off. */
static __always_inline int look_behind_tags(void *ctx, enum packet_in in, struct stack *stack)
{
	int last;

	if (!is_tag(stack->ethertype))
		return 0;
	last = in == IN_SKB ? forebay_stack_of_skb(ctx, stack->ethertype, stack->at, stack->tags) :
			      forebay_stack_of_xdp(ctx, stack->ethertype, stack->at);
	if (last < 0)
		return -1;
	stack->at += ((last >> TAGS_SHIFT) - stack->tags) * sizeof(struct further_tag);
	stack->ethertype = last;
	stack->kinds = last >> KINDS_SHIFT & (CUSTOMER_TAG | SERVICE_TAG);
	return 0;
}

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

/* 0, or -1: they are cut off, and user space knows what rules say then. */
static __always_inline int classify_ports(void *ctx, enum packet_in in, __u32 at,
					  struct flow_key *key)
{
	struct ports ports;

	if (load_bytes(ctx, in, at, &ports, sizeof(ports)))
		return -1;
	key->words[2] |= (__u64)classes_of_number(bpf_ntohs(ports.source)).source_port << 32 |
			 (__u64)classes_of_number(bpf_ntohs(ports.destination)).destination_port
				 << 48;
	return 0;
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
	/* Later fragments have no ports. */
	if (!(deeper & DEEPER_PORTS) || !has_ports(ip.protocol) ||
	    ip.frag_off & bpf_htons(IPV4_OFFSET))
		return 0;
	/* Of a first fragment, what is behind its end is padding. */
	if (ip.frag_off & bpf_htons(IPV4_MORE) &&
	    bpf_ntohs(ip.tot_len) < ip.ihl * 4 + sizeof(struct ports))
		return -1;
	return classify_ports(ctx, in, at + ip.ihl * 4, key);
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
	if (deeper & DEEPER_PORTS && has_ports(ip.nexthdr))
		return classify_ports(ctx, in, at + sizeof(ip), key);
	return 0;
}

static __always_inline int classify(void *ctx, enum packet_in in, struct stack *stack, __u16 deeper,
				    struct flow_key *key)
{
	if (look_behind_tags(ctx, in, stack))
		return -1;
	key->words[3] = 1ull << 32 |
			(__u64)(stack->kinds & deeper / DEEPER_CUSTOMER_TAG) << 48;
	if (deeper & DEEPER_ETHERTYPE)
		key->words[3] |= (__u64)classes_of_number(bpf_ntohs(stack->ethertype)).ethertype
				 << 16;
	if (stack->ethertype == bpf_htons(ETH_P_IP))
		return classify_v4(ctx, in, stack->at, deeper, key);
	if (stack->ethertype == bpf_htons(ETH_P_IPV6))
		return classify_v6(ctx, in, stack->at, deeper, key);
	return 0;
}

/* Add a packet's classes to its key: those that `deeper` names. 0 or -1. */
__noinline int forebay_classify_skb(struct __sk_buff *skb, struct stack *stack,
				    struct flow_key *key, __u16 deeper)
{
	return stack && key ? classify(skb, IN_SKB, stack, deeper, key) : -1;
}

__noinline int forebay_classify_xdp(struct xdp_md *ctx, struct stack *stack, struct flow_key *key,
				    __u16 deeper)
{
	return stack && key ? classify(ctx, IN_XDP, stack, deeper, key) : -1;
}

/* Looks again where a decision asks for it. 1, or 0: nothing is known. */
static __always_inline int decide_deeper(void *ctx, enum packet_in in, struct stack *stack,
					 __u64 epoch, struct flow_key *key,
					 struct decision *decision)
{
	if (decision->says.action != FLOW_DEEPER)
		return 1;
	if (in == IN_SKB ? forebay_classify_skb(ctx, stack, key, decision->says.vid) :
			   forebay_classify_xdp(ctx, stack, key, decision->says.vid))
		return 0;
	order_loads();
	if (current_epoch() != epoch)
		return 0;
	return find_flow(key, epoch, decision);
}

#endif
