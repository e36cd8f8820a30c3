//! The loaded kernel side of the switch: its maps, and what attaches a port to it.
#![allow(unsafe_code, reason = "shares libbpf's object between threads")]

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::memory::FlowShape;
use forebay_hints::{Btf, Layout};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};

use crate::accounts::{Accounts, RingAccount};
use crate::adoption;
use crate::classes::ClassTable;
use crate::counters::CounterTable;
use crate::flows::FlowTable;
use crate::generations::Generations;
use crate::hash::Secret;
use crate::hints::{self, HintsError, HintsOptions};
use crate::layout::{Bank, CollectorEnds, OWN_LAYOUTS, OWNERS_BESIDES_PORTS, PortConfig, Settings};
use crate::left::LeftLinks;
use crate::link::{self, NetdevLink, Relocated};
use crate::mapped::Mapped;
use crate::object::{self, DatapathOptions};
use crate::pins::{LinkKind, Pins};
use crate::probes::LoopProbes;
use crate::{DatapathError, KernelCounters};

/// All programs and maps of one switch. Everything goes away when it is dropped or the process ends.
pub struct Datapath {
    ports: MapHandle,
    sockets: MapHandle,
    counters: CounterTable,
    accounts: Arc<Accounts>,
    near_ports: Mapped<AtomicU64>,
    generations: Arc<Generations>,
    outputs: MapHandle,
    loop_maps: [MapHandle; 2],
    flows: [MapHandle; 3],
    classes: [MapHandle; 2],
    departures: MapHandle,
    departure: OwnedFd,
    tcx_port: OwnedFd,
    xdp_port: OwnedFd,
    xdp_port_bound: Relocated,
    xdp_port_hinted: Relocated,
    hinted: MapHandle,
    settings: Settings,
    /// For programs that others make.
    shared_maps: Vec<(OsString, MapHandle)>,
    collector: Relocated,
    collectors: MapHandle,
    collector_tx: MapHandle,
    queues: u32,
    max_ports: u32,
    pins: Option<Pins>,
    left_links: Mutex<LeftLinks>,
    /// The relocated instructions name its maps by descriptor.
    _object: ObjectHolder,
}

/// Which of our XDP programs a port has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpVariant {
    /// For netdevs that leave VLAN tags in packets.
    Plain,
    /// For those that take them off, and can tell.
    Bound,
    /// With hints below each packet.
    Hinted,
}

/// A port's XDP program, loaded for one netdev.
#[derive(Debug)]
pub struct XdpProgram(OwnedFd);

impl AsFd for XdpProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whose ring it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOwner {
    /// One port's.
    Port(u16),
    /// That of all ports which have none of their own.
    Shared,
    /// That of packets which a worker sends to the collector itself.
    Drain,
}

/// libbpf's object is not tied to a thread, but holds raw pointers.
struct ObjectHolder {
    _object: Object,
}

// SAFETY: libbpf objects have no thread affinity; after loading, nobody calls into this one until it is dropped.
unsafe impl Send for ObjectHolder {}
// SAFETY: as above; no method takes `&ObjectHolder`.
unsafe impl Sync for ObjectHolder {}

/// The collector's program, to be bound to one netdev. The datapath must outlive it.
pub struct CollectorProgram(Relocated);

impl CollectorProgram {
    /// Attaches it to a collector's receiving end. Runs in that end's namespace.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach(&self, receive_ifindex: u32) -> Result<NetdevLink, DatapathError> {
        let program = self.load(receive_ifindex)?;
        link::attach_xdp(program.as_fd(), receive_ifindex)
    }

    pub(crate) fn load(&self, receive_ifindex: u32) -> Result<OwnedFd, DatapathError> {
        self.0.load_bound(c"collector", receive_ifindex)
    }
}

