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

fn direction_of(index: usize) -> Direction {
    if index.is_multiple_of(2) { Direction::Receive } else { Direction::Transmit }
}

/// A table in ethtool's notation, or one of Linux's by its name. Nothing: that whose timer works as virtio's does.
///
/// # Errors
/// Why it is none.
pub(super) fn profile(text: &str, index: usize) -> Result<Profile, ProfileError> {
    match (text, direction_of(index)) {
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
            CoalescePolicy::Off => Policy::Off,
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
            saved: counts.saved,
        }
    }
}
