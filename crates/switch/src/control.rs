//! The control side: it owns ports and kernel objects and hands workers their snapshots. One lock guards it all; no
//! worker ever takes it.

mod attach;
mod capture;
mod direct;
mod fdb;
mod flow_list;
mod flows;
mod follow;
mod handover;
mod hints;
mod housekeeper;
mod lanes;
mod loops;
mod modes;
mod netdevs;
mod occupancy;
mod page_pools;
mod plan;
mod port;
mod port_book;
mod ports;
mod resize;
mod rings;
mod rules;
mod rxq;
mod share;
mod show;
mod workers;

use std::hash::{BuildHasher as _, RandomState};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::config::{Config, PoolConfig, Settings};
use forebay_control::eswitch::{EswitchSet, Offload, SpoolMode};
use forebay_control::occupancy::PoolOccupancy;
use forebay_control::pool::PoolPolicy;
use forebay_control::stats::WorkersShow;
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::Datapath;
use forebay_kernel::netlink::PrivateNetns;
use forebay_policy::{Nanos, Refill};
use forebay_xsk::Statistics;

use crate::SwitchError;
use crate::fdb::Limits;
use crate::flows::{FlowBook, FlowKeeper, FlowLimits};
use crate::generation::Generation;
use crate::publication::Publication;
use crate::shared::Shared;

pub(crate) use fdb::list_stations;
pub(crate) use flow_list::settle_flows;
pub(crate) use handover::{Left, read_saved};
pub(crate) use housekeeper::Housekeeper;
pub(crate) use workers::{WorkerHandle, hand_out};

use follow::PutOff;
use handover::Saver;
use hints::LayoutBook;
use loops::Loops;
use port::{Port, Retired, Ring};
use port_book::PortBook;
use rules::Rules;
use rxq::{RefillSettings, Rxq};

/// The kernel's flows: what is there, and the thread that sees to it.
pub(crate) struct Flows {
    pub(crate) book: Arc<Mutex<FlowBook>>,
    /// `None` once the switch has stopped.
    pub(crate) keeper: Option<FlowKeeper>,
    /// Packets may skip the switch's end of a veth.
    pub(crate) redirects_to_peers: bool,
}

/// Packet memory, and how ports share it.
struct PoolSide {
    /// `None` once the switch has stopped.
    generation: Option<Generation>,
    mode: SpoolMode,
    policy: PoolPolicy,
    /// How receive queues are made unless a port was told otherwise.
    rxq: Rxq,
    /// What fill rings of the collector follow.
    collector_refill: RefillSettings,
    /// In mode `basic`: one ring a worker for all ports' packets.
    shared_rings: Vec<Ring>,
    /// What the kernel had dropped at such rings that are no more.
    past_shared_drops: Statistics,
    /// The last snapshot.
    occupancy: Option<PoolOccupancy>,
}

/// Layouts of hints, and who may give programs that write them.
struct HintsSide {
    layouts: LayoutBook,
    /// Clients may give programs to load.
    allows_programs: bool,
}

/// The control side, behind one lock: its owners (ports, pool, flows, rules, hints, loops), the kernel's objects and the
/// workers' threads.
pub(crate) struct Control {
    shared: Arc<Shared>,
    datapath: Datapath,
    /// Held for the collectors' far ends.
    netns: Arc<PrivateNetns>,
    workers: Vec<WorkerHandle>,
    publication: Publication,
    ports: PortBook,
    pool: PoolSide,
    flows: Flows,
    rules: Rules,
    hints: HintsSide,
    loops: Loops,
    /// Netdevs that are still to be looked at.
    put_off: PutOff,
    /// Sums of deleted ports.
    retired: Retired,
    /// Writes what the next process takes over.
    saver: Option<Saver>,
    /// What is attached stays when the process ends.
    left: bool,
    /// What workers had done when their numbers were cleared.
    workers_cleared: WorkersShow,
}

impl Control {
    pub(crate) fn new(
        config: &Config,
        shared: Arc<Shared>,
        netns: Arc<PrivateNetns>,
        generation: Generation,
        datapath: Datapath,
        workers: Vec<WorkerHandle>,
        flows: Flows,
    ) -> Result<Self, SwitchError> {
        let workers_count = workers.len();
        let publication = Publication::new(Arc::clone(&shared));
        let pool = PoolSide {
            generation: Some(generation),
            mode: SpoolMode::Spp,
            policy: config.pool.policy,
            rxq: Rxq::new(&config.pool),
            collector_refill: RefillSettings::new(&config.pool),
            shared_rings: Vec::new(),
            past_shared_drops: Statistics::default(),
            occupancy: None,
        };
        let mut control = Self {
            shared,
            netns,
            workers,
            publication,
            ports: PortBook::new(config.switch.max_ports, workers_count),
            pool,
            flows,
            rules: Rules::new(datapath.class_table()?),
            hints: HintsSide {
                layouts: LayoutBook::new(workers_count),
                allows_programs: config.api.allow_programs,
            },
            loops: Loops::new(datapath.loop_probes(RandomState::new().hash_one(0))?, &config.loops),
            put_off: PutOff::default(),
            retired: Retired::default(),
            saver: None,
            left: false,
            workers_cleared: WorkersShow::default(),
            datapath,
        };
        control.publish_layouts();
        control.apply_policy();
        control.eswitch_set(EswitchSet {
            spool_mode: Some(config.switch.spool_mode),
            offload: Some(config.flows.offload),
        })?;
        Ok(control)
    }