impl Datapath {
    /// Loads the programs. Runs in the namespace of the collector's receiving end; [`CollectorProgram::attach`] and
    /// [`Datapath::connect_collector`] follow.
    ///
    /// # Errors
    /// [`DatapathError`] with libbpf's reason.
    ///
    /// With `pins`, maps and links outlive the process, and those that an earlier one left there are adopted if they are
    /// what this one would make; else they are removed.
    pub fn load(options: &DatapathOptions, pins: Option<&Pins>) -> Result<Self, DatapathError> {
        let (settings, adopted) = adoption::settings(options, pins);
        let secret = Secret(settings.secret);
        let object = object::load(options, &settings, pins.filter(|_| adopted))?;
        if let Some(pins) = pins.filter(|_| !adopted) {
            adoption::pin_maps(&object, settings, pins)?;
        }
        let relocated = |name: &'static str| {
            let program = object.progs().find(|program| program.name() == name);
            program
                .map(|program| Relocated::new(&object, &program))
                .ok_or(DatapathError::Object { what: name })
        };
        Ok(Self {
            ports: object::map(&object, "ports")?,
            sockets: object::map(&object, "sockets")?,
            counters: CounterTable::map(object::map(&object, "counters")?.as_fd(), options.max_ports)?,
            accounts: Arc::new(Accounts::map(
                object::map(&object, "ring_accounts")?.as_fd(),
                object::map(&object, "pool_account")?.as_fd(),
                (options.max_ports + 1) * options.queues,
            )?),
            near_ports: Mapped::map(
                object::map(&object, "near_ports")?.as_fd(),
                settings.near_mask as usize + 1,
                "map the table of near ports",
            )?,
            generations: Arc::new(Generations::map(
                object::map(&object, "generations")?.as_fd(),
                settings.port_mask + 1,
                secret,
            )?),
            outputs: object::map(&object, "outputs")?,
            loop_maps: [object::map(&object, "loop_watch")?, object::map(&object, "loop_probes")?],
            classes: [object::map(&object, "number_classes")?, object::map(&object, "prefix_classes")?],
            flows: [
                object::map(&object, "flows")?,
                object::map(&object, "flow_counts")?,
                object::map(&object, "checked")?,
            ],
            departures: object::map(&object, "departures")?,
            departure: object::program(&object, "departure")?,
            tcx_port: object::program(&object, "tcx_port")?,
            xdp_port: object::program(&object, "xdp_port")?,
            xdp_port_bound: relocated("xdp_port_bound")?,
            xdp_port_hinted: relocated("xdp_port_hinted")?,
            hinted: object::map(&object, "hinted")?,
            settings,
            shared_maps: object::shared_maps(&object)?,
            collector: relocated("collector")?,
            collectors: object::map(&object, "collectors")?,
            collector_tx: object::map(&object, "collector_tx")?,
            queues: options.queues,
            max_ports: options.max_ports,
            pins: pins.cloned(),
            left_links: Mutex::default(),
            _object: ObjectHolder { _object: object },
        })
    }

    /// The program for a collector's receiving end.
    pub fn collector_program(&self) -> CollectorProgram {
        CollectorProgram(self.collector.clone())
    }

    /// Tells the programs where collector `number` is. Runs in the ports' namespace, where its transmit end is.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn connect_collector(&self, number: u8, ends: CollectorEnds) -> Result<(), DatapathError> {
        let key = Bank::Collector(number).number().to_ne_bytes();
        let bpf = DatapathError::bpf("enter a collector into the kernel's table");
        self.collectors
            .update(&key, &ends.to_bytes(), MapFlags::ANY)
            .and_then(|()| {
                self.collector_tx.update(&key, &ends.transmit_ifindex.to_ne_bytes(), MapFlags::ANY)
            })
            .map_err(bpf)
    }

    /// The program that sends packets on request.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn departure_program(&self) -> Result<OwnedFd, DatapathError> {
        duplicate(&self.departure)
    }

    /// What it sends: `DEPARTURES_A_WORKER` entries of `struct departure` a worker.
    pub fn departure_memory(&self) -> BorrowedFd<'_> {
        self.departures.as_fd()
    }

    /// Most ports; ids are below it.
    pub fn max_ports(&self) -> u32 {
        self.max_ports
    }

    /// Attaches the tcx program to `ifindex`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach_tcx(&self, ifindex: u32, port_id: u16) -> Result<NetdevLink, DatapathError> {
        let program = self.tcx_port.as_fd();
        self.keep((LinkKind::Tcx, ifindex), port_id, program, || link::attach_tcx(program, ifindex))
    }

    /// The link that an earlier daemon left at this netdev, or a new one; pinned under the port's name.
    fn keep(
        &self,
        (kind, ifindex): (LinkKind, u32),
        port_id: u16,
        program: BorrowedFd<'_>,
        attach: impl FnOnce() -> Result<NetdevLink, DatapathError>,
    ) -> Result<NetdevLink, DatapathError> {
        let Some(pins) = &self.pins else { return attach() };
        let name = kind.pin_name(port_id);
        match self.left_links().take(pins, (kind, ifindex), &name, program) {
            Some(link) => Ok(link),
            None => link::pinned(attach()?, pins, name),
        }
    }

    /// Looks for the links that an earlier daemon left at netdevs of the calling thread's namespace: the port and the
    /// netdev's index of each. Links elsewhere are detached. Attaching to such a netdev takes its link over, and
    /// [`Datapath::release_left_links`] ends this.
    pub fn find_left_links(&self) -> Vec<(u16, u32)> {
        let Some(pins) = &self.pins else { return Vec::new() };
        let mut left = self.left_links();
        *left = LeftLinks::find(pins);
        left.ports().collect()
    }

    /// Detaches the links that no port has taken over, and removes their pins.
    pub fn release_left_links(&self) {
        *self.left_links() = LeftLinks::default();
    }

    fn left_links(&self) -> MutexGuard<'_, LeftLinks> {
        self.left_links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory of what outlives the process.
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.as_ref()
    }

    /// A port's XDP program, for [`Datapath::attach_xdp`] and [`NetdevLink::replace`] on this netdev.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn xdp_program(&self, ifindex: u32, variant: XdpVariant) -> Result<XdpProgram, DatapathError> {
        let program = match variant {
            XdpVariant::Plain => duplicate(&self.xdp_port)?,
            XdpVariant::Bound => self.xdp_port_bound.load_bound(c"xdp_port_bound", ifindex)?,
            XdpVariant::Hinted => self.xdp_port_hinted.load_bound(c"xdp_port_hinted", ifindex)?,
        };
        Ok(XdpProgram(program))
    }

    /// A port's XDP program whose hints `object` writes, which [`forebay_hints::program::check`] has seen.
    ///
    /// # Errors
    /// What the linker, the verifier or the kernel said.
    pub fn linked_program(&self, object: &[u8], options: HintsOptions) -> Result<XdpProgram, HintsError> {
        hints::load(object, self.settings, &self.shared_maps, options).map(XdpProgram)
    }

    /// Attaches a port's XDP program to the netdev that it was loaded for.
    ///
    /// # Errors
    /// What the kernel said; `EBUSY` when another XDP program sits there.
    pub fn attach_xdp(
        &self,
        ifindex: u32,
        port_id: u16,
        program: &XdpProgram,
    ) -> Result<NetdevLink, DatapathError> {
        self.keep((LinkKind::Xdp, ifindex), port_id, program.as_fd(), || {
            link::attach_xdp(program.as_fd(), ifindex)
        })
    }

    /// Whether the collector writes hints for packets of `port_id`, which come from a tcx port.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_hinted(&self, port_id: u16, is_hinted: bool) -> Result<(), DatapathError> {
        self.hinted
            .update(&u32::from(port_id).to_ne_bytes(), &u32::from(is_hinted).to_ne_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a port into the kernel's table of hints"))
    }

    /// The layout of hints that our own programs write: the one of this number in [`OWN_LAYOUTS`](crate::OWN_LAYOUTS).
    pub fn own_layout(number: usize) -> Layout {
        let btf = Btf::of_object(object::OBJECT).expect("clang wrote it");
        Layout::named(&btf, OWN_LAYOUTS[number]).expect("it keeps the contract; a test has seen it")
    }

    /// Makes packets that come in on `ifindex` those of a port. Until then the attached programs let them pass.
    ///
    /// # Errors
    /// The map is full, which `max_ports` prevents.
    pub fn set_port(&self, ifindex: u32, config: PortConfig) -> Result<(), DatapathError> {
        self.ports
            .update(&ifindex.to_ne_bytes(), &config.to_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a port into the kernel's table"))?;
        let near = self.near(ifindex);
        if matches!(near_ifindex(near.load(Relaxed)), here if here == 0 || here == ifindex) {
            near.store(config.near(ifindex), Release);
        }
        Ok(())
    }

    fn near(&self, ifindex: u32) -> &AtomicU64 {
        self.near_ports.get(ifindex as usize & (self.near_ports.len() - 1))
    }

    /// Forgets `ifindex`; what comes in passes to the host's own stack. Nothing happens if it is not known.
    pub fn clear_port(&self, ifindex: u32) {
        let near = self.near(ifindex);
        if near_ifindex(near.load(Relaxed)) == ifindex {
            near.store(0, Release);
        }
        let _ = self.ports.delete(&ifindex.to_ne_bytes());
    }

    /// Forgets the near ports of netdevs that are no ports any more, which an earlier daemon may have left. Their places
    /// would be taken for good.
    pub fn forget_near_ports_but(&self, is_port: impl Fn(u32) -> bool) {
        for index in 0..self.near_ports.len() {
            let near = self.near_ports.get(index);
            let ifindex = near_ifindex(near.load(Relaxed));
            if ifindex != 0 && !is_port(ifindex) {
                near.store(0, Release);
            }
        }
    }

    /// Sends packets for the ring of `owner` on `queue` to `socket`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_socket(
        &self,
        bank: Bank,
        owner: RingOwner,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), DatapathError> {
        let fd = socket.as_raw_fd() as u32;
        self.sockets
            .update(&self.socket_key(bank, owner, queue), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a socket into the kernel's table"))
    }

    /// A port's packets on `queue` are from now on those of the shared ring, or without one counted as unclaimed.
    /// After [`grace_period`](crate::grace_period) none is under way.
    pub fn clear_socket(&self, bank: Bank, owner: RingOwner, queue: u32) {
        let _ = self.sockets.delete(&self.socket_key(bank, owner, queue));
    }

    /// Whether XDP programs may send frames to a port, and to which netdev. Flows that say so must be void before it is
    /// taken back.
    ///
    /// # Errors
    /// What the kernel said; a netdev whose driver cannot send frames of XDP programs is refused.
    pub fn set_output(&self, port_id: u16, ifindex: Option<u32>) -> Result<(), DatapathError> {
        let key = u32::from(port_id).to_ne_bytes();
        let done = match ifindex {
            Some(ifindex) => self.outputs.update(&key, &ifindex.to_ne_bytes(), MapFlags::ANY),
            None => match self.outputs.delete(&key) {
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
                done => done,
            },
        };
        done.map_err(DatapathError::bpf("enter a port into the kernel's table of outputs"))
    }

    /// What decisions rely upon.
    pub fn generations(&self) -> &Arc<Generations> {
        &self.generations
    }

    /// The table of flows. It has one writer: call this once.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn flow_table(&self) -> Result<FlowTable, DatapathError> {
        let secret = Secret(self.settings.secret);
        FlowTable::map(self.flows.each_ref().map(|map| map.as_fd()), self.settings.flow_shape(), secret)
    }

    /// How large the table of flows is.
    pub fn flow_shape(&self) -> FlowShape {
        self.settings.flow_shape()
    }

    /// Where loop probes with this switch's id are noted from now on. They have one reader: call this once.
    ///
    /// # Errors
    /// They cannot be mapped.
    pub fn loop_probes(&self, switch_id: u64) -> Result<LoopProbes, DatapathError> {
        let [watch, seen] = &self.loop_maps;
        LoopProbes::map(watch.as_fd(), seen.as_fd(), self.max_ports, switch_id)
    }

    /// The classes of what rules tell apart. They have one writer: call this once.
    ///
    /// # Errors
    /// They cannot be mapped.
    pub fn class_table(&self) -> Result<ClassTable, DatapathError> {
        let [numbers, prefixes] = &self.classes;
        let bpf = DatapathError::bpf("take a BPF map's handle");
        ClassTable::map(numbers, MapHandle::try_from(prefixes).map_err(bpf)?)
    }

    /// What the kernel counted for `port_id` since the datapath was loaded.
    pub fn counters(&self, port_id: u16) -> KernelCounters {
        self.counters.read(port_id)
    }

    /// What all rings hold of the pool.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The account of the ring of `owner` on `queue`, whichever socket it is.
    pub fn ring_account(&self, owner: RingOwner, queue: u32) -> RingAccount {
        let index = self.number(owner) * self.queues + queue;
        RingAccount::new(Arc::clone(&self.accounts), index as usize)
    }

    fn socket_key(&self, bank: Bank, owner: RingOwner, queue: u32) -> [u8; 4] {
        let owners = self.max_ports + OWNERS_BESIDES_PORTS;
        ((bank.number() * owners + self.number(owner)) * self.queues + queue).to_ne_bytes()
    }

    /// The shared ring stands behind the last port, and that for draining behind it.
    fn number(&self, owner: RingOwner) -> u32 {
        match owner {
            RingOwner::Port(id) => id.into(),
            RingOwner::Shared => self.max_ports,
            RingOwner::Drain => self.max_ports + 1,
        }
    }
}

/// What tests of the kernel programs look at.
#[cfg(test)]
impl Datapath {
    pub(crate) fn tcx_program(&self) -> BorrowedFd<'_> {
        self.tcx_port.as_fd()
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    pub(crate) fn shared_map(&self, name: &str) -> BorrowedFd<'_> {
        let map = self.shared_maps.iter().find(|(known, _)| object::name_of(known) == name);
        map.expect("a map of the object").1.as_fd()
    }
}

/// The interface index in a `struct near_port`.
fn near_ifindex(near: u64) -> u32 {
    let [a, b, c, d, ..] = near.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

fn duplicate(program: &OwnedFd) -> Result<OwnedFd, DatapathError> {
    let what = "duplicate a program's descriptor";
    program.try_clone().map_err(|source| DatapathError::System { what, source })
}
