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
/* The same, and the packet goes to the worker of this queue. */
#define STEERED_TO(queue) (NOT_FOLLOWED - 1 - (int)((queue) & STEERED_QUEUE))

struct flow_key {
	__u64 words[4];
};

/* What to do with a packet. */
struct decision {
	union {
		struct flow_says says;
		__u64 words[2];
	};
	__u32 ifindex;
	__u32 flow; /* its number, for its counters */
};

/* Whether packets go out at a port. */
static __always_inline int leaves(const struct flow_says *says)
{
	return says->action == FLOW_OUTPUT || says->action == FLOW_PASS ||
	       says->action == FLOW_DELIVER;
}

/* An Ethernet address as the key has it. */
static __always_inline __u64 address_word(const void *address)
{
	return *(const __u32 *)address | (__u64)*(const __u16 *)(address + 4) << 32;
}

/* The port of a netdev, where it is not hidden by another's that has the same place. */
static __always_inline struct near_port *near_port(__u32 ifindex)
{
	struct near_port *near = entry_of(near_ports, ifindex & settings.near_mask);

	return near->ifindex == ifindex ? near : 0;
}

/*
 * Keeps loads apart where the processor might not. An atomic operation orders
 * everything around it if its result is used; the compiler is told that it is.
 */
static __always_inline void order_loads(void)
{
	barrier();
	if (settings.is_weakly_ordered) {
		__u64 nothing = 0, before = __sync_fetch_and_add(&nothing, 1);

		asm volatile("" ::"r"(before) : "memory");
	}
}

static __always_inline __u64 generation(__u32 number)
{
	return *(volatile __u64 *)entry_of(generations, number);
}

/* To be read before anything that a decision relies upon. */
static __always_inline __u64 current_epoch(void)
{
	__u64 epoch = generation(EPOCH);

	order_loads();
	return epoch;
}

static __always_inline int follows_flows(void)
{
	return generation(GENERATION_OF_SWITCH) & 1;
}

/* crates/kernel/src/hash.rs says why like this. */
static __always_inline __u64 hash_of(const struct flow_key *key)
{
	const volatile __u64 *secret = settings.secret;
	__u64 sum = (key->words[0] + secret[0]) * (key->words[1] + secret[1]);

	if (key->words[3])
		sum += (key->words[2] + secret[2]) * (key->words[3] + secret[3]);
	return (sum ^ sum >> 32) * secret[4];
}

static __always_inline int is_for(const struct flow *flow, const struct flow_key *key)
{
	return flow->key[0] == key->words[0] && flow->key[1] == key->words[1] &&
	       flow->key[2] == key->words[2] && flow->key[3] == key->words[3];
}

static __always_inline __u32 version_of(const struct flow *flow)
{
	return *(const volatile __u32 *)&flow->version;
}

/* Where this CPU counts what follows a flow. */
static __always_inline struct flow_count *count_of(__u32 flow)
{
	__u32 stripe = bpf_get_smp_processor_id() & settings.stripe_mask;
	__u32 index = stripe * settings.buckets * BUCKET_WAYS + flow;

	return bpf_map_lookup_elem(&flow_counts, &index);
}

/*
 * Whether nothing has changed since the flow was decided. 1 or 0.
 *
 * Adding generations up was a fifth of following a flow, so the epoch in which it was
 * found to hold is kept. This is safe: `epoch` was read before the generations, and a
 * place becomes another flow's only after a grace period and a reset.
 */
static __always_inline int holds(__u32 number, __u64 decided, const struct flow_says *says,
				 const struct flow_key *key, __u64 epoch)
{
	struct flow_count *found = count_of(number);

	if (found && *(volatile __u64 *)&found->checked == epoch)
		return 1;
	if (decided != generation(GENERATION_OF_SWITCH) +
			       generation(GENERATION_OF_STATION(says->source & (STATIONS - 1))) +
			       generation(GENERATION_OF_STATION(says->destination & (STATIONS - 1))) +
			       generation(GENERATION_OF_PORT(key->words[0] >> 48 & settings.port_mask)) +
			       generation(GENERATION_OF_PORT(says->output & settings.port_mask)))
		return 0;
	/* Once more: kept until here, without CAP_PERFMON the verifier would refuse where the compiler keeps it. */
	found = count_of(number);
	if (found)
		*(volatile __u64 *)&found->checked = epoch;
	return 1;
}

/* What a flow says, if nobody has written it since it had this version, and if it still holds. 1 or 0. */
static __always_inline int read_flow(const struct flow *flow, __u32 version, const struct flow_key *key,
				     __u64 epoch, struct decision *decision)
{
	const volatile __u64 *says = (const volatile __u64 *)&flow->says;
	__u64 decided = flow->decided;

	decision->words[0] = says[0];
	decision->words[1] = says[1];
	decision->ifindex = flow->ifindex;
	order_loads();
	if (version & 1 || version_of(flow) != version)
		return 0;
	return holds(decision->flow, decided, &decision->says, key, epoch);
}

/*
 * Looks into one bucket. `part` is half of a hash: as a fraction of 2^32 it says which
 * bucket, and what is left of it which way comes first. 1; 0: the flow there does not
 * hold; -1: there is none.
 */
static __always_inline int look_up(__u32 part, const struct flow_key *key, __u64 epoch,
				   struct decision *decision)
{
	__u64 place = (__u64)part * settings.buckets, bucket = place >> 32;
	__u32 first = (__u32)place >> 30;

	/* Without these the compiler computes numbers in ways whose bounds the verifier does not see. */
	asm volatile("" : "+r"(bucket));
	bucket *= BUCKET_WAYS;
	asm volatile("" : "+r"(bucket));
#pragma unroll
	for (int step = 0; step < BUCKET_WAYS; step++) {
		__u32 number = bucket + ((first + step) & (BUCKET_WAYS - 1));
		const struct flow *flow = entry_of(flows, number);
		__u32 version = version_of(flow);

		order_loads();
		if (is_for(flow, key)) {
			decision->flow = number;
			return read_flow(flow, version, key, epoch, decision);
		}
	}
	return -1;
}

/* What was decided for packets with this key, if it still holds. 1 or 0. */
static __always_inline int find_flow(const struct flow_key *key, __u64 epoch,
				     struct decision *decision)
{
	__u64 hash = hash_of(key);
	int found = look_up(hash >> 32, key, epoch, decision);

	if (found < 0)
		found = look_up(hash, key, epoch, decision);
	return found > 0;
}

/*
 * Counts packets that follow a flow. A program is not interrupted by another on
 * its CPU, so that a stripe of its own needs no atomic operation.
 */
static __always_inline void count(__u32 flow, __u32 packets, __u32 bytes)
{
	struct flow_count *count = count_of(flow);

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
