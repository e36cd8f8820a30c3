//! What the queues of a group's members have received, also while a member was another netdev than it is now.
//!
//! Drivers count. The numbers are looked at once a second, and a netdev that goes takes what came after the last look.

use std::collections::BTreeMap;

use forebay_control::{IfIndex, PortId};
use forebay_kernel::queues;
use forebay_policy::Odometer;

use super::Change;

#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    /// By member, as the group names them, and queue.
    queues: BTreeMap<(usize, u32), Odometer>,
    looks: u64,
}

/// A look that has begun: drivers are asked without the lock, and several may be at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look(u64);

impl Received {
    pub(super) fn begin(&self) -> Look {
        Look(self.looks)
    }

    /// Takes in what each member's driver has counted, unless another look ended since this one began: it may have seen
    /// more, and a count that goes back is taken for one that begins anew.
    pub(super) fn end<'a>(
        &mut self,
        look: Look,
        members: impl IntoIterator<Item = (usize, IfIndex, &'a [(u32, u64)])>,
    ) {
        if look.0 != self.looks {
            return;
        }
        self.looks += 1;
        for (position, ifindex, counted) in members {
            for (queue, packets) in counted {
                self.queues.entry((position, *queue)).or_default().observe(ifindex.0, *packets);
            }
        }
    }

    /// Packets that this queue has had. `None`: the driver has never counted any.
    pub(super) fn of(&self, position: usize, queue: u32) -> Option<u64> {
        self.queues.get(&(position, queue)).map(|odometer| odometer.total())
    }
}

impl Change<'_> {
    /// Looks at what the members of all groups have received.
    pub(super) fn count_received(&mut self) {
        let groups = self.ports.on_netdevs().filter(|port| port.spec.is_group());
        let groups: Vec<(PortId, Look, Vec<_>)> = groups
            .map(|port| {
                let members = port.attachments().map(|at| (at.position, at.ifindex)).collect();
                (port.id, port.group.received.begin(), members)
            })
            .collect();
        for (id, look, members) in groups {
            let ask =
                |(position, ifindex): (usize, IfIndex)| (position, ifindex, queues::received_by(ifindex));
            let counted: Vec<_> = self.without_lock(|| members.into_iter().map(ask).collect());
            let counted = counted.iter().map(|(position, ifindex, of)| (*position, *ifindex, of.as_slice()));
            self.port_mut(id).group.received.end(look, counted);
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
            let counted = [(0, packets), (1, 2 * packets)];
            received.end(received.begin(), [(position, IfIndex(ifindex), &counted[..])]);
            [0, 1].map(|queue| received.of(position, queue))
        };
        assert_eq!(observe(0, 7, 1000), [Some(0), Some(0)], "before it was a member");
        assert_eq!(observe(0, 7, 1010), [Some(10), Some(20)]);
        assert_eq!(observe(1, 8, 5), [Some(0), Some(0)], "another member");
        assert_eq!(observe(0, 9, 0), [Some(10), Some(20)]);
        assert_eq!(observe(0, 9, 3), [Some(13), Some(26)]);
        assert_eq!(received.of(2, 0), None);
    }

    #[test]
    fn what_an_older_look_saw_is_not_taken_for_a_count_that_begins_anew() {
        let mut received = Received::default();
        let see = |received: &mut Received, look, packets| {
            received.end(look, [(0, IfIndex(7), &[(0, packets)][..])]);
            received.of(0, 0)
        };
        let first = received.begin();
        assert_eq!(see(&mut received, first, 1000), Some(0));
        let (older, newer) = (received.begin(), received.begin());
        assert_eq!(see(&mut received, newer, 1020), Some(20));
        assert_eq!(see(&mut received, older, 1010), Some(20));
        let next = received.begin();
        assert_eq!(see(&mut received, next, 1025), Some(25));
    }
}
