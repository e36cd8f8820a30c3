/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a port may take frames of the pool: Dynamic Threshold (Choudhury and
 * Hahne 1998) of what is free above the headroom, or a first burst by what is
 * free at all; decided before a packet is copied or even handed over. A packet is
 * let in whole, so that what it takes has to fit: see ONE_PACKET.
 *
 * crates/policy/src/threshold.rs states the same rule and tests it.
 */
#ifndef FOREBAY_ACCOUNT_H
#define FOREBAY_ACCOUNT_H

#include "maps.h"

#define TH_ALPHA_ONE 10

/*
 * Frames that one packet may take of an empty ring whatever the ring's limit is, if
 * that is not 0: 64 KB of TCP in parts of 1 KB. So no ordinary packet is one that
 * could never pass, and no packet takes much more than its port may hold.
 */
#define ONE_PACKET 64

enum taking {
	TAKEN,
	OVER_THRESHOLD,
	RING_FULL,
	TOO_BIG,
};

/*
 * Finds the account of the ring that a port's packets go to: its own, or the one
 * that ports share. 0: there is neither. Then the switch is dying: its programs
 * go one by one, and its successor's may be attached behind them.
 */
static __always_inline int find_account(struct port_config *port, __u32 queue, __u32 *account)
{
	__u32 own = socket_number(port->bank, port->port_id, queue);
	__u32 shared = socket_number(port->bank, settings.shared_ring, queue);

	*account = account_number(port->port_id, queue);
	if (bpf_map_lookup_elem(&sockets, &own))
		return 1;
	*account = account_number(settings.shared_ring, queue);
	return bpf_map_lookup_elem(&sockets, &shared) != 0;
}

/* Frames taken and not settled. Settled is read first, so that it is never ahead. */
static __always_inline __u64 frames_used(volatile __u64 *taken, volatile __u64 *settled)
{
	__u64 before = *settled;

	return *taken - before;
}

static __always_inline __u64 scaled(__u64 frames, __u32 th)
{
	return th >= TH_ALPHA_ONE ? frames << ((th - TH_ALPHA_ONE) & 7) :
				    frames >> ((TH_ALPHA_ONE - th) & 7);
}

/*
 * Takes frames for a packet, or says why not. A function of its own, because
 * without CAP_PERFMON the verifier lets no stack slot that held a pointer be
 * used again, and there are only so many registers.
 */
static __noinline enum taking take_frames(__u32 number, __u32 frames, int is_long)
{
	struct ring_account *account = bpf_map_lookup_elem(&ring_accounts, &number);
	__u64 used, pool_used, free, shared, limit, burst, reserve;
	struct pool_account *pool;
	__u32 zero = 0;

	pool = bpf_map_lookup_elem(&pool_account, &zero);
	if (!account || !pool)
		return RING_FULL;
	used = frames_used(&account->taken, &account->settled);
	pool_used = frames_used(&pool->taken, &pool->settled);
	free = pool_used < pool->size ? pool->size - pool_used : 0;
	shared = pool->headroom < free ? free - pool->headroom : 0;
	if (account->th) {
		limit = scaled(shared, account->th);
		burst = account->th < TH_ALPHA_ONE ? scaled(free, account->th) : free;
	} else {
		limit = shared ? account->limit : 0;
		burst = free < account->limit ? free : account->limit;
	}
	if (burst > pool->first_burst)
		burst = pool->first_burst;
	if (limit < burst)
		limit = burst;
	reserve = used + free < account->reserve ? used + free : account->reserve;
	if (limit < reserve)
		limit = reserve;
	if (used >= account->depth)
		return RING_FULL;
	if (frames > account->depth)
		return TOO_BIG;
	if (used + frames > account->depth)
		return RING_FULL;
	if (used >= limit || frames > free)
		return OVER_THRESHOLD;
	if (used + frames > limit && (used || frames > ONE_PACKET))
		return OVER_THRESHOLD;
	/* The sum first, so that what a worker settles is in it already. */
	add(&pool->taken, frames);
	add(&account->taken, frames);
	if (is_long)
		add(&account->long_taken, frames);
	return TAKEN;
}

/* Takes frames for packets of a port, or counts them as lost: 1 or 0. */
static __always_inline int admit(struct port_counters *counted, __u32 account, __u32 packets,
				 __u32 frames, int is_long)
{
	enum taking taking = take_frames(account, frames, is_long);

	if (taking == TAKEN)
		return 1;
	/* Both, so that no pointer is computed by a condition, which the verifier refuses. */
	add(&counted->over_threshold_packets, taking == OVER_THRESHOLD ? packets : 0);
	add(&counted->ring_full_packets, taking == RING_FULL ? packets : 0);
	add(&counted->too_big_packets, taking == TOO_BIG ? packets : 0);
	return 0;
}

#endif
