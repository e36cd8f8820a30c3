/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Following a flow in XDP: the frame goes from driver to driver. Nobody behind
 * us completes a checksum that its sender left to the device, so a frame whose
 * checksum looks unfinished is not for this path.
 */
#ifndef FOREBAY_FLOW_XDP_H
#define FOREBAY_FLOW_XDP_H

#include "classes.h"
#include "tag.h"

#define IPV4_FRAGMENT 0x3fff /* more fragments, or not the first */
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define TCP_CHECKSUM_AT 16
#define UDP_CHECKSUM_AT 6

struct tag {
	__be16 protocol;
	__be16 tci;
};

/* The frame's 802.1Q tag, wherever it is. */
struct frame_tag {
	__u16 tci;
	__u8 is_there;
	__u8 is_inside;
};

static __always_inline int insert_tag(struct xdp_md *ctx, __be16 protocol, __u16 tci)
{
	struct tag tag = { .protocol = protocol, .tci = bpf_htons(tci) };
	void *data, *end;

	if (bpf_xdp_adjust_head(ctx, -TAG_BYTES))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + TAG_BYTES + ADDRESS_BYTES > end)
		return -1;
	__builtin_memmove(data, data + TAG_BYTES, ADDRESS_BYTES);
	__builtin_memcpy(data + ADDRESS_BYTES, &tag, sizeof(tag));
	return 0;
}

static __always_inline int change_tag(struct xdp_md *ctx, __u16 tci)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + ADDRESS_BYTES + TAG_BYTES > end)
		return -1;
	*(__be16 *)(data + ADDRESS_BYTES + 2) = bpf_htons(tci);
	return 0;
}

/* Gives the frame the tag that the flow says; fails with the frame as it was. */
static __always_inline int retag(struct xdp_md *ctx, struct decision *decision,
				 struct frame_tag *tag)
{
	__u16 tci = tag->is_there ? tag->tci : 0;

	if (decision->tag == TAG_REMOVE)
		return tag->is_inside ? take_tag_out(ctx) : 0;
	if (decision->tag == TAG_SET)
		tci = (tci & 0xf000) | decision->vid;
	else if (!tag->is_there || tag->is_inside)
		return 0;
	return tag->is_inside ? change_tag(ctx, tci) : insert_tag(ctx, bpf_htons(ETH_P_8021Q), tci);
}

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Whether the checksum at `l4` is just the pseudo-header's sum, or cannot be told; `addresses` is a sum. */
static __always_inline int is_unfinished(void *l4, void *end, __u8 protocol, __u64 addresses,
					 __be16 ip_length)
{
	__be16 length = ip_length, *checksum;

	if (protocol == IPPROTO_UDP) {
		if (l4 + UDP_CHECKSUM_AT + 2 > end)
			return 1;
		length = *(__be16 *)(l4 + 4);
		checksum = l4 + UDP_CHECKSUM_AT;
	} else if (protocol == IPPROTO_TCP) {
		if (l4 + TCP_CHECKSUM_AT + 2 > end)
			return 1;
		checksum = l4 + TCP_CHECKSUM_AT;
	} else {
		return protocol == IPPROTO_SCTP;
	}
	return *checksum == folded(addresses + length + bpf_htons(protocol));
}

static __always_inline int is_unfinished_v4(void *at, void *end)
{
	struct iphdr *ip = at;

	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->frag_off & bpf_htons(IPV4_FRAGMENT))
		return 0;
	if (ip->ihl != IPV4_BYTES / 4)
		return 1;
	return is_unfinished(ip + 1, end, ip->protocol, (__u64)ip->saddr + ip->daddr,
			     bpf_htons(bpf_ntohs(ip->tot_len) - IPV4_BYTES));
}

static __always_inline int is_unfinished_v6(void *at, void *end)
{
	struct ipv6hdr *ip = at;
	__u64 addresses = 0;

	if ((void *)(ip + 1) > end)
		return 0;
	switch (ip->nexthdr) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
		break;
	case IPPROTO_ICMPV6:
	case IPPROTO_NONE:
		return 0;
	default:
		return 1;
	}
	for (int word = 0; word < 4; word++)
		addresses += (__u64)ip->saddr.in6_u.u6_addr32[word] +
			     ip->daddr.in6_u.u6_addr32[word];
	return is_unfinished(ip + 1, end, ip->nexthdr, addresses, ip->payload_len);
}

static __always_inline int may_be_unfinished(void *at, void *end, __be16 ethertype)
{
	if (ethertype == bpf_htons(ETH_P_IP))
		return is_unfinished_v4(at, end);
	if (ethertype == bpf_htons(ETH_P_IPV6))
		return is_unfinished_v6(at, end);
	/* Below more tags nobody looks, and most likely there is an IP packet. */
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

/*
 * The verdict, or NOT_FOLLOWED. `protocol` is that of a tag that is not in the
 * frame, or 0. `told` is set where user space is to know which flow it is; of
 * frames with a tag it is not, because the key has not all of that.
 */
static __always_inline int follow_frame(struct xdp_md *ctx, struct near_port *port, __be16 protocol,
					__u16 tci, __u32 *told)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 switch_generation = generation(GENERATION_OF_SWITCH);
	struct ethhdr *header = data;
	struct decision decision = {};
	struct frame_tag tag = {};
	void *network = header + 1;
	struct flow_key key;
	__be16 ethertype;
	__u32 length;

	if (!follows_flows(switch_generation) || network > end)
		return NOT_FOLLOWED;
	ethertype = header->h_proto;
	if (protocol == bpf_htons(ETH_P_8021Q)) {
		tag.is_there = 1;
		tag.tci = tci;
	} else if (protocol) {
		return NOT_FOLLOWED;
	} else if (ethertype == bpf_htons(ETH_P_8021Q)) {
		network += TAG_BYTES;
		if (network > end)
			return NOT_FOLLOWED;
		tag.is_there = tag.is_inside = 1;
		tag.tci = bpf_ntohs(*(__be16 *)(network - TAG_BYTES));
		ethertype = *(__be16 *)(network - 2);
	}
	key.words[0] = address_word(header->h_dest) | (__u64)port->port_id << 48;
	key.words[1] = address_word(header->h_source) |
		       (__u64)(tag.is_there ? FLOW_TAGGED | (tag.tci & 0xfff) : 0) << 48;
	key.words[2] = 0;
	key.words[3] = 0;
	if (port->flags & PORT_LEAVES_CHECKSUMS && may_be_unfinished(network, end, ethertype))
		return NOT_FOLLOWED;
	if (!find_flow(&key, switch_generation, &decision) ||
	    !decide_deeper(ctx, IN_XDP, ethertype, ETH_HLEN + (tag.is_inside ? TAG_BYTES : 0),
			   switch_generation, &key, &decision))
		return NOT_FOLLOWED;
	length = frame_length(ctx) + (tag.is_there && !tag.is_inside ? TAG_BYTES : 0);
	if (length > decision.max_length)
		return NOT_FOLLOWED;
	if (decision.action == FLOW_DROP) {
		count(decision.flow, 1, length);
		return XDP_DROP;
	}
	if (decision.action != FLOW_OUTPUT) {
		if (decision.action == FLOW_TELL && !tag.is_there)
			*told = decision.mark;
		return NOT_FOLLOWED;
	}
	if (retag(ctx, &decision, &tag))
		return NOT_FOLLOWED;
	count(decision.flow, 1, length);
	return bpf_redirect_map(&outputs, decision.output, XDP_DROP);
}

#endif
