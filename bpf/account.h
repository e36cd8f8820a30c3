/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a port may take frames of the pool: Dynamic Threshold (Choudhury and
 * Hahne 1998), decided before a packet is copied or even handed over.
 *
 * crates/policy/src/threshold.rs states the same rule and tests it.
 */
#ifndef FOREBAY_ACCOUNT_H
#define FOREBAY_ACCOUNT_H

#include "maps.h"

#define TH_ALPHA_ONE 10

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

/* Takes frames for a packet, or does not: 1 or 0. `ring` is port id times queues plus queue. */
static __always_inline int take_frames(__u32 ring, __u32 frames)
{
	struct ring_account *account = bpf_map_lookup_elem(&ring_accounts, &ring);
	__u64 used, pool_used, free, limit, reserve;
	struct pool_account *pool;
	__u32 zero = 0;

	pool = bpf_map_lookup_elem(&pool_account, &zero);
	if (!account || !pool)
		return 0;
	used = frames_used(&account->taken, &account->settled);
	pool_used = frames_used(&pool->taken, &pool->settled);
	free = pool_used < pool->size ? pool->size - pool_used : 0;
	limit = account->th ? scaled(free, account->th) : account->limit;
	reserve = used + free < account->reserve ? used + free : account->reserve;
	if (limit < reserve)
		limit = reserve;
	if (limit > account->depth)
		limit = account->depth;
	if (used >= limit || (used && used + frames > account->depth))
		return 0;
	/* The sum first, so that what a worker settles is in it already. */
	add(&pool->taken, frames);
	add(&account->taken, frames);
	return 1;
}

#endif
