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
 * there. An origin has one, our hints have two; others are given out from 3
 * on, when their programs are loaded.
 */
#define LAYOUT_ORIGIN 0x46427071u
/* An origin that lies in front of the packet, between the port's program and the collector's. */
#define LAYOUT_IN_FRONT 0x46427072u
#define LAYOUT_XDP 1	   /* struct forebay_hints___xdp */
#define LAYOUT_COLLECTOR 2 /* struct forebay_hints___collector */

/* What the programs know from the start. */
struct settings {
	__u32 queues;	     /* of a collector; one a worker */
	__u32 frame_payload; /* bytes of a packet that one frame holds */
	__u32 shared_ring;   /* stands for a port id where all ports share a ring; then comes the drain */
	__u32 never;	     /* 0; see ROOM_TO_GROW */
	__u32 buckets;	     /* of the flow table */
	__u32 stripe_mask;   /* stripes of flows' counters, a power of two, less one */
	__u32 near_mask;     /* entries of `near_ports`, a power of two, less one */
	__u32 has_shared_stripes; /* there are more CPUs than stripes */
	__u32 is_weakly_ordered; /* loads may be seen in another order than they were written in */
	__u32 outlives; /* the programs stay when the daemon dies, until another adopts them */
	__u32 reads_kernel; /* programs may read the kernel's own structures: the daemon has CAP_PERFMON */
	__u32 port_mask; /* generations of ports, a power of two, less one */
	__u64 secret[5]; /* odd; nobody else is to know where flows lie */
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
	__u16 bank;	/* where its sockets are */
	__u16 flags;	/* PORT_* */
	__u64 near_queues; /* of a port that steers: a bit for each worker on this netdev's node */
};

/* Frames may come in with their L4 checksum unfinished. */
#define PORT_LEAVES_CHECKSUMS 1
/* A tcx port's packets go to a worker by their addresses; the worker where they leave comes first. */
#define PORT_STEERS 2
#define PORT_STEERS_TO_OUTPUTS 4

/*
 * By a hash of the destination: the collector's queue of the worker where its
 * packets leave, plus 1, or 0. Above it is when that was written, for workers.
 */
#define STEERED_STATIONS 4096
#define STEERED_QUEUE 0xffff

/* Hashes of both addresses that queues are chosen by. */
#define RSS_SLOTS 128
/* Ports that may have such a table at once. */
#define STEERING_PORTS 64

struct rss_key {
	__u16 port_id;
	__u16 slot;
};

/* The same, where a look at one place finds it; ifindex 0: nobody's place. */
struct near_port {
	__u32 ifindex;
	__u16 port_id;
	__u16 flags;
};

/* Counted by the kernel programs, read by the daemon through shared memory. */
struct port_counters {
	__u64 slow_path_packets; /* for the slow path, in packets on the wire */
	__u64 collected_packets; /* reached the collector's program */
	__u64 unclaimed_packets; /* collected, but no socket for the port */
	__u64 refused_packets;	 /* the port's program could not hand over */
	__u64 over_threshold_packets; /* the port held its share of the pool */
	__u64 ring_full_packets; /* the ring had no room left */
	__u64 too_big_packets;	 /* of packets that take more frames than the ring has */
	__u64 far_packets;	 /* of a port that steers: to a worker on another node than the netdev's */
};

/*
 * What one RX ring holds of the pool, in frames: taken - settled. The port's
 * program takes; the ring's worker settles, by what it finds in the ring, which
 * may be more than before. Both may wrap. A cache line for each side.
 */
struct ring_account {
	__u64 taken;
	__u64 long_taken; /* of them, for packets that took the long queue */
	__u64 long_at;	  /* when the last packet did that was to be cut, in coarse nanoseconds */
	__u64 reserved_taken[5];
	__u64 settled;
	__u32 depth;   /* entries of the ring */
	__u32 reserve; /* frames it may hold whatever its threshold says */
	__u32 th;      /* devlink-sb's, 3 to 16: alpha = 2^(th - 10); 0: `limit` */
	__u32 limit;   /* frames, whatever others hold */
	__u64 long_settled; /* frames of packets that came out of the long queue */
	__u64 reserved_settled[4];
};

/*
 * A worker's long queue is a tap. Packets stay whole there that the collector's
 * transmit end would cut. The account of one ring may hold at most so many frames
 * of it, because packets of other ports wait behind them.
 */
#define LONG_FRAMES 1024
/* A port's other TCP packets take it, too, so that none overtakes another, until it was so long without a long one. */
#define LONG_AFTER_NS 100000000


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
struct port_origin {
	__u32 port_id;
	__u32 layout_id; /* LAYOUT_ORIGIN */
};

/* Two words, so that two loads read it. */
struct flow_says {
	__u16 output;	   /* port id; where nothing leaves, that of the port whose settings say so */
	__u16 max_length;  /* longer packets, as they lie in the input, are not for this flow */
	__u16 source;	   /* stations whose places were relied upon, as generations; */
	__u16 destination; /* 0: nobody's */
	__u8 action;	   /* enum flow_action */
	__u8 tag;	   /* enum flow_tag */
	__u16 vid;	   /* of the VLAN; with FLOW_DEEPER, classes */
	__u32 mark;	   /* what packets leave with (SO_MARK); where none leaves, the daemon's own note;
			      with FLOW_TELL the flow id, which no other flow has or had;
			      with FLOW_STEER the collector's queue */
};

