/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The far ends of the transmit benchmark: two sinks that count, and the relay of candidate (c).
 * It needs no header but the kernel's own, so that the benchmark can compile it wherever there is a clang. */
#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
/* TCX_DROP; older headers lack the name. */
#define DROP 2
/* A tag that stands for all of the first FLOOD_PORTS ports. */
#define FLOOD_TAG 4095
#define FLOOD_PORTS 100
#define MAX_PORTS 1024
/* Ethernet, IPv4 and TCP with timestamps. */
#define HEADERS 66

static void *(*const map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*const clone_redirect)(struct __sk_buff *skb, __u32 ifindex, __u64 flags) = (void *)BPF_FUNC_clone_redirect;
static long (*const change_tail)(struct __sk_buff *skb, __u32 length, __u64 flags) = (void *)BPF_FUNC_skb_change_tail;
static long (*const store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length,
				 __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*const vlan_pop)(struct __sk_buff *skb) = (void *)BPF_FUNC_skb_vlan_pop;

struct counted {
	__u64 packets;
	__u64 bytes;
};

struct {
	int (*type)[BPF_MAP_TYPE_PERCPU_ARRAY];
	int (*max_entries)[1];
	__u32 *key;
	struct counted *value;
} sink SEC(".maps");

/* Port number -> interface index. */
struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[MAX_PORTS];
	__u32 *key;
	__u32 *value;
} outputs SEC(".maps");

/* Packets that user space has written for the program below. */
#define SLOTS 64
#define SLOT_BYTES 2048

struct slot {
	__u32 ifindex;
	__u32 length;
	__s64 result;
	__u8 packet[SLOT_BYTES - 16];
};

struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[SLOTS];
	int (*map_flags)[BPF_F_MMAPABLE];
	__u32 *key;
	struct slot *value;
} slots SEC(".maps");

static __attribute__((always_inline)) void count(__u64 packets, __u64 bytes)
{
	__u32 zero = 0;
	struct counted *counted = map_lookup(&sink, &zero);

	if (!counted)
		return;
	counted->packets += packets;
	counted->bytes += bytes;
}

SEC("xdp")
int sink_xdp(struct xdp_md *xdp)
{
	count(1, xdp->data_end - xdp->data);
	return XDP_DROP;
}

/* Counts a GSO packet as the segments it stands for: gso_segs is 0 in one that came through a packet socket. */
SEC("tcx/ingress")
int sink_tcx(struct __sk_buff *skb)
{
	__u32 size = skb->gso_size;

	count(size ? (skb->len - HEADERS + size - 1) / size : 1, skb->len);
	return DROP;
}

static __attribute__((always_inline)) void flood(struct __sk_buff *skb)
{
	/* The key is a copy, so that the verifier can follow the counter in its register. */
	for (__u32 port = 0; port < FLOOD_PORTS; port++) {
		__u32 key = port;
		__u32 *ifindex = map_lookup(&outputs, &key);

		if (ifindex && *ifindex)
			clone_redirect(skb, *ifindex, 0);
	}
}

/* The tag that user space put in front says where the packet goes. The kernel has moved it out of the packet already. */
SEC("tcx/ingress")
int relay(struct __sk_buff *skb)
{
	__u32 port = skb->vlan_tci;
	__u32 *ifindex;

	if (!skb->vlan_present || vlan_pop(skb))
		return DROP;
	if (port == FLOOD_TAG) {
		flood(skb);
		return DROP;
	}
	ifindex = map_lookup(&outputs, &port);
	return ifindex ? redirect(*ifindex, 0) : DROP;
}

/* Candidate (e): user space runs this on a packet of its own, which carries each of the written ones in turn. */
SEC("tc")
int send_slots(struct __sk_buff *skb)
{
	__u32 count = skb->cb[0];

	for (__u32 number = 0; number < SLOTS && number < count; number++) {
		__u32 key = number;
		struct slot *slot = map_lookup(&slots, &key);
		__u32 length;

		if (!slot)
			break;
		length = slot->length;
		if (length < 14 || length > sizeof(slot->packet))
			continue;
		slot->result = -1;
		if (skb->len != length && change_tail(skb, length, 0))
			continue;
		if (!store_bytes(skb, 0, slot->packet, length, 0))
			slot->result = clone_redirect(skb, slot->ifindex, 0);
	}
	return 0;
}

char licence[] SEC("license") = "Dual BSD/GPL";
