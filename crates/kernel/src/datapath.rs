//! The loaded kernel side of the switch: its maps, and what attaches a port to it.

mod attach;
mod collector;
mod holder;
mod ports;
mod rings;
mod steering;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use forebay_control::memory::FlowShape;
use forebay_hints::{Btf, Layout};
use libbpf_rs::MapHandle;

use crate::accounts::Accounts;
use crate::adoption;
use crate::classes::ClassTable;
use crate::counters::CounterTable;
use crate::flows::FlowTable;
use crate::generations::Generations;
use crate::hash::Secret;
use crate::layout::{OWN_LAYOUTS, Settings};
use crate::left::LeftLinks;
use crate::link::Relocated;
use crate::mapped::Mapped;
use crate::memberships::Memberships;
use crate::object::{self, DatapathOptions};
use crate::pins::Pins;
use crate::probes::LoopProbes;
use crate::{DatapathError, KernelCounters};

pub use attach::{XdpProgram, XdpVariant};
pub use collector::CollectorProgram;
pub use rings::{QueueAccounts, RingOwner};

use holder::ObjectHolder;

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
    flows: [MapHandle; 2],
    classes: [MapHandle; 2],
    steered_stations: MapHandle,
    rss: MapHandle,
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
    long_queues: MapHandle,
    collector_tx: MapHandle,
    queues: u32,
    max_ports: u32,
    pins: Option<Pins>,
    left_links: Mutex<LeftLinks>,
    memberships: Memberships,
    /// The relocated instructions name its maps by descriptor.
    _object: ObjectHolder,
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
            flows: [object::map(&object, "flows")?, object::map(&object, "flow_counts")?],
            steered_stations: object::map(&object, "steered_stations")?,
            rss: object::map(&object, "rss")?,
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
            long_queues: object::map(&object, "long_queues")?,
            collector_tx: object::map(&object, "collector_tx")?,
            queues: options.queues,
            max_ports: options.max_ports,
            pins: pins.cloned(),
            left_links: Mutex::default(),
            memberships: Memberships::default(),
            _object: ObjectHolder::new(object),
        })
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

    /// The directory of what outlives the process.
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.as_ref()
    }

    /// The layout of hints that our own programs write: the one of this number in [`OWN_LAYOUTS`](crate::OWN_LAYOUTS).
    pub fn own_layout(number: usize) -> Layout {
        let btf = Btf::of_object(object::OBJECT).expect("clang wrote it");
        Layout::named(&btf, OWN_LAYOUTS[number]).expect("it keeps the contract; a test has seen it")
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

    /// The program at tcx, for trials.
    pub fn tcx_program(&self) -> BorrowedFd<'_> {
        self.tcx_port.as_fd()
    }

    /// What the kernel counted for `port_id` since the datapath was loaded.
    pub fn counters(&self, port_id: u16) -> KernelCounters {
        self.counters.read(port_id)
    }

    /// What all rings hold of the pool.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }
}

/// What tests of the kernel programs look at.
#[cfg(test)]
impl Datapath {
    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    pub(crate) fn shared_map(&self, name: &str) -> BorrowedFd<'_> {
        let map = self.shared_maps.iter().find(|(known, _)| object::name_of(known) == name);
        map.expect("a map of the object").1.as_fd()
    }
}

fn duplicate(program: &OwnedFd) -> Result<OwnedFd, DatapathError> {
    let what = "duplicate a program's descriptor";
    program.try_clone().map_err(|source| DatapathError::System { what, source })
}
