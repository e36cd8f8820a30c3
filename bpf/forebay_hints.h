/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hints: what an XDP program knows about a packet, told to user space in the
 * bytes directly below the packet.
 *
 * A program defines one struct, called forebay_hints or a flavour of it, with
 * any subset of these members, in any order, and with members of its own:
 *
 *	struct forebay_hints___mine {
 *		__u64 my_counter;
 *		FOREBAY_RX_TIMESTAMP;
 *		FOREBAY_RX_HASH;
 *		FOREBAY_HINTS_END;
 *	};
 *	FOREBAY_HINTS(forebay_hints___mine);
 *
 * and writes it below each packet: forebay_hints_room(), the members, and
 * forebay_hints_end() with what is present in this one. The id is always
 * written: chunks of memory are used again, and what an earlier packet had
 * there would count. Which offset holds what is read from the program's BTF
 * when it is loaded (clang -g), so nothing else needs to be agreed upon.
 *
 * Include libbpf's <bpf/bpf_helpers.h> before this file.
 */
#ifndef FOREBAY_HINTS_H
#define FOREBAY_HINTS_H

#include <linux/bpf.h>

/* The members. A hash goes with its type, a tag with its protocol. */
#define FOREBAY_RX_HASH                                             \
	__u32 rx_hash;	    /* of the packet's flow */                  \
	__u32 rx_hash_type /* enum xdp_rss_hash_type: what it is of */
#define FOREBAY_RX_VLAN                                             \
	__u16 rx_vlan_tci;   /* the tag that the device took off */     \
	__be16 rx_vlan_proto /* its ethertype */
/* ns, when the packet arrived; aligned so that nothing is padded behind the id */
#define FOREBAY_RX_TIMESTAMP __u64 rx_timestamp __attribute__((packed, aligned(4)))
#define FOREBAY_FLOW_MARK __u32 flow_mark	/* what the program found out */
#define FOREBAY_RX_PORT __u32 rx_port		/* source port id */

/* Last: a bit for each hint that this packet has, and the layout's id. */
#define FOREBAY_HINTS_END                                           \
	__u32 hints_present; /* enum forebay_hint */                    \
	__u32 layout_id      /* forebay_layout_id, always */

enum forebay_hint {
	FOREBAY_HAS_RX_HASH = 1 << 0,
	FOREBAY_HAS_RX_HASH_TYPE = 1 << 1,
	FOREBAY_HAS_RX_VLAN_TCI = 1 << 2,
	FOREBAY_HAS_RX_VLAN_PROTO = 1 << 3,
	FOREBAY_HAS_RX_TIMESTAMP = 1 << 4,
	FOREBAY_HAS_FLOW_MARK = 1 << 5,
	FOREBAY_HAS_RX_PORT = 1 << 6,
};

/* Keeps the struct in the program's BTF, from which clang leaves out what only local variables point to. */
#define FOREBAY_HINTS(name) \
	const struct name *const forebay_hints_layout SEC("forebay_hints") = 0

/* Set by whoever loads the program; no two layouts that may be in flight have the same. */
const volatile __u32 forebay_layout_id = 0;

/* Room for a struct of so many bytes below the packet, or 0. */
static __always_inline void *forebay_hints_room(struct xdp_md *ctx, __u32 bytes)
{
	void *hints;

	if (bpf_xdp_adjust_meta(ctx, -(int)bytes))
		return 0;
	hints = (void *)(long)ctx->data_meta;
	if (hints + bytes > (void *)(long)ctx->data)
		return 0;
	return hints;
}

#define forebay_hints_end(hints, present)                           \
	({                                                              \
		(hints)->hints_present = (present);                     \
		(hints)->layout_id = forebay_layout_id;                 \
	})

#endif
