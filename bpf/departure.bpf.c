// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Sends a batch of packets that a worker has written into shared memory.
 *
 * The worker runs it (BPF_PROG_TEST_RUN) on a packet of its own, which the
 * kernel makes and throws away: it is filled with each departing packet in
 * turn, and a clone of it goes out. The whole batch leaves in one section with
 * softirqs off, so the receivers' softirq runs once and not once a packet.
 *
 * Words of cb: which of the worker's departures (two words), the first one's
 * index.
 */
#include "maps.h"

#include <linux/errno.h>
#include <linux/if_ether.h>

/* No netdev of Ethernet has less: ETH_MIN_MTU, include/uapi/linux/if_ether.h. */
#define LEAST_MTU 68

/* Fills skb with the departure's packet; 0 or a negative errno. */
static __always_inline long load(struct __sk_buff *skb, struct departure *departure)
{
	__u32 length = departure->length;
	long failed = 0;

	if (length < ETH_HLEN)
		return -EINVAL;
	/* Two comparisons that clang may not merge, or the verifier loses the bounds. */
	barrier_var(length);
	if (length > sizeof(departure->packet))
		return -EINVAL;
	if (skb->len != length)
		failed = bpf_skb_change_tail(skb, length, 0);
	return failed ? failed : bpf_skb_store_bytes(skb, 0, departure->packet, length, 0);
}

static __always_inline long depart(struct __sk_buff *skb, struct departure *departure)
{
	__u32 mtu = 0;
	long failed = 0;

	if (departure->length > ETH_HLEN + LEAST_MTU)
		failed = bpf_check_mtu(skb, departure->ifindex, &mtu,
				       -(__s32)departure->tag_bytes, 0);
	if (failed)
		return failed < 0 ? failed : -EMSGSIZE;
	return bpf_clone_redirect(skb, departure->ifindex, 0);
}

SEC("tc")
int departure(struct __sk_buff *skb)
{
	__u64 wanted = skb->cb[0] | (__u64)skb->cb[1] << 32;
	__u32 first = skb->cb[2];
	/* What skb holds: an error until a packet is in it. */
	long failed = -EINVAL;

	for (__u32 number = 0; number < DEPARTURES_A_WORKER; number++) {
		__u32 index = first + number;
		struct departure *departure;

		if (!(wanted >> number & 1))
			continue;
		departure = bpf_map_lookup_elem(&departures, &index);
		if (!departure)
			break;
		if (!departure->again)
			failed = load(skb, departure);
		skb->mark = departure->mark;
		departure->result = failed ? failed : depart(skb, departure);
	}
	return 0;
}
