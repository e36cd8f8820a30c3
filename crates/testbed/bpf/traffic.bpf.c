// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The lab's source and sink of small packets.
 *
 * source: run through BPF_PROG_TEST_RUN with live frames; sends each frame out of the netdev in `out`, after giving
 *         it the next of `flows` UDP source ports. Frames come with SPARE_BYTES in front, which it takes off: only
 *         a frame whose bounds moved is set up again when its page is used again; otherwise it would keep the
 *         metadata that a program on its way put below it (net/bpf/test_run.c, ctx_was_changed).
 * source_macs: the same with addresses of `grid`, the next sender and then the next receiver for each frame.
 * source_below: the same with what a switch might take for its own below it: eight bytes, the first four those of `below`,
 *         the last four the id of Forebay's origin.
 * sink:   counts UDP over IPv4 and drops it; everything else goes on to the host.
 * sink_below: the same, but counts only what has metadata below it, as far as an XDP program of the receiver's sees any.
 * bare_xdp, bare_tcx: send every packet out of one other netdev, without a look at it; what no switch can do better.
 * tag_push, tag_pop: put all of a host's traffic into one VLAN, as a VLAN netdev would, on kernels without those.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define OFFSET_DESTINATION_NUMBER 4
#define OFFSET_SOURCE_NUMBER 10
#define OFFSET_IPV4_PROTOCOL 23
#define OFFSET_UDP_SOURCE 34
#define FRAME_BYTES_MIN 42
#define PROTOCOL_UDP 17
#define FIRST_PORT 1024
#define FIRST_SENDER 0x1000
#define FIRST_RECEIVER 0x8000
#define SPARE_BYTES 4
#define BELOW_BYTES 8
#define LAYOUT_ORIGIN 0x46427071u

struct counts {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counted SEC(".maps");

/* How many flows, minus one; a power of two minus one. Key 0 of a map, so that one object serves every run. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} flow_mask SEC(".maps");

/* Senders in the upper half, receivers in the lower, at least one of each. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} grid SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} below SEC(".maps");

/* Tag protocol identifier in the upper half, VLAN in the lower. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tag SEC(".maps");

__u32 sent;

/* Where bare_tcx sends to; a constant when it is loaded. */
const volatile __u32 bare_ifindex;

SEC("xdp")
int source(struct xdp_md *ctx)
{
	__u32 key = 0;
	__u32 *mask = bpf_map_lookup_elem(&flow_mask, &key);
	unsigned char *data, *end;

	if (!mask || bpf_xdp_adjust_head(ctx, SPARE_BYTES))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + FRAME_BYTES_MIN > end)
		return XDP_DROP;
	*(__u16 *)(data + OFFSET_UDP_SOURCE) = bpf_htons(FIRST_PORT + (sent++ & *mask));
	return bpf_redirect_map(&out, 0, 0);
}

/* Written anew each time: a page that is used again is as the program left it. */
SEC("xdp")
int source_macs(struct xdp_md *ctx)
{
	__u32 key = 0, number = sent++, senders, receivers;
	__u32 *wanted = bpf_map_lookup_elem(&grid, &key);
	unsigned char *data, *end;

	if (!wanted || bpf_xdp_adjust_head(ctx, SPARE_BYTES))
		return XDP_DROP;
	senders = *wanted >> 16;
	receivers = *wanted & 0xffff;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + FRAME_BYTES_MIN > end || !senders || !receivers)
		return XDP_DROP;
	*(__u16 *)(data + OFFSET_SOURCE_NUMBER) = bpf_htons(FIRST_SENDER + number % senders);
	*(__u16 *)(data + OFFSET_DESTINATION_NUMBER) =
		bpf_htons(FIRST_RECEIVER + number / senders % receivers);
	return bpf_redirect_map(&out, 0, 0);
}

SEC("xdp")
int source_below(struct xdp_md *ctx)
{
	__u32 key = 0, *wanted = bpf_map_lookup_elem(&below, &key), *bytes;

	if (!wanted || bpf_xdp_adjust_head(ctx, SPARE_BYTES) || bpf_xdp_adjust_meta(ctx, -BELOW_BYTES))
		return XDP_DROP;
	bytes = (void *)(long)ctx->data_meta;
	if ((void *)bytes + BELOW_BYTES > (void *)(long)ctx->data)
		return XDP_DROP;
	bytes[0] = *wanted;
	bytes[1] = LAYOUT_ORIGIN;
	return bpf_redirect_map(&out, 0, 0);
}

static __always_inline int is_udp(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data;
	unsigned char *end = (void *)(long)ctx->data_end;

	return data + FRAME_BYTES_MIN <= end && *(__u16 *)(data + 12) == bpf_htons(ETH_P_IP) &&
	       data[OFFSET_IPV4_PROTOCOL] == PROTOCOL_UDP;
}

static __always_inline void count(__u64 bytes)
{
	__u32 key = 0;
	struct counts *counts = bpf_map_lookup_elem(&counted, &key);

	if (counts) {
		counts->packets++;
		counts->bytes += bytes;
	}
}

SEC("xdp")
int fb_lab_sink(struct xdp_md *ctx)
{
	if (!is_udp(ctx))
		return XDP_PASS;
	count(ctx->data_end - ctx->data);
	return XDP_DROP;
}

SEC("xdp")
int sink_below(struct xdp_md *ctx)
{
	unsigned char *below = (void *)(long)ctx->data_meta;

	if (!is_udp(ctx))
		return XDP_PASS;
	if (below + 1 <= (unsigned char *)(long)ctx->data)
		count(ctx->data_end - ctx->data);
	return XDP_DROP;
}

SEC("xdp")
int bare_xdp(struct xdp_md *ctx)
{
	return bpf_redirect_map(&out, 0, 0);
}

SEC("xdp")
int pass_xdp(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("tc")
int bare_tcx(struct __sk_buff *skb)
{
	return bpf_redirect(bare_ifindex, 0);
}

/* At egress. The tag stays beside the packet, where the kernel keeps tags that hardware would insert. */
SEC("tc")
int tag_push(struct __sk_buff *skb)
{
	__u32 key = 0;
	__u32 *wanted = bpf_map_lookup_elem(&tag, &key);

	if (!wanted || bpf_skb_vlan_push(skb, bpf_htons(*wanted >> 16), *wanted & 0xfff))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

/* At ingress. What has another tag or none is not for this host. */
SEC("tc")
int tag_pop(struct __sk_buff *skb)
{
	__u32 key = 0;
	__u32 *wanted = bpf_map_lookup_elem(&tag, &key);

	if (!wanted || !skb->vlan_present || skb->vlan_proto != bpf_htons(*wanted >> 16) ||
	    (skb->vlan_tci & 0xfff) != (*wanted & 0xfff))
		return TC_ACT_SHOT;
	return bpf_skb_vlan_pop(skb) ? TC_ACT_SHOT : TC_ACT_OK;
}

char _license[] SEC("license") = "Dual BSD/GPL";
