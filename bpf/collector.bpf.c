// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * XDP on the collector's receiving end, bound to it: find out which port a
 * packet came from and put it into that port's socket, with hints below it if
 * the port is to have them.
 */
#include "hints.h"
#include "maps.h"

#include <linux/if_ether.h>

enum source {
	UNKNOWN,
	TAGGED, /* a tcx port's packet: the VLAN tag is the port id */
	HAS_ORIGIN, /* an XDP port's */
	ORIGIN_IN_FRONT, /* the same, from a driver that leaves no room below packets */
};

/* Every packet that a port's program sends here has an origin, so none with one in front can be a tenant's forgery. */
static __always_inline enum source take_from_front(struct xdp_md *ctx, __u32 *port_id)
{
	struct port_origin *origin = (void *)(long)ctx->data;

	if ((void *)(origin + 1) > (void *)(long)ctx->data_end || origin->layout_id != LAYOUT_IN_FRONT)
		return UNKNOWN;
	*port_id = origin->port_id;
	return bpf_xdp_adjust_head(ctx, sizeof(*origin)) ? UNKNOWN : ORIGIN_IN_FRONT;
}

static __always_inline enum source source_port(struct xdp_md *ctx, __u32 *port_id)
{
	void *data = (void *)(long)ctx->data;
	struct port_origin *origin = (void *)(long)ctx->data_meta;
	__be16 protocol = 0; /* the verifier wants them written, where there is no CAP_PERFMON */
	__u16 tci = 0;

	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &protocol, &tci)) {
		*port_id = tci;
		return TAGGED;
	}
	if ((void *)(origin + 1) > data)
		return take_from_front(ctx, port_id);
	if (origin->layout_id != LAYOUT_ORIGIN)
		return UNKNOWN;
	*port_id = origin->port_id;
	return HAS_ORIGIN;
}

static __always_inline __u32 bank_of(struct xdp_md *ctx)
{
	for (__u32 bank = 0; bank < COLLECTORS; bank++) {
		__u32 key = bank;
		struct collector_ends *ends = bpf_map_lookup_elem(&collectors, &key);

		if (ends && ends->receive_ifindex == ctx->ingress_ifindex)
			return bank;
	}
	return COLLECTORS;
}

/* The port's own socket on this queue where it has one, else the shared one. */
static __always_inline __u32 socket_of(struct xdp_md *ctx, __u32 port_id)
{
	__u32 bank = bank_of(ctx), queue = ctx->rx_queue_index;
	__u32 socket = socket_number(bank, port_id, queue);

	if (bpf_map_lookup_elem(&sockets, &socket))
		return socket;
	return socket_number(bank, settings.shared_ring, queue);
}

/* What lies below a packet: most XDP ports have done it. */
static __always_inline int write_below(struct xdp_md *ctx, enum source source, __u32 port_id)
{
	__u32 *is_hinted = bpf_map_lookup_elem(&hinted, &port_id);

	if (source == TAGGED && is_hinted && *is_hinted && hint_from_collector(ctx))
		return -1;
	return write_origin(ctx, port_id);
}

/* What is no port's packet: a worker's to itself, or somebody else's who sends out of our netdev. */
static __always_inline int drain(struct xdp_md *ctx)
{
	struct ethhdr *header = (void *)(long)ctx->data;

	if ((void *)(header + 1) > (void *)(long)ctx->data_end ||
	    header->h_proto != bpf_htons(DRAIN_ETHERTYPE))
		return XDP_DROP;
	return bpf_redirect_map(&sockets,
				socket_number(bank_of(ctx), settings.shared_ring + 1,
					      ctx->rx_queue_index),
				XDP_DROP);
}

SEC("xdp.frags")
int collector(struct xdp_md *ctx)
{
	struct port_counters *counted;
	int verdict = XDP_DROP;
	enum source source;
	__u32 port_id;

	ROOM_TO_GROW(512);
	source = source_port(ctx, &port_id);
	if (source == UNKNOWN)
		return drain(ctx);
	counted = counters_of(port_id);
	if (!counted)
		return XDP_DROP;
	add(&counted->collected_packets, 1);
	if (source == HAS_ORIGIN || !write_below(ctx, source, port_id))
		verdict = bpf_redirect_map(&sockets, socket_of(ctx, port_id), XDP_DROP);
	if (verdict != XDP_REDIRECT)
		add(&counted->unclaimed_packets, 1);
	return verdict;
}
