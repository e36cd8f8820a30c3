//! Netdevs come and go under their ports: down, renamed, moved, deleted, back again.

use std::collections::HashMap;

use forebay_control::port::PortState;
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::NetdevLink;
use forebay_kernel::netlink::{Link, LinkEvent, NetlinkError, link};
use forebay_policy::{Backoff, Nanos};

use super::attach::Fitting;
use super::port::{Attachment, Binding, Port};
use super::{Control, attach};
use crate::worker::Feed;

/// Intervals at which a failure is looked at again that no event may announce the end of: an XDP program that its owner
/// detaches through a BPF link, for one.
pub(super) const AGAIN: Backoff = Backoff::new(Nanos::from_secs(1), Nanos::from_secs(32));
/// Ports that are looked at again in one round.
const LOOKS: usize = 16;

impl Control {
    /// Follows what happened, in order; one new snapshot for all of it.
    pub(super) fn follow(&mut self, events: Vec<LinkEvent>) {
        let mut changed = false;
        for event in events {
            changed |= match event {
                LinkEvent::New(netdev) => self.netdev_is(*netdev),
                LinkEvent::Queueing { ifindex } => self.queueing_changed(ifindex),
                LinkEvent::Del { ifindex, name, moved } => self.netdev_went(ifindex, &name, moved),
                LinkEvent::Overrun => self.compare_all(),
            };
        }
        if changed {
            self.publish();
        }
    }

    /// A netdev is there and looks like this.
    fn netdev_is(&mut self, netdev: Link) -> bool {
        if let Some(id) = self.ids_by_ifindex.get(&netdev.ifindex) {
            let id = *id;
            let Some(port) = self.ports.get_mut(&id) else { return false };
            return update(port, netdev) | self.look_at_peer(id);
        }
        let Some(id) = self.port_waiting_for(&netdev.name) else { return false };
        // The event may be older than our own detaching: what it shows as a foreign program can be ours, long gone.
        match link::by_index(netdev.ifindex) {
            Ok(now) if now.name == netdev.name => self.come_back(id, now),
            // Gone or renamed since: there is an event about that, too.
            _ => false,
        }
    }

    /// Looks again at netdevs that could not be attached to, and at all of them if that was put off.
    pub(super) fn look_again(&mut self) -> bool {
        let now = self.now();
        let mut changed = self.listing.is_due(now) && self.compare_all();
        let is_due = |port: &&Port| port.attachment.is_none() && port.again.is_due(now);
        let due = self.ports.values().filter(is_due).take(LOOKS);
        for (id, name) in due.map(|port| (port.id, port.spec.netdev.clone())).collect::<Vec<_>>() {
            match link::by_name(&name) {
                Ok(netdev) => changed |= self.come_back(id, netdev),
                Err(NetlinkError::NoSuchNetdev { .. }) => self.port_mut(id).lose(Loss::Deleted),
                Err(_) => self.port_mut(id).again.fail(now),
            }
        }
        changed
    }

    fn queueing_changed(&mut self, ifindex: u32) -> bool {
        let now = self.ids_by_ifindex.contains_key(&ifindex).then(|| link::by_index(ifindex));
        now.and_then(Result::ok).is_some_and(|netdev| self.netdev_is(netdev))
    }

    fn port_waiting_for(&self, netdev: &str) -> Option<PortId> {
        self.ports
            .values()
            .find(|port| port.attachment.is_none() && port.spec.netdev == netdev)
            .map(|port| port.id)
    }

    /// Attaches a port to its netdev, which is there again, and may be another kind of netdev than the one that went.
    /// Says whether the packet path must know.
    fn come_back(&mut self, id: PortId, netdev: Link) -> bool {
        let fitting = attach::fit(&self.ports[&id].spec, &netdev, self.mode);
        let attached = fitting.and_then(|fitting| self.attach_to_other(id, netdev, fitting));
        match &attached {
            Ok(()) => {
                let port = self.port_mut(id);
                port.again.succeed();
                tracing::info!(port = port.spec.port_name(), "the netdev is there");
            }
            Err(error) => self.wait_for_netdev(id, error),
        }
        attached.is_ok()
    }

    /// The port has no netdev for now, because of `error`.
    pub(super) fn wait_for_netdev(&mut self, id: PortId, error: &ApiError) {
        let now = self.now();
        let port = self.port_mut(id);
        match error.code {
            ErrorCode::NoSuchNetdev => return port.lose(Loss::NeverThere),
            // Its queues can be bound when it is up, which is an event.
            ErrorCode::NetdevDown => port.state = PortState::NetdevDown,
            _ => {
                port.state = PortState::AttachFailed;
                port.again.fail(now);
            }
        }
        let reason = error.to_string();
        if port.reason != reason {
            tracing::warn!(
                port = port.spec.port_name(),
                reason,
                "the netdev is there and cannot be attached to"
            );
            port.reason = reason;
        }
    }

