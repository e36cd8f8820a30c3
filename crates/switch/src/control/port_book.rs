//! The ports: by id, by name and by netdev, with the ids that are free.
//!
//! The rule it keeps: a change that workers must see cannot be forgotten. The book notes that a port may have changed
//! ([`PortBook::get_mut`] and others), and the control side shows what is noted whenever its lock is given back
//! ([`Shown`](crate::changes::Shown)). State that no snapshot shows is reached by [`PortBook::beside`] and notes nothing.
//!
//! A port that is deleted *leaves*: workers and users see it no more, but its id is taken and its counters count until its
//! rings are empty and closed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Deref;

use forebay_control::{IfIndex, PortId};
use forebay_policy::Placement;

use super::port::Port;

/// All ports of the switch.
pub(super) struct PortBook {
    ports: BTreeMap<PortId, Port>,
    /// Those of them that are no virtual machine's.
    on_netdevs: BTreeSet<PortId>,
    /// Ports that are deleted and still hold frames, sockets or counters.
    leaving: BTreeMap<PortId, Port>,
    /// Ids of all ports, also of those that are being made or leave.
    taken: HashSet<PortId>,
    /// Names that are taken, also of ports that are being made.
    by_name: HashMap<String, PortId>,
    /// Netdevs that are ports, or about to be.
    by_ifindex: HashMap<IfIndex, PortId>,
    /// Ids are handed out in a circle, so that a packet still under way with an old id meets no new port.
    next_id: u32,
    max_ports: u32,
    placement: Placement,
    /// Something may have changed since the last publication.
    is_changed: Cell<bool>,
}

impl PortBook {
    /// No ports.
    pub(super) fn new(max_ports: u32, workers: usize) -> Self {
        Self {
            ports: BTreeMap::new(),
            on_netdevs: BTreeSet::new(),
            leaving: BTreeMap::new(),
            taken: HashSet::new(),
            by_name: HashMap::new(),
            by_ifindex: HashMap::new(),
            next_id: 0,
            max_ports,
            placement: Placement::new(workers),
            is_changed: Cell::new(false),
        }
    }

    /// Number of ports that there may be.
    pub(super) fn max_ports(&self) -> u32 {
        self.max_ports
    }

    /// Number that the search for a free id begins with.
    pub(super) fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Goes on where an earlier process was.
    pub(super) fn set_next_id(&mut self, next: u32) {
        self.next_id = next % self.max_ports.max(1);
    }

    /// An id that no port has, or `None` when there are as many ports as may be.
    pub(super) fn free_id(&mut self) -> Option<PortId> {
        if self.taken.len() as u32 >= self.max_ports {
            return None;
        }
        loop {
            let id = PortId(self.next_id as u16);
            self.next_id = (self.next_id + 1) % self.max_ports;
            if !self.taken.contains(&id) {
                return Some(id);
            }
        }
    }

    /// Takes id, name and netdev for a port that is to be made; the worker that is to serve it.
    pub(super) fn reserve(&mut self, id: PortId, name: &str, ifindex: Option<IfIndex>) -> usize {
        self.taken.insert(id);
        self.by_name.insert(name.to_owned(), id);
        self.by_ifindex.extend(ifindex.map(|ifindex| (ifindex, id)));
        self.placement.place()
    }

    /// Gives back what was reserved for a port that was not made.
    pub(super) fn cancel(&mut self, id: PortId, worker: usize) {
        self.placement.leave(worker);
        self.forget_keys(id);
        self.taken.remove(&id);
    }

    fn forget_keys(&mut self, id: PortId) {
        self.by_name.retain(|_, taken| *taken != id);
        self.by_ifindex.retain(|_, taken| *taken != id);
    }

    /// The port of this name; not one that is still being made.
    pub(super) fn named(&self, name: &str) -> Option<PortId> {
        self.by_name.get(name).copied().filter(|id| self.ports.contains_key(id))
    }

    /// Whether a port has this name, or is about to.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The port on this netdev.
    pub(super) fn on(&self, ifindex: IfIndex) -> Option<PortId> {
        self.by_ifindex.get(&ifindex).copied()
    }

    /// Indexes of all netdevs that are ports.
    pub(super) fn ifindexes(&self) -> impl Iterator<Item = IfIndex> {
        self.by_ifindex.keys().copied()
    }

    /// The netdev is this port's.
    pub(super) fn takes_netdev(&mut self, id: PortId, ifindex: IfIndex) {
        self.by_ifindex.insert(ifindex, id);
    }

    /// The netdev is no port's any more.
    pub(super) fn loses_netdev(&mut self, ifindex: IfIndex) {
        self.by_ifindex.remove(&ifindex);
    }

    /// A port, to be changed.
    pub(super) fn get_mut(&mut self, id: &PortId) -> Option<&mut Port> {
        self.is_changed.set(true);
        self.ports.get_mut(id)
    }

