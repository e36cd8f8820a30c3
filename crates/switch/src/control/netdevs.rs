//! Netdevs come and go under their ports: down, renamed, moved, deleted, back again.

use forebay_control::port::{AttachKind, PortState};
use forebay_control::{ApiError, ErrorCode, IfIndex, PortId};
use forebay_kernel::netlink::Link;

use super::attach::Fitting;
use super::flows::peer_of;
use super::port::{Attachment, Binding, Port};
use super::{Change, Control, attach};

impl Change<'_> {
    /// A netdev looks like this now and is a port's, or may become the port's. Says whether the packet path must know.
    pub(super) fn netdev_is(&mut self, id: PortId, netdev: Link) -> bool {
        if self.ports[&id].spec.is_group() && self.ports.on(netdev.ifindex) != Some(id) {
            return self.regroup(id).unwrap_or(false);
        }
        if self.ports.on(netdev.ifindex) == Some(id) {
            if self.has_lost_xdp(id, &netdev) {
                let gone = self.take_off(id);
                self.let_go(id, gone);
                self.come_back(id, netdev);
                return true;
            }
            let redirects = self.flows.redirects_to_peers() && !self.ports[&id].spec.is_group();
            let peer = self.without_lock(|| peer_of(&netdev).filter(|_| redirects));
            let comes_up = netdev.admin_up && self.is_member_down(id, netdev.ifindex);
            let is_other = self.ports.change_if(id, |port| update(port, netdev)) | comes_up;
            self.coalesce_again(id);
            if comes_up {
                // The kernel tells of no queues while a netdev is down.
                self.tune(id);
            }
            // What it takes depends on its MTU.
            return is_other | (is_other && self.look_at_output(id)) | self.peer_is(id, peer);
        }
        let is_awaited = self.ports.get(&id).is_some_and(|port| port.spec.netdev == netdev.name);
        is_awaited && self.come_back(id, netdev)
    }

    /// Whether a port has an XDP program at a device that does without one now, for one because it takes VLAN tags off.
    fn has_lost_xdp(&mut self, id: PortId, netdev: &Link) -> bool {
        let has_xdp = self.ports[&id].kind == AttachKind::Xdp && netdev.has_parent_device();
        let lost =
            has_xdp.then(|| self.without_lock(|| attach::refuse_without_xdp(netdev))).and_then(Result::err);
        if let Some(error) = &lost {
            let port = self.ports[&id].spec.port_name();
            tracing::warn!(port, %error, "the netdev is attached to anew");
        }
        lost.is_some()
    }

    /// Attaches a port to its netdev, which is there again, and may be another kind of netdev than the one that went.
    /// Says whether the packet path must know.
    pub(super) fn come_back(&mut self, id: PortId, netdev: Link) -> bool {
        let fitting = match self.ports.on(netdev.ifindex) {
            // It was another's before it was given this name.
            Some(other) => Err(self.already_port(other, &netdev.name)),
            None => {
                let (spec, mode) = (self.ports[&id].spec.clone(), self.pool.mode());
                self.without_lock(|| attach::fit(&spec, &netdev, mode))
            }
        };
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

    /// Attaches a port to a netdev that may need other rings than the one before.
    fn attach_to_other(&mut self, id: PortId, netdev: Link, fitting: Fitting) -> Result<(), ApiError> {
        let port = &self.ports[&id];
        let binding = self.pool.binding_of(fitting.kind, port.rxq);
        if binding == Binding::Collector && (port.binding, port.kind) != (binding, fitting.kind) {
            self.rebind(id, fitting, binding)?;
        }
        let is_other = Fitting::of(&self.ports[&id]) != fitting || self.ports[&id].binding != binding;
        let port = self.port_mut(id);
        (port.binding, port.kind) = (binding, fitting.kind);
        port.completes_checksums = fitting.completes_checksums;
        if binding != Binding::Collector {
            port.leave_rings();
        }
        if is_other {
            self.publish();
        }
        self.retire_replaced();
        self.attach(id, netdev)
    }

    /// A netdev is no longer there: deleted, or in another namespace.
    pub(super) fn netdev_went(&mut self, ifindex: IfIndex, name: &str, moved: bool) -> bool {
        let loss = if moved { Loss::Moved } else { Loss::Deleted };
        let Some(id) = self.ports.on(ifindex) else {
            if let Some(id) = self.port_waiting_for(name) {
                self.port_mut(id).lose(loss);
            }
            return false;
        };
        if self.ports[&id].spec.is_group() {
            return self.member_went(id, ifindex, moved);
        }
        let gone = self.take_off(id);
        let port = self.port_mut(id);
        port.lose(loss);
        tracing::info!(port = port.spec.port_name(), reason = port.reason, "the netdev is gone");
        if moved {
            self.without_lock(|| gone.iter().for_each(|at| at.sides.leave_away()));
        }
        self.let_go(id, gone);
        true
    }
}