    /// Attaches a port to a netdev that may need other rings than the one before.
    fn attach_to_other(&mut self, id: PortId, netdev: Link, fitting: Fitting) -> Result<(), ApiError> {
        let port = &self.ports[&id];
        let binding = self.binding_of(fitting.kind, port.rxq);
        let mut leaving = Vec::new();
        if binding == Binding::Collector && (port.binding, port.kind) != (binding, fitting.kind) {
            self.rebind(id, fitting, binding, &mut leaving)?;
        }
        let is_other = Fitting::of(&self.ports[&id]) != fitting || self.ports[&id].binding != binding;
        let port = self.port_mut(id);
        (port.binding, port.kind) = (binding, fitting.kind);
        port.completes_checksums = fitting.completes_checksums;
        if binding != Binding::Collector {
            leaving.extend(port.rings.drain(..).map(|ring| (Feed::Port(id), ring)));
        }
        if is_other {
            self.publish();
        }
        self.retire_replaced(leaving);
        self.attach(id, netdev)
    }

    /// A netdev is no longer there: deleted, or in another namespace.
    fn netdev_went(&mut self, ifindex: u32, name: &str, moved: bool) -> bool {
        let loss = if moved { Loss::Moved } else { Loss::Deleted };
        let Some(id) = self.ids_by_ifindex.get(&ifindex).copied() else {
            if let Some(id) = self.port_waiting_for(name) {
                self.port_mut(id).lose(loss);
            }
            return false;
        };
        let Some(mut port) = self.ports.remove(&id) else { return false };
        self.detach(&mut port);
        port.lose(loss);
        tracing::info!(port = port.spec.port_name(), reason = port.reason, "the netdev is gone");
        self.ports.insert(id, port);
        true
    }

    /// Events were lost: look at everything. If that fails, it is put off and not forgotten.
    fn compare_all(&mut self) -> bool {
        let all = match link::list() {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "netdevs cannot be listed after events were lost; trying again");
                self.listing.fail(self.now());
                return false;
            }
        };
        self.listing.succeed();
        let there: HashMap<u32, Link> = all.into_iter().map(|netdev| (netdev.ifindex, netdev)).collect();
        let gone: Vec<u32> =
            self.ids_by_ifindex.keys().copied().filter(|ifindex| !there.contains_key(ifindex)).collect();
        for ifindex in gone {
            self.netdev_went(ifindex, "", false);
        }
        for netdev in there.into_values() {
            self.netdev_is(netdev);
        }
        true
    }
}

/// How a port came to be without its netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    NeverThere,
    Deleted,
    Moved,
}

impl Port {
    /// There is no netdev for the port; an event will tell when there is.
    fn lose(&mut self, loss: Loss) {
        let name = &self.spec.netdev;
        (self.state, self.reason) = match loss {
            Loss::NeverThere => (
                PortState::NetdevMissing,
                format!("there is no netdev `{name}`; the port comes up when there is one"),
            ),
            Loss::Deleted => (
                PortState::NetdevMissing,
                format!("`{name}` was deleted; the port recovers when it is created again"),
            ),
            Loss::Moved => (
                PortState::NetdevMoved,
                format!(
                    "`{name}` was moved to another network namespace; the port recovers when it is moved back"
                ),
            ),
        };
        self.again.succeed();
    }
}

/// The port has its program on `netdev`.
pub(super) fn take(port: &mut Port, link: NetdevLink, netdev: Link) {
    (port.state, port.reason) = judge(port, &netdev);
    port.attachment = Some(Attachment { link, ifindex: netdev.ifindex, netdev });
}

/// The netdev has changed; says whether the packet path must know.
fn update(port: &mut Port, netdev: Link) -> bool {
    let before = port.state;
    (port.state, port.reason) = judge(port, &netdev);
    if port.state != before {
        tracing::info!(port = port.spec.port_name(), state = %port.state, reason = port.reason, "the netdev changed");
    }
    let Some(attachment) = &mut port.attachment else { return false };
    let changed = port.state != before || attachment.netdev.mtu != netdev.mtu;
    attachment.netdev = netdev;
    changed
}

fn judge(port: &Port, netdev: &Link) -> (PortState, String) {
    let name = &netdev.name;
    if !netdev.admin_up {
        return (PortState::NetdevDown, format!("`{name}` is switched off: ip link set {name} up"));
    }
    if !netdev.carrier {
        return (PortState::NetdevDown, format!("`{name}` has no carrier: its other end is down"));
    }
    if *name != port.spec.netdev {
        let was = &port.spec.netdev;
        return (PortState::NetdevRenamed, format!("`{was}` is now called `{name}`; the port works on"));
    }
    (PortState::Up, String::new())
}
