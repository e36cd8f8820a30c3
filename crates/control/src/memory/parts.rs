//! The parts and their sizes: Linux 6.18 on x86-64 with pages of 4 KiB and slabs without debugging.

use std::borrow::Cow;

use super::{LANES, MemoryOwner, MemoryPart, Setup, fill_entries};
use crate::eswitch::SpoolMode;

const PAGE: u64 = 4096;
/// Head of a ring: `struct xdp_ring`, net/xdp/xsk_queue.h.
const RING_HEAD: u64 = 320;
/// A descriptor of an RX ring and an address in a fill or completion ring, include/uapi/linux/if_xdp.h.
const DESCRIPTOR: u64 = 16;
const ADDRESS: u64 = 8;
/// Entries of the rings that every bound queue must have and that carry nothing here.
const IDLE_ENTRIES: u64 = 2;

/// A page of packet memory: a pointer in `umem->pgs`, and a page-table entry in the kernel and in the process.
const PAGE_NOTE: u64 = 8 + 8 + 8;
/// `struct xdp_buff_xsk`.
const BUFFER: u64 = 128;
/// `dentry`, `filp` and `lsm_file_cache`.
const FILE: u64 = 192 + 192 + 24;
/// `struct xdp_sock` in kmalloc-2k, and `sock_inode_cache`.
const SOCKET: u64 = 2048 + 832 + FILE;
/// `struct xsk_queue`, `struct vm_struct`, `vmap_area`, and `vm_area_struct` with its part of a maple node.
const RING_NOTES: u64 = 64 + 96 + 72 + 192 + 48;
/// For each page of a ring: the pointer to it, and a page-table entry in the kernel and in the process.
const RING_PAGE_NOTE: u64 = 8 + 8 + 8;
/// `struct epitem` and `struct eppoll_entry`.
const WATCH: u64 = 128 + 72;
/// `struct xsk_map_node`.
const MAP_NODE: u64 = 32;
/// `struct tcx_link` with its descriptor, and `struct tcx_entry` of the netdev in kmalloc-2k.
const TCX_LINK: u64 = 96 + FILE + 2048;

/// `struct htab_elem` with key and value, and `struct bucket`.
const HASH_ELEMENT: u64 = 48 + 8 + 16;
const HASH_BUCKET: u64 = 16;
/// `struct port_counters`, `struct loop_probes_seen`, `struct ring_account`, `struct departure`: bpf/forebay.h.
const PORT_COUNTERS: u64 = 64;
const LOOP_PROBES: u64 = 72;
const RING_ACCOUNT: u64 = 128;
const DEPARTURES: u64 = 128 * 2048;
/// Generations of stations, and numbers that have classes: bpf/forebay.h.
const STATIONS: u64 = 16_384;
const NUMBERS: u64 = 65_536;
/// Banks of the table of sockets: bpf/forebay.h.
const BANKS: u64 = 5;

/// Measured, docs/memory.md: programs with BTF and the collector's netdevs; a program of its own, rings and page pool that
/// a veth gets with XDP; the daemon with its code and libraries, its place for a port at a worker, a port, an RX ring.
const PROGRAMS: u64 = 640 << 10;
const XDP_PORT: u64 = 14 << 10;
const DAEMON: u64 = 12_100_000;
const PLACE: u64 = 232;
const PORT: u64 = 3072;
const RING: u64 = 320;

const MEASURED: &str = "measured, docs/memory.md";

/// Frames registered as one UMEM, and the queues bound to it.
struct Umem {
    whose: &'static str,
    count: u64,
    frames: u64,
    queues: u64,
}

pub(super) fn of(setup: &Setup) -> Vec<MemoryPart> {
    let collector = Umem {
        whose: "collector",
        count: 1,
        frames: setup.frames.into(),
        queues: LANES as u64 * u64::from(setup.workers),
    };
    let [calm, busy] = fill_entries(setup.frames, setup.workers).map(u64::from);
    let mut parts = umem(&collector, setup.frame_size);
    parts.push(fill_rings("collector", setup.workers.into(), calm));
    parts.push(fill_rings("busy collector", setup.workers.into(), busy));
    // A queue has a socket and an RX ring of its own, which nothing is delivered to.
    parts.extend(sockets("collector", collector.queues, IDLE_ENTRIES));
    match setup.spool_mode {
        SpoolMode::None => {
            let own =
                Umem { whose: "ports", count: setup.rings.into(), frames: setup.depth.into(), queues: 1 };
            parts.extend(umem(&own, setup.frame_size));
            parts.push(fill_rings("ports", setup.rings.into(), setup.depth.into()));
            parts.extend(sockets("ports", setup.rings.into(), setup.depth.into()));
        }
        SpoolMode::Basic => parts.extend(sockets("shared", setup.rings.into(), calm)),
        SpoolMode::Spp => parts.extend(sockets("ports", setup.rings.into(), setup.depth.into())),
    }
    parts.extend(tables(setup));
    parts.extend(programs(setup));
    parts.extend(daemon(setup));
    parts.retain(|part| part.bytes > 0);
    parts
}

