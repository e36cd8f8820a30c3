/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel programs and the daemon agree on. The daemon's side is
 * crates/kernel/src/layout.rs; a test holds the two against each other through
 * the BTF of the compiled object.
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <linux/types.h>

/*
 * The last four bytes below a packet are the id of the layout of what lies
 * there. A port's mark has one, our hints have two; others are given out from 3
 * on, when their programs are loaded.
 */
#define LAYOUT_MARK 0x46427071u
#define LAYOUT_XDP 1	   /* struct forebay_hints___xdp */
#define LAYOUT_COLLECTOR 2 /* struct forebay_hints___collector */

/* What the programs know from the start. */
struct settings {
	__u32 queues;	     /* of a collector; one a worker */
	__u32 frame_payload; /* bytes of a packet that one frame holds */
	__u32 shared_ring;   /* stands for a port id where all ports share a ring; then comes the drain */
	__u32 reserved;
};

/*
 * A port's sockets stand in one of the banks of the table: those of a collector,
 * or sockets on the port's own netdev. There is a collector for ports that have
 * few packets and one for those that have many, and two more that follow them
 * when the pool changes.
 */
#define COLLECTORS 4
#define BANK_DIRECT COLLECTORS
#define BANKS (COLLECTORS + 1)

/*
 * A worker's packets to its own collector, which use posted frames up so that it
 * can take them back: IEEE 802's first ethertype for local experiments.
 */
#define DRAIN_ETHERTYPE 0x88b5

/* One of the collectors. */
struct collector_ends {
	__u32 transmit_ifindex;
	__u32 receive_ifindex;
};

/* How a port's programs treat what comes in; keyed by interface index. */
struct port_config {
	__u16 port_id;	/* source port id, the index of its counters */
	__u16 queue;	/* collector queue that a tcx port's packets take */
	__u32 bank;	/* where its sockets are */
};

/* Counted by the kernel programs, read by the daemon through shared memory. */
struct port_counters {
	__u64 offered_packets;	 /* entered the port, in packets on the wire */
	__u64 collected_packets; /* reached the collector's program */
	__u64 unclaimed_packets; /* collected, but no socket for the port */
	__u64 refused_packets;	 /* the port's program could not hand over */
	__u64 over_threshold_packets; /* the port held its share of the pool */
	__u64 ring_full_packets; /* the ring had no room left */
	__u64 reserved[2];	 /* a whole cache line a port */
};

/*
 * What one RX ring holds of the pool, in frames: taken - settled. The port's
 * program takes; the ring's worker settles, by what it finds in the ring, which
 * may be more than before. Both may wrap. A cache line for each side.
 */
struct ring_account {
	__u64 taken;
	__u64 reserved_taken[7];
	__u64 settled;
	__u32 depth;   /* entries of the ring */
	__u32 reserve; /* frames it may hold whatever its threshold says */
	__u32 th;      /* devlink-sb's, 3 to 16: alpha = 2^(th - 10); 0: `limit` */
	__u32 limit;   /* frames, whatever others hold */
	__u64 reserved_settled[5];
};

/* The sum of all rings, and how much they may hold together. */
struct pool_account {
	__u64 taken;
	__u64 reserved_taken[7];
	__u64 settled;
	__u64 size;
	__u64 headroom;	   /* frames that thresholds leave alone */
	__u64 first_burst; /* frames up to which a ring may use the headroom */
	__u64 reserved_settled[4];
};

/*
 * Where a packet came from: the first bytes below it, in any ring and on its way
 * from an XDP port to the collector. Hints may lie between it and the packet.
 */
struct port_mark {
	__u32 port_id;
	__u32 layout_id; /* LAYOUT_MARK */
};

/* Departures that a worker can write before it has them sent. */
#define DEPARTURES_A_WORKER 64

/* A packet to be sent, written by a worker. */
struct departure {
	__u32 ifindex;
	__u16 length;
	__u8 again;	/* not 0: send the packet before this one once more */
	__u8 tag_bytes; /* VLAN tags, which the MTU does not count */
	__s32 result;	/* 0, what the queue said (positive) or an errno (negative) */
	__u32 reserved;
	__u8 packet[2032];
};

#endif
