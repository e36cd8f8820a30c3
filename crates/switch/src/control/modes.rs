//! Spool modes: where ports' packets wait, changed under traffic.
//!
//! New rings are there before the old ones go, and what lies in old rings is served. So a port is never without one,
//! and a change costs no packet, except where a driver loses some itself when an XDP program comes or goes, and what a
//! veth holds back in its queue for longer than a grace period.

use std::time::Instant;

use forebay_control::eswitch::{EswitchSet, EswitchSetReply, PortNotMoved, SpoolMode};
use forebay_control::port::PortState;
use forebay_control::{ApiError, PortId};
use forebay_kernel::Bank;
use forebay_policy::Lane;

use super::attach::{self, Attaching, Fitting};
use super::port::Binding;
use super::ring::Ring;
use super::rings::{Service, Wanted, no_socket};
use super::{Change, Control, hints, share};
use crate::worker::Feed;

/// Packets that can be on their way to it (VETH_RING_SIZE, drivers/net/veth.c, Linux 6.12). Ports' programs leave room
/// for them, so that it is they who lose packets, each its own.
const UNDER_WAY: u32 = 256;

impl Change<'_> {
    pub(crate) fn eswitch_set(&mut self, change: EswitchSet) -> Result<EswitchSetReply, ApiError> {
        self.instance()?;
        let (began, lost) = (Instant::now(), self.lost());
        if let Some(offload) = change.offload {
            self.set_offload(offload);
        }
        let not_moved = match change.spool_mode {
            Some(mode) if mode != self.pool.mode() => self.change_mode(mode)?,
            _ => Vec::new(),
        };
        Ok(EswitchSetReply {
            elapsed_us: began.elapsed().as_micros() as u64,
            lost_packets: self.lost().saturating_sub(lost),
            not_moved,
            eswitch: self.eswitch(),
        })
    }

    fn change_mode(&mut self, mode: SpoolMode) -> Result<Vec<PortNotMoved>, ApiError> {
        if mode == SpoolMode::Basic {
            let rings = self.open_shared_rings()?;
            self.pool.shared_rings_mut().replace(rings);
        }
        self.pool.set_mode(mode);
        let ids: Vec<PortId> = self.ports.keys().copied().collect();
        let mut not_moved = Vec::new();
        for id in ids {
            if let Err(error) = self.fit_to_mode(id) {
                let name = self.ports[&id].spec.port_name().to_owned();
                not_moved.push(PortNotMoved { name, error });
            }
        }
        self.publish();
        if mode != SpoolMode::Basic {
            self.pool.shared_rings_mut().replace(Vec::new());
        }
        self.retire_replaced();
        self.apply_policy();
        tracing::info!(%mode, not_moved = not_moved.len(), "the spool mode has changed");
        Ok(not_moved)
    }

    /// Rings of its own for each worker, for any port's packets.
    pub(super) fn open_shared_rings(&mut self) -> Result<Vec<Ring>, ApiError> {
        // As deep as the fill ring: each has half of the frames at most.
        let depth = self.instance()?.intake(Lane::Calm).fill_entries;
        let workers = 0..self.workers.len();
        let opened = self.open_on_collectors(vec![Wanted { lane: Lane::Calm, workers, depth }]).pop();
        let opened = opened.unwrap_or_else(|| Ok(Vec::new())).map_err(|error| no_socket(&error))?;
        let bank = Bank::Collector(self.instance()?.intake(Lane::Calm).number);
        let rule = share::shared_ring_rule(depth, UNDER_WAY);
        let mut rings = Vec::new();
        for opened in opened {
            rings.push(self.serve(
                opened,
                Service { bank, feed: Feed::Shared, depth, rule, own: None, has_origin: true },
            )?);
        }
        Ok(rings)
    }

    /// Gives a port the program and the rings that it should have. Its old rings leave.
    pub(super) fn fit_to_mode(&mut self, id: PortId) -> Result<(), ApiError> {
        let port = &self.ports[&id];
        let Some(attachment) = &port.attachment else {
            // It gets its program when its netdev is back; its rings can be had now.
            let fitting = Fitting::of(port);
            return self.rebind(id, fitting, Binding::Collector);
        };
        let (spec, netdev, mode) = (port.spec.clone(), attachment.netdev.clone(), self.pool.mode());
        let fitting = self.without_lock(|| attach::fit_again(&spec, &netdev, mode))?;
        let binding = self.pool.binding_of(fitting.kind, self.ports[&id].rxq);
        let moved = self.rebind(id, fitting, binding);
        if moved.is_err() && binding == Binding::Direct {
            // As the next best, not as a port without rings.
            let fallback = self.rebind(id, fitting, Binding::Collector);
            if let Err(error) = fallback {
                let port = self.port_mut(id);
                (port.state, port.reason) = (PortState::AttachFailed, error.to_string());
            }
        }
        moved
    }

    /// Gives a port rings at `binding`, under the program that `fitting` says. Its old rings leave.
    pub(super) fn rebind(&mut self, id: PortId, fitting: Fitting, binding: Binding) -> Result<(), ApiError> {
        let old_kind = self.ports[&id].kind;
        let rings = self.new_rings(id, fitting, binding)?;
        let port = self.port_mut(id);
        for ring in &rings {
            let before = port.rings.serving().iter().filter(|before| before.worker == ring.worker);
            before.for_each(|before| ring.gauge.look(before.gauge.max()));
        }
        port.rings.replace(rings);
        (port.binding, port.kind) = (binding, fitting.kind);
        if binding != Binding::Direct {
            port.leaving_stock = port.stock.take().or(port.leaving_stock.take());
        }
        // Both programs are there for a moment.
        port.completes_checksums |= fitting.completes_checksums;
        self.publish();
        if let Err(error) = self.attach_again(id, fitting.kind != old_kind) {
            // The program is still the old one.
            self.port_mut(id).kind = old_kind;
            let port = &self.ports[&id];
            hints::tell_collector(&self.datapath, id, port.kind, port.hints.hints())?;
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
                let wanted =
                    Wanted { lane, workers: self.workers_of(port.worker, fitting.kind, &port.spec), depth };
                let opened = self.open_on_collectors(vec![wanted]).pop().unwrap_or_else(|| Ok(Vec::new()));
                self.serve_port(id, opened.map_err(|error| no_socket(&error))?)
            }
            Binding::Direct => {
                let netdev = self.ports[&id].attachment.as_ref().map(|attachment| attachment.netdev.clone());
                self.open_directly(id, &netdev.expect("only a netdev that is there is bound to"))
            }
        }
    }

    /// Shows the kernel programs where the port's rings are now, and attaches or detaches the one at the XDP hook.
    fn attach_again(&mut self, id: PortId, other_programs: bool) -> Result<(), ApiError> {
        let Some(attachment) = &self.ports[&id].attachment else { return Ok(()) };
        let netdev = attachment.netdev.clone();
        let port = &self.ports[&id];
        let attaching = other_programs.then(|| Attaching::new(self, port, netdev));
        let link = self.without_lock(|| attaching.map(|attaching| attaching.xdp()).transpose())?;
        self.configure(id)?;
        let port = self.port_mut(id);
        let old = match (link, &mut port.attachment) {
            (Some(link), Some(attachment)) => std::mem::replace(&mut attachment.links.xdp, link),
            (link, _) => link.flatten(),
        };
        self.without_lock(|| drop(old));
        Ok(())
    }
}

impl Control {
    /// Packets that the kernel could not deliver to any ring, so far.
    fn lost(&self) -> u64 {
        let ports = self.ports.values().map(|port| {
            let kernel = self.datapath.counters(port.id.0).since(&port.baseline);
            let sockets = port.rings.drops();
            kernel.unclaimed_packets + sockets.rx_dropped + sockets.rx_ring_full
        });
        let shared = self.pool.shared_drops();
        ports.sum::<u64>() + shared.rx_dropped + shared.rx_ring_full
    }
}
