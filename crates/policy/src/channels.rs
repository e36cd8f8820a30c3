//! Which member of a port each of its channels belongs to.
//!
//! Members come in the order of their PCI addresses, the leader first. Channel c is queue c div P of member c mod P. So
//! it does not depend on how many channels there are, and a change of their number moves none that stays.

/// Where a channel is at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Home {
    /// Number of the member.
    pub member: usize,
    /// The member's queue.
    pub queue: usize,
}

/// How many members and channels a port has, at least one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    members: usize,
    channels: usize,
}

impl Channels {
    /// A port with these numbers of members and channels.
    ///
    /// # Panics
    /// When one of them is 0.
    pub const fn new(members: usize, channels: usize) -> Self {
        assert!(members > 0 && channels > 0, "a port has a member and a channel");
        Self { members, channels }
    }

    /// Number of channels.
    pub const fn count(self) -> usize {
        self.channels
    }

    /// Number of members.
    pub const fn members(self) -> usize {
        self.members
    }

    /// Where a channel is at home.
    pub const fn home(self, channel: usize) -> Home {
        Home { member: channel % self.members, queue: channel / self.members }
    }

    /// Number of channels that a member has.
    pub const fn of(self, member: usize) -> usize {
        (self.channels + self.members - 1 - member) / self.members
    }

    /// Which channel carries a channel's packets while only these members are there. A channel whose member is there carries
    /// its own; the others are taken in turn by those, so that no other channel moves. `None` while no member is there.
    pub fn carrier(self, channel: usize, is_there: impl Fn(usize) -> bool) -> Option<usize> {
        if is_there(self.home(channel).member) {
            return Some(channel);
        }
        let left = |channel: &usize| is_there(self.home(*channel).member);
        let lost_before = (0..channel).filter(|other| !left(other)).count();
        let carriers = (0..self.channels).filter(left).count();
        (0..self.channels).filter(left).nth(lost_before.checked_rem(carriers)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn channels_go_round_the_members() {
        let channels = Channels::new(2, 5);
        let homes: Vec<_> =
            (0..5).map(|channel| channels.home(channel)).map(|h| (h.member, h.queue)).collect();
        assert_eq!(homes, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]);
        assert_eq!([channels.of(0), channels.of(1)], [3, 2]);
    }

    #[test]
    fn with_a_member_gone_its_channels_are_spread_over_the_others() {
        let channels = Channels::new(2, 6);
        let carriers: Vec<_> =
            (0..6).map(|channel| channels.carrier(channel, |member| member == 0)).collect();
        assert_eq!(carriers, [0, 0, 2, 2, 4, 4].map(Some));
        assert_eq!(channels.carrier(3, |_| false), None);
        // The member that is left may have no channel.
        assert_eq!(Channels::new(3, 2).carrier(0, |member| member == 2), None);
    }

    proptest! {
        #[test]
        fn every_queue_of_every_member_is_one_channel(members in 1..17usize, channels in 1..65usize) {
            let all = Channels::new(members, channels);
            for member in 0..members {
                let queues = (0..channels).map(|channel| all.home(channel)).filter(|home| home.member == member);
                let queues: Vec<_> = queues.map(|home| home.queue).collect();
                prop_assert_eq!(queues, (0..all.of(member)).collect::<Vec<_>>());
            }
        }

        #[test]
        fn a_change_of_the_number_moves_no_channel(members in 1..17usize, few in 1..65usize, more in 1..65usize) {
            let [one, other] = [few, more].map(|channels| Channels::new(members, channels));
            for channel in 0..few.min(more) {
                prop_assert_eq!(one.home(channel), other.home(channel));
            }
        }

        #[test]
        fn a_lost_member_moves_its_own_channels_alone_and_evenly(
            members in 1..17usize,
            channels in 1..65usize,
            there in proptest::collection::vec(any::<bool>(), 16),
        ) {
            let all = Channels::new(members, channels);
            let mut carried = vec![0; channels];
            for channel in 0..channels {
                let carrier = all.carrier(channel, |member| there[member]);
                if there[all.home(channel).member] {
                    prop_assert_eq!(carrier, Some(channel));
                }
                if let Some(carrier) = carrier {
                    prop_assert!(there[all.home(carrier).member]);
                    carried[carrier] += 1;
                }
            }
            let carriers = || carried.iter().filter(|count| **count > 0);
            prop_assert!(carriers().max().unwrap_or(&0) - carriers().min().unwrap_or(&0) <= 1);
        }
    }
}
