/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loop probes: small frames that the daemon sends out of each port. One that comes
 * back in at a port has found a loop. The port's program notes it where the daemon
 * looks and drops it, so that a probe needs no frame of the pool and no room in a
 * ring: it is found while a loop fills both.
 *
 * Whether a probe is genuine the daemon decides, by its nonce; crates/switch/src/
 * control/loops.rs makes them. Probes of another switch have another id: they are
 * ordinary packets here, or that switch would not find loops through this one.
 */
#ifndef FOREBAY_PROBE_H
#define FOREBAY_PROBE_H

#include "maps.h"

#include <linux/if_ether.h>

/* Ethernet Configuration Testing Protocol: a reply, which no station answers. */
#define PROBE_ETHERTYPE 0x9000
#define PROBE_TAGGED 0x10000

static __always_inline int is_to_probe_group(const struct loop_probe *probe)
{
	return *(const __be32 *)probe->destination == bpf_htonl(0xcf000000) &&
	       *(const __be16 *)(probe->destination + 4) == 0;
}

/*
 * Takes a probe of this switch that came in on `port_id`. `ethertype` is
 * where the EtherType lies, behind a tag in the frame; `tag` is the tag with
 * PROBE_TAGGED, or 0. 1 or 0.
 */
static __always_inline int take_probe(void *data, void *ethertype, void *end, __u32 port_id,
				      __u32 tag)
{
	struct loop_probe_body *body = ethertype;
	struct loop_probes_seen *seen;
	struct loop_watch *watch;
	__u32 zero = 0;
	__u64 count;

	if ((void *)(body + 1) > end || !is_to_probe_group(data) ||
	    body->ethertype != bpf_htons(PROBE_ETHERTYPE))
		return 0;
	watch = bpf_map_lookup_elem(&loop_watch, &zero);
	if (!watch || body->switch_id != watch->switch_id)
		return 0;
	seen = bpf_map_lookup_elem(&loop_probes, &port_id);
	if (!seen)
		return 0;
	count = __sync_fetch_and_add(&seen->count, 1);
	/* Two programs may write one place: then the nonce fits neither, and the next probe tells. */
	seen->probes[count & (PROBES_SEEN - 1)].from = body->port_id | (__u64)tag << 32;
	seen->probes[count & (PROBES_SEEN - 1)].nonce = body->nonce;
	add(&watch->seen, 1);
	return 1;
}

#endif
