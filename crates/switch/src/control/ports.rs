//! Ports come and go: many in one request, each answered for itself.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use forebay_control::port::{PortAddRefused, PortDelRefused, PortDelReply, PortSet, PortShow, PortState};
use forebay_control::{ApiError, PortCounters, PortId};
use forebay_kernel::netlink::Link;
use forebay_kernel::{PortConfig, RingOwner, ShortGracePeriods};
use forebay_policy::{Lane, LaneChoice};
use forebay_xsk::XskError;

use super::attach::{Attached, Attaching};
use super::flow_list::lock_book;
use super::hints::Programs;
use super::kernel_error::refused;
use super::plan::Plan;
use super::port::{Attachment, Binding, Port};
use super::port_carrying::Carrying;
use super::port_coalesce::{NetdevSettings, Sides};
use super::port_group::PortGroup;
use super::port_loss::CollectorLoss;
use super::port_probing::Probing;
use super::ring::Rings;
use super::rings::{self, Opened, Wanted};
use super::{Change, Control, follow, netdevs, port_share};
use crate::counters::PortCells;
use crate::fdb::Flush;
use crate::worker::{EXCHANGE_FRAMES, UnderwayAccount};

/// From this many ports in one request on, grace periods are shortened for all of the machine.
const MANY: usize = 16;

impl Change<'_> {
    /// Makes rings for all plans at once, shows workers the new ports, then lets packets in. Whatever fails is undone.
    pub(super) fn carry_out(&mut self, plans: Vec<Plan>, refused: &mut Vec<PortAddRefused>) -> Vec<PortId> {
        let (mut attaching, mut added, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        let mut may_wait = HashSet::new();
        let rings = self.open_rings(&plans);
        for (plan, opened) in plans.into_iter().zip(rings) {
            let id = plan.id;
            may_wait.extend(plan.may_wait.then_some(id));
            match self.install(plan, opened) {
                Ok(Ok(netdev)) => attaching.push((id, netdev)),
                Ok(Err(_)) if self.ports[&id].guest.is_some() => {
                    self.await_guest(id);
                    added.push(id);
                }
                Ok(Err(error)) => {
                    self.wait_for_netdev(id, &error);
                    added.push(id);
                }
                Err(refusal) => failed.push((id, refusal)),
            }
        }
        self.publish();
        for (id, netdev, attached) in self.attach_many(attaching) {
            match attached {
                Ok(()) => added.push(id),
                Err(error) => {
                    self.ports.loses_netdev(netdev.ifindex);
                    if may_wait.contains(&id) {
                        self.wait_for_netdev(id, &error);
                        added.push(id);
                    } else {
                        failed.push((id, PortAddRefused { netdev: netdev.name, error }));
                    }
                }
            }
        }
        self.publish();
        self.resolve_rules();
        let (ids, refusals): (Vec<PortId>, Vec<PortAddRefused>) = failed.into_iter().unzip();
        self.remove(&ids);
        refused.extend(refusals);
        added
    }

    /// The rings on the collector that each plan needs before its netdev is looked at.
    fn open_rings(&mut self, plans: &[Plan]) -> Vec<Result<Vec<Opened>, XskError>> {
        let wanted = plans.iter().map(|plan| {
            let kind = plan.fitting.kind;
            let has_own = self.pool.binding_of(kind, self.pool.rxq()) == Binding::Collector;
            let workers = if has_own { self.workers_of(plan.worker, kind, &plan.spec) } else { 0..0 };
            Wanted { lane: Lane::default(), workers, depth: self.pool.rxq().depth }
        });
        let wanted = wanted.collect();
        self.open_on_collectors(wanted)
    }

    /// Puts the program on `netdev` and lets its packets in. Workers must have been shown what `fitting` says.
    pub(super) fn attach(&mut self, id: PortId, netdev: Link) -> Result<(), ApiError> {
        let attached = self.attach_many(vec![(id, netdev)]).pop();
        attached.map_or(Ok(()), |(_, _, attached)| attached)
    }

    /// As [`Change::attach`], for many; what came of each.
    pub(super) fn attach_many(
        &mut self,
        netdevs: Vec<(PortId, Link)>,
    ) -> Vec<(PortId, Link, Result<(), ApiError>)> {
        let (mut attaching, mut done) = (Vec::new(), Vec::new());
        for (id, netdev) in netdevs {
            match self.let_in(id, &netdev) {
                Ok(()) => attaching.push(Attaching::new(self, &self.ports[&id], netdev)),
                Err(error) => done.push((id, netdev, Err(error))),
            }
        }
        for attached in self.attach_all(attaching) {
            let (id, netdev) = (attached.id, attached.netdev.clone());
            done.push((id, netdev, self.take_attached(attached)));
        }
        for (id, _, attached) in &done {
            if attached.is_ok() {
                self.coalesce_again(*id);
            }
        }
        done
    }

    /// Tells the kernel programs of a port that is to be attached to `netdev`.
    fn let_in(&mut self, id: PortId, netdev: &Link) -> Result<(), ApiError> {
        if self.ports[&id].binding == Binding::Direct {
            let rings = self.open_directly(id, netdev)?;
            self.port_mut(id).rings.replace(rings);
        }
        self.datapath.set_port(netdev.ifindex, self.config_of(id)).map_err(|error| refused(&error))
    }

    /// Deletes ports.
    ///
    /// # Errors
    /// The switch is stopping. A name that no port has is refused by itself.
    pub(crate) fn port_del(&mut self, names: &[String]) -> Result<PortDelReply, ApiError> {
        self.instance()?;
        let mut reply = PortDelReply::default();
        let mut ids = Vec::new();
        for name in names {
            match self.id_of(name) {
                Ok(id) => {
                    ids.push(id);
                    reply.deleted.push(name.clone());
                }
                Err(error) => reply.refused.push(PortDelRefused { name: name.clone(), error }),
            }
        }
        self.remove(&ids);
        Ok(reply)
    }

    /// Removes ports so that every frame they hold comes back: no more packets in, wait until none is under way,
    /// empty their rings, close their sockets.
    pub(super) fn remove(&mut self, ids: &[PortId]) {
        let (ids, attachments) = self.begin_to_leave(ids);
        if ids.is_empty() {
            return;
        }
        self.publish();
        self.resolve_rules();
        for id in &ids {
            self.dismiss_guest(*id);
        }
        let mut tunings = Vec::new();
        for id in &ids {
            tunings.extend(self.ports.leaving_mut(*id).map(|port| std::mem::take(&mut port.group.tuning)));
        }
        self.without_lock(|| drop((tunings, attachments)));
        self.retire();
        self.leave_flows(&ids);
        self.dismiss(&ids);
        let shared = Arc::clone(&self.shared);
        self.without_lock(|| {
            for id in &ids {
                shared.fdb.flush(Flush { port: Some(id.0), vid: None, with_static: true });
            }
        });
        self.have_left(&ids);
    }

    /// Flows of ports that no program knows any more, since a grace period.
    fn leave_flows(&mut self, ids: &[PortId]) {
        let (book, now) = (self.flows.shared_book(), self.now());
        self.without_lock(|| lock_book(&book).leave(ids, now));
        for id in ids {
            if let Err(error) = self.datapath.set_output(id.0, None) {
                tracing::warn!(%error, "a port that was deleted is still in the kernel's table of outputs");
            }
        }
    }

    /// The port's netdev is gone: detaches the program, and takes back the rings that were bound to it.
    pub(super) fn let_go(&mut self, id: PortId, gone: Vec<Attachment>) {
        self.without_lock(|| drop(gone));
        let port = self.port_mut(id);
        if port.binding == Binding::Direct {
            port.leave_rings();
            self.retire();
        }
    }
}

