//! The ports to send to: veths whose far ends, in a namespace of their own, count and drop.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use forebay_kernel::netlink::{PrivateNetns, link};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use libbpf_sys as sys;

/// `BPF_TCX_INGRESS` and `BPF_XDP`, include/uapi/linux/bpf.h.
const TCX_INGRESS: sys::bpf_attach_type = 46;
const XDP: sys::bpf_attach_type = 37;
/// Packets still under way arrive much sooner; those that were dropped never do.
const SETTLE: Duration = Duration::from_millis(30);
const MTU: u32 = 1500;
/// A queue takes one socket with a TX ring at a time; no setting has more senders that relay.
const RELAYS: usize = 2;

/// What waits at the far end of each port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// An XDP program: the port's peer polls in NAPI style and takes no TSO.
    Xdp,
    /// A tcx program, as in front of a container's own stack: no NAPI, offloads as the kernel sets them.
    Tcx,
}

/// What arrived at all sinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Ports with their sinks, and the relays of candidate (c). To be made in the ports' namespace.
pub(crate) struct World {
    object: Object,
    sinks: PrivateNetns,
    /// Interface indices of the ports.
    pub(crate) ports: Vec<u32>,
    /// Far ends of the relays, in the sinks' namespace.
    pub(crate) relays: Vec<u32>,
    links: Vec<OwnedFd>,
}

impl World {
    pub(crate) fn new(count: usize, sink: Sink) -> World {
        let object = load();
        let sinks = PrivateNetns::new("fb-txb-sinks").expect("root may make a namespace");
        let mut world = World { object, sinks, ports: Vec::new(), relays: Vec::new(), links: Vec::new() };
        world.ports = (0..count).map(|number| world.add_port(number, sink)).collect();
        world.relays = (0..RELAYS).map(|number| world.add_relay(number)).collect();
        world
    }

    fn add_port(&mut self, number: usize, sink: Sink) -> u32 {
        let (near, far) = self.pair(&format!("p{number}"), &format!("s{number}"));
        let (name, kind) = match sink {
            Sink::Xdp => ("sink_xdp", XDP),
            Sink::Tcx => ("sink_tcx", TCX_INGRESS),
        };
        let program = self.program(name);
        let attached = self.sinks.run(move || attach(program.as_fd(), far, kind));
        self.links.push(attached);
        self.set_output(number as u32, near);
        near
    }

    fn add_relay(&mut self, number: usize) -> u32 {
        let (near, far) = self.pair(&format!("relay{number}"), &format!("far{number}"));
        self.links.push(attach(self.program("relay").as_fd(), near, TCX_INGRESS));
        far
    }

    /// A veth, its first end here, its second among the sinks; both up.
    fn pair(&self, near: &str, far: &str) -> (u32, u32) {
        link::create_veth(near, far, Some(self.sinks.fd()), 1, MTU)
            .expect("names are free in a new namespace");
        let far = far.to_owned();
        let far = self.sinks.run(move || {
            let far = link::by_name(&far).expect("it was just made").ifindex;
            link::set_up(far, true).expect("a veth goes up");
            far.0
        });
        let near = link::by_name(near).expect("it was just made").ifindex;
        link::set_up(near, true).expect("a veth goes up");
        (near.0, far)
    }

    fn set_output(&self, port: u32, ifindex: u32) {
        let outputs =
            self.object.maps().find(|map| map.name() == "outputs").expect("the object has this map");
        outputs
            .update(&port.to_ne_bytes(), &ifindex.to_ne_bytes(), MapFlags::ANY)
            .expect("ports are fewer than the map's 1024 entries");
    }

    pub(crate) fn map(&self, name: &str) -> OwnedFd {
        let map = self.object.maps().find(|map| map.name() == name).expect("the object has it");
        map.as_fd().try_clone_to_owned().expect("a descriptor is left")
    }

    pub(crate) fn program(&self, name: &str) -> OwnedFd {
        let program = self.object.progs().find(|program| program.name() == name).expect("the object has it");
        program.as_fd().try_clone_to_owned().expect("a descriptor is left")
    }

    /// Runs `job` in the sinks' namespace, where the relays' far ends are.
    pub(crate) fn among_the_sinks<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        self.sinks.run(job)
    }

    pub(crate) fn counted(&self) -> Counted {
        let sink = self.object.maps().find(|map| map.name() == "sink").expect("the object has this map");
        let per_cpu = sink.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let per_cpu = per_cpu.expect("the map can be read").expect("arrays have all entries");
        per_cpu.iter().fold(Counted::default(), |sum, bytes| Counted {
            packets: sum.packets + number(bytes, 0),
            bytes: sum.bytes + number(bytes, 8),
        })
    }

    /// What arrived since `before`, when `expected` packets have or nothing more can come.
    pub(crate) fn arrived_since(&self, before: Counted, expected: u64) -> Counted {
        let deadline = Instant::now() + SETTLE;
        loop {
            let now = self.counted();
            let arrived = Counted { packets: now.packets - before.packets, bytes: now.bytes - before.bytes };
            if arrived.packets >= expected || Instant::now() > deadline {
                return arrived;
            }
            std::thread::yield_now();
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn attach(program: BorrowedFd<'_>, ifindex: u32, kind: sys::bpf_attach_type) -> OwnedFd {
    // SAFETY: the descriptor is open for the call; no options are passed.
    let link = unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, std::ptr::null()) };
    assert!(link >= 0, "attach a program to {ifindex}: {link}");
    // SAFETY: libbpf just gave us this descriptor; nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(link) }
}

/// Compiles and loads the programs. Both steps take milliseconds.
fn load() -> Object {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/transmit/transmit.bpf.c");
    let object = std::env::temp_dir().join(format!("fb-txb-{}.bpf.o", std::process::id()));
    let done = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"])
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .args([&source, Path::new("-o"), &object])
        .status();
    assert!(done.is_ok_and(|status| status.success()), "clang could not compile {}", source.display());
    let loaded = ObjectBuilder::default().open_file(&object).and_then(|open| open.load());
    let _ = fs::remove_file(&object);
    loaded.expect("root may load the programs")
}
