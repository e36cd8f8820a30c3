//! When netdevs are looked at: as they change, but a netdev that changes all the time only so often.
//!
//! Whoever is at the other end of a veth can have its netdev change thousands of times a second (`ethtool -K eth0 gro off`,
//! `ip link set eth0 down`), and each look costs requests to the kernel and a new snapshot. So the looks at one port have a
//! rate ([`LOOKS_A_PORT`]), a change beyond it is put off and not forgotten, and one round looks at a bounded number of
//! ports that were put off. That a netdev is gone is never put off: its port would send to the next netdev of its number.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use forebay_control::{IfIndex, PortId};
use forebay_kernel::netlink::{Link, LinkEvent, NetlinkError, link};
use forebay_policy::{Backoff, Debounce, Nanos};

use super::netdevs::Loss;
use super::port::Port;
use super::{Change, Control};

/// Looks at one port because its netdev has changed: 16 at once, 10 a second in the long run.
pub(super) const LOOKS_A_PORT: Debounce = Debounce::new(10, 16);
/// Lists of all netdevs because events were lost.
const LISTS: Debounce = Debounce::new(1, 4);
/// Intervals at which a failure is looked at again that no event may announce the end of: an XDP program that its owner
/// detaches through a BPF link, for one.
pub(super) const AGAIN: Backoff = Backoff::new(Nanos::from_secs(1), Nanos::from_secs(32));
/// Ports that are looked at in one round because that was put off.
const LOOKS_A_ROUND: usize = 32;
/// Ports that are looked at in one second because their netdevs could not be attached to.
const TRIES_A_SECOND: usize = 16;

/// What was put off.
pub(super) struct PutOff {
    ports: BTreeSet<PortId>,
    /// Where the next round begins, so that ports take turns.
    next: PortId,
    lists: Debounce,
    /// When to list netdevs again, after a list could not be had.
    again: Backoff,
}

impl Default for PutOff {
    fn default() -> Self {
        Self { ports: BTreeSet::new(), next: PortId(0), lists: LISTS, again: AGAIN }
    }
}

impl PutOff {
    /// A list of netdevs could not be had.
    pub(super) fn list_again(&mut self, now: Nanos) {
        self.again.fail(now);
    }

    /// Ports, in the order in which they take turns.
    fn in_turn(&self) -> impl Iterator<Item = PortId> {
        self.ports.range(self.next..).chain(self.ports.range(..self.next)).copied()
    }

    /// Whether nothing is to be looked at soon.
    pub(super) fn is_done(&self) -> bool {
        self.ports.is_empty()
    }
}