/*
 * What was decided once for packets of one kind, to be repeated. Written by the
 * daemon through shared memory while programs read: a flow counts only if its
 * version was even and the same before and after it was read.
 *
 *   key[0]  destination address, input port id << 48
 *   key[1]  source address, (the VLAN id of the outer 802.1Q tag | FLOW_TAGGED, or 0
 *           without one, and FLOW_STACKED where further tags are behind it) << 48
 *   key[2]  classes: source, destination, source port << 32, destination port << 48
 *   key[3]  classes: protocol, EtherType << 16, 1 << 32, kinds of further tags << 48;
 *           or all 0, and key[2] too
 *
 * Addresses: the first four bytes as one number, the last two << 32.
 */
struct flow {
	__u64 key[4];
	__u64 decided;	   /* the sum of the generations it was decided under */
	__u32 version;
	__u32 ifindex;	   /* of the output */
	struct flow_says says;
};

enum flow_action {
	FLOW_NONE, /* an empty place */
	FLOW_OUTPUT,
	FLOW_DROP,
	FLOW_DEEPER, /* look again, with the classes that `vid` names */
	FLOW_DELIVER, /* FLOW_PASS, to the other end of a veth */
	FLOW_TELL, /* to user space, with `mark` as the hint `flow_id`; only of XDP ports with our hints */
	FLOW_PASS, /* FLOW_OUTPUT, by tcx: XDP passes such packets on */
	FLOW_STEER, /* to user space, to the worker that `mark` names; only of ports that steer */
};

/* Classes that rules ask for; the others are 0. */
enum deeper {
	DEEPER_ETHERTYPE = 1,
	DEEPER_PROTOCOL = 2,
	DEEPER_SOURCE = 4,
	DEEPER_DESTINATION = 8,
	DEEPER_PORTS = 16,
	DEEPER_CUSTOMER_TAG = 32, /* whether an 802.1Q tag is among the further ones; */
	DEEPER_SERVICE_TAG = 64,  /* an 802.1ad tag */
};

/*
 * How little of a packet rules tell apart: two packets of the same classes fall
 * under the same rules. 0 is what no rule names, and what a packet does not have.
 */
struct number_classes { /* of the number that is the index */
	__u16 source_port;
	__u16 destination_port;
	__u16 ethertype;
	__u16 protocol;
};

struct prefix_key {
	__u32 bits; /* those of `which`, and of the address */
	__u32 which; /* enum prefix_of */
	__u8 address[16]; /* IPv4's in the first four */
};

enum prefix_of {
	PREFIX_OF_SOURCE_V4,
	PREFIX_OF_SOURCE_V6,
	PREFIX_OF_DESTINATION_V4,
	PREFIX_OF_DESTINATION_V6,
};

enum flow_tag {
	TAG_KEEP,
	TAG_REMOVE,
	TAG_SET, /* VLAN id `vid`, priority as it was */
};

#define FLOW_TAGGED 0x1000
#define FLOW_STACKED 0x2000

/* Tags that are looked behind, besides the outer 802.1Q tag; crates/wire/src/stack.rs. */
#define MAX_FURTHER_TAGS 4

/*
 * Places that are one behind the other; a flow lies in one of two such buckets.
 * The place that its hash names comes first, then those behind it in the circle.
 */
#define BUCKET_WAYS 4

/* What a program touches of a flow besides: one line, as the flow is one. */
struct flow_count {
	__u64 packets; /* on the wire, of those that a GSO packet becomes */
	__u64 bytes;
	__u64 checked; /* the epoch in which a program last found that the flow holds; the daemon resets it */
	__u64 reserved;
};

/* What a daemon that is to adopt the maps must find as it expects it. */
struct format {
	__u32 version;
	__u32 reserved;
	struct settings settings;
};

/*
 * Generations: each only ever grows, when something has changed that decisions
 * relied upon. The switch's is odd while flows are followed. The epoch, never 0,
 * grows after any of them: while it stays, a flow that held still holds.
 */
#define EPOCH 0
#define GENERATION_OF_SWITCH 1
#define GENERATION_OF_STATION(station) (2 + (station))
#define GENERATION_OF_PORT(port_id) (2 + STATIONS + (port_id))
#define STATIONS 16384

/* Probes that came in at a port and that the daemon has not read yet; a power of two. */
#define PROBES_SEEN 4

/* What all programs need to know of loop probes, mapped into the daemon. */
struct loop_watch {
	__u64 switch_id; /* random, another at each start; probes of others are no probes here */
	__u64 seen;	 /* probes that any port took */
};

/* A loop probe from its addresses on, and from its EtherType on: a tag may come between. */
struct loop_probe {
	__u8 destination[6];
	__u8 source[6];
};

struct loop_probe_body {
	__be16 ethertype;
	__u16 skip;	 /* 0 */
	__u16 function;	 /* of ECTP: a reply */
	__u16 receipt;	 /* 0 */
	__u64 switch_id;
	__u64 nonce;	 /* random, so that nobody can forge a probe before this one is sent */
	__u16 port_id;	 /* of the port that it was sent out of */
} __attribute__((packed));

/* Probes that came in at one port. */
struct loop_probes_seen {
	__u64 count; /* of all that came */
	struct {
		__u64 from; /* id of the port it was sent out of; its VLAN tag << 32, with bit 16 set if it has one */
		__u64 nonce;
	} probes[PROBES_SEEN];
};

/* Departures that a worker can write before it has them sent. */
#define DEPARTURES_A_WORKER 128

/* A packet to be sent, written by a worker. */
struct departure {
	__u32 ifindex;
	__u16 length;
	__u8 again;	/* not 0: send the packet before this one once more */
	__u8 tag_bytes; /* VLAN tags, which the MTU does not count */
	__s32 result;	/* 0, what the queue said (positive) or an errno (negative) */
	__u32 mark;	/* what it leaves with (SO_MARK) */
	__u8 packet[2032];
};

#endif
