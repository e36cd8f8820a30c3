//! Ports come and go: many in one request, each answered for itself.

use std::sync::{Arc, Weak};

use forebay_control::port::{
    PortAddRefused, PortDelRefused, PortDelReply, PortSet, PortShow, PortSpec, PortState,
};
use forebay_control::{ApiError, PortCounters, PortId};
use forebay_kernel::netlink::Link;
use forebay_kernel::{Bank, PortConfig, ShortGracePeriods, grace_period};
use forebay_policy::{Lane, LaneChoice};
use forebay_xsk::{Statistics, XskError};

use super::attach::{self, Fitting};
use super::hints::Programs;
use super::loops::Probing;
use super::plan::Plan;
use super::port::{self, Binding, CollectorLoss, Port};
use super::rings::{self, Opened, Wanted};
use super::{Control, follow, netdevs, share};
use crate::counters::PortCells;
use crate::fdb::Flush;
use crate::worker::Feed;

/// From this many ports in one request on, grace periods are shortened for all of the machine.
const MANY: usize = 16;

impl Control {
    /// Makes rings for all plans at once, shows workers the new ports, then lets packets in, one port after the other.
    /// Whatever fails is undone.
    pub(super) fn carry_out(&mut self, plans: Vec<Plan>, refused: &mut Vec<PortAddRefused>) -> Vec<PortId> {
        let _short = short_grace_periods(plans.len());
        let (mut attaching, mut added, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        let rings = self.open_rings(&plans);
        for (plan, opened) in plans.into_iter().zip(rings) {
            let Plan { id, spec, netdev, fitting, may_wait, worker } = plan;
            let name = spec.netdev.clone();
            match (self.install(id, spec, (fitting, worker), opened), netdev) {
                (Ok(()), Ok(netdev)) => attaching.push((id, netdev, may_wait)),
                (Ok(()), Err(error)) => {
                    self.wait_for_netdev(id, &error);
                    added.push(id);
                }
                (Err(error), netdev) => {
                    failed.push((id, netdev.ok().map(|netdev| netdev.ifindex), name, error))
                }
            }
        }
        self.publish();
        for (id, netdev, may_wait) in attaching {
            let (ifindex, name) = (netdev.ifindex, netdev.name.clone());
            match self.attach(id, netdev) {
                Ok(()) => added.push(id),
                Err(error) if may_wait => {
                    self.ports.by_ifindex.remove(&ifindex);
                    self.wait_for_netdev(id, &error);
                    added.push(id);
                }
                Err(error) => failed.push((id, Some(ifindex), name, error)),
            }
        }
        self.publish();
        self.resolve_rules();
        self.remove(failed.iter().map(|(id, ..)| *id).collect());
        for (id, ifindex, netdev, error) in failed {
            self.ports.by_name.retain(|_, taken| *taken != id);
            if let Some(ifindex) = ifindex {
                self.ports.by_ifindex.remove(&ifindex);
                self.datapath.clear_port(ifindex);
            }
            refused.push(PortAddRefused { netdev, error });
        }
        added
    }

    /// The rings on the collector that each plan needs before its netdev is looked at.
    fn open_rings(&self, plans: &[Plan]) -> Vec<Result<Vec<Opened>, XskError>> {
        let wanted = plans.iter().map(|plan| {
            let kind = plan.fitting.kind;
            let has_own = self.binding_of(kind, self.pool.rxq) == Binding::Collector;
            let workers = if has_own { self.workers_of(plan.worker, kind) } else { 0..0 };
            Wanted { lane: Lane::default(), workers, depth: self.pool.rxq.depth }
        });
        self.open_on_collectors(wanted.collect())
    }

    /// Makes the port, served by its workers but without its netdev's packets so far.
    fn install(
        &mut self,
        id: PortId,
        spec: PortSpec,
        (fitting, worker): (Fitting, usize),
        opened: Result<Vec<Opened>, XskError>,
    ) -> Result<(), ApiError> {
        let opened = opened.map_err(|error| {
            self.ports.placement.leave(worker);
            rings::no_socket(&error)
        })?;
        let port = Port {
            id,
            worker,
            kind: fitting.kind,
            completes_checksums: fitting.completes_checksums,
            binding: self.binding_of(fitting.kind, self.pool.rxq),
            spec,
            attachment: None,
            state: PortState::NetdevMissing,
            reason: String::new(),
            again: follow::AGAIN,
            looks: follow::LOOKS_A_PORT,
            rings: Vec::new(),
            past_drops: Statistics::default(),
            stock: None,
            cells: Arc::new(PortCells::new(self.workers.len())),
            latency: None,
            baseline: self.datapath.counters(id.0),
            loss: CollectorLoss::default(),
            share: share::DEFAULT,
            rxq: self.pool.rxq,
            hints: Programs::default(),
            captured: Weak::new(),
            lane: LaneChoice::default(),
            probing: Probing::new(&self.loops, id),
            base: PortCounters::default(),
            takes_frames: None,
            peer: None,
        };
        self.enrol(&port);
        self.ports.insert(id, port);
        let rings = self.serve_port(id, opened)?;
        self.port_mut(id).rings = rings;
        Ok(())
    }

    /// Puts the program on `netdev` and lets its packets in. Workers must have been shown what `fitting` says.
    pub(super) fn attach(&mut self, id: PortId, netdev: Link) -> Result<(), ApiError> {
        self.shared.turns.steps.add(1);
        if self.ports[&id].binding == Binding::Direct {
            let rings = self.open_directly(id, &netdev)?;
            self.port_mut(id).rings = rings;
        }
        self.datapath
            .set_port(netdev.ifindex, self.config_of(id))
            .map_err(|error| attach::refused(&error))?;
        let link = attach::attach(&self.datapath, &netdev, &self.ports[&id])
            .inspect_err(|_| self.datapath.clear_port(netdev.ifindex))?;
        self.ports.by_ifindex.insert(netdev.ifindex, id);
        let port = self.port_mut(id);
        netdevs::take(port, link, netdev);
        self.look_at_output(id);
        self.look_at_peer(id);
        Ok(())
    }

    /// What the kernel programs are to know of a port.
    pub(super) fn config_of(&self, id: PortId) -> PortConfig {
        let port = &self.ports[&id];
        let queue = self.workers_of(port.worker, port.kind).start as u16;
        let bank = match port.binding {
            Binding::Shared => None,
            Binding::Collector | Binding::Direct => port.rings.first().map(|ring| ring.bank),
        };
        let leaves_checksums = port.completes_checksums;
        PortConfig { leaves_checksums, port_id: id.0, queue, bank: bank.unwrap_or_else(|| self.calm_bank()) }
    }

    fn calm_bank(&self) -> Bank {
        Bank::Collector(
            self.pool.generation.as_ref().map_or(0, |generation| generation.intake(Lane::Calm).number),
        )
    }

    pub(crate) fn port_del(&mut self, names: &[String]) -> Result<PortDelReply, ApiError> {
        self.generation()?;
        let mut reply = PortDelReply::default();
        let mut ids = Vec::new();
        for name in names {
            match self.id_of(name) {
                Ok(id) if ids.contains(&id) => {}
                Ok(id) => {
                    ids.push(id);
                    reply.deleted.push(name.clone());
                }
                Err(error) => reply.refused.push(PortDelRefused { name: name.clone(), error }),
            }
        }
        self.remove(ids);
        Ok(reply)
    }

    /// Removes ports so that every frame they hold comes back: no more packets in, wait until none is under way,
    /// empty their rings, close their sockets.
    fn remove(&mut self, ids: Vec<PortId>) {
        let _short = short_grace_periods(ids.len());
        let mut leaving = Vec::new();
        for id in ids {
            let Some(mut port) = self.ports.remove(&id) else { continue };
            self.ports.placement.leave(port.worker);
            self.take_off(&mut port);
            self.ports.by_name.remove(port.spec.port_name());
            leaving.push(port);
        }
        if leaving.is_empty() {
            return;
        }
        self.publish();
        self.resolve_rules();
        self.leave_rings(&mut leaving);
        self.leave_flows(&leaving);
        self.dismiss(leaving.iter().map(|port| port.id));
        for mut port in leaving {
            self.shared.fdb.flush(Flush { port: Some(port.id.0), vid: None, with_static: true });
            self.leave_layouts_of(&port);
            self.retired += self.settle(&mut port);
            self.flow_book().retire(port.id);
        }
    }

    /// Flows of ports that no program knows any more, since a grace period.
    fn leave_flows(&self, ports: &[Port]) {
        let ids: Vec<PortId> = ports.iter().map(|port| port.id).collect();
        self.flow_book().leave(&ids, self.now());
        for id in ids {
            if let Err(error) = self.datapath.set_output(id.0, None) {
                tracing::warn!(%error, "a port that was deleted is still in the kernel's table of outputs");
            }
        }
    }

    /// Takes all rings of ports that get no more packets.
    fn leave_rings(&mut self, ports: &mut [Port]) {
        let rings = ports
            .iter_mut()
            .flat_map(|port| port.rings.drain(..).map(|ring| (Feed::Port(port.id), ring)))
            .collect::<Vec<_>>();
        if rings.is_empty() {
            grace_period();
        }
        for (feed, drops) in self.retire(rings) {
            if let Some(port) = ports.iter_mut().find(|port| feed == Feed::Port(port.id)) {
                port.past_drops = port::add(port.past_drops, drops);
            }
        }
    }

    /// Takes the program off the port's netdev, if it has one.
    fn take_off(&mut self, port: &mut Port) {
        self.shared.turns.steps.add(1);
        port.takes_frames = None;
        port.peer = None;
        port.hints.unload();
        if let Some(attachment) = port.attachment.take() {
            self.datapath.clear_port(attachment.ifindex);
            self.ports.by_ifindex.remove(&attachment.ifindex);
        }
    }

    /// The port's netdev is gone, and with it the rings that were bound to it.
    pub(super) fn detach(&mut self, port: &mut Port) {
        self.take_off(port);
        if port.binding == Binding::Direct {
            self.leave_rings(std::slice::from_mut(port));
            port.stock = None;
        }
    }

    pub(crate) fn port_set(&mut self, name: &str, change: PortSet) -> Result<PortShow, ApiError> {
        self.generation()?;
        let id = self.id_of(name)?;
        let port = self.ports.get_mut(&id).expect("names lead to ports");
        if let Some(vlan) = change.vlan {
            port.spec.vlan = vlan;
            self.shared.fdb.flush(Flush { port: Some(id.0), vid: None, with_static: false });
        }
        if let Some(isolated) = change.isolated {
            port.spec.isolated = isolated;
        }
        self.publish();
        self.port_show(name)
    }
}

/// For `ports` at once, where waiting for each would take long.
pub(super) fn short_grace_periods(ports: usize) -> Option<ShortGracePeriods> {
    (ports >= MANY).then(ShortGracePeriods::begin)
}