fn umem(umem: &Umem, frame_size: u32) -> Vec<MemoryPart> {
    let bytes = (umem.frames * u64::from(frame_size)).next_multiple_of(PAGE);
    let queues = umem.count * umem.queues;
    vec![
        user(named(umem.whose, "packet memory"), umem.count, bytes, "frames times frame size"),
        kernel(
            named(umem.whose, "packet memory's page table"),
            umem.count * bytes / PAGE,
            PAGE_NOTE,
            "net/xdp/xdp_umem.c: umem->pgs and its mapping; the process's page table",
        ),
        kernel(
            named(umem.whose, "receive buffers"),
            queues * umem.frames,
            BUFFER,
            "net/xdp/xsk_buff_pool.c: pool->heads, for each queue and frame",
        ),
        kernel(named(umem.whose, "completion rings"), queues, ring(ADDRESS, IDLE_ENTRIES), RING_SOURCE),
    ]
}

fn fill_rings(whose: &'static str, count: u64, entries: u64) -> MemoryPart {
    kernel(named(whose, "fill rings"), count, ring(ADDRESS, entries), RING_SOURCE)
}

const RING_SOURCE: &str =
    "net/xdp/xsk_queue.c: 320 bytes and 8 or 16 an entry in whole pages; what vmalloc and mmap note";

/// AF_XDP sockets, each with an RX ring and watched by a worker.
fn sockets(whose: &'static str, count: u64, entries: u64) -> Vec<MemoryPart> {
    let socket = SOCKET + WATCH + MAP_NODE;
    vec![
        kernel(named(whose, "RX rings"), count, ring(DESCRIPTOR, entries), RING_SOURCE),
        kernel(
            named(whose, "sockets"),
            count,
            socket,
            "include/net/xdp_sock.h, net/socket.c, fs/eventpoll.c, kernel/bpf: slab sizes",
        ),
    ]
}

/// A ring with all that the kernel notes about it.
fn ring(entry_bytes: u64, entries: u64) -> u64 {
    let bytes = (RING_HEAD + entry_bytes * entries).next_multiple_of(PAGE);
    bytes + RING_NOTES + bytes / PAGE * RING_PAGE_NOTE
}

/// BPF maps; those that are mapped begin on a page of their own.
fn tables(setup: &Setup) -> Vec<MemoryPart> {
    let (ports, workers) = (u64::from(setup.max_ports), u64::from(setup.workers));
    let hash = ports * HASH_ELEMENT + ports.next_power_of_two() * HASH_BUCKET;
    let array = |bytes: u64| PAGE + bytes.next_multiple_of(PAGE);
    vec![
        kernel("table of ports", 1, hash, "kernel/bpf/hashtab.c: preallocated, 72 bytes an element"),
        kernel("table of sockets", 1, BANKS * (ports + 2) * workers * 8, "net/xdp/xskmap.c, bpf/forebay.h"),
        kernel("counters", 1, array(ports * PORT_COUNTERS), "kernel/bpf/arraymap.c, bpf/forebay.h"),
        kernel(
            "loop probes",
            1,
            array(ports * LOOP_PROBES) + array(16),
            "kernel/bpf/arraymap.c, bpf/forebay.h",
        ),
        kernel(
            "accounts",
            1,
            array((ports + 1) * workers * RING_ACCOUNT) + array(RING_ACCOUNT),
            "kernel/bpf/arraymap.c, bpf/forebay.h",
        ),
        kernel("flow table", 1, 2 * PAGE + setup.flows.bytes(), "kernel/bpf/arraymap.c, bpf/forebay.h"),
        kernel(
            "what flows rely upon",
            1,
            array((1 + STATIONS + ports) * 8)
                + array(NUMBERS * 8)
                + array((2 * ports).next_power_of_two() * 8)
                + ports * 8,
            "generations, classes, near ports, outputs: kernel/bpf/arraymap.c, bpf/forebay.h",
        ),
        kernel("departures", 1, array(workers * DEPARTURES), "kernel/bpf/arraymap.c, bpf/forebay.h"),
    ]
}

fn programs(setup: &Setup) -> Vec<MemoryPart> {
    vec![
        kernel("programs and the collector's netdevs", 1, PROGRAMS, MEASURED),
        kernel(
            "tcx attachments",
            setup.tcx_ports.into(),
            TCX_LINK,
            "kernel/bpf/tcx.c, include/net/tcx.h: slab sizes",
        ),
        kernel("XDP attachments (of veths)", setup.xdp_ports.into(), XDP_PORT, MEASURED),
    ]
}

fn daemon(setup: &Setup) -> Vec<MemoryPart> {
    let places = u64::from(setup.max_ports) * u64::from(setup.workers);
    vec![
        user("daemon", 1, DAEMON, MEASURED),
        user("workers' places for ports", places, PLACE, MEASURED),
        user("ports", setup.ports().into(), PORT, MEASURED),
        user("sources", setup.rings.into(), RING, MEASURED),
    ]
}

fn named(whose: &str, what: &str) -> String {
    format!("{whose}: {what}")
}

fn kernel(
    name: impl Into<Cow<'static, str>>,
    count: u64,
    bytes_each: u64,
    source: &'static str,
) -> MemoryPart {
    part(name.into(), MemoryOwner::Kernel, count, bytes_each, source)
}

fn user(name: impl Into<Cow<'static, str>>, count: u64, bytes_each: u64, source: &'static str) -> MemoryPart {
    part(name.into(), MemoryOwner::User, count, bytes_each, source)
}

fn part(
    name: Cow<'static, str>,
    owner: MemoryOwner,
    count: u64,
    bytes_each: u64,
    source: &'static str,
) -> MemoryPart {
    MemoryPart { name, owner, count, bytes_each, bytes: count * bytes_each, source: source.into() }
}
