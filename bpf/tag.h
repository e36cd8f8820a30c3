/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A VLAN tag in a frame. */
#ifndef FOREBAY_TAG_H
#define FOREBAY_TAG_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#define ADDRESS_BYTES (2 * ETH_ALEN)
#define TAG_BYTES 4

static __always_inline int take_tag_out(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + TAG_BYTES + ADDRESS_BYTES > end)
		return -1;
	__builtin_memmove(data + TAG_BYTES, data, ADDRESS_BYTES);
	return bpf_xdp_adjust_head(ctx, TAG_BYTES);
}

#endif
