//! The control side: it owns ports and kernel objects and hands workers their snapshots.
//!
//! One lock guards its state, and it is held for one step only; no worker ever takes it. What takes long is a [`Change`]:
//! one at a time, in steps, with the lock free between them ([`changes`](crate::changes)). So methods of [`Control`] never
//! wait for the kernel's grace periods, for workers, for files or for other threads; methods of [`Change`] may.

mod announce;
mod attach;
mod capture;
pub(crate) mod channels;
mod coalesce;
mod counted;
mod direct;
mod fdb;
mod flow_list;
mod flows;
mod follow;
mod group;
mod guest_thread;
mod guests;
mod handover;
mod hints;
mod host_settings;
mod housekeeper;
mod kernel_error;
mod lanes;
mod links;
mod loops;
mod moderator;
mod modes;
pub(crate) mod netdev_coalesce;
mod netdev_side;
mod netdev_taker;
mod netdevs;
mod occupancy;
mod page_pools;
mod plan;
mod pool;
mod port;
mod port_book;
mod port_calls;
mod port_carrying;
mod port_coalesce;
mod port_group;
mod port_guest;
mod port_loss;
mod port_probing;
mod port_rss;
mod port_rxq;
mod port_share;
mod ports;
pub(crate) mod queues;
mod received;
mod reception;
mod resize;
mod ring;
mod rings;
mod rss;
mod rules;
mod rxq;
mod share;
mod show;
mod stated_coalesce;
mod tunable;
mod tuning;
mod workers;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread;

use forebay_control::coalesce::CoalesceConfig;
use forebay_control::config::{Config, PoolConfig, Settings};
use forebay_control::eswitch::Offload;
use forebay_control::stats::WorkersShow;
use forebay_control::vhost_user::MAX_QUEUE_PAIRS;
use forebay_control::{ApiError, ErrorCode, IfIndex, PortId};
use forebay_kernel::Datapath;
use forebay_kernel::netlink::PrivateNetns;
use forebay_policy::{Nanos, Refill};

use crate::SwitchError;
use crate::changes::{self, Shown};
use crate::fdb::Limits;
use crate::flows::FlowLimits;
use crate::guests::Reception;
use crate::pool_instance::PoolInstance;
use crate::publication::Publication;
use crate::shared::Shared;
use crate::supervise;

pub(crate) use fdb::list_stations;
pub(crate) use flow_list::settle_flows;
pub(crate) use flows::Flows;
pub(crate) use guest_thread::Guests;
pub(crate) use handover::{Left, read_saved};
pub(crate) use hints::Drivers;
pub(crate) use housekeeper::Housekeeper;
pub(crate) use moderator::Moderator;
pub(crate) use plan::log_missing;
pub(crate) use ports::short_grace_periods;
pub(crate) use workers::{WorkerHandle, hand_out};

use counted::Retired;
use follow::PutOff;
use handover::Saver;
use hints::HintsSide;
use host_settings::HostSettings;
use loops::Loops;
use moderator::ModeratorOrders;
use pool::PoolSide;
use port::Port;
use port_book::PortBook;
use port_rxq::RefillSettings;
use rules::Rules;

/// A change of the control side under way.
pub(crate) type Change<'a> = changes::Change<'a, Control>;

/// The control side, locked for one step.
pub(crate) type Held<'a> = changes::Held<'a, Control>;

/// The control side, and the queue of its changes.
pub(crate) type Changes = changes::Changes<Control>;

/// The state of the control side: its owners (ports, pool, flows, rules, hints, loops), the kernel's objects and the
/// workers' threads.
pub(crate) struct Control {
    shared: Arc<Shared>,
    datapath: Arc<Datapath>,
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
    /// Ports with a capture. A port whose capture has ended stays here for up to a second.
    captured: Vec<PortId>,
    /// Netdevs that are still to be looked at.
    put_off: PutOff,
    /// Sums of deleted ports.
    retired: Retired,
    /// How virtual machines' sockets are served.
    reception: Reception,
    moderator: ModeratorOrders,
    /// The number of the last port that was made for a virtual machine.
    guest_serial: u64,
    /// Free frames that workers keep for packets they hand over; empty while they hand over none.
    exchange_levels: Vec<Arc<AtomicU32>>,
    /// Writes what the next process takes over.
    saver: Option<Saver>,
    /// What moderates new ports that state nothing themselves.
    coalesce_defaults: CoalesceConfig,
    /// Notes what is changed outside of the switch.
    settings: Arc<HostSettings>,
    /// What is attached stays when the process ends.
    left: bool,
    /// What workers had done when their numbers were cleared.
    workers_cleared: WorkersShow,
}

/// What a control side is made of.
pub(crate) struct Parts {
    pub(crate) netns: Arc<PrivateNetns>,
    pub(crate) instance: PoolInstance,
    pub(crate) datapath: Arc<Datapath>,
    pub(crate) workers: Vec<WorkerHandle>,
    pub(crate) flows: Flows,
    pub(crate) reception: Reception,
    pub(crate) moderator: ModeratorOrders,
}

