//! Whether holds of the present length gain something: a walk that idle holds drive up, and others down.
//!
//! Where packets come at random, and three in a hold on average, 22 of 100 holds are idle by chance: the walk goes down,
//! and one in 10⁸ of its ways up gets to the limit. Where the sender waits for the guest all holds are idle, and it takes 20.
//! Where two of five are idle it goes neither way.

use crate::moderation::counts::Counts;

/// How far an idle hold goes up, and any other goes down.
const UP: u64 = 3;
/// How far an idle one goes up of those that may be long and take a ring's worth of time: ten of them are enough. Most end by
/// bytes, so few are idle by chance.
const UP_LONG: u64 = 6;
const DOWN: u64 = 2;
/// From here on idle holds are no chance.
const TRIPS: u64 = 20 * UP;

/// Holds of one length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    start: Counts,
    seen: Counts,
    score: u64,
}

/// What is known of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They gain something, or too few are known.
    Useful,
    /// Packets came in the first part of the hold alone. `useful_ns` is its length, on average.
    Idle { useful_ns: u64 },
}

impl Trial {
    /// Holds of another length begin.
    pub(super) fn begin(&mut self, counts: &Counts) {
        *self = Self { start: *counts, seen: *counts, score: 0 };
    }

    /// Learns what has come since.
    pub(super) fn observe(&mut self, counts: &Counts, are_long: bool) -> Verdict {
        let added = counts.since(&self.seen);
        self.seen = *counts;
        let up = if are_long { UP_LONG } else { UP };
        let others = added.holds.saturating_sub(added.idle_holds);
        self.score = (self.score + up * added.idle_holds).saturating_sub(DOWN * others);
        if self.score < TRIPS {
            return Verdict::Useful;
        }
        let all = self.all(counts);
        Verdict::Idle { useful_ns: all.idle_last_ns / all.idle_holds.max(1) }
    }

    /// What was counted since they began.
    pub(super) fn all(&self, counts: &Counts) -> Counts {
        counts.since(&self.start)
    }

    /// Many were idle lately.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.score >= TRIPS / 2
    }
}
