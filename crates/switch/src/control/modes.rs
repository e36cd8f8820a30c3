//! Spool modes: where ports' packets wait, changed under traffic.
//!
//! New rings are there before the old ones go, and what lies in old rings is served. So a port is never without one,
//! and a change costs no packet, except where a driver loses some itself when an XDP program comes or goes, and what a
//! veth holds back in its queue for longer than a grace period.

use std::time::Instant;

use forebay_control::eswitch::{EswitchSet, EswitchSetReply, PortNotMoved, SpoolMode};
use forebay_control::port::{AttachKind, PortState};
use forebay_control::{ApiError, PortId};
use forebay_kernel::{Bank, grace_period};
use forebay_policy::Lane;

use super::attach::{self, Fitting};
use super::port::{self, Binding, Ring};
use super::rings::{Service, Wanted, no_socket};
use super::rxq::Rxq;
use super::{Control, hints, ports, share};
use crate::worker::Feed;

/// Packets that can be on their way to it (VETH_RING_SIZE, drivers/net/veth.c, Linux 6.12). Ports' programs leave room
/// for them, so that it is they who lose packets, each its own.
const UNDER_WAY: u32 = 256;

impl Control {
    pub(crate) fn eswitch_set(&mut self, change: EswitchSet) -> Result<EswitchSetReply, ApiError> {
        self.generation()?;
        let (began, lost) = (Instant::now(), self.lost());
        if let Some(offload) = change.offload {
            self.set_offload(offload);
        }
        let not_moved = match change.spool_mode {
            Some(mode) if mode != self.pool.mode => self.change_mode(mode)?,
            _ => Vec::new(),
        };
        Ok(EswitchSetReply {
            elapsed_us: began.elapsed().as_micros() as u64,
            lost_packets: self.lost().saturating_sub(lost),
            not_moved,
            eswitch: self.eswitch(),
        })
    }

    /// Packets that the kernel could not deliver to any ring, so far.
    fn lost(&self) -> u64 {
        let ports = self.ports.values().map(|port| {
            let kernel = self.datapath.counters(port.id.0).since(&port.baseline);
            let sockets = port.socket_drops();
            kernel.unclaimed_packets + sockets.rx_dropped + sockets.rx_ring_full
        });
        let shared = self.shared_drops();
        ports.sum::<u64>() + shared.rx_dropped + shared.rx_ring_full
    }

    fn change_mode(&mut self, mode: SpoolMode) -> Result<Vec<PortNotMoved>, ApiError> {
        let _short = ports::short_grace_periods(self.ports.len());
        if mode == SpoolMode::Basic {
            self.pool.shared_rings = self.open_shared_rings()?;
        }
        self.pool.mode = mode;
        let ids: Vec<PortId> = self.ports.keys().copied().collect();
        let (mut leaving, mut not_moved) = (Vec::new(), Vec::new());
        for id in ids {
            if let Err(error) = self.fit_to_mode(id, &mut leaving) {
                let name = self.ports[&id].spec.port_name().to_owned();
                not_moved.push(PortNotMoved { name, error });
            }
        }
        self.publish();
        if mode != SpoolMode::Basic {
            self.leave_shared_rings(Vec::new(), &mut leaving);
        }
        self.retire_replaced(leaving);
        self.apply_policy();
        tracing::info!(%mode, not_moved = not_moved.len(), "the spool mode has changed");
        Ok(not_moved)
    }

    /// Rings of its own for each worker, for any port's packets.
    pub(super) fn open_shared_rings(&mut self) -> Result<Vec<Ring>, ApiError> {
        // As deep as the fill ring: each has half of the frames at most.
        let depth = self.generation()?.intake(Lane::Calm).fill_entries;
        let opened = self
            .open_on_collectors(vec![Wanted { lane: Lane::Calm, workers: 0..self.workers.len(), depth }])
            .pop();
        let opened = opened.unwrap_or_else(|| Ok(Vec::new())).map_err(|error| no_socket(&error))?;
        let bank = Bank::Collector(self.generation()?.intake(Lane::Calm).number);
        let rule = share::shared_ring_rule(depth, UNDER_WAY);
        let mut rings = Vec::new();
        for opened in opened {
            rings.push(self.serve(
                opened,
                Service { bank, feed: Feed::Shared, depth, rule, own: None, is_marked: true },
            )?);
        }
        Ok(rings)
    }

    /// Puts `rings` in the place of the shared rings, which are added to `leaving`.
    pub(super) fn leave_shared_rings(&mut self, rings: Vec<Ring>, leaving: &mut Vec<(Feed, Ring)>) {
        let old = std::mem::replace(&mut self.pool.shared_rings, rings);
        leaving.extend(old.into_iter().map(|ring| (Feed::Shared, ring)));
    }

    /// Where a port's packets wait in the mode that the switch is in.
    pub(super) fn binding_of(&self, kind: AttachKind, rxq: Rxq) -> Binding {
        match self.pool.mode {
            SpoolMode::Basic => Binding::Shared,
            SpoolMode::None if kind == AttachKind::Xdp => Binding::Direct,
            SpoolMode::Spp if kind == AttachKind::Xdp && rxq.direct => Binding::Direct,
            SpoolMode::None | SpoolMode::Spp => Binding::Collector,
        }
    }

