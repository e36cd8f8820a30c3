/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table: finding what was decided for packets like this one, if it
 * still holds, and counting.
 *
 * crates/kernel/src/flows.rs writes the table.
 */
#ifndef FOREBAY_FLOW_H
#define FOREBAY_FLOW_H

#include "maps.h"

#include <linux/if_ether.h>

/* A program's own verdict when it has no flow for a packet; no kernel verdict has this number. */
#define NOT_FOLLOWED (-2)

struct flow_key {
	__u64 words[4];
};

/* What to do with a packet; action FLOW_NONE: nothing is known. */
struct decision {
	__u32 ifindex;
	__u16 output;
	__u16 vid;
	__u16 max_length;
	__u8 action;
	__u8 tag;
	__u32 mark;
	__u32 flow; /* its number, for its counters */
};

/* An Ethernet address as the key has it. */
static __always_inline __u64 address_word(const void *address)
{
	return *(const __u32 *)address | (__u64)*(const __u16 *)(address + 4) << 32;
}

/* The port of a netdev, where it is not hidden by another's that has the same place. */
static __always_inline struct near_port *near_port(__u32 ifindex)
{
	__u32 place = ifindex & (settings.near_ports - 1);
	struct near_port *near = bpf_map_lookup_elem(&near_ports, &place);

	return near && near->ifindex == ifindex ? near : 0;
}

static __always_inline __u64 generation(__u32 number)
{
	volatile __u64 *generation = bpf_map_lookup_elem(&generations, &number);

	return generation ? *generation : 0;
}

static __always_inline int follows_flows(__u64 switch_generation)
{
	return switch_generation & 1;
}

/*
 * Keeps loads apart where the processor might not. An atomic operation with a
 * result orders everything around it.
 */
static __always_inline void order_loads(void)
{
	barrier();
	if (settings.is_weakly_ordered) {
		__u64 nothing = 0;

		__sync_fetch_and_add(&nothing, 0);
	}
}

static __always_inline __u64 mix(__u64 hash)
{
	return (hash ^ hash >> 32) * settings.multipliers[4];
}

/* The upper bits count; crates/kernel/src/hash.rs says why it is not the sum alone. */
static __always_inline __u64 hash_of(const struct flow_key *key)
{
	return mix(mix(key->words[0] * settings.multipliers[0] +
		       key->words[1] * settings.multipliers[1] +
		       key->words[2] * settings.multipliers[2] +
		       key->words[3] * settings.multipliers[3]));
}

static __always_inline __u32 first_bucket(__u64 hash)
{
	return hash >> (64 - settings.bucket_bits);
}

static __always_inline __u32 second_bucket(__u64 hash)
{
	return first_bucket(hash << settings.bucket_bits);
}

static __always_inline int is_for(const volatile struct flow *flow, const struct flow_key *key)
{
	return flow->key[0] == key->words[0] && flow->key[1] == key->words[1] &&
	       flow->key[2] == key->words[2] && flow->key[3] == key->words[3];
}

/* What a flow says, if nobody has written it since it had this version, and if it still holds. 1 or 0. */
static __always_inline int read_flow(const volatile struct flow *flow, __u32 version,
				     const struct flow_key *key, __u64 switch_generation,
				     struct decision *decision)
{
	__u16 source = flow->source, destination = flow->destination;
	__u64 decided = flow->decided;

	decision->ifindex = flow->ifindex;
	decision->output = flow->output;
	decision->max_length = flow->max_length;
	decision->vid = flow->vid;
	decision->tag = flow->tag;
	decision->mark = flow->mark;
	decision->action = flow->action;
	order_loads();
	if (version & 1 || flow->version != version)
		return 0;
	return decided == switch_generation + generation(GENERATION_OF_STATION(source)) +
				  generation(GENERATION_OF_STATION(destination)) +
				  generation(GENERATION_OF_PORT(key->words[0] >> 48)) +
				  generation(GENERATION_OF_PORT(decision->output));
}

/* What was decided for packets with this key, if it still holds. 1 or 0. */
static __always_inline int find_flow(const struct flow_key *key, __u64 switch_generation,
				     struct decision *decision)
{
	__u64 hash = hash_of(key);
	__u32 first = first_bucket(hash) * BUCKET_WAYS, second = second_bucket(hash) * BUCKET_WAYS;
	const volatile struct flow *flow;
	__u32 version;

#pragma unroll
	for (int look = 0; look < 2 * BUCKET_WAYS; look++) {
		decision->flow = look < BUCKET_WAYS ? first + look : second + look - BUCKET_WAYS;
		flow = bpf_map_lookup_elem(&flows, &decision->flow);
		if (!flow)
			continue;
		version = flow->version;
		order_loads();
		if (is_for(flow, key))
			return read_flow(flow, version, key, switch_generation, decision);
	}
	return 0;
}

/*
 * Counts packets that follow a flow. A program is not interrupted by another on
 * its CPU, so that a stripe of its own needs no atomic operation.
 */
static __always_inline void count(__u32 flow, __u32 packets, __u32 bytes)
{
	__u32 cpu = bpf_get_smp_processor_id(), stripe = cpu & (settings.stripes - 1);
	__u32 index = (stripe << settings.bucket_bits) * BUCKET_WAYS + flow;
	struct flow_count *count = bpf_map_lookup_elem(&flow_counts, &index);

	if (!count)
		return;
	if (settings.has_shared_stripes) {
		add(&count->packets, packets);
		add(&count->bytes, bytes);
	} else {
		count->packets += packets;
		count->bytes += bytes;
	}
}

#endif