    /// Shows workers the ports as they are now. Flows that relied on what has changed are void when this returns.
    fn publish(&self) {
        self.publication.publish(self.ports.values().map(Port::entry));
        self.ports.shown();
        // New ports are probed for loops.
        self.shared.attention.call();
    }

    fn generation(&self) -> Result<&Generation, ApiError> {
        self.pool
            .generation
            .as_ref()
            .ok_or_else(|| ApiError::new(ErrorCode::ShuttingDown, "the switch is stopping"))
    }

    fn id_of(&self, name: &str) -> Result<PortId, ApiError> {
        self.ports.by_name.get(name).copied().ok_or_else(|| {
            ApiError::new(ErrorCode::NoSuchPort, format!("there is no port `{name}`"))
                .with_field("name")
                .with_value(name)
                .with_remedy("see `forebay port list`")
        })
    }

    fn port_of(&self, name: &str) -> Result<&Port, ApiError> {
        let id = self.id_of(name)?;
        Ok(&self.ports[&id])
    }

    fn port_mut(&mut self, id: PortId) -> &mut Port {
        self.ports.get_mut(&id).expect("names lead to ports, and nobody removed this one")
    }

    pub(crate) fn apply_settings(&mut self, settings: &Settings) -> Result<(), ApiError> {
        self.generation()?;
        let limits = Limits {
            total: settings.max_entries,
            per_port: settings.max_entries_per_port,
            ageing_s: settings.ageing_seconds,
        };
        self.shared.fdb.set_limits(limits).map_err(|error| {
            ApiError::new(ErrorCode::InvalidValue, error.to_string())
                .with_field("fdb.max_entries")
                .with_value(settings.max_entries)
                .with_remedy("a larger table needs a restart")
        })?;
        let max_entries = self.flow_book().limits().max_entries;
        self.set_flow_limits(flow_limits(settings, max_entries));
        self.set_offload(settings.offload);
        self.loops.set(settings.loop_detect, settings.loop_interval_ms);
        self.shared.attention.call();
        self.shared.flood.set(settings.flood_copies_per_second, settings.flood_burst_copies);
        self.shared.moves.set(settings.moves_per_second, settings.burst_moves);
        Ok(())
    }

    fn frame_bytes(&self) -> u32 {
        self.pool.generation.as_ref().map_or(0, |generation| generation.stock.arena.frame_size().bytes())
    }

    /// Detaches all ports, ends the workers, removes the collector. A second call does nothing.
    pub(crate) fn stop(&mut self) {
        if self.left {
            return;
        }
        let Some(generation) = self.pool.generation.take() else { return };
        let _short = ports::short_grace_periods(self.ports.len());
        self.set_offload(Offload::Off);
        self.flows.keeper = None;
        self.forget_saved();
        for port in self.ports.all_beside() {
            port.attachment = None;
        }
        self.workers.drain(..).for_each(WorkerHandle::stop);
        // With the netdev gone all sockets are unbound at once; one by one each would wait for a grace period.
        drop(generation);
        self.pool.shared_rings.clear();
        self.ports.clear();
        self.publish();
    }
}

/// The control side while a request or the housekeeper has it. What was changed is published when it is given back.
pub(crate) struct Held<'a>(MutexGuard<'a, Control>);

/// Waits for the control side. A thread that panicked while it had it has ended the process.
pub(crate) fn hold(control: &Mutex<Control>) -> Held<'_> {
    Held(control.lock().unwrap_or_else(PoisonError::into_inner))
}

impl<'a> From<MutexGuard<'a, Control>> for Held<'a> {
    fn from(guard: MutexGuard<'a, Control>) -> Self {
        Held(guard)
    }
}

impl Deref for Held<'_> {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.0
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Control {
        &mut self.0
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.ports.is_changed() {
            self.publish();
        }
    }
}

/// How flows come and go by `settings`.
pub(crate) fn flow_limits(settings: &Settings, max_entries: u64) -> FlowLimits {
    FlowLimits {
        max_entries,
        idle: Nanos::from_secs(settings.flow_idle_seconds.into()),
        installs_per_second: settings.flow_installs_per_second.into(),
    }
}

/// Rings that one worker serves at most: each port's, the shared one, and those that take their places.
pub(crate) fn slots(max_ports: u32) -> usize {
    2 * (max_ports as usize + 1)
}

/// What a collector's fill ring of `high` entries follows.
pub(crate) fn refill(config: &PoolConfig, high: u32) -> Refill {
    RefillSettings::new(config).refill(high)
}
