//! What the queues of a group's members have received, also while a member was another netdev than it is now.
//!
//! Drivers count. The numbers are looked at once a second, and a netdev that goes takes what came after the last look.

use std::collections::BTreeMap;

use forebay_control::{IfIndex, PortId};
use forebay_kernel::queues;
use forebay_policy::Odometer;

use super::Change;

/// By member, as the group names them, and queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Received(BTreeMap<(usize, u32), Odometer>);

impl Received {
    /// Takes in what a member's driver has counted so far.
    pub(super) fn observe(&mut self, position: usize, ifindex: IfIndex, counted: &[(u32, u64)]) {
        for (queue, packets) in counted {
            self.0.entry((position, *queue)).or_default().observe(ifindex.0, *packets);
        }
    }

    /// Packets that this queue has had. `None`: the driver has never counted any.
    pub(super) fn of(&self, position: usize, queue: u32) -> Option<u64> {
        self.0.get(&(position, queue)).map(|odometer| odometer.total())
    }
}

impl Change<'_> {
    /// Looks at what the members of all groups have received.
    pub(super) fn count_received(&mut self) {
        let mut members: Vec<(PortId, usize, IfIndex)> = Vec::new();
        for port in self.ports.values().filter(|port| port.spec.is_group()) {
            members.extend(port.attachments().map(|at| (port.id, at.position, at.ifindex)));
        }
        if members.is_empty() {
            return;
        }
        let counted: Vec<_> =
            self.without_lock(|| members.iter().map(|(.., ifindex)| queues::received_by(*ifindex)).collect());
        for ((id, position, ifindex), counted) in members.into_iter().zip(counted) {
            self.port_mut(id).tuning.received.observe(position, ifindex, &counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_members_count_goes_on_when_it_comes_back_as_another_netdev() {
        let mut received = Received::default();
        let mut observe = |position, ifindex, packets| {
            received.observe(position, IfIndex(ifindex), &[(0, packets), (1, 2 * packets)]);
            [0, 1].map(|queue| received.of(position, queue))
        };
        assert_eq!(observe(0, 7, 1000), [Some(0), Some(0)], "before it was a member");
        assert_eq!(observe(0, 7, 1010), [Some(10), Some(20)]);
        assert_eq!(observe(1, 8, 5), [Some(0), Some(0)], "another member");
        assert_eq!(observe(0, 9, 0), [Some(10), Some(20)]);
        assert_eq!(observe(0, 9, 3), [Some(13), Some(26)]);
        assert_eq!(received.of(2, 0), None);
    }
}
