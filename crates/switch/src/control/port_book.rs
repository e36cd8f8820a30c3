//! The ports: by id, by name and by netdev, with the ids that are free.
//!
//! The rule it keeps: a change that workers must see cannot be forgotten. The book notes that a port may have changed
//! ([`PortBook::get_mut`] and others), and [`Held`](super::Held) publishes what is noted when a request gives the control
//! side back. State that no snapshot shows is reached by [`PortBook::beside`] and notes nothing.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;

use forebay_control::PortId;
use forebay_policy::Placement;

use super::port::Port;

/// All ports of the switch.
pub(super) struct PortBook {
    ports: BTreeMap<PortId, Port>,
    /// Names that are taken, also of ports that are being made.
    pub(super) by_name: HashMap<String, PortId>,
    /// Netdevs that are ports, or about to be.
    pub(super) by_ifindex: HashMap<u32, PortId>,
    /// Ids are handed out in a circle, so that a packet still under way with an old id meets no new port.
    pub(super) next_id: u32,
    /// Ports that there may be.
    pub(super) max_ports: u32,
    pub(super) placement: Placement,
    /// Something may have changed since the last publication.
    is_changed: Cell<bool>,
}

impl PortBook {
    /// No ports.
    pub(super) fn new(max_ports: u32, workers: usize) -> Self {
        Self {
            ports: BTreeMap::new(),
            by_name: HashMap::new(),
            by_ifindex: HashMap::new(),
            next_id: 0,
            max_ports,
            placement: Placement::new(workers),
            is_changed: Cell::new(false),
        }
    }

    /// An id that no port has, or `None` when there are as many ports as may be.
    pub(super) fn free_id(&mut self) -> Option<PortId> {
        if self.by_name.len() as u32 >= self.max_ports {
            return None;
        }
        let used: HashSet<PortId> = self.by_name.values().copied().collect();
        loop {
            let id = PortId(self.next_id as u16);
            self.next_id = (self.next_id + 1) % self.max_ports;
            if !used.contains(&id) {
                return Some(id);
            }
        }
    }

    /// A port, to be changed.
    pub(super) fn get_mut(&mut self, id: &PortId) -> Option<&mut Port> {
        self.is_changed.set(true);
        self.ports.get_mut(id)
    }

    /// A port, for state that no snapshot shows.
    pub(super) fn beside(&mut self, id: PortId) -> Option<&mut Port> {
        self.ports.get_mut(&id)
    }

    /// All ports, for state that no snapshot shows.
    pub(super) fn all_beside(&mut self) -> impl Iterator<Item = &mut Port> {
        self.ports.values_mut()
    }

    pub(super) fn insert(&mut self, id: PortId, port: Port) {
        self.is_changed.set(true);
        self.ports.insert(id, port);
    }

    pub(super) fn remove(&mut self, id: &PortId) -> Option<Port> {
        self.is_changed.set(true);
        self.ports.remove(id)
    }

    /// Forgets all ports.
    pub(super) fn clear(&mut self) {
        self.is_changed.set(true);
        self.ports.clear();
        self.by_name.clear();
        self.by_ifindex.clear();
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
            book.by_name.insert(name.to_owned(), id);
            Some(id.0)
        };
        assert_eq!(["a", "b", "c", "d"].map(|name| take(&mut book, name)), [Some(0), Some(1), Some(2), None]);
        book.by_name.remove("b");
        assert_eq!(take(&mut book, "e"), Some(1));
    }

    #[test]
    fn only_what_snapshots_show_is_noted_as_a_change() {
        let mut book = PortBook::new(3, 1);
        assert!(book.beside(PortId(0)).is_none() && book.all_beside().next().is_none() && !book.is_changed());
        assert!(book.get_mut(&PortId(0)).is_none() && book.is_changed());
        book.shown();
        assert!(book.remove(&PortId(0)).is_none() && book.is_changed());
    }
}
