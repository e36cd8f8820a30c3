//! Receive queues: how deep, and how full their fill rings are kept.

use forebay_control::eswitch::SpoolMode;
use forebay_control::port::AttachKind;
use forebay_control::rxq::{
    RxqBinding, RxqCollector, RxqCollectorSet, RxqLane, RxqPort, RxqSet, RxqShow, check_depth, check_low,
};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_policy::Lane;

use super::attach::Fitting;
use super::port::{Binding, Port};
use super::port_rxq::{Rxq, kind, rule};
use super::{Change, Control};
use crate::pool_instance::SupplyGauge;
use crate::worker::Command;

impl Change<'_> {
    /// Changes a port's receive queues: new rings come before the old ones go.
    pub(crate) fn rxq_set(&mut self, name: &str, change: RxqSet) -> Result<RxqPort, ApiError> {
        self.instance()?;
        let id = self.id_with_rings(name)?;
        let before = self.ports[&id].rxq;
        let wanted = self.wanted(before, change)?;
        if change.binding == Some(RxqBinding::Direct) {
            self.refuse_direct_at_tcx(id)?;
        }
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

    /// A tcx program has no XDP frames for a socket on the port's own queues.
    fn refuse_direct_at_tcx(&self, id: PortId) -> Result<(), ApiError> {
        let port = &self.ports[&id];
        if port.attachment.is_none() || port.kind != AttachKind::Tcx {
            return Ok(());
        }
        let name = port.spec.port_name();
        let message = format!("`{name}` is attached by tcx, and only XDP ports can be bound directly");
        Err(ApiError::new(ErrorCode::NotSupported, message)
            .with_field("binding")
            .with_value(RxqBinding::Direct)
            .with_limit("collector")
            .with_remedy("delete the port and add it with --attach xdp"))
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
        let high = self.instance()?.intake(Lane::Calm).fill_entries;
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
            for intake in self.instance()?.intakes() {
                let refill = settings.refill(intake.fill_entries);
                worker.send(Command::SetRefill(intake.number, refill));
            }
        }
        Ok(self.rxq_collectors())
    }

    fn rxq_collectors(&self) -> Vec<RxqCollector> {
        let intakes =
            self.pool.current().into_iter().flat_map(|instance| Lane::ALL.iter().zip(instance.intakes()));
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
        let own = port.rings.serving().iter().filter_map(|ring| ring.supply.as_ref());
        RxqPort {
            name: port.spec.port_name().to_owned(),
            binding: match port.binding {
                Binding::Collector => RxqBinding::Collector,
                Binding::Shared => RxqBinding::Shared,
                Binding::Direct => RxqBinding::Direct,
            },
            lane: lane(port.lane.lane()),
            queues: port.rings.serving().len() as u32,
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
