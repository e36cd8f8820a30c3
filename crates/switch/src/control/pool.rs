//! The pool as the control side holds it: which memory there is, how ports share it, and what goes by modes.
//!
//! Its state is its own: other parts ask and tell it by these methods. A change of the pool's size has two pool
//! instances at once; what the old one holds is counted until it is gone.

use std::sync::Arc;

use forebay_control::config::PoolConfig;
use forebay_control::eswitch::SpoolMode;
use forebay_control::occupancy::PoolOccupancy;
use forebay_control::pool::PoolPolicy;
use forebay_control::port::AttachKind;
use forebay_control::{ApiError, ErrorCode};
use forebay_kernel::{Accounts, Bank};
use forebay_policy::Lane;
use forebay_xsk::{Queue, Statistics};

use super::port::{Binding, Port};
use super::port_rxq::{RefillSettings, Rxq};
use super::ring::{Ring, Rings};
use super::share;
use crate::pool_instance::{PoolInstance, Stock, SupplyGauge};

/// Packet memory, and how ports share it.
pub(super) struct PoolSide {
    /// `None` once the switch has stopped.
    instance: Option<PoolInstance>,
    /// The one before, while its last frames come back.
    leaving: Option<PoolInstance>,
    mode: SpoolMode,
    policy: PoolPolicy,
    /// How receive queues are made unless a port was told otherwise.
    rxq: Rxq,
    /// What fill rings of the collector follow.
    collector_refill: RefillSettings,
    /// In mode `basic`: one ring a worker for all ports' packets.
    shared_rings: Rings,
    /// The last snapshot.
    occupancy: Option<PoolOccupancy>,
}

impl PoolSide {
    /// A pool in mode `spp`.
    pub(super) fn new(config: &PoolConfig, instance: PoolInstance) -> Self {
        Self {
            instance: Some(instance),
            leaving: None,
            mode: SpoolMode::Spp,
            policy: config.policy,
            rxq: Rxq::new(config),
            collector_refill: RefillSettings::new(config),
            shared_rings: Rings::default(),
            occupancy: None,
        }
    }

    /// The current pool instance.
    ///
    /// # Errors
    /// The switch is stopping.
    pub(super) fn instance(&self) -> Result<&PoolInstance, ApiError> {
        let stopping = || ApiError::new(ErrorCode::ShuttingDown, "the switch is stopping");
        self.instance.as_ref().ok_or_else(stopping)
    }

    /// The current pool instance, or nothing once the switch has stopped.
    pub(super) fn current(&self) -> Option<&PoolInstance> {
        self.instance.as_ref()
    }

    /// The current pool instance, and the one that leaves.
    pub(super) fn instances(&self) -> impl Iterator<Item = &PoolInstance> {
        self.instance.iter().chain(&self.leaving)
    }

    /// Begins a change of its size: from now on `next` is its instance, and the one before leaves.
    pub(super) fn replace(&mut self, next: PoolInstance) {
        self.leaving = self.instance.replace(next);
    }

    /// Numbers of the collectors that leave.
    pub(super) fn leaving_collectors(&self) -> impl Iterator<Item = u8> {
        self.leaving.iter().flat_map(PoolInstance::intakes).map(|intake| intake.number)
    }

    /// Takes the instance out that leaves.
    pub(super) fn take_leaving(&mut self) -> Option<PoolInstance> {
        self.leaving.take()
    }

    /// Takes everything out that is to be dropped at the end.
    pub(super) fn close(&mut self) -> (Vec<PoolInstance>, Vec<Ring>) {
        let instances = self.instance.take().into_iter().chain(self.leaving.take());
        self.shared_rings.replace(Vec::new());
        (instances.collect(), self.shared_rings.take_leaving())
    }

    pub(super) fn mode(&self) -> SpoolMode {
        self.mode
    }

    pub(super) fn set_mode(&mut self, mode: SpoolMode) {
        self.mode = mode;
    }

