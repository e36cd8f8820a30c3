/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The hints that our own programs write: what the device, or the kernel, already
 * knows of a packet. Their ids are constants.
 */
#ifndef HINTS_H
#define HINTS_H

#include "maps.h"
#include "tag.h"

#define FOREBAY_LAYOUTS_ARE_CONSTANT
#include "forebay_hints.h"

#include <linux/if_ether.h>

/* include/net/xdp.h, Linux 6.12: bits of layers and protocols, which are passed on as they are. */
enum xdp_rss_hash_type {
	XDP_RSS_L4 = 1 << 3,
};

/* The metadata kfuncs exist for programs that are bound to a netdev. */
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash,
				    enum xdp_rss_hash_type *rss_type) __ksym;
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto,
					__u16 *vlan_tci) __ksym;

/* By an XDP port's program, where the driver has kfuncs. */
struct forebay_hints___xdp {
	FOREBAY_RX_TIMESTAMP;
	FOREBAY_RX_HASH;
	FOREBAY_RX_VLAN;
	FOREBAY_FLOW_ID;
	FOREBAY_HINTS_END;
};
FOREBAY_HINTS(forebay_hints___xdp);

/* By the collector's, for packets of tcx ports. */
struct forebay_hints___collector {
	FOREBAY_RX_TIMESTAMP;
	FOREBAY_RX_HASH;
	FOREBAY_RX_VLAN;
	FOREBAY_HINTS_END;
};
FOREBAY_HINTS(forebay_hints___collector);

/*
 * Writes the packet's hash and its type; the hints that it wrote. Some drivers
 * report success where there is none.
 */
#define hint_hash(ctx, hints)                                                         \
	({                                                                            \
		enum xdp_rss_hash_type type = 0;                                      \
		__u32 hash = 0, present = 0;                                          \
                                                                                      \
		if (!bpf_xdp_metadata_rx_hash(ctx, &hash, &type) && (hash || type)) { \
			(hints)->rx_hash = hash;                                      \
			(hints)->rx_hash_type = type;                                 \
			present = FOREBAY_HAS_RX_HASH | FOREBAY_HAS_RX_HASH_TYPE;     \
		}                                                                     \
		present;                                                              \
	})

/* Writes when the device saw the packet, or else now; both are TAI, if somebody keeps the device's clock right. */
#define hint_timestamp(ctx, hints)                                              \
	({                                                                      \
		__u64 timestamp = 0;                                            \
                                                                                \
		if (bpf_xdp_metadata_rx_timestamp(ctx, &timestamp) || !timestamp) \
			timestamp = bpf_ktime_get_tai_ns();                     \
		(hints)->rx_timestamp = timestamp;                              \
		FOREBAY_HAS_RX_TIMESTAMP;                                       \
	})

/* The tag of `protocol` is not in the packet; 0: there is none. `flow_id` is 0 for an unknown flow. Returns 0 or -1. */
static __noinline int hint_from_port(struct xdp_md *ctx, __be16 protocol, __u16 tci, __u32 flow_id)
{
	struct forebay_hints___xdp *hints;
	__u32 present;

	if (forebay_hints_begin(ctx, hints))
		return -1;
	present = hint_hash(ctx, hints) | hint_timestamp(ctx, hints);
	hints->rx_vlan_tci = tci;
	hints->rx_vlan_proto = protocol;
	if (protocol)
		present |= FOREBAY_HAS_RX_VLAN_TCI | FOREBAY_HAS_RX_VLAN_PROTO;
	hints->flow_id = flow_id;
	if (flow_id)
		present |= FOREBAY_HAS_FLOW_ID;
	hints->hints_present = present;
	hints->layout_id = LAYOUT_XDP;
	return 0;
}

/* Has the packet's own 802.1Q tag be a hint, as an XDP port's is: the device's place holds the port. 0 or -1. */
static __always_inline int hint_from_collector(struct xdp_md *ctx)
{
	struct ethhdr *header = (void *)(long)ctx->data;
	struct forebay_hints___collector *hints;
	__u32 present = 0;
	__u16 tci = 0;

	if ((void *)(header + 1) + TAG_BYTES <= (void *)(long)ctx->data_end &&
	    header->h_proto == bpf_htons(ETH_P_8021Q)) {
		tci = bpf_ntohs(*(__be16 *)(header + 1));
		present = FOREBAY_HAS_RX_VLAN_TCI | FOREBAY_HAS_RX_VLAN_PROTO;
	}
	if (forebay_hints_begin(ctx, hints))
		return 0;
	hints->rx_vlan_tci = tci;
	hints->rx_vlan_proto = present ? bpf_htons(ETH_P_8021Q) : 0;
	hints->hints_present = present | hint_hash(ctx, hints) | hint_timestamp(ctx, hints);
	hints->layout_id = LAYOUT_COLLECTOR;
	return present ? take_tag_out(ctx) : 0;
}

#endif
