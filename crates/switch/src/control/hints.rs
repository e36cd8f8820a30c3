//! Hints of ports: which program writes them, replaced under traffic.

mod program;

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use forebay_control::hints::{HintsLayout, HintsPort, HintsProgram, HintsSet, HintsShow, HintsState};
use forebay_control::port::AttachKind;
use forebay_control::stats::{LatencyShow, PortLatency};
use forebay_control::{ApiError, ErrorCode, IfIndex, PortId};
use forebay_hints::{Layout, LayoutId};
use forebay_kernel::netlink::NetlinkError;
use forebay_kernel::netlink::netdev_genl::{self, RxMetadata};
use forebay_kernel::{Datapath, OWN_LAYOUTS, XdpProgram, XdpVariant};
use forebay_policy::Buckets;

pub(super) use program::{Hints, Program, Programs};

use super::kernel_error::refused;
use super::port::Port;
use super::{Change, Control};
use crate::counters::LatencyCells;
use crate::layouts::{KnownLayout, Layouts};

/// Layouts that no program writes any more and that packets in flight may still have; a packet that is overtaken by so
/// many changes goes without hints.
const PAST_LAYOUTS: usize = 256;

/// All layouts, those of our own programs first.
#[derive(Debug)]
struct LayoutBook {
    layouts: Layouts,
    shown: Vec<(LayoutId, Layout)>,
    past: VecDeque<LayoutId>,
    workers: usize,
}

impl LayoutBook {
    fn new(workers: usize) -> Self {
        let mut book =
            Self { layouts: Layouts::default(), shown: Vec::new(), past: VecDeque::new(), workers };
        for number in 0..OWN_LAYOUTS.len() {
            let id = book.add(Datapath::own_layout(number), true);
            debug_assert_eq!(id.map(|id| id.0.get()), Some(number as u32 + 1), "the programs' own constants");
        }
        book
    }

    fn add(&mut self, layout: Layout, is_ours: bool) -> Option<LayoutId> {
        let id = self.layouts.add(KnownLayout::new(&layout, is_ours, self.workers))?;
        self.shown.push((id, layout));
        Some(id)
    }

    /// No program writes it any more.
    fn leave(&mut self, id: LayoutId) {
        self.past.push_back(id);
        if self.past.len() > PAST_LAYOUTS {
            let oldest = self.past.pop_front().expect("there are many");
            self.retire(oldest);
        }
    }

    /// No packet is in it.
    fn retire(&mut self, id: LayoutId) {
        self.layouts.retire(id);
        self.shown.retain(|(shown, _)| *shown != id);
    }

    fn show(&self) -> Vec<HintsLayout> {
        let mut shown = Vec::new();
        for (id, layout) in &self.shown {
            let forebay_hints::Found::Known(known) = self.layouts.find(id.0.get()) else { continue };
            let (text, bytes) = (layout.to_string(), layout.bytes());
            shown.push(HintsLayout { id: id.0.get(), text, bytes, packets: known.packets() });
        }
        shown
    }
}

/// What drivers of netdevs know of packets.
pub(crate) struct Drivers(HashMap<IfIndex, RxMetadata>);

impl Drivers {
    /// Asks the kernel, so the control lock must be free.
    pub(crate) fn of(ifindexes: &[IfIndex]) -> Self {
        Self(ifindexes.iter().filter_map(|ifindex| Some((*ifindex, driver_hints(*ifindex).ok()?))).collect())
    }
}

/// Layouts of hints, and who may give programs that write them.
pub(super) struct HintsSide {
    layouts: LayoutBook,
    /// Clients may give programs to load.
    allows_programs: bool,
}

impl HintsSide {
    /// Only the layouts of the built-in programs, counted for each of `workers`.
    pub(super) fn new(workers: usize, allows_programs: bool) -> Self {
        Self { layouts: LayoutBook::new(workers), allows_programs }
    }

    /// Checks an object for `port` against the contract, and gives its layout an id; or finds the one that the port had
    /// before.
    fn accept(&mut self, port: &Port, program: HintsProgram) -> Result<Arc<Program>, ApiError> {
        let HintsProgram { name, object } = program;
        if !self.allows_programs {
            return Err(forbidden(name));
        }
        if port.kind != AttachKind::Xdp {
            return Err(ApiError::new(ErrorCode::NotSupported, "a tcx port has no XDP program")
                .with_field("program")
                .with_value(name)
                .with_remedy(
                    "add the port with --attach xdp, or use the built-in program: forebay hints set PORT on",
                ));
        }
        if port.attachment.is_none() {
            let error =
                ApiError::new(ErrorCode::NetdevDown, "the port has no netdev that could have a program");
            return Err(error.with_field("program").with_value(name).with_remedy("see `forebay port show`"));
        }
        if let Some(known) = port.hints.find(&name, &object.0) {
            return Ok(known);
        }
        let layout =
            forebay_hints::program::check(&object.0, forebay_kernel::PORT_PROGRAM).map_err(|error| {
                ApiError::new(ErrorCode::InvalidValue, error.to_string())
                    .with_field("program")
                    .with_value(&name)
            })?;
        let id = self.layouts.add(layout, false).ok_or_else(|| {
            ApiError::new(ErrorCode::Internal, "all ids of layouts are used up")
                .with_remedy("restart the daemon")
        })?;
        Ok(Program::new(name, object.0, id))
    }

