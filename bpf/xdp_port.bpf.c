// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * XDP on a port: follow a flow, or write the origin below the frame and redirect
 * it to the collector, or put it into the port's own socket on this netdev. What
 * the device knows about a frame goes neither way by itself. So a VLAN tag that
 * the device took off is put back into the frame here, or becomes a hint; this
 * needs a program that is bound to the netdev.
 *
 * PLAIN is for netdevs that cannot tell (they leave tags in the frame), BOUND for
 * those that can, HINTED for ports with hints, LINKED for ports whose hints
 * somebody else's program writes.
 */
#include "account.h"
#include "flow_xdp.h"
#include "hints.h"
#include "probe.h"

enum variant {
	PLAIN,
	BOUND,
	HINTED,
	LINKED,
};

/* Programs of somebody else's that write hints take its place when they are linked to this object. */
__weak int forebay_fill(struct xdp_md *ctx)
{
	return 0;
}

/*
 * The queue that the packet will wait on: the one it came in on where sockets
 * are bound to this netdev, else the collector's. A veth's redirected frame
 * arrives on the queue of the CPU that sent it (veth_select_rxq, Linux 6.12).
 */
static __always_inline __u32 queue_of(struct xdp_md *ctx, struct port_config *port)
{
	if (port->bank == BANK_DIRECT)
		return ctx->rx_queue_index;
	return bpf_get_smp_processor_id() % settings.queues;
}

/* `protocol` and `tci` are those of a tag that is not in the frame. 1 or 0. */
static __always_inline int frame_is_probe(struct xdp_md *ctx, __u32 port_id, __be16 protocol, __u16 tci)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *ethertype = data + ADDRESS_BYTES;

	if (ethertype + 2 > end)
		return 0;
	if (protocol)
		return protocol == bpf_htons(ETH_P_8021Q) &&
		       take_probe(data, ethertype, end, port_id, PROBE_TAGGED | tci);
	if (*(__be16 *)ethertype != bpf_htons(ETH_P_8021Q))
		return take_probe(data, ethertype, end, port_id, 0);
	if (ethertype + TAG_BYTES > end)
		return 0;
	return take_probe(data, ethertype + TAG_BYTES, end, port_id,
			  PROBE_TAGGED | bpf_ntohs(*(__be16 *)(ethertype + 2)));
}

static __always_inline int to_socket(struct port_counters *counted, __u32 socket)
{
	int verdict = bpf_redirect_map(&sockets, socket, XDP_DROP);

	add(&counted->collected_packets, 1);
	if (verdict != XDP_REDIRECT)
		add(&counted->unclaimed_packets, 1);
	return verdict;
}

static __always_inline int receive(struct xdp_md *ctx, enum variant variant)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct near_port *near = near_port(ifindex);
	struct port_counters *counted;
	struct port_config *port;
	__be16 protocol = 0; /* the verifier wants them written, where there is no CAP_PERFMON */
	__u16 tci = 0;
	__u32 queue, account, bank, flow_id = 0;
	int followed;

	if (variant != PLAIN) {
		ROOM_TO_GROW(512);
		if (bpf_xdp_metadata_rx_vlan_tag(ctx, &protocol, &tci))
			protocol = 0;
	}
	if (near) {
		followed = follow_frame(ctx, near, protocol, tci, &flow_id);
		if (followed != NOT_FOLLOWED)
			return followed;
	}
	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return XDP_PASS;
	if (frame_is_probe(ctx, port->port_id, protocol, tci))
		return XDP_DROP;
	counted = counters_of(port->port_id);
	queue = queue_of(ctx, port);
	bank = port->bank;
	if (!counted || queue >= settings.queues || !find_account(port, queue, &account))
		return settings.outlives ? XDP_DROP : XDP_PASS;
	add(&counted->slow_path_packets, 1);
	if (!admit(counted, account, 1, frames_for(1, frame_length(ctx)), 0))
		return XDP_DROP;
	if (clear_below(ctx))
		goto refuse;
	/* A hint has room for one kind of tag. */
	if (protocol && (variant != HINTED || protocol != bpf_htons(ETH_P_8021Q) || leaves_no_room(ctx))) {
		if (insert_tag(ctx, protocol, tci))
			goto refuse;
		protocol = 0;
	}
	/* In a ring of the port's own nobody looks for the source. */
	if (leaves_no_room(ctx)) {
		if (bank != BANK_DIRECT && write_origin_in_front(ctx, port->port_id))
			goto refuse;
	} else {
		if (variant == HINTED && hint_from_port(ctx, protocol, tci, flow_id))
			goto refuse;
		if (variant == LINKED)
			forebay_fill(ctx);
		if (write_origin(ctx, port->port_id) && bank != BANK_DIRECT)
			goto refuse;
	}
	if (bank == BANK_DIRECT)
		return to_socket(counted, socket_number(bank, port->port_id, queue));
	return bpf_redirect_map(&collector_tx, bank, 0);
refuse:
	add(&counted->refused_packets, 1);
	return XDP_DROP;
}

SEC("xdp.frags")
int xdp_port(struct xdp_md *ctx)
{
	return receive(ctx, PLAIN);
}

SEC("xdp.frags")
int xdp_port_bound(struct xdp_md *ctx)
{
	return receive(ctx, BOUND);
}

SEC("xdp.frags")
int xdp_port_hinted(struct xdp_md *ctx)
{
	return receive(ctx, HINTED);
}

SEC("xdp.frags")
int xdp_port_linked(struct xdp_md *ctx)
{
	return receive(ctx, LINKED);
}
