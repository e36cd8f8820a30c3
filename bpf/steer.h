/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which worker a packet goes to, where a port has rings at all of them: the one
 * that a rule names by a channel; else the one where its packets leave, once one
 * of them has found out; or else one by a hash of both addresses. So a station's packets stay in order, but for a moment when
 * the first of them are found to leave elsewhere.
 *
 * crates/kernel/src/steering.rs writes the tables.
 */
#ifndef FOREBAY_STEER_H
#define FOREBAY_STEER_H

#include "flow.h"
#include "tag.h"

/* The queue of the collector. `followed` is NOT_FOLLOWED, or STEERED_TO() the queue that a flow names. */
static __always_inline __u32 steered_queue(struct __sk_buff *skb, struct port_config *port,
					   int followed)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct flow_key key = {};
	struct rss_key place = {};
	__u64 *station;
	__u32 *queue, slot;

	if (!(port->flags & PORT_STEERS) || data + ADDRESS_BYTES > end)
		return port->queue;
	if (followed != NOT_FOLLOWED)
		return STEERED_TO(0) - followed;
	key.words[0] = address_word(data);
	slot = hash_of(&key) >> 32 & (STEERED_STATIONS - 1);
	station = bpf_map_lookup_elem(&steered_stations, &slot);
	if (port->flags & PORT_STEERS_TO_OUTPUTS && station && *station & STEERED_QUEUE)
		return (*station & STEERED_QUEUE) - 1;
	key.words[1] = address_word(data + ETH_ALEN);
	place.port_id = port->port_id;
	place.slot = hash_of(&key) >> 32 & (RSS_SLOTS - 1);
	queue = bpf_map_lookup_elem(&rss, &place);
	return queue ? *queue : port->queue;
}

/* Whether the worker of this queue is on another node than the netdev. 1 or 0. */
static __always_inline int is_far(struct port_config *port, __u32 queue)
{
	return port->flags & PORT_STEERS && !(port->near_queues >> (queue & 63) & 1);
}

#endif
