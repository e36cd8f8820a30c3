/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Following a flow in tcx: the packet stays as it is, GSO and unfinished
 * checksum included; only its VLAN tag may change, which lies beside it.
 */
#ifndef FOREBAY_FLOW_TCX_H
#define FOREBAY_FLOW_TCX_H

#include "classes.h"
#include "gso.h"

#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

static __always_inline int has_tag(struct __sk_buff *skb)
{
	return skb->vlan_present && skb->vlan_proto == bpf_htons(ETH_P_8021Q);
}

/* An 802.1ad tag beside the packet is a further one, as those in the packet are. */
static __always_inline int packet_key(struct __sk_buff *skb, __u16 port_id, struct flow_key *key,
				      struct stack *stack)
{
	struct ethhdr *header = (void *)(long)skb->data;
	__u64 tag = has_tag(skb) ? FLOW_TAGGED | (skb->vlan_tci & 0xfff) : 0;

	if ((void *)(header + 1) > (void *)(long)skb->data_end)
		return -1;
	stack->ethertype = header->h_proto;
	stack->at = ETH_HLEN;
	stack->tags = !tag && skb->vlan_present;
	stack->kinds = stack->tags ? SERVICE_TAG : 0;
	tag |= stacked_flag(stack->ethertype, stack->tags);
	key->words[0] = address_word(header->h_dest) | (__u64)port_id << 48;
	key->words[1] = address_word(header->h_source) | tag << 48;
	key->words[2] = 0;
	key->words[3] = 0;
	return 0;
}

static __always_inline int set_tag(struct __sk_buff *skb, struct flow_says *says)
{
	__u16 tci = says->vid;

	if (has_tag(skb)) {
		tci |= skb->vlan_tci & 0xf000;
		if (bpf_skb_vlan_pop(skb))
			return -1;
	}
	return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), tci);
}

/* Bytes on the wire of all packets that this one becomes, and how long the longest is. */
static __always_inline __u32 wire_bytes(struct __sk_buff *skb, cut_t cut, __u32 *longest)
{
	__u32 length = skb->len + (skb->vlan_present ? 4 : 0);

	*longest = skb->gso_size ? CUT_HEADERS(cut) + skb->gso_size : length;
	return length + (CUT_PACKETS(cut) - 1) * CUT_HEADERS(cut);
}

/*
 * Hands the packet to the veth's other end, in another namespace, as if it had
 * come through. The daemon does so where the packet is addressed to that end and
 * nothing is in between that would have a say.
 */
static __always_inline int deliver(struct __sk_buff *skb, __u32 ifindex)
{
	skb->mark = 0;
	bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(ifindex, 0);
}

/* The verdict, NOT_FOLLOWED or STEERED_TO() a queue. */
static __always_inline int follow_packet(struct __sk_buff *skb, __u16 port_id)
{
	__u64 epoch = current_epoch();
	struct decision decision = {};
	struct flow_says *says = &decision.says;
	__u32 bytes, longest;
	struct flow_key key;
	struct stack stack;
	int failed = 0;
	cut_t cut;

	if (!follows_flows() || packet_key(skb, port_id, &key, &stack) ||
	    !find_flow(&key, epoch, &decision) ||
	    !decide_deeper(skb, IN_SKB, &stack, epoch, &key, &decision))
		return NOT_FOLLOWED;
	cut = cut_of(skb);
	bytes = wire_bytes(skb, cut, &longest);
	if (longest > says->max_length)
		return NOT_FOLLOWED;
	if (says->action == FLOW_DROP) {
		count(decision.flow, CUT_PACKETS(cut), bytes);
		return TC_ACT_SHOT;
	}
	if (says->action == FLOW_STEER)
		return STEERED_TO(says->mark);
	if (!leaves(says))
		return NOT_FOLLOWED;
	if (says->tag == TAG_REMOVE)
		failed = bpf_skb_vlan_pop(skb);
	else if (says->tag == TAG_SET)
		failed = set_tag(skb, says);
	if (failed)
		return TC_ACT_SHOT;
	skb->mark = says->mark;
	count(decision.flow, CUT_PACKETS(cut), bytes);
	return says->action == FLOW_DELIVER ? deliver(skb, decision.ifindex) :
						 bpf_redirect(decision.ifindex, 0);
}

#endif
