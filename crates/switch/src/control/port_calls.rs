//! What a port of a virtual machine holds of its queues' calls.

use std::sync::Arc;

use forebay_control::coalesce::{CoalesceDirection, CoalescePolicy, CoalesceQueue, CoalesceSetting};
use forebay_policy::moderation::{Adaptive, Dim, Direction, Limits, Policy, Profile, ProfileError};

use crate::calls::CallCells;

/// Calls of one queue, whether it runs or not.
#[derive(Default)]
pub(super) struct QueueCalls {
    pub(super) setting: CoalesceSetting,
    pub(super) cells: Arc<CallCells>,
    /// What its worker calls it, once it has run.
    pub(super) number: Option<usize>,
    /// Entries of the ring that ran last.
    pub(super) entries: u16,
}

/// Number of the pair, and direction, of the queue with this index in its device.
pub(super) fn place_of(index: usize) -> (u16, CoalesceDirection) {
    let direction = if index.is_multiple_of(2) { CoalesceDirection::Rx } else { CoalesceDirection::Tx };
    ((index / 2) as u16, direction)
}

/// Has workers tell packets apart in both queues of a pair if the policy of either wants to know: what the guest sends is
/// what answers the packets to it.
pub(super) fn set_looks(calls: &[QueueCalls], index: usize) {
    let pair = &calls[index / 2 * 2..][..2];
    let looks = pair.iter().any(|calls| calls.setting.policy == CoalescePolicy::Adaptive);
    pair.iter().for_each(|calls| calls.cells.set_looks(looks));
}

fn direction_of(index: usize) -> Direction {
    if index.is_multiple_of(2) { Direction::Receive } else { Direction::Transmit }
}

/// A table in ethtool's notation, or one of Linux's by its name. Nothing: that whose timer works as virtio's does.
///
/// # Errors
/// Why it is none.
pub(super) fn profile(text: &str, index: usize) -> Result<Profile, ProfileError> {
    profile_of(text, direction_of(index))
}

/// The same for a direction.
///
/// # Errors
/// Why it is none.
pub(super) fn profile_of(text: &str, direction: Direction) -> Result<Profile, ProfileError> {
    match (text, direction) {
        ("" | "eqe", direction) => Ok(Profile::usual(direction)),
        ("cqe", Direction::Receive) => Ok(Profile::RX_CQE),
        ("cqe", Direction::Transmit) => Ok(Profile::TX_CQE),
        (text, direction) => Profile::usual(direction).edited(text),
    }
}

impl QueueCalls {
    /// The policy for the queue with this index. Its setting was checked.
    pub(super) fn policy(&self, index: usize) -> Policy {
        let CoalesceSetting { policy, usecs, frames, profile: table, .. } = &self.setting;
        match policy {
            // A guest's device has no driver here, so that was refused.
            CoalescePolicy::Off | CoalescePolicy::Driver => Policy::Off,
            CoalescePolicy::Static => Policy::Static(Limits { usecs: *usecs, packets: *frames }),
            CoalescePolicy::Dim => Policy::Dim(Dim::new(profile(table, index).unwrap_or_default())),
            CoalescePolicy::Adaptive => {
                Policy::Adaptive(Box::new(Adaptive::new(direction_of(index), self.entries)))
            }
        }
    }

    pub(super) fn show(&self, index: usize) -> CoalesceQueue {
        let (queue, direction) = place_of(index);
        let (counts, now, asked) = (self.cells.counts(), self.cells.in_force(), self.cells.asked());
        CoalesceQueue {
            queue,
            direction,
            setting: self.setting.clone(),
            usecs_now: now.limits.usecs,
            frames_now: now.limits.packets,
            spares_short: now.spares_short,
            usecs_asked: asked.map(|asked| asked.usecs),
            frames_asked: asked.map(|asked| asked.packets),
            moves: self.cells.moves(),
            packets: counts.packets,
            bytes: counts.bytes,
            turns: counts.batches,
            interrupts: counts.calls,
            suppressed: counts.suppressed,
            timed: counts.timed,
            late: counts.late,
            saved: counts.saved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_queues_of_a_pair_are_looked_at_if_either_is_adaptive() {
        let looks = |adaptive: &[usize]| {
            let mut calls: Vec<QueueCalls> = (0..4).map(|_| QueueCalls::default()).collect();
            adaptive.iter().for_each(|index| calls[*index].setting.policy = CoalescePolicy::Adaptive);
            (0..4).for_each(|index| set_looks(&calls, index));
            calls.iter().map(|calls| calls.cells.looks()).collect::<Vec<_>>()
        };
        assert_eq!(looks(&[]), [false; 4]);
        assert_eq!(looks(&[2]), [false, false, true, true]);
        assert_eq!(looks(&[1]), [true, true, false, false]);
    }

    #[test]
    fn a_table_has_a_name_or_is_written_out() {
        let read = |text: &str, index| profile(text, index).map(|profile| profile.to_string());
        assert_eq!(read("", 0), Ok(Profile::RX_EQE.to_string()));
        assert_eq!(read("eqe", 1), Ok(Profile::TX_EQE.to_string()));
        assert_eq!(
            [read("cqe", 0), read("cqe", 1)],
            [Profile::RX_CQE, Profile::TX_CQE].map(|table| Ok(table.to_string()))
        );
        assert!(profile("fast", 0).is_err());
    }
}
