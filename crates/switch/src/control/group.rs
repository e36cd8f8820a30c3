//! Ports with several members: they come and go with their members' netdevs.
//!
//! Members are in the order of their PCI functions, whatever the order in which they come, and those without one as the
//! request named them. The first that is there leads. All members are the same port to the kernel programs, so what
//! comes in at one never leaves at another, and what goes to all ports leaves once.

use forebay_control::group::{MemberShow, Membership, PciAddress};
use forebay_control::physical::{self, Auto, PortFunction};
use forebay_control::port::{PortSpec, PortState};
use forebay_control::{ApiError, ErrorCode, IfIndex, PortId};
use forebay_kernel::netlink::link::{self, Device, PhysicalPort};
use forebay_kernel::netlink::{Link, NetlinkError};
use forebay_kernel::queues;

use super::plan::no_such_netdev;
use super::port::{Attachment, Port};
use super::{Change, Control, attach};
use crate::topology::Ways;

impl Change<'_> {
    /// Looks at all members, attaches to those that are there, or to none while one is missing that must not be. Says
    /// whether the packet path must know.
    ///
    /// # Errors
    /// What keeps a member away.
    pub(super) fn regroup(&mut self, id: PortId) -> Result<bool, ApiError> {
        let netdevs = match self.without_lock(list) {
            Ok(netdevs) => netdevs,
            Err(error) => {
                self.look_later([id]);
                return Err(ApiError::new(ErrorCode::KernelRefused, error.to_string()));
            }
        };
        self.find_members(id, &netdevs)?;
        let spec = self.ports[&id].spec.clone();
        let found = self.without_lock(|| find(&spec, netdevs));
        let (fitting, mut missing) = self.fit_members(id, &spec, found);
        let mut there = self.ports[&id].attachments().count() + fitting.len();
        let is_strict = spec.members == Membership::Strict;
        let mut changed = false;
        if !is_strict || missing.is_none() {
            let asked = fitting.len();
            let failed = self.gather(id, fitting);
            there -= failed.len();
            changed = failed.len() < asked;
            missing = missing.or(failed.into_iter().next());
        }
        if is_strict && missing.is_some() {
            changed |= self.disband(id);
        }
        if changed {
            self.tune(id);
        }
        let now = self.now();
        let port = self.port_mut(id);
        let all = spec.group.len();
        port.group.missing = match &missing {
            Some(error) => format!("{there} of {all} members are there: {error}"),
            None => String::new(),
        };
        match &missing {
            // An event tells when there is.
            Some(error) if error.code != ErrorCode::NoSuchNetdev => port.again.fail(now),
            _ => port.again.succeed(),
        }
        super::netdevs::judge_again(port);
        if port.attachment.is_none() {
            (port.state, port.reason) = port.judge_members();
        }
        missing.filter(|_| port.attachment.is_none()).map_or(Ok(changed), Err)
    }

    /// Names the members of a group that are to be found, once they are.
    ///
    /// # Errors
    /// Why they are not found.
    fn find_members(&mut self, id: PortId, netdevs: &[Link]) -> Result<(), ApiError> {
        let group = self.ports[&id].spec.group.clone();
        let Some(auto) = Auto::of(&group) else { return Ok(()) };
        let found = self.without_lock(|| {
            physical::find_members(auto, &netdevs.iter().map(port_function).collect::<Vec<_>>())
        });
        let now = self.now();
        let port = self.port_mut(id);
        match found {
            Ok(members) => {
                tracing::info!(
                    port = port.spec.port_name(),
                    members = members.join(","),
                    "found its members"
                );
                port.spec.group = members;
                Ok(())
            }
            Err(error) => {
                port.group.missing = error.to_string();
                port.again.fail(now);
                (port.state, port.reason) = port.judge_members();
                Err(error)
            }
        }
    }

    /// The netdevs, of those `found` for the members in order, that are to be attached to; and what keeps a member away.
    fn fit_members(
        &mut self,
        id: PortId,
        spec: &PortSpec,
        found: Vec<Option<Link>>,
    ) -> (Vec<Link>, Option<ApiError>) {
        let (mode, mut fitting, mut missing) = (self.pool.mode(), Vec::new(), None);
        let leader = self.ports[&id].attachments().next().map(|attachment| attachment.netdev.clone());
        for (position, (member, netdev)) in spec.group.iter().zip(found).enumerate() {
            // Whatever it is called by now.
            if self.ports[&id].attachments().any(|attachment| attachment.position == position) {
                continue;
            }
            let first = leader.as_ref().or(fitting.first()).cloned();
            let is_named = |netdev: &Link| fitting.iter().any(|other: &Link| other.ifindex == netdev.ifindex);
            let fitted = match netdev {
                None => Err(no_such_member(member)),
                Some(netdev) if is_named(&netdev) => Err(named_twice(member, &netdev)),
                Some(netdev) => match self.ports.on(netdev.ifindex) {
                    Some(other) if other == id => Err(named_twice(member, &netdev)),
                    Some(other) => Err(self.already_port(other, &netdev.name)),
                    None => self
                        .without_lock(|| {
                            attach::fit(spec, &netdev, mode)?;
                            first.map_or(Ok(()), |first| is_alike(&netdev, &first))
                        })
                        .map(|()| netdev),
                },
            };
            match fitted {
                Ok(netdev) => fitting.push(netdev),
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        (fitting, missing)
    }

    /// Attaches to more members at once, so that nobody sees a part of them; why it failed for some.
    fn gather(&mut self, id: PortId, netdevs: Vec<Link>) -> Vec<ApiError> {
        let attached = self.attach_many(netdevs.into_iter().map(|netdev| (id, netdev)).collect());
        attached.into_iter().filter_map(|(.., attached)| attached.err()).collect()
    }

    /// Attaches to no member any more.
    fn disband(&mut self, id: PortId) -> bool {
        let gone = self.take_off(id);
        let was_there = !gone.is_empty();
        self.publish();
        self.let_go(id, gone);
        was_there
    }

    /// A member's netdev is no longer there.
    pub(super) fn member_went(&mut self, id: PortId, ifindex: IfIndex, moved: bool) -> bool {
        let port = self.port_mut(id);
        tracing::info!(port = port.spec.port_name(), ifindex = ifindex.0, "a member is gone");
        let gone = port.let_member_go(ifindex);
        let (there, all) = (port.attachments().count(), port.spec.group.len());
        port.group.missing = format!("{there} of {all} members are there");
        super::netdevs::judge_again(port);
        self.datapath.clear_port(ifindex);
        self.ports.loses_netdev(ifindex);
        self.publish();
        self.without_lock(|| {
            gone.iter().filter(|_| moved).for_each(|at| at.sides.leave_away());
            drop(gone);
        });
        self.tune(id);
        let regrouped = self.regroup(id);
        if let Err(error) = regrouped {
            let port = self.ports[&id].spec.port_name();
            tracing::warn!(port, %error, "members are missing");
        }
        true
    }
}

impl Control {
    /// The group that waits for a netdev: by its name, or by its PCI function.
    pub(super) fn group_waiting_for(&self, netdev: &Link) -> Option<PortId> {
        let groups = || self.ports.values().filter(|port| port.spec.is_group());
        let names_functions = groups().any(|port| port.spec.names_functions());
        let function = names_functions.then(|| netdev.function()).flatten();
        let is_of = |port: &&Port| port.spec.group.iter().any(|member| is_member(member, netdev, function));
        groups().find(is_of).map(|port| port.id)
    }
}

impl Port {
    /// Another netdev of this port is attached to.
    pub(super) fn hold(&mut self, mut attachment: Attachment) {
        let is_this = |member: &String| is_member(member, &attachment.netdev, attachment.function);
        attachment.position = self.spec.group.iter().position(is_this).unwrap_or_default();
        self.followers.extend(self.attachment.take());
        self.followers.push(attachment);
        self.elect();
    }

    fn let_member_go(&mut self, ifindex: IfIndex) -> Vec<Attachment> {
        self.followers.extend(self.attachment.take());
        let (gone, left) = self.followers.drain(..).partition(|attachment| attachment.ifindex == ifindex);
        self.followers = left;
        self.elect();
        gone
    }

    /// The first leads.
    fn elect(&mut self) {
        self.followers.sort_by_key(rank);
        if !self.followers.is_empty() {
            self.attachment = Some(self.followers.remove(0));
        }
    }

    /// Netdevs that packets may leave by, if the port is a group.
    pub(super) fn ways(&self) -> Ways {
        if !self.spec.is_group() {
            return Ways::default();
        }
        let node = |at: &Attachment| self.node_of(at);
        let carrying = self.attachments().filter(|at| carries(&at.netdev));
        let netdevs: Vec<_> = carrying.map(|at| (at.ifindex, node(at))).collect();
        Ways::new(&netdevs, &self.group.tuning.worker_nodes)
    }

    fn node_of(&self, attachment: &Attachment) -> Option<u32> {
        self.group.tuning.roster.iter().find(|member| member.position == attachment.position)?.node
    }

    /// A bit for each worker on a member's node. A worker whose node is not known has its bit, too.
    pub(super) fn near_workers(&self, attachment: &Attachment) -> u64 {
        let Some(node) = self.node_of(attachment) else { return u64::MAX };
        let workers = self.group.tuning.worker_nodes.iter().enumerate();
        let far = workers.filter(|(_, worker)| worker.is_some_and(|worker| worker != node));
        far.fold(u64::MAX, |near, (worker, _)| near & !(1 << (worker % 64)))
    }

    /// Names of its netdevs.
    pub(super) fn netdevs(&self) -> String {
        let names: Vec<&str> = self.attachments().map(|attachment| attachment.netdev.name.as_str()).collect();
        match (names.is_empty(), self.spec.is_group()) {
            (false, _) => names.join(","),
            (true, true) => self.spec.group.join(","),
            (true, false) => self.spec.netdev.clone(),
        }
    }

    pub(super) fn members(&self) -> Vec<MemberShow> {
        let show = |at: &Attachment| MemberShow {
            netdev: at.netdev.name.clone(),
            ifindex: at.ifindex,
            pci: at.function,
            carries: carries(&at.netdev),
        };
        self.attachments().map(show).collect()
    }

    /// What the state of the netdevs makes of a group.
    pub(super) fn judge_members(&self) -> (PortState, String) {
        if self.attachment.is_none() {
            return (PortState::Waiting, self.group.missing.clone());
        }
        if !self.attachments().any(|at| carries(&at.netdev)) {
            return (PortState::NetdevDown, format!("`{}`: none is up with a carrier", self.netdevs()));
        }
        if self.probing.echoed.is_some() {
            let reason = "what leaves by one member comes in by another; the other end must take them for one, as a bond does";
            return (PortState::Up, reason.to_owned());
        }
        (PortState::Up, self.group.missing.clone())
    }
}

/// Packets may leave by it.
fn carries(netdev: &Link) -> bool {
    netdev.admin_up && netdev.carrier
}

/// What members are in the order of.
fn rank(attachment: &Attachment) -> (bool, Option<PciAddress>, usize) {
    (attachment.function.is_none(), attachment.function, attachment.position)
}

/// All netdevs. A function may have several, and the first is its own.
fn list() -> Result<Vec<Link>, NetlinkError> {
    let mut netdevs = link::list()?;
    netdevs.sort_by_key(|netdev| netdev.ifindex);
    Ok(netdevs)
}

/// A netdev, and which physical port it is on.
fn port_function(netdev: &Link) -> PortFunction {
    let PhysicalPort { id, switch_id, name } = netdev.physical.clone();
    PortFunction {
        netdev: netdev.name.clone(),
        function: netdev.function(),
        is_virtual: netdev.parent.as_ref().is_some_and(Device::is_virtual_function),
        port_id: id,
        switch_id,
        port_name: name,
    }
}

/// The netdev of each member, by its name or its PCI function.
fn find(spec: &PortSpec, netdevs: Vec<Link>) -> Vec<Option<Link>> {
    let by_function = spec.names_functions();
    let function_of = |netdev: &Link| by_function.then(|| netdev.function()).flatten();
    let netdevs: Vec<_> = netdevs.into_iter().map(|netdev| (function_of(&netdev), netdev)).collect();
    let found = |member: &String| {
        netdevs
            .iter()
            .find(|(function, netdev)| is_member(member, netdev, *function))
            .map(|(_, netdev)| netdev)
    };
    spec.group.iter().map(|member| found(member).cloned()).collect()
}

fn is_member(member: &str, netdev: &Link, function: Option<PciAddress>) -> bool {
    netdev.name == member || function.is_some_and(|function| member.parse() == Ok(function))
}

fn no_such_member(member: &str) -> ApiError {
    if member.parse::<PciAddress>().is_err() {
        return ApiError { ..no_such_netdev(member) }.with_field("group");
    }
    let message =
        format!("there is no netdev of the PCI function {member} in the switch's network namespace");
    ApiError::new(ErrorCode::NoSuchNetdev, message)
        .with_field("group")
        .with_value(member)
        .with_remedy(format!("`ls /sys/bus/pci/devices/{member}/net` shows its netdevs"))
}

/// By its name and by its function, or by a name that another member had.
fn named_twice(member: &str, netdev: &Link) -> ApiError {
    let message = format!("`{member}` is `{}`, which is a member already", netdev.name);
    let error = ApiError::new(ErrorCode::NetdevRefused, message);
    error.with_field("group").with_value(member).with_limit("each member once").with_remedy("leave one out")
}

/// A packet may leave by any member, so all have the same MTU, and share what there is evenly only at the same speed.
fn is_alike(netdev: &Link, first: &Link) -> Result<(), ApiError> {
    let Link { name, mtu, .. } = netdev;
    let refuse = |what: &str, own: u32, others: u32| {
        let message = format!("`{name}` has another {what} than `{}`", first.name);
        let error = ApiError::new(ErrorCode::NetdevRefused, message);
        error.with_field("group").with_value(own).with_limit(others)
    };
    if *mtu != first.mtu {
        let remedy = format!("ip link set dev {name} mtu {}", first.mtu);
        return Err(refuse("MTU", *mtu, first.mtu).with_remedy(remedy));
    }
    match [netdev, first].map(queues::speed_of) {
        [Some(own), Some(others)] if own != others => {
            let remedy = format!("`ethtool {name}` shows which speeds it has");
            Err(refuse("speed", own, others).with_remedy(remedy))
        }
        _ => Ok(()),
    }
}
