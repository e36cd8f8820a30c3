//! Netdevs come and go under their ports: down, renamed, moved, deleted, back again.

use std::collections::HashMap;

use forebay_control::port::PortState;
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::NetdevLink;
use forebay_kernel::netlink::{Link, LinkEvent, link};

use super::attach::Fitting;
use super::port::{Attachment, Binding, Port};
use super::{Control, attach};
use crate::worker::Feed;

impl Control {
    /// Follows what happened, in order; one new snapshot for all of it.
    pub(super) fn follow(&mut self, events: Vec<LinkEvent>) {
        let mut changed = false;
        for event in events {
            changed |= match event {
                LinkEvent::New(netdev) => self.netdev_is(*netdev),
                LinkEvent::Queueing { ifindex } => self.queueing_changed(ifindex),
                LinkEvent::Del { ifindex, moved, .. } => self.netdev_went(ifindex, moved),
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
            Ok(now) if now.name == netdev.name => {
                self.come_back(id, now);
                true
            }
            // Gone or renamed since: there is an event about that, too.
            _ => false,
        }
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
    fn come_back(&mut self, id: PortId, netdev: Link) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let name = port.spec.port_name().to_owned();
        let fitting = attach::fit(&port.spec, &netdev, self.mode);
        let attached = fitting.and_then(|fitting| self.attach_to_other(id, netdev, fitting));
        self.publish();
        match attached {
            Ok(()) => tracing::info!(port = name, "the netdev is back"),
            // Its queues can be bound when it is up, which is the next event.
            Err(error) if error.code == ErrorCode::NetdevDown => {
                if let Some(port) = self.ports.get_mut(&id) {
                    (port.state, port.reason) = (PortState::NetdevDown, error.to_string());
                }
            }
            Err(error) => {
                tracing::warn!(port = name, %error, "the netdev is back and cannot be attached");
                if let Some(port) = self.ports.get_mut(&id) {
                    port.state = PortState::AttachFailed;
                    port.reason = error.to_string();
                }
            }
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
        let port = self.port_mut(id);
        (port.binding, port.kind) = (binding, fitting.kind);
        port.completes_checksums = fitting.completes_checksums;
        if binding != Binding::Collector {
            leaving.extend(port.rings.drain(..).map(|ring| (Feed::Port(id), ring)));
        }
        self.publish();
        self.retire_replaced(leaving);
        self.attach(id, netdev)
    }

    /// A netdev is no longer there: deleted, or in another namespace.
    fn netdev_went(&mut self, ifindex: u32, moved: bool) -> bool {
        let Some(id) = self.ids_by_ifindex.get(&ifindex).copied() else { return false };
        let Some(mut port) = self.ports.remove(&id) else { return false };
        self.detach(&mut port);
        (port.state, port.reason) = if moved {
            let reason = format!("`{}` was moved to another network namespace", port.spec.netdev);
            (PortState::NetdevMoved, format!("{reason}; the port recovers when it is moved back"))
        } else {
            let reason = format!("`{}` was deleted", port.spec.netdev);
            (PortState::NetdevMissing, format!("{reason}; the port recovers when it is created again"))
        };
        tracing::info!(port = port.spec.port_name(), reason = port.reason, "the netdev is gone");
        self.ports.insert(id, port);
        true
    }

    /// Events were lost: look at everything.
    fn compare_all(&mut self) -> bool {
        let Ok(all) = link::list() else { return false };
        let there: HashMap<u32, Link> = all.into_iter().map(|netdev| (netdev.ifindex, netdev)).collect();
        let gone: Vec<u32> =
            self.ids_by_ifindex.keys().copied().filter(|ifindex| !there.contains_key(ifindex)).collect();
        for ifindex in gone {
            self.netdev_went(ifindex, false);
        }
        for netdev in there.into_values() {
            self.netdev_is(netdev);
        }
        true
    }
}

/// The port's netdev went while there was no daemon.
pub(super) fn miss(port: &mut Port) {
    let name = &port.spec.netdev;
    port.state = PortState::NetdevMissing;
    port.reason =
        format!("`{name}` was gone when this daemon took over; the port recovers when it is created again");
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