    /// Gives a port the program and the rings that it should have. Old rings are added to `leaving`.
    pub(super) fn fit_to_mode(
        &mut self,
        id: PortId,
        leaving: &mut Vec<(Feed, Ring)>,
    ) -> Result<(), ApiError> {
        let port = &self.ports[&id];
        let Some(attachment) = &port.attachment else {
            // It gets its program when its netdev is back; its rings can be had now.
            let fitting = Fitting::of(port);
            return self.rebind(id, fitting, Binding::Collector, leaving);
        };
        let fitting = attach::fit_again(&port.spec, &attachment.netdev, self.pool.mode)?;
        let binding = self.binding_of(fitting.kind, port.rxq);
        let moved = self.rebind(id, fitting, binding, leaving);
        if moved.is_err() && binding == Binding::Direct {
            // As the next best, not as a port without rings.
            let fallback = self.rebind(id, fitting, Binding::Collector, leaving);
            if let Err(error) = fallback {
                let port = self.port_mut(id);
                (port.state, port.reason) = (PortState::AttachFailed, error.to_string());
            }
        }
        moved
    }

    /// Gives a port rings at `binding`, under the program that `fitting` says.
    pub(super) fn rebind(
        &mut self,
        id: PortId,
        fitting: Fitting,
        binding: Binding,
        leaving: &mut Vec<(Feed, Ring)>,
    ) -> Result<(), ApiError> {
        self.shared.turns.steps.add(1);
        let old_kind = self.ports[&id].kind;
        let rings = self.new_rings(id, fitting, binding)?;
        let port = self.port_mut(id);
        let old = std::mem::replace(&mut port.rings, rings);
        for (ring, before) in port.rings.iter().flat_map(|ring| old.iter().map(move |before| (ring, before)))
        {
            if ring.worker == before.worker {
                ring.gauge.look(before.gauge.max());
            }
        }
        leaving.extend(old.into_iter().map(|ring| (Feed::Port(id), ring)));
        (port.binding, port.kind) = (binding, fitting.kind);
        if binding != Binding::Direct {
            port.stock = None;
        }
        // Both programs are there for a moment.
        port.completes_checksums |= fitting.completes_checksums;
        self.publish();
        if let Err(error) = self.attach_again(id, fitting.kind != old_kind) {
            // The program is still the old one.
            self.port_mut(id).kind = old_kind;
            hints::tell_collector(&self.datapath, &self.ports[&id])?;
            return Err(error);
        }
        let port = self.port_mut(id);
        port.completes_checksums = fitting.completes_checksums;
        Ok(())
    }

    fn new_rings(&mut self, id: PortId, fitting: Fitting, binding: Binding) -> Result<Vec<Ring>, ApiError> {
        match binding {
            Binding::Shared => Ok(Vec::new()),
            Binding::Collector => {
                let port = &self.ports[&id];
                let (lane, depth) = (port.lane.lane(), port.rxq.depth);
                let wanted = Wanted { lane, workers: self.workers_of(port.worker, fitting.kind), depth };
                let opened = self.open_on_collectors(vec![wanted]).pop().unwrap_or_else(|| Ok(Vec::new()));
                self.serve_port(id, opened.map_err(|error| no_socket(&error))?)
            }
            Binding::Direct => {
                let netdev = self.ports[&id].attachment.as_ref().map(|attachment| attachment.netdev.clone());
                self.open_directly(id, &netdev.expect("only a netdev that is there is bound to"))
            }
        }
    }

    /// Shows the kernel programs where the port's rings are now; the new program comes before the old one goes.
    fn attach_again(&mut self, id: PortId, other_program: bool) -> Result<(), ApiError> {
        let Some(attachment) = &self.ports[&id].attachment else { return Ok(()) };
        let (ifindex, netdev) = (attachment.ifindex, attachment.netdev.clone());
        let port = &self.ports[&id];
        let link = other_program.then(|| attach::attach(&self.datapath, &netdev, port)).transpose()?;
        self.datapath.set_port(ifindex, self.config_of(id)).map_err(|error| attach::refused(&error))?;
        let port = self.port_mut(id);
        if let (Some(link), Some(attachment)) = (link, &mut port.attachment) {
            attachment.link = link;
        }
        Ok(())
    }

    /// Takes back rings in whose place others are, maybe on another collector: what programs sent before they saw the new
    /// ones arrives first, but for what a veth keeps in its queue longer than a grace period lasts.
    pub(super) fn retire_replaced(&mut self, leaving: Vec<(Feed, Ring)>) {
        if !leaving.is_empty() {
            grace_period();
        }
        for (feed, drops) in self.retire(leaving) {
            match feed {
                Feed::Port(id) => {
                    if let Some(port) = self.ports.get_mut(&id) {
                        port.past_drops = port::add(port.past_drops, drops);
                    }
                }
                Feed::Shared => self.pool.past_shared_drops = port::add(self.pool.past_shared_drops, drops),
            }
        }
    }
}
