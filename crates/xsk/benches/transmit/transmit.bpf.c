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

char licence[] SEC("license") = "Dual BSD/GPL";
