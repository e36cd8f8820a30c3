/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Following a flow in XDP: the frame goes from driver to driver. What must be a
 * packet of the kernel's on its way out is passed on, to follow the same flow in
 * tcx (flow_tcx.h), merged with others of its stream. So is a frame whose
 * checksum looks unfinished: from driver to driver nobody completes it.
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

/* The frame's 802.1Q tag, if it is not 0: its TCI, and where it is. */
#define TAG_INSIDE 0x10000
#define TAG_BESIDE 0x20000

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

/*
 * Removes what a program of the sender left below the frame. User space, or the
 * receiver's programs, would believe that ours or the device wrote it. 0 or -1:
 * without CAP_PERFMON no program may compute how much it is.
 */
static __always_inline int clear_below(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *below = (void *)(long)ctx->data_meta;

	if (below + 1 > data)
		return 0;
	return settings.reads_kernel ? bpf_xdp_adjust_meta(ctx, data - below) : -1;
}

/* Gives the frame the tag that the flow says; fails with the frame as it was. */
static __always_inline int retag(struct xdp_md *ctx, const struct flow_says *says, __u32 tag)
{
	__u16 tci = tag;

	if (says->tag == TAG_REMOVE)
		return tag & TAG_INSIDE ? take_tag_out(ctx) : 0;
	if (says->tag == TAG_SET)
		tci = (tci & 0xf000) | says->vid;
	else if (!(tag & TAG_BESIDE))
		return 0;
	return tag & TAG_INSIDE ? change_tag(ctx, tci) :
				  insert_tag(ctx, bpf_htons(ETH_P_8021Q), tci);
}

/*
 * Whether the sum of 16-bit words, folded, is 0 or all ones: whether 65,535 divides
 * it. That is so if the product with the inverse of 65,535 modulo 2^64 does not
 * exceed how often it goes into 2^64 - 1 (Granlund and Montgomery 1994).
 */
static __always_inline int folds_to_nothing(__u64 sum)
{
	return sum * 0xfffefffefffeffff <= 0x0001000100010001;
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
	return folds_to_nothing(addresses + length + bpf_htons(protocol) + (__u16)~*checksum);
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
	return is_tag(ethertype);
}

/*
 * The verdict, or NOT_FOLLOWED. `protocol` is that of a tag that is not in the
 * frame, or 0. `flow_id` is set where user space is to know which flow it is; of
 * frames with a tag it is not, because the key has not all of that.
 */
static __always_inline int follow_frame(struct xdp_md *ctx, struct near_port *port, __be16 protocol,
					__u16 tci, __u32 *flow_id)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *network = data + ETH_HLEN;
	__u64 epoch = current_epoch();
	struct decision decision = {};
	struct flow_key key;
	struct stack stack;
	__be16 ethertype;
	__u32 length, tag = 0;
	int passes_on;

	if (!follows_flows() || network > end)
		return NOT_FOLLOWED;
	ethertype = *(__be16 *)(data + ADDRESS_BYTES);
	if (protocol == bpf_htons(ETH_P_8021Q)) {
		tag = TAG_BESIDE | tci;
	} else if (protocol) {
		return NOT_FOLLOWED;
	} else if (ethertype == bpf_htons(ETH_P_8021Q)) {
		network += TAG_BYTES;
		if (network > end)
			return NOT_FOLLOWED;
		tag = TAG_INSIDE | bpf_ntohs(*(__be16 *)(network - TAG_BYTES));
		ethertype = *(__be16 *)(network - 2);
	}
	key.words[0] = address_word(data) | (__u64)port->port_id << 48;
	key.words[1] = address_word(data + ETH_ALEN);
	if (tag)
		key.words[1] |= (__u64)(FLOW_TAGGED | (tag & 0xfff)) << 48;
	stack.ethertype = ethertype;
	stack.at = ETH_HLEN + (tag & TAG_INSIDE ? TAG_BYTES : 0);
	stack.tags = 0;
	stack.kinds = 0;
	key.words[1] |= stacked_flag(ethertype, 0) << 48;
	key.words[2] = 0;
	key.words[3] = 0;
	if (!find_flow(&key, epoch, &decision) ||
	    !decide_deeper(ctx, IN_XDP, &stack, epoch, &key, &decision))
		return NOT_FOLLOWED;
	length = frame_length(ctx) + (tag & TAG_BESIDE ? TAG_BYTES : 0);
	if (length > decision.says.max_length)
		return NOT_FOLLOWED;
	if (decision.says.action == FLOW_DROP) {
		count(decision.flow, 1, length);
		return XDP_DROP;
	}
	if (decision.says.action == FLOW_TELL && !tag)
		*flow_id = decision.says.mark;
	if (!leaves(&decision.says))
		return NOT_FOLLOWED;
	passes_on = decision.says.action != FLOW_OUTPUT ||
		    (port->flags & PORT_LEAVES_CHECKSUMS && may_be_unfinished(network, end, ethertype));
	if (clear_below(ctx))
		return NOT_FOLLOWED;
	if (passes_on)
		return XDP_PASS;
	if (retag(ctx, &decision.says, tag))
		return NOT_FOLLOWED;
	count(decision.flow, 1, length);
	return bpf_redirect_map(&outputs, decision.says.output, XDP_DROP);
}

#endif