    /// Has `change` done to a port. It says whether that is anything that workers must see.
    pub(super) fn change_if(&mut self, id: PortId, change: impl FnOnce(&mut Port) -> bool) -> bool {
        let is_other = self.ports.get_mut(&id).is_some_and(change);
        self.is_changed.set(self.is_changed.get() | is_other);
        is_other
    }

    /// A port, for state that no snapshot shows.
    pub(super) fn beside(&mut self, id: PortId) -> Option<&mut Port> {
        self.ports.get_mut(&id)
    }

    /// All ports, for state that no snapshot shows.
    pub(super) fn all_beside(&mut self) -> impl Iterator<Item = &mut Port> {
        self.ports.values_mut()
    }

    /// Ports that are no virtual machine's; their netdevs may be missing. The ports of virtual machines are not touched: there
    /// may be thousands that are idle.
    pub(super) fn on_netdevs(&self) -> impl Iterator<Item = &Port> {
        self.on_netdevs.iter().filter_map(|id| self.ports.get(id))
    }

    /// Does this with each of them, for state that no snapshot shows.
    pub(super) fn on_netdevs_beside(&mut self, mut work: impl FnMut(&mut Port)) {
        for id in &self.on_netdevs {
            self.ports.get_mut(id).map(&mut work);
        }
    }

    /// All ports and those that leave, for state that no snapshot shows.
    pub(super) fn all_and_leaving(&mut self) -> impl Iterator<Item = &mut Port> {
        self.ports.values_mut().chain(self.leaving.values_mut())
    }

    pub(super) fn insert(&mut self, port: Port) {
        self.is_changed.set(true);
        if port.guest.is_none() {
            self.on_netdevs.insert(port.id);
        }
        self.ports.insert(port.id, port);
    }

    /// A port is deleted: from now on it leaves. Its name, its netdev and its place are free at once.
    pub(super) fn leave(&mut self, id: PortId) -> Option<&mut Port> {
        self.is_changed.set(true);
        let port = self.ports.remove(&id)?;
        self.on_netdevs.remove(&id);
        self.placement.leave(port.worker);
        self.by_name.remove(port.spec.port_name());
        port.attachments().for_each(|attachment| _ = self.by_ifindex.remove(&attachment.ifindex));
        Some(self.leaving.entry(id).or_insert(port))
    }

    /// Ports that leave.
    pub(super) fn leaving(&self) -> impl Iterator<Item = &Port> {
        self.leaving.values()
    }

    /// A port that leaves.
    pub(super) fn leaving_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.leaving.get_mut(&id)
    }

    /// The port has left, and its id is free.
    pub(super) fn left(&mut self, id: PortId) -> Option<Port> {
        self.taken.remove(&id);
        self.leaving.remove(&id)
    }

    /// Takes all ports out.
    pub(super) fn clear(&mut self) -> Vec<Port> {
        self.is_changed.set(true);
        self.taken.clear();
        self.by_name.clear();
        self.by_ifindex.clear();
        self.on_netdevs.clear();
        std::mem::take(&mut self.ports)
            .into_values()
            .chain(std::mem::take(&mut self.leaving).into_values())
            .collect()
    }

    /// Whether workers may have to be shown something.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed.get()
    }

    /// Workers have been shown the ports as they are.
    pub(super) fn shown(&self) {
        self.is_changed.set(false);
    }
}

/// Reading changes nothing.
impl Deref for PortBook {
    type Target = BTreeMap<PortId, Port>;

    fn deref(&self) -> &Self::Target {
        &self.ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_round_and_taken_ones_are_left_out() {
        let mut book = PortBook::new(3, 1);
        let take = |book: &mut PortBook, name: &str| {
            let id = book.free_id()?;
            book.reserve(id, name, None);
            Some(id.0)
        };
        assert_eq!(["a", "b", "c", "d"].map(|name| take(&mut book, name)), [Some(0), Some(1), Some(2), None]);
        book.cancel(PortId(1), 0);
        assert_eq!((book.is_taken("b"), take(&mut book, "e")), (false, Some(1)));
    }

    #[test]
    fn what_was_reserved_and_not_made_is_free_again() {
        let mut book = PortBook::new(3, 2);
        let (id, netdev) = (book.free_id().expect("no port is there"), IfIndex(7));
        let worker = book.reserve(id, "a", Some(netdev));
        assert_eq!((worker, book.is_taken("a"), book.on(netdev)), (0, true, Some(id)));
        assert_eq!(book.named("a"), None, "requests must not find a port that is not there yet");
        book.cancel(id, worker);
        assert_eq!((book.is_taken("a"), book.on(netdev), book.taken.len()), (false, None, 0));
        assert_eq!(book.reserve(PortId(2), "b", None), 0, "the worker has no port");
    }

    #[test]
    fn only_what_snapshots_show_is_noted_as_a_change() {
        let mut book = PortBook::new(3, 1);
        assert!(book.beside(PortId(0)).is_none() && book.all_beside().next().is_none() && !book.is_changed());
        assert!(book.get_mut(&PortId(0)).is_none() && book.is_changed());
        book.shown();
        assert!(book.leave(PortId(0)).is_none() && book.is_changed());
    }
}
