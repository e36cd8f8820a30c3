// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * XDP on the collector's receiving end, bound to it: find out which port a
 * packet came from and put it into that port's socket.
 */
#include "maps.h"

/* The source port id: from the VLAN tag (tcx ports) or the mark (XDP ports). */
static __always_inline int source_port(struct xdp_md *ctx, __u32 *port_id)
{
	void *data = (void *)(long)ctx->data;
	struct port_mark *mark = (void *)(long)ctx->data_meta;
	__be16 protocol = 0; /* the verifier wants them written: no CAP_PERFMON here */
	__u16 tci = 0;

	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &protocol, &tci)) {
		*port_id = tci;
		return 0;
	}
	if ((void *)(mark + 1) > data || mark->magic != PORT_MARK_MAGIC)
		return -1;
	*port_id = mark->port_id;
	return 0;
}

SEC("xdp.frags")
int collector(struct xdp_md *ctx)
{
	struct port_counters *counted;
	__u32 port_id;
	int verdict;

	if (source_port(ctx, &port_id))
		return XDP_DROP;
	counted = counters_of(port_id);
	if (!counted)
		return XDP_DROP;
	add(&counted->collected_packets, 1);
	verdict = bpf_redirect_map(&sockets,
				   port_id * settings.collector_queues + ctx->rx_queue_index,
				   XDP_DROP);
	if (verdict != XDP_REDIRECT)
		add(&counted->unclaimed_packets, 1);
	return verdict;
}