impl Control {
    pub(crate) fn new(config: &Config, shared: Arc<Shared>, parts: Parts) -> Result<Self, SwitchError> {
        let Parts { netns, instance, datapath, workers, flows, reception, moderator } = parts;
        let workers_count = workers.len();
        let publication = Publication::new(Arc::clone(&shared));
        let pool = PoolSide::new(&config.pool, instance);
        let control = Self {
            shared,
            netns,
            workers,
            publication,
            ports: PortBook::new(config.switch.max_ports, workers_count),
            pool,
            flows,
            rules: Rules::new(datapath.class_table()?),
            hints: HintsSide::new(workers_count, config.api.allow_programs),
            loops: Loops::new(datapath.loop_probes(RandomState::new().hash_one(0))?, &config.loops),
            captured: Vec::new(),
            put_off: PutOff::default(),
            retired: Retired::default(),
            reception,
            moderator,
            guest_serial: 0,
            exchange_levels: Vec::new(),
            saver: None,
            coalesce_defaults: config.coalesce.clone(),
            settings: HostSettings::open(format!("{}.tuned", config.switch.socket).into()),
            left: false,
            workers_cleared: WorkersShow::default(),
            datapath,
        };
        control.publish_layouts();
        control.apply_policy();
        Ok(control)
    }

    /// Shows workers the ports as they are now. Flows that relied on what has changed are void when this returns.
    fn publish(&self) {
        let joins = self.shared.join_segments;
        let entries = self.ports.values().map(|port| port.entry(joins));
        self.publication.publish(entries, || self.flow_book().last_flow_id());
        self.ports.shown();
        // New ports are probed for loops.
        self.shared.attention.call();
    }

    fn instance(&self) -> Result<&PoolInstance, ApiError> {
        self.pool.instance()
    }

    /// Indexes of all ports' netdevs.
    pub(crate) fn ifindexes(&self) -> Vec<IfIndex> {
        self.ports.ifindexes().collect()
    }

    /// Number of ports.
    pub(crate) fn port_count(&self) -> usize {
        self.ports.len()
    }

    /// # Errors
    /// The switch is stopping.
    pub(crate) fn refuse_if_stopping(&self) -> Result<(), ApiError> {
        self.instance().map(|_| ())
    }

    fn id_of(&self, name: &str) -> Result<PortId, ApiError> {
        self.ports.named(name).ok_or_else(|| {
            ApiError::new(ErrorCode::NoSuchPort, format!("there is no port `{name}`"))
                .with_field("name")
                .with_value(name)
                .with_remedy("see `forebay port list`")
        })
    }

    /// The port, if its packets come through rings of the switch's own.
    fn id_with_rings(&self, name: &str) -> Result<PortId, ApiError> {
        let id = self.id_of(name)?;
        if self.ports[&id].guest.is_none() {
            return Ok(id);
        }
        let message =
            format!("what `{name}` sends waits in its virtual machine's own memory: it has no ring here");
        Err(ApiError::new(ErrorCode::InvalidValue, message)
            .with_field("name")
            .with_value(name)
            .with_limit("ports on netdevs")
            .with_remedy("a virtual machine's rings are as deep as its front end makes them"))
    }

    fn port_of(&self, name: &str) -> Result<&Port, ApiError> {
        let id = self.id_of(name)?;
        Ok(&self.ports[&id])
    }

    fn port_mut(&mut self, id: PortId) -> &mut Port {
        self.ports.get_mut(&id).expect("names lead to ports, and nobody removed this one")
    }

    fn frame_bytes(&self) -> u32 {
        self.pool.frame_bytes()
    }
}

impl Shown for Control {
    fn show(&mut self) {
        if self.ports.is_changed() || self.publication.is_changed() {
            self.publish();
        }
    }

    fn broken() {
        supervise::end(thread::current().name().unwrap_or("without a name"), "a change is half done");
    }
}

impl Change<'_> {
    pub(crate) fn apply_settings(&mut self, settings: &Settings) -> Result<(), ApiError> {
        self.instance()?;
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

    /// Detaches all ports, ends the workers, removes the collector. A second call does nothing.
    pub(crate) fn stop(&mut self) {
        if self.left || self.pool.current().is_none() {
            return;
        }
        self.set_offload(Offload::Off);
        let keeper = self.flows.take_keeper();
        self.without_lock(|| drop(keeper));
        self.forget_saved();
        let (instances, rings) = self.pool.close();
        let workers = std::mem::take(&mut self.workers);
        let mut ports = self.ports.clear();
        self.publish();
        self.without_lock(|| {
            ports.iter_mut().for_each(|port| (port.attachment, port.followers) = (None, Vec::new()));
            workers.into_iter().for_each(WorkerHandle::stop);
            // With the netdev gone all sockets are unbound at once; one by one each would wait for a grace period.
            drop(instances);
            drop((rings, ports));
        });
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

/// Queues of virtual machines that one worker serves at most.
pub(crate) fn most_queues(max_ports: u32) -> usize {
    2 * usize::from(MAX_QUEUE_PAIRS) * max_ports as usize
}

/// Sources that one worker serves at most: each port's, the shared one, those that take their places, and the long queue.
pub(crate) fn slots(max_ports: u32) -> usize {
    2 * (max_ports as usize + 1) + 1
}

/// What a collector's fill ring of `high` entries follows.
pub(crate) fn refill(config: &PoolConfig, high: u32) -> Refill {
    RefillSettings::new(config).refill(high)
}