impl Control {
    /// Makes the port, served by its workers but without its netdev's packets so far. Returns the netdev, or why there is
    /// none for now.
    fn install(
        &mut self,
        plan: Plan,
        opened: Result<Vec<Opened>, XskError>,
    ) -> Result<Result<Link, ApiError>, PortAddRefused> {
        let Plan { id, spec, netdev, fitting, worker, guest, .. } = plan;
        let name = spec.netdev.clone();
        let refuse = |error| PortAddRefused { netdev: name.clone(), error };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.ports.cancel(id, worker);
                return Err(refuse(rings::no_socket(&error)));
            }
        };
        let guest = guest.map(|(guest, meeting, device)| {
            self.reception.serve(guest.key, meeting, device);
            guest
        });
        let underway = guest.is_some().then(|| {
            let account = self.datapath.ring_account(RingOwner::Port(id.0), worker as u32);
            account.set_rule(port_share::DEFAULT.rule(EXCHANGE_FRAMES as u32));
            UnderwayAccount::new(account)
        });
        let mut port = Port {
            id,
            worker,
            guest,
            kind: fitting.kind,
            completes_checksums: fitting.completes_checksums,
            binding: self.pool.binding_of(fitting.kind, self.pool.rxq()),
            spec,
            attachment: None,
            followers: Vec::new(),
            group: PortGroup::default(),
            coalescing: NetdevSettings::default(),
            state: PortState::NetdevMissing,
            reason: format!("`{name}` is being looked for and attached to"),
            again: follow::AGAIN,
            looks: follow::LOOKS_A_PORT,
            rings: Rings::default(),
            stock: None,
            leaving_stock: None,
            cells: Arc::new(PortCells::new(self.workers.len())),
            latency: None,
            baseline: self.datapath.counters(id.0),
            loss: CollectorLoss::default(),
            share: port_share::DEFAULT,
            underway,
            rxq: self.pool.rxq(),
            hints: Programs::default(),
            captured: Weak::new(),
            lane: LaneChoice::default(),
            probing: Probing::new(self.loops.baseline(id)),
            carrying: Carrying::default(),
            base: PortCounters::default(),
            takes_frames: None,
            peer: None,
        };
        self.begin_to_moderate(&mut port);
        self.enrol(&port);
        self.ports.insert(port);
        match self.serve_port(id, opened) {
            Ok(rings) => self.port_mut(id).rings.replace(rings),
            Err(error) => {
                netdev.iter().for_each(|netdev| self.ports.loses_netdev(netdev.ifindex));
                return Err(refuse(error));
            }
        }
        Ok(netdev)
    }

    /// The port has its program, or the kernel refused it.
    fn take_attached(&mut self, attached: Attached) -> Result<(), ApiError> {
        let Attached { id, netdev, function, links, reception, takes_frames, peer } = attached;
        let ifindex = netdev.ifindex;
        let links = links.inspect_err(|_| self.datapath.clear_port(ifindex))?;
        self.ports.takes_netdev(id, ifindex);
        let attachment =
            Attachment { links, reception, ifindex, function, position: 0, netdev, sides: Sides::default() };
        netdevs::take(self.port_mut(id), attachment);
        self.output_is(id, takes_frames.then_some(ifindex));
        self.peer_is(id, peer);
        Ok(())
    }

    /// What the kernel programs are to know of a port.
    pub(super) fn config_of(&self, id: PortId) -> PortConfig {
        let port = &self.ports[&id];
        let queue = self.workers_of(port.worker, port.kind, &port.spec).start as u16;
        let bank = match port.binding {
            Binding::Shared => None,
            Binding::Collector | Binding::Direct => port.rings.serving().first().map(|ring| ring.bank),
        };
        let leaves_checksums = port.completes_checksums;
        PortConfig {
            leaves_checksums,
            steering: port.steering(),
            port_id: id.0,
            queue,
            bank: bank.unwrap_or_else(|| self.pool.calm_bank()),
            near_queues: u64::MAX,
        }
    }

    /// Tells the kernel programs how a port is to be treated, for each of its netdevs.
    pub(super) fn configure(&self, id: PortId) -> Result<(), ApiError> {
        let config = self.config_of(id);
        let port = &self.ports[&id];
        for attachment in port.attachments() {
            let config = PortConfig { near_queues: port.near_workers(attachment), ..config };
            self.datapath.set_port(attachment.ifindex, config).map_err(|error| refused(&error))?;
        }
        Ok(())
    }

    /// Takes these ports out of sight; those that were there, and what is to be detached.
    fn begin_to_leave(&mut self, ids: &[PortId]) -> (Vec<PortId>, Vec<Attachment>) {
        let (mut leaving, mut attachments) = (Vec::new(), Vec::new());
        for id in ids {
            attachments.extend(self.take_off(*id));
            if let Some(port) = self.ports.leave(*id) {
                port.leave_rings();
                leaving.push(*id);
            }
        }
        (leaving, attachments)
    }

    /// The last word on ports that have left.
    fn have_left(&mut self, ids: &[PortId]) {
        for id in ids {
            if let Some(port) = self.ports.leaving_mut(*id) {
                port.loss.conclude(self.datapath.counters(id.0).since(&port.baseline));
            }
            self.datapath.clear_rss(id.0);
            let Some(port) = self.ports.left(*id) else { continue };
            self.leave_layouts_of(&port);
            self.retired += self.counted(&port);
            self.flow_book().retire(*id);
        }
    }

    /// The port has no netdev any more; its programs are to be detached, without the lock.
    pub(super) fn take_off(&mut self, id: PortId) -> Vec<Attachment> {
        let Some(port) = self.ports.get_mut(&id) else { return Vec::new() };
        port.takes_frames = None;
        port.peer = None;
        port.hints.unload();
        let gone: Vec<Attachment> =
            port.attachment.take().into_iter().chain(port.followers.drain(..)).collect();
        for attachment in &gone {
            self.datapath.clear_port(attachment.ifindex);
            self.ports.loses_netdev(attachment.ifindex);
        }
        gone
    }

    /// Changes what the packet path must know, at once. Moderation is stated by [`Change::port_set_moderated`].
    pub(crate) fn port_set(&mut self, name: &str, change: PortSet) -> Result<PortShow, ApiError> {
        self.instance()?;
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

/// For `ports` at once, where waiting for each would take long. It writes files, so the lock must be free.
pub(crate) fn short_grace_periods(ports: usize) -> Option<ShortGracePeriods> {
    (ports >= MANY).then(ShortGracePeriods::begin)
}