    /// Where packets of a port wait in this mode.
    pub(super) fn binding_of(&self, kind: AttachKind, rxq: Rxq) -> Binding {
        match self.mode {
            SpoolMode::Basic => Binding::Shared,
            SpoolMode::None if kind == AttachKind::Xdp => Binding::Direct,
            SpoolMode::Spp if kind == AttachKind::Xdp && rxq.direct => Binding::Direct,
            SpoolMode::None | SpoolMode::Spp => Binding::Collector,
        }
    }

    pub(super) fn policy(&self) -> PoolPolicy {
        self.policy
    }

    pub(super) fn set_policy(&mut self, policy: PoolPolicy) {
        self.policy = policy;
    }

    /// How receive queues are made unless a port was told otherwise.
    pub(super) fn rxq(&self) -> Rxq {
        self.rxq
    }

    /// What fill rings of the collector follow.
    pub(super) fn collector_refill(&self) -> RefillSettings {
        self.collector_refill
    }

    pub(super) fn set_collector_refill(&mut self, settings: RefillSettings) {
        self.collector_refill = settings;
    }

    /// Bytes of a frame; 0 once the switch has stopped.
    pub(super) fn frame_bytes(&self) -> u32 {
        self.instance.as_ref().map_or(0, |instance| instance.stock.arena.frame_size().bytes())
    }

    /// Where the kernel's table has rings of the calm lane.
    pub(super) fn calm_bank(&self) -> Bank {
        Bank::Collector(self.instance.as_ref().map_or(0, |instance| instance.intake(Lane::Calm).number))
    }

    /// Queues of the collectors, by lane.
    pub(super) fn queues(&self) -> Option<[Vec<Arc<Queue>>; Lane::COUNT]> {
        let instance = self.instance.as_ref()?;
        Some(Lane::ALL.map(|lane| instance.intake(lane).collector.queues.clone()))
    }

    /// Rings that ports share.
    pub(super) fn shared_rings(&self) -> &Rings {
        &self.shared_rings
    }

    pub(super) fn shared_rings_mut(&mut self) -> &mut Rings {
        &mut self.shared_rings
    }

    /// What the kernel dropped at rings that ports share: no port's, because the kernel does not say whose.
    pub(super) fn shared_drops(&self) -> Statistics {
        self.shared_rings.drops()
    }

    /// Packets of workers to themselves that found their ring full, by collectors that stand.
    pub(super) fn drain_ring_full(&self) -> u64 {
        let intakes = self.instances().flat_map(PoolInstance::intakes);
        let queues = intakes.flat_map(|intake| &intake.collector.queues);
        queues.map(|queue| queue.statistics().map_or(0, |drops| drops.rx_ring_full)).sum()
    }

    /// Frames that the accounts of shared rings hold, and those that workers saw there.
    pub(super) fn shared_frames(&self) -> [u64; 2] {
        let seen = self.shared_rings.all().map(|ring| ring.gauge.used.get()).sum();
        [self.shared_rings.used(), seen]
    }

    /// All of the pool's memory.
    pub(super) fn stocks(&self) -> impl Iterator<Item = &Stock> {
        self.instances().map(|instance| &instance.stock)
    }

    /// Supplies of all collectors.
    pub(super) fn gauges(&self) -> impl Iterator<Item = &SupplyGauge> {
        self.instances().flat_map(PoolInstance::gauges)
    }

    /// Tells the kernel programs how large the pool is without what rings of `ports` keep, what part of it thresholds leave
    /// alone, and each port's part.
    pub(super) fn apply<'a>(&self, ports: impl Iterator<Item = &'a Port> + Clone, accounts: &Accounts) {
        let size = self.instance.as_ref().map_or(0, PoolInstance::shared_frames);
        let size = size.saturating_sub(share::frames_for_direct_rings(ports.clone()));
        accounts.set_pool_size(size.into());
        let (headroom, first_burst) = share::headroom(self.policy, size);
        accounts.set_headroom(headroom.into(), first_burst.into());
        ports.for_each(share::apply);
    }

    /// The last snapshot of what ports hold.
    pub(super) fn occupancy(&self) -> Option<&PoolOccupancy> {
        self.occupancy.as_ref()
    }

    pub(super) fn set_occupancy(&mut self, snapshot: PoolOccupancy) {
        self.occupancy = Some(snapshot);
    }
}
