/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps that all programs share. Sizes given as 1 are set before loading. */
#ifndef FOREBAY_MAPS_H
#define FOREBAY_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "forebay.h"

/* Interface index of a port's netdev -> its configuration. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct port_config);
	__uint(max_entries, 1);
} ports SEC(".maps");

/* Port id -> counters, mapped into the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

/* socket_number() -> the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} sockets SEC(".maps");

/* Both ends of the collectors. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct collector_ends);
	__uint(max_entries, COLLECTORS);
} collectors SEC(".maps");

/* Their transmit ends once more, for XDP ports. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, COLLECTORS);
} collector_tx SEC(".maps");

/* Queue of a worker -> interface index of its long queue, or 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} long_queues SEC(".maps");

/* account_number() -> what the ring there holds, mapped into the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct ring_account);
	__uint(max_entries, 1);
} ring_accounts SEC(".maps");

/* Entry 0: what all rings hold, mapped into the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct pool_account);
	__uint(max_entries, 1);
} pool_account SEC(".maps");

/* Each worker's departures, one worker after the other, mapped into the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct departure);
	__uint(max_entries, 1);
} departures SEC(".maps");

/* Port id -> whether the collector's program writes hints for its packets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} hinted SEC(".maps");

/* Mapped into the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, STEERED_STATIONS);
} steered_stations SEC(".maps");

/* The collector's queue for a hash of addresses, of ports that steer. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct rss_key);
	__type(value, __u32);
	__uint(max_entries, STEERING_PORTS * RSS_SLOTS);
} rss SEC(".maps");

/* Flow number, and as many again for each further stripe -> what it carried. No variable: without CAP_PERFMON the
 * verifier would not have it written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct flow_count);
	__uint(max_entries, 1);
} flow_counts SEC(".maps");

/*
 * Tables that are variables: read at any place without a helper's call, and mapped
 * into the daemon. Each is the only value of a map of this name, which the daemon
 * makes as large as it wants; what is given here is only how one entry looks.
 */

/* By interface index & settings.near_mask: the port of that netdev, if it has this place. */
struct near_port near_ports[1] SEC(".data.near_ports");

/* By number. Written by the daemon. */
struct flow flows[1] SEC(".data.flows");

/* EPOCH and GENERATION_OF_*. Written by the daemon. */
__u64 generations[1] SEC(".data.generations");

/*
 * An entry of a table. The compiler is to assume nothing about the table's size,
 * and to add in one place for each entry, or the verifier wants CAP_PERFMON.
 */
#define entry_of(table, index)                         \
	({                                             \
		typeof(&(table)[0]) entry = (table);   \
		asm volatile("" : "+r"(entry));        \
		entry += (index);                      \
		asm volatile("" : "+r"(entry));        \
		entry;                                 \
	})

/* A number -> the classes of the port, EtherType and protocol of this number, written by the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct number_classes);
	__uint(max_entries, 65536);
} number_classes SEC(".maps");

/* Networks that rules name -> their classes. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix_key);
	__type(value, __u32);
	__uint(max_entries, 16384);
} prefix_classes SEC(".maps");

/* Port id -> its netdev, if that takes frames from XDP programs. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} outputs SEC(".maps");

/* Entry 0: what a loop probe of this switch looks like, mapped into the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct loop_watch);
	__uint(max_entries, 1);
} loop_watch SEC(".maps");

/* Port id -> loop probes that came in there, mapped into the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct loop_probes_seen);
	__uint(max_entries, 1);
} loop_probes SEC(".maps");

/* Written by the daemon that made the maps. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct format);
	__uint(max_entries, 1);
} format SEC(".maps");

/* Set before loading. */
const volatile struct settings settings = {};

/*
 * Instructions that are never run, and that the verifier takes out.
 *
 * Linux (seen in 6.12 and 6.18) remembers where a program lay that is bound to a
 * netdev when it was handed in. A program that outgrows its pages while it is
 * verified is moved, and nobody tells: when the netdev goes before the program,
 * the kernel follows the stale address (__bpf_prog_offload_destroy) and dies.
 * With these a program is never larger afterwards than it was before.
 * crates/kernel/src/link.rs checks it each time one is loaded.
 */
#define ROOM_TO_GROW(instructions)                                          \
	do {                                                                \
		if (settings.never)                                         \
			asm volatile(".rept " #instructions "\nr0 = 0\n.endr" \
				     ::: "r0");                             \
	} while (0)

static __always_inline struct port_counters *counters_of(__u32 port_id)
{
	return bpf_map_lookup_elem(&counters, &port_id);
}

static __always_inline __u32 account_number(__u32 port_id, __u32 queue)
{
	return port_id * settings.queues + queue;
}

/* The ring that ports share and the one for draining stand behind the ports. */
static __always_inline __u32 socket_number(__u32 bank, __u32 port_id, __u32 queue)
{
	return account_number(bank * (settings.shared_ring + 2) + port_id, queue);
}

/* Writes the source port id below the packet, and below its hints if there are any; 0 or -1. */
static __always_inline int write_origin(struct xdp_md *ctx, __u32 port_id)
{
	struct port_origin *origin;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*origin)))
		return -1;
	origin = (void *)(long)ctx->data_meta;
	if ((void *)(origin + 1) > (void *)(long)ctx->data)
		return -1;
	origin->port_id = port_id;
	origin->layout_id = LAYOUT_ORIGIN;
	return 0;
}

/* Whether the driver leaves no room below packets (xdp_data_meta_unsupported, include/net/xdp.h). */
static __always_inline int leaves_no_room(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *below = (void *)(long)ctx->data_meta;

	return below > data;
}

/* Writes the source port id in front of the packet, for the collector's program to move it below; 0 or -1. */
static __always_inline int write_origin_in_front(struct xdp_md *ctx, __u32 port_id)
{
	struct port_origin *origin;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*origin)))
		return -1;
	origin = (void *)(long)ctx->data;
	if ((void *)(origin + 1) > (void *)(long)ctx->data_end)
		return -1;
	origin->port_id = port_id;
	origin->layout_id = LAYOUT_IN_FRONT;
	return 0;
}

/* Frames for so many packets of a length. */
static __always_inline __u32 frames_for(__u32 packets, __u32 length)
{
	return packets * ((length + settings.frame_payload - 1) / settings.frame_payload);
}

/* Of struct xdp_buff, include/net/xdp.h, what is read. */
struct xdp_buff___flags {
	__u32 flags;
} __attribute__((preserve_access_index));

enum xdp_buff_flags___frags {
	XDP_FLAGS_HAS_FRAGS___frags = 1,
};

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Bytes of the frame. A frame in one piece does without the call, which was a sixth of following a flow. */
static __always_inline __u32 frame_length(struct xdp_md *ctx)
{
	if (settings.reads_kernel) {
		struct xdp_buff___flags *frame = bpf_cast_to_kern_ctx(ctx);

		if (!(frame->flags & bpf_core_enum_value(enum xdp_buff_flags___frags,
							 XDP_FLAGS_HAS_FRAGS___frags)))
			return ctx->data_end - ctx->data;
	}
	return bpf_xdp_get_buff_len(ctx);
}

static __always_inline void add(__u64 *counter, __u64 packets)
{
	__sync_fetch_and_add(counter, packets);
}

#endif