    /// Layouts of programs that write no more are to be forgotten.
    fn leave(&mut self, left: impl IntoIterator<Item = Arc<Program>>) {
        left.into_iter().for_each(|program| self.layouts.leave(program.id));
    }
}

fn forbidden(name: String) -> ApiError {
    let message = "this daemon refuses programs from clients, because they can read kernel memory";
    let remedy = "set allow_programs = true in [api] of the configuration file, or start the daemon with \
                  --allow-programs; the built-in program is always allowed: forebay hints set PORT on";
    let error = ApiError::new(ErrorCode::Forbidden, message).with_field("program").with_value(name);
    error.with_limit("api.allow_programs = false").with_remedy(remedy)
}

impl Control {
    pub(crate) fn hints_show(&self, port: Option<&str>, drivers: &Drivers) -> Result<HintsShow, ApiError> {
        let wanted = port.map(|name| self.id_of(name)).transpose()?;
        let ports = self.ports.values().filter(|port| wanted.is_none_or(|id| id == port.id));
        let ports: Vec<HintsPort> = ports.map(|port| hints_of(port, drivers)).collect();
        let is_shown = |layout: &HintsLayout| {
            wanted.is_none() || ports.iter().any(|port| port.layout == Some(layout.id))
        };
        let layouts = self.hints.layouts.show().into_iter().filter(is_shown).collect();
        let cells = || (0..self.workers.len()).map(|worker| self.shared.worker_cell(worker));
        let stale_packets = cells().map(|cell| cell.stale_layouts.get()).sum();
        let unknown_packets = cells().map(|cell| cell.unknown_layouts.get()).sum();
        Ok(HintsShow { ports, layouts, stale_packets, unknown_packets })
    }

    /// How long packets with hints had been under way when it was decided where they go.
    pub(crate) fn latency(&self) -> LatencyShow {
        let ports = self.ports.values().filter_map(|port| {
            let cells = port.latency.as_deref()?;
            let counts = cells.counts();
            let quantile = |part| Buckets::quantile(&counts, part).unwrap_or_default();
            let filled = counts.iter().enumerate().filter(|(_, packets)| **packets > 0);
            Some(PortLatency {
                name: port.spec.port_name().to_owned(),
                packets: counts.iter().sum(),
                p50_ns: quantile(0.5),
                p90_ns: quantile(0.9),
                p99_ns: quantile(0.99),
                max_ns: quantile(1.0),
                from_the_future: cells.ahead_of_us(),
                buckets: filled.map(|(bucket, packets)| (Buckets::longest(bucket), *packets)).collect(),
            })
        });
        LatencyShow { ports: ports.collect() }
    }

    /// Layouts that nobody writes any more are to be forgotten.
    fn leave_layouts(&mut self, left: impl IntoIterator<Item = Arc<Program>>) {
        self.hints.leave(left);
        self.publish_layouts();
    }

    fn accept(&mut self, id: PortId, program: HintsProgram) -> Result<Arc<Program>, ApiError> {
        let Self { ports, hints, .. } = self;
        hints.accept(&ports[&id], program)
    }

    /// The port is gone, and what its programs wrote is to be forgotten.
    pub(super) fn leave_layouts_of(&mut self, port: &Port) {
        self.leave_layouts(port.hints.all().cloned().collect::<Vec<_>>());
    }

    pub(super) fn publish_layouts(&self) {
        self.shared.layouts.store(Arc::new(self.hints.layouts.layouts.clone()));
    }
}

