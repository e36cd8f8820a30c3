/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hints: what is known about a packet when it comes in, told to user space in
 * the bytes directly below the packet.
 *
 * An object defines one struct, called forebay_hints or a flavour of it, with
 * any subset of these members, in any order, and with members of its own; and
 * says how it is written for a packet:
 *
 *	struct forebay_hints___mine {
 *		__u64 cookie;
 *		FOREBAY_RX_HASH;
 *		FOREBAY_HINTS_END;
 *	};
 *
 *	FOREBAY_FILL(forebay_hints___mine, ctx, hints)
 *	{
 *		hints->cookie = 42;
 *		hints->rx_hash = 7;
 *		hints->rx_hash_type = 0;
 *		return FOREBAY_HAS_RX_HASH | FOREBAY_HAS_RX_HASH_TYPE;
 *	}
 *
 * What it returns are the hints that this packet has. The port's XDP program
 * calls it for each packet. Which offset holds what is read from the object's BTF
 * when it is loaded (clang -g), so nothing else needs to be agreed upon. The
 * packet itself is to stay as it is; it has its VLAN tag in it.
 *
 * Include libbpf's <bpf/bpf_helpers.h> before this file. Compile with
 * clang -O2 -g -target bpf, load with forebay hints set PORT --program FILE.
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
#define FOREBAY_FLOW_ID __u32 flow_id		/* number of the packet's flow */
#define FOREBAY_RX_PORT __u32 rx_port		/* source port id */

/* Last: a bit for each hint that this packet has, and the layout's id. */
#define FOREBAY_HINTS_END                                           \
	__u32 hints_present; /* enum forebay_hint */                    \
	__u32 layout_id      /* forebay_layout_id */

enum forebay_hint {
	FOREBAY_HAS_RX_HASH = 1 << 0,
	FOREBAY_HAS_RX_HASH_TYPE = 1 << 1,
	FOREBAY_HAS_RX_VLAN_TCI = 1 << 2,
	FOREBAY_HAS_RX_VLAN_PROTO = 1 << 3,
	FOREBAY_HAS_RX_TIMESTAMP = 1 << 4,
	FOREBAY_HAS_FLOW_ID = 1 << 5,
	FOREBAY_HAS_RX_PORT = 1 << 6,
};

/* Keeps the struct in the program's BTF, from which clang leaves out what only local variables point to. */
#define FOREBAY_HINTS(name) static const struct name *const name##_layout SEC("forebay_hints") = 0

/* Set by whoever loads the program; no two layouts that may be in flight have the same. */
#ifndef FOREBAY_LAYOUTS_ARE_CONSTANT
const volatile __u32 forebay_layout_id = 0;
#endif

/*
 * Makes room below the packet for what hints points to, and sets hints to it. 0, or not 0 if there is none. Without
 * CAP_PERFMON the verifier takes no comparison of a pointer with 0, so this is no function that returns one.
 */
#define forebay_hints_begin(ctx, hints)                             \
	(bpf_xdp_adjust_meta(ctx, -(int)sizeof(*(hints))) ||        \
	 ((hints) = (void *)(long)(ctx)->data_meta,                 \
	  (void *)((hints) + 1) > (void *)(long)(ctx)->data))

/*
 * The function that the port's program calls, around the body that follows. The
 * id is always written: chunks of memory are used again, and what an earlier
 * packet had there would count.
 */
#define FOREBAY_FILL(name, ctx, hints)                                                        \
	FOREBAY_HINTS(name);                                                                  \
	static __always_inline __u32 forebay_write(struct xdp_md *ctx, struct name *hints);   \
	int forebay_fill(struct xdp_md *ctx)                                                  \
	{                                                                                     \
		struct name *hints;                                                           \
                                                                                              \
		if (forebay_hints_begin(ctx, hints))                                          \
			return 0;                                                             \
		hints->hints_present = forebay_write(ctx, hints);                             \
		hints->layout_id = forebay_layout_id;                                         \
		return 0;                                                                     \
	}                                                                                     \
	static __always_inline __u32 forebay_write(struct xdp_md *ctx, struct name *hints)

#endif