impl Control {
    /// Whether this netdev was down when it was last heard of, and is a member of a group.
    fn is_member_down(&self, id: PortId, ifindex: IfIndex) -> bool {
        let port = &self.ports[&id];
        let is_down = |at: &Attachment| at.ifindex == ifindex && !at.netdev.admin_up;
        port.spec.is_group() && port.attachments().any(is_down)
    }

    pub(super) fn port_waiting_for(&self, netdev: &str) -> Option<PortId> {
        self.ports
            .values()
            .find(|port| !port.spec.is_group() && port.attachment.is_none() && port.spec.netdev == netdev)
            .map(|port| port.id)
    }

    /// Tells ports whose packets are all lost from the others.
    pub(super) fn look_who_carries(&mut self) {
        let mut changed = Vec::new();
        self.ports.on_netdevs_beside(|port| {
            let counters = self.datapath.counters(port.id.0).since(&port.baseline);
            let lost = port.loss.lost_packets();
            let followed = || self.flows.book().counters(port.id).rx_packets;
            changed.extend(port.carrying.observe(&counters, lost, followed).then_some(port.id));
        });
        for id in changed {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            judge_again(port);
            let (name, reason) = (port.spec.port_name(), port.reason.as_str());
            tracing::warn!(port = name, state = %port.state, reason, "whether it carries has changed");
        }
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
}

/// How a port came to be without its netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    NeverThere,
    Deleted,
    Moved,
}

impl Port {
    /// There is no netdev for the port; an event will tell when there is.
    pub(super) fn lose(&mut self, loss: Loss) {
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

/// The port has its program on a netdev.
pub(super) fn take(port: &mut Port, attachment: Attachment) {
    port.carrying.begin_anew();
    port.hold(attachment);
    judge_again(port);
}

/// The netdev has changed; says whether the packet path must know.
fn update(port: &mut Port, netdev: Link) -> bool {
    let (before, ifindex) = (port.state, netdev.ifindex);
    let ways = port.ways();
    let Some(attachment) = port.attachment_of(ifindex) else { return false };
    let has_mtu = attachment.netdev.mtu == netdev.mtu;
    attachment.netdev = netdev;
    judge_again(port);
    if port.state != before {
        tracing::info!(port = port.spec.port_name(), state = %port.state, reason = port.reason, "the netdev changed");
    }
    port.state != before || !has_mtu || port.ways() != ways
}

/// Whether the port carries packets has changed, and its netdev has not; or its guest's queues have started or stopped.
pub(super) fn judge_again(port: &mut Port) {
    if let Some(guest) = port.guest.as_ref().filter(|guest| guest.is_connected) {
        (port.state, port.reason) = match guest.state() {
            (PortState::Up, reason) => judge_traffic(port, reason),
            other => other,
        };
    } else if let Some(attachment) = &port.attachment {
        (port.state, port.reason) = match judge_netdevs(port, &attachment.netdev) {
            (PortState::Up, reason) => judge_traffic(port, reason),
            other => other,
        };
    }
}

/// By what the kernel says of the port's netdevs.
fn judge_netdevs(port: &Port, netdev: &Link) -> (PortState, String) {
    let name = &netdev.name;
    if port.spec.is_group() {
        return port.judge_members();
    }
    if !netdev.admin_up {
        return (PortState::NetdevDown, format!("`{name}` is switched off: ip link set {name} up"));
    }
    if !netdev.carrier {
        return (PortState::NetdevDown, format!("`{name}` has no carrier: its other end is down"));
    }
    (PortState::Up, String::new())
}

/// By what happens to packets, where the netdevs are up.
fn judge_traffic(port: &Port, up: String) -> (PortState, String) {
    if let Some(reason) = port.probing.blocked() {
        return (PortState::Blocked, reason.to_owned());
    }
    if let Some(reason) = port.carrying.reason() {
        return (PortState::NotCarrying, format!("all packets from `{}` are lost: {reason}", port.netdevs()));
    }
    let was = &port.spec.netdev;
    match &port.attachment {
        Some(at) if !port.spec.is_group() && at.netdev.name != *was => {
            let name = &at.netdev.name;
            (PortState::NetdevRenamed, format!("`{was}` is now called `{name}`; the port works on"))
        }
        _ => (PortState::Up, up),
    }
}