impl Change<'_> {
    /// Workers learn of a new layout before the first packet comes in it, and forget an old one long after the last.
    pub(crate) fn hints_set(&mut self, name: &str, change: HintsSet) -> Result<HintsShow, ApiError> {
        self.instance()?;
        let id = self.id_of(name)?;
        let wanted = match (change.enabled, change.program) {
            (Some(true), None) => Hints::On,
            (Some(false), None) => Hints::Off,
            (None, Some(program)) => Hints::Program(self.accept(id, program)?),
            _ => {
                let error = ApiError::new(ErrorCode::InvalidValue, "give either `enabled` or `program`");
                return Err(error.with_field("enabled"));
            }
        };
        if !matches!(wanted, Hints::Off) {
            let workers = self.workers.len();
            self.port_mut(id).latency.get_or_insert_with(|| Arc::new(LatencyCells::new(workers)));
        }
        self.publish_layouts();
        self.publish();
        let before = self.port_mut(id).hints.set(wanted);
        let changed = self.change_program(id);
        match changed {
            Ok(()) => {
                let left = self.port_mut(id).hints.keep(&before);
                self.leave_layouts(left);
                self.look_up_flows_if_useful();
                self.publish();
            }
            Err(error) => {
                let port = self.port_mut(id);
                let refused = port.hints.set(before);
                if let Hints::Program(program) = refused
                    && !port.hints.knows(&program)
                {
                    self.hints.layouts.retire(program.id);
                    self.publish_layouts();
                }
                return Err(error);
            }
        }
        let ifindex = self.ports[&id].attachment.as_ref().map(|attachment| attachment.ifindex);
        let drivers = self.without_lock(|| Drivers::of(ifindex.as_slice()));
        self.hints_show(Some(name), &drivers)
    }

    /// Gives the port's netdev the program that its hints want, if it is there.
    fn change_program(&mut self, id: PortId) -> Result<(), ApiError> {
        let port = &self.ports[&id];
        let hints = port.hints.hints().clone();
        tell_collector(&self.datapath, id, port.kind, &hints)?;
        let Some(attachment) = port.attachment.as_ref().filter(|found| found.links.xdp.is_some()) else {
            return Ok(());
        };
        let (datapath, ifindex) = (Arc::clone(&self.datapath), attachment.ifindex);
        let program = self
            .without_lock(|| xdp_program(&datapath, ifindex, &hints))
            .map_err(|error| error.with_remedy("the old program was left attached"))?;
        let attachment = self.ports[&id].attachment.as_ref();
        let Some(link) = attachment.and_then(|found| found.links.xdp.as_ref()) else { return Ok(()) };
        link.link.replace(program.as_fd()).map_err(|error| refused(&error))
    }
}

/// Whether the collector writes hints for the port: for one that has no XDP program.
pub(super) fn tell_collector(
    datapath: &Datapath,
    id: PortId,
    kind: AttachKind,
    hints: &Hints,
) -> Result<(), ApiError> {
    let is_hinted = kind == AttachKind::Tcx && matches!(hints, Hints::On);
    datapath.set_hinted(id.0, is_hinted).map_err(|error| refused(&error))
}

/// The XDP program for a port with such hints on this netdev.
pub(super) fn xdp_program(
    datapath: &Datapath,
    ifindex: IfIndex,
    hints: &Hints,
) -> Result<Arc<XdpProgram>, ApiError> {
    if let Hints::Program(program) = hints {
        return program.load(datapath, ifindex);
    }
    // Not knowing is no reason to take a program that leaves tags out of packets.
    let driver = driver_hints(ifindex)
        .map_err(|error| ApiError::new(ErrorCode::KernelRefused, error.to_string()).with_field("netdev"))?;
    let variant = if matches!(hints, Hints::On) && driver != RxMetadata::default() {
        XdpVariant::Hinted
    } else if driver.vlan_tag {
        XdpVariant::Bound
    } else {
        XdpVariant::Plain
    };
    datapath.xdp_program(ifindex, variant).map(Arc::new).map_err(|error| refused(&error))
}

fn driver_hints(ifindex: IfIndex) -> Result<RxMetadata, NetlinkError> {
    netdev_genl::xdp_features(ifindex).map(|features| features.rx_metadata)
}

/// Whether the netdev's driver leaves room for something below packets: those do that tell hints.
pub(super) fn leaves_room_below(ifindex: IfIndex) -> bool {
    driver_hints(ifindex).is_ok_and(|driver| driver != RxMetadata::default())
}

fn hints_of(port: &Port, drivers: &Drivers) -> HintsPort {
    let ifindex = port.attachment.as_ref().map(|attachment| attachment.ifindex);
    let driver = ifindex.and_then(|ifindex| drivers.0.get(&ifindex).copied()).unwrap_or_default();
    let tells_nothing = ifindex.is_some() && driver == RxMetadata::default();
    let is_blind = port.guest.is_some() || (port.kind == AttachKind::Xdp && tells_nothing);
    let (state, program, layout) = match port.hints.hints() {
        Hints::Off => (HintsState::Off, String::new(), None),
        Hints::On if is_blind => (HintsState::Unsupported, String::new(), None),
        Hints::On => (HintsState::On, "built-in".to_owned(), Some(own_layout(port.kind))),
        Hints::Program(program) if port.kind == AttachKind::Tcx => {
            (HintsState::Unsupported, program.name.clone(), None)
        }
        Hints::Program(program) => (HintsState::On, program.name.clone(), Some(program.id.0.get())),
    };
    let known =
        [(driver.hash, "rx_hash"), (driver.timestamp, "rx_timestamp"), (driver.vlan_tag, "rx_vlan_tci")];
    let driver = known.into_iter().filter(|(has, _)| *has).map(|(_, name)| name.to_owned()).collect();
    HintsPort { name: port.spec.port_name().to_owned(), state, program, layout, driver }
}

/// The id of the layout that our own program for such a port writes.
fn own_layout(kind: AttachKind) -> u32 {
    match kind {
        AttachKind::Xdp => 1,
        AttachKind::Tcx | AttachKind::VhostUser => 2,
    }
}
