// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Sends a batch of packets that a worker has written into shared memory.
 *
 * The worker runs it (BPF_PROG_TEST_RUN) on a packet of its own, which the
 * kernel makes and throws away: it is filled with each departing packet in
 * turn, and a clone of it goes out. The whole batch leaves in one section with
 * softirqs off, so the receivers' softirq runs once and not once a packet.
 *
 * Words of cb: which of the worker's departures (four words), the first one's
 * index.
 */
#include "maps.h"

#include <linux/errno.h>
#include <linux/if_ether.h>

/* No netdev of Ethernet has less: ETH_MIN_MTU, include/uapi/linux/if_ether.h. */
#define LEAST_MTU 68

/* Packets up to this length are copied here, which is cheaper than to call somebody who does. */
#define SHORT 128

/* Fills skb, which has the length of the packet: a short one of whole words. */
static __always_inline void copy_words(struct __sk_buff *skb, const __u8 *packet)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

#pragma unroll
	for (int at = 0; at < SHORT; at += sizeof(__u32)) {
		if (data + at + sizeof(__u32) > end)
			break;
		*(__u32 *)(data + at) = *(const __u32 *)(packet + at);
	}
}

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
	if (failed)
		return failed;
	if (length > SHORT || length % sizeof(__u32))
		return bpf_skb_store_bytes(skb, 0, departure->packet, length, 0);
	copy_words(skb, departure->packet);
	return 0;
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
	__u64 second_half = skb->cb[2] | (__u64)skb->cb[3] << 32;
	__u32 first = skb->cb[4];
	/* What skb holds: an error until a packet is in it. */
	long failed = -EINVAL;

	for (__u32 number = 0; number < DEPARTURES_A_WORKER; number++) {
		__u32 index = first + number;
		struct departure *departure;

		if (number == DEPARTURES_A_WORKER / 2)
			wanted = second_half;
		if (!(wanted >> number % 64 & 1))
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
