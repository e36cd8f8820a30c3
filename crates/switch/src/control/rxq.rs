//! Receive queues: how deep, and how full their fill rings are kept.

use forebay_control::config::PoolConfig;
use forebay_control::eswitch::SpoolMode;
use forebay_control::rxq::{
    RefillKind, RxqBinding, RxqCollector, RxqCollectorSet, RxqLane, RxqPort, RxqSet, RxqShow, check_depth,
    check_low,
};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_policy::{Lane, Refill, RefillRule};

use super::attach::Fitting;
use super::port::{Binding, Port};
use super::{Change, Control};
use crate::generation::SupplyGauge;
use crate::worker::Command;

/// How a fill ring is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefillSettings {
    pub(super) rule: RefillRule,
    pub(super) low: u32,
}

impl RefillSettings {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self { rule: rule(config.refill), low: config.refill_low }
    }

    /// For a ring of `high` entries.
    pub(super) fn refill(self, high: u32) -> Refill {
        Refill::new(self.rule, self.low.min(high), high)
    }
}

fn rule(kind: RefillKind) -> RefillRule {
    match kind {
        RefillKind::Static => RefillRule::Static,
        RefillKind::Adaptive => RefillRule::Adaptive,
    }
}

/// One port's receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rxq {
    /// Entries of an RX ring; of its own fill ring too, where it is bound directly.
    pub(super) depth: u32,
    pub(super) refill: RefillSettings,
    /// Bound to the port's own netdev, though the spool mode does not ask for it.
    pub(super) direct: bool,
}

impl Rxq {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self { depth: config.rx_ring_depth, refill: RefillSettings::new(config), direct: false }
    }

    /// The request that leads from `default` to this.
    pub(super) fn asked(self, default: Self) -> RxqSet {
        let refill = self.refill;
        RxqSet {
            depth: (self.depth != default.depth).then_some(self.depth),
            refill: (refill.rule != default.refill.rule).then(|| kind(refill.rule)),
            low: (refill.low != default.refill.low).then_some(refill.low),
            binding: (self.direct != default.direct).then_some(RxqBinding::Direct),
        }
    }
}

impl Change<'_> {
    /// Changes a port's receive queues: new rings come before the old ones go.
    pub(crate) fn rxq_set(&mut self, name: &str, change: RxqSet) -> Result<RxqPort, ApiError> {
        self.generation()?;
        let id = self.id_of(name)?;
        let before = self.ports[&id].rxq;
        let wanted = self.wanted(before, change)?;
        self.port_mut(id).rxq = wanted;
        let moved = self.move_rings(id, before);
        if moved.is_err() {
            self.port_mut(id).rxq = before;
        }
        moved?;
        Ok(self.rxq_port(&self.ports[&id]))
    }

    /// What a port's receive queues are to be, if that is possible in this mode.
    fn wanted(&self, now: Rxq, change: RxqSet) -> Result<Rxq, ApiError> {
        let mut wanted = now;
        if let Some(depth) = change.depth {
            check_depth(depth)?;
            wanted.depth = depth;
        }
        if let Some(kind) = change.refill {
            wanted.refill.rule = rule(kind);
        }
        if let Some(low) = change.low {
            check_low(low, wanted.depth)?;
            wanted.refill.low = low;
        }
        if let Some(binding) = change.binding {
            wanted.direct = self.is_direct(binding)?;
        }
        Ok(wanted)
    }

    fn is_direct(&self, binding: RxqBinding) -> Result<bool, ApiError> {
        let refuse = |remedy: &str| {
            let message = format!("a port cannot be bound so in spool mode {}", self.pool.mode());
            let error = ApiError::new(ErrorCode::NotSupported, message);
            Err(error.with_field("binding").with_value(binding).with_remedy(remedy))
        };
        match (self.pool.mode(), binding) {
            (SpoolMode::Spp, RxqBinding::Collector) => Ok(false),
            (SpoolMode::Spp, RxqBinding::Direct) => Ok(true),
            (_, RxqBinding::Shared) => {
                refuse("that is spool mode basic: forebay eswitch set spool-mode basic")
            }
            (SpoolMode::None | SpoolMode::Basic, _) => refuse(
                "the mode says where ports are bound; forebay eswitch set spool-mode spp lets ports choose",
            ),
        }
    }

    fn move_rings(&mut self, id: PortId, before: Rxq) -> Result<(), ApiError> {
        // Two sockets cannot be bound to one queue of a netdev, so the way from there to there leads over the collector.
        if self.ports[&id].binding == Binding::Direct && self.ports[&id].rxq != before {
            let fitting = Fitting::of(&self.ports[&id]);
            self.rebind(id, fitting, Binding::Collector)?;
            self.retire_replaced();
        }
        let moved = self.fit_to_mode(id);
        self.publish();
        self.retire_replaced();
        self.apply_policy();
        moved
    }
}

impl Control {
    pub(crate) fn rxq_show(&self) -> RxqShow {
        RxqShow {
            collectors: self.rxq_collectors(),
            ports: self.ports.values().map(|port| self.rxq_port(port)).collect(),
        }
    }

    pub(crate) fn rxq_set_collector(
        &mut self,
        change: RxqCollectorSet,
    ) -> Result<Vec<RxqCollector>, ApiError> {
        let high = self.generation()?.intake(Lane::Calm).fill_entries;
        let mut settings = self.pool.collector_refill();
        if let Some(low) = change.low {
            check_low(low, high)?;
            settings.low = low;
        }
        if let Some(kind) = change.refill {
            settings.rule = rule(kind);
        }
        self.pool.set_collector_refill(settings);
        for worker in &self.workers {
            for intake in self.generation()?.intakes() {
                let refill = settings.refill(intake.fill_entries);
                worker.send(Command::SetRefill(intake.number, refill));
            }
        }
        Ok(self.rxq_collectors())
    }

    fn rxq_collectors(&self) -> Vec<RxqCollector> {
        let intakes =
            self.pool.current().into_iter().flat_map(|generation| Lane::ALL.iter().zip(generation.intakes()));
        let shown = intakes.map(|(of, intake)| RxqCollector {
            lane: lane(*of),
            depth: intake.fill_entries,
            refill: kind(self.pool.collector_refill().rule),
            low: self.pool.collector_refill().low.min(intake.fill_entries),
            posted: intake.gauges.iter().map(SupplyGauge::posted).sum(),
        });
        shown.collect()
    }

    fn rxq_port(&self, port: &Port) -> RxqPort {
        let own = port.rings.iter().filter_map(|ring| ring.supply.as_ref());
        RxqPort {
            name: port.spec.port_name().to_owned(),
            binding: match port.binding {
                Binding::Collector => RxqBinding::Collector,
                Binding::Shared => RxqBinding::Shared,
                Binding::Direct => RxqBinding::Direct,
            },
            lane: lane(port.lane.lane()),
            queues: port.rings.len() as u32,
            depth: port.rxq.depth,
            refill: kind(port.rxq.refill.rule),
            low: port.rxq.refill.low,
            posted: own.map(SupplyGauge::posted).sum(),
            used: port.seen(),
        }
    }
}

fn lane(lane: Lane) -> RxqLane {
    match lane {
        Lane::Calm => RxqLane::Calm,
        Lane::Busy => RxqLane::Busy,
    }
}

fn kind(rule: RefillRule) -> RefillKind {
    match rule {
        RefillRule::Static => RefillKind::Static,
        RefillRule::Adaptive => RefillKind::Adaptive,
    }
}