impl Change<'_> {
    /// Follows what happened, in order; at most two new snapshots for each look. Says whether anything has changed.
    pub(super) fn follow(&mut self, events: Vec<LinkEvent>) -> bool {
        let mut changed = false;
        for event in events {
            changed |= match event {
                LinkEvent::New(netdev) => self.netdev_changed(&netdev),
                LinkEvent::Queueing { ifindex } => self.queueing_changed(ifindex),
                LinkEvent::Del { ifindex, name, moved } => self.netdev_went(ifindex, &name, moved),
                LinkEvent::Overrun => self.events_were_lost(),
            };
        }
        changed | self.look_at_put_off()
    }

    /// The netdev is asked how it is now: an event may have waited while it changed again, or while we attached to it.
    fn netdev_changed(&mut self, then: &Link) -> bool {
        let settings = Arc::clone(&self.settings);
        if settings.waits_for_netdevs() {
            self.without_lock(|| settings.netdev_is_here(then.ifindex));
        }
        let Some(id) = self.whose(then) else { return false };
        self.look_if_due(id, then.ifindex)
    }

    fn queueing_changed(&mut self, ifindex: IfIndex) -> bool {
        let Some(id) = self.ports.on(ifindex) else { return false };
        self.look_if_due(id, ifindex)
    }

    fn look_if_due(&mut self, id: PortId, ifindex: IfIndex) -> bool {
        if !self.may_look(id) {
            return false;
        }
        let found = self.without_lock(|| link::by_index(ifindex));
        self.netdev_is_found(id, found)
    }

    /// Looks at ports whose turn it is.
    fn look_at_put_off(&mut self) -> bool {
        let due = self.take_due();
        let mut changed = false;
        for id in due {
            changed |= self.ports.contains_key(&id) && self.look(id);
        }
        changed
    }

    /// Asks how the netdev of a port is now. Says whether the packet path must know.
    fn look(&mut self, id: PortId) -> bool {
        let port = &self.ports[&id];
        if port.spec.is_group() {
            return self.look_at_members(id);
        }
        let (ifindex, name) =
            (port.attachment.as_ref().map(|attachment| attachment.ifindex), port.spec.netdev.clone());
        let netdev = self.without_lock(|| match ifindex {
            Some(ifindex) => link::by_index(ifindex),
            None => link::by_name(&name),
        });
        let is_other = self.netdev_is_found(id, netdev);
        self.look_at_output(id) | is_other
    }

    /// The same of a group.
    fn look_at_members(&mut self, id: PortId) -> bool {
        let ifindexes: Vec<IfIndex> = self.ports[&id].attachments().map(|at| at.ifindex).collect();
        let mut changed = false;
        for ifindex in ifindexes {
            let found = self.without_lock(|| link::by_index(ifindex));
            changed |= self.netdev_is_found(id, found);
        }
        changed | self.regroup(id).unwrap_or(false)
    }

    fn netdev_is_found(&mut self, id: PortId, found: Result<Link, NetlinkError>) -> bool {
        match found {
            Ok(netdev) => self.netdev_is(id, netdev),
            // There is an event about that.
            Err(NetlinkError::NoSuchNetdev { .. }) => false,
            Err(_) => {
                self.look_later([id]);
                false
            }
        }
    }

    /// Looks again at netdevs that could not be attached to, and at all of them if that was put off.
    pub(super) fn look_again(&mut self) -> bool {
        let now = self.now();
        let put_off = &mut self.put_off;
        let is_list_due = put_off.lists.is_due(now) | put_off.again.is_due(now);
        let mut changed = is_list_due && self.compare_all();
        let lacks = |port: &&Port| port.attachment.is_none() || !port.group.missing.is_empty();
        let is_due = |port: &&Port| lacks(port) && port.again.is_due(now);
        let due = self.ports.on_netdevs().filter(is_due).take(TRIES_A_SECOND);
        for (id, name) in due.map(|port| (port.id, port.spec.netdev.clone())).collect::<Vec<_>>() {
            if self.ports[&id].spec.is_group() {
                changed |= self.regroup(id).unwrap_or(false);
                continue;
            }
            match self.without_lock(|| link::by_name(&name)) {
                Ok(netdev) => changed |= self.come_back(id, netdev),
                Err(NetlinkError::NoSuchNetdev { .. }) => self.port_mut(id).lose(Loss::Deleted),
                Err(_) => self.port_mut(id).again.fail(now),
            }
        }
        changed
    }

    fn events_were_lost(&mut self) -> bool {
        let now = self.now();
        self.put_off.lists.change(now) && self.compare_all()
    }

    /// Events were lost: look at everything. If that fails, it is put off and not forgotten.
    fn compare_all(&mut self) -> bool {
        let all = match self.without_lock(link::list) {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "netdevs cannot be listed after events were lost; trying again");
                let now = self.now();
                self.put_off.list_again(now);
                return false;
            }
        };
        self.put_off.again.succeed();
        let there: HashMap<IfIndex, Link> = all.into_iter().map(|netdev| (netdev.ifindex, netdev)).collect();
        let gone: Vec<IfIndex> =
            self.ports.ifindexes().filter(|ifindex| !there.contains_key(ifindex)).collect();
        for ifindex in gone {
            self.netdev_went(ifindex, "", false);
        }
        for netdev in there.into_values() {
            if let Some(id) = self.whose(&netdev).filter(|id| self.may_look(*id)) {
                self.netdev_is(id, netdev);
            }
        }
        true
    }
}

impl Control {
    /// The port that is on a netdev, or waits for one of its name.
    fn whose(&self, netdev: &Link) -> Option<PortId> {
        let known = self.ports.on(netdev.ifindex);
        known.or_else(|| self.port_waiting_for(&netdev.name)).or_else(|| self.group_waiting_for(netdev))
    }

    /// Whether to look at a port that has changed now; otherwise that is put off.
    pub(super) fn may_look(&mut self, id: PortId) -> bool {
        let now = self.now();
        let is_now = self.ports.beside(id).is_some_and(|port| port.looks.change(now));
        if !is_now {
            self.put_off.ports.insert(id);
        }
        is_now
    }

    /// Puts a look at each of these ports off, until one of the next rounds.
    pub(super) fn look_later(&mut self, ids: impl IntoIterator<Item = PortId>) {
        for id in ids {
            if let Some(port) = self.ports.get_mut(&id) {
                port.looks.put_off();
                self.put_off.ports.insert(id);
            }
        }
    }

    /// Ports that were put off and may be looked at now, a bounded number of them.
    fn take_due(&mut self) -> Vec<PortId> {
        let now = self.now();
        let Self { ports, put_off, .. } = self;
        let mut is_due = |id: &PortId| ports.beside(*id).is_none_or(|port| port.looks.is_due(now));
        let due: Vec<PortId> = put_off.in_turn().filter(&mut is_due).take(LOOKS_A_ROUND).collect();
        put_off.next = due.last().map_or(put_off.next, |last| PortId(last.0.wrapping_add(1)));
        due.iter().for_each(|id| _ = put_off.ports.remove(id));
        due
    }
}
