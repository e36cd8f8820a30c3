//! Lanes: which of two ways to the workers a port's packets take.
//!
//! What ports of a lane send comes out of one netdev, in the order of its queue, wherever the kernel happens to work that
//! off. A packet behind a flood there waits for up to a turn of the flood's. So ports that have few packets keep a lane
//! to themselves, and who has many goes to the other, until it has been calm for a while.
//!
//! ```text
//!          BUSY frames a second, twice in a row
//!   Calm ────────────────────────────► Busy
//!     ▲                                  │
//!     └──────────────────────────────────┘
//!       fewer than CALM, for REST
//! ```

use crate::Nanos;

/// From so many frames a second on a port is busy: the others wait for it one time in twenty at most, if a frame takes the
/// kernel a microsecond.
const BUSY: u64 = 50_000;
/// Below so many it is calm.
const CALM: u64 = 20_000;
/// How long it must be calm before it comes back. Each change of lane costs a new socket, and may change the order of
/// packets once.
const REST: Nanos = Nanos(10_000_000_000);
/// A rate needs some time; and a burst is no flood, so it takes two of them.
const LEAST: Nanos = Nanos(10_000_000);

/// One of two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// For ports that have few packets.
    #[default]
    Calm,
    /// For ports that have many.
    Busy,
}

impl Lane {
    /// How many there are.
    pub const COUNT: usize = 2;
    /// All of them, by their index.
    pub const ALL: [Lane; Lane::COUNT] = [Lane::Calm, Lane::Busy];

    /// From 0.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One port's choice of lane.
#[derive(Clone, Debug, Default)]
pub struct LaneChoice {
    lane: Lane,
    looked: Option<Look>,
    /// It was busy at the last look.
    was_busy: bool,
    /// Since when it has been calm.
    calm_since: Option<Nanos>,
    /// Until then it stays where it is.
    stays_until: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Nanos,
    frames: u64,
}

impl LaneChoice {
    /// Where the port's packets are to go.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Learns how many frames the port has taken so far; the count may wrap, or begin anew. Says whether the lane is
    /// another one now.
    pub fn observe(&mut self, frames: u64, now: Nanos) -> bool {
        let Some(before) = self.looked else {
            self.looked = Some(Look { at: now, frames });
            return false;
        };
        let elapsed = now.0.saturating_sub(before.at.0);
        if elapsed < LEAST.0 {
            return false;
        }
        self.looked = Some(Look { at: now, frames });
        let taken = u128::from(frames.wrapping_sub(before.frames)) * 1_000_000_000;
        let rate = u64::try_from(taken / u128::from(elapsed)).unwrap_or(u64::MAX);
        let lane = self.lane_at(rate, now);
        let changes = lane != self.lane && now.0 >= self.stays_until.0;
        if changes {
            self.lane = lane;
        }
        changes
    }

    /// The change of lane could not be made: it is back where it was, and tries again after a rest.
    pub fn undo(&mut self, now: Nanos) {
        self.lane = match self.lane {
            Lane::Calm => Lane::Busy,
            Lane::Busy => Lane::Calm,
        };
        self.stays_until = Nanos(now.0.saturating_add(REST.0));
    }

    fn lane_at(&mut self, rate: u64, now: Nanos) -> Lane {
        let is_busy = rate >= BUSY;
        let is_flood = std::mem::replace(&mut self.was_busy, is_busy) && is_busy;
        if rate >= CALM {
            self.calm_since = None;
            return if is_flood { Lane::Busy } else { self.lane };
        }
        let since = *self.calm_since.get_or_insert(now);
        if now.0.saturating_sub(since.0) >= REST.0 { Lane::Calm } else { self.lane }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 100_000_000;

    /// A port that is looked at ten times a second.
    #[derive(Default)]
    struct Port {
        choice: LaneChoice,
        now: u64,
        frames: u64,
    }

    impl Port {
        /// So many frames a second, for so many looks; says after which the lane changed.
        fn sends(&mut self, rate: u64, looks: usize) -> Vec<usize> {
            let mut changes = Vec::new();
            for look in 0..looks {
                self.now += TICK;
                self.frames = self.frames.wrapping_add(rate / 10);
                if self.choice.observe(self.frames, Nanos(self.now)) {
                    changes.push(look);
                }
            }
            changes
        }
    }

    #[test]
    fn a_flood_changes_lane_at_the_second_look_and_comes_back_after_a_rest() {
        let mut port = Port { frames: u64::MAX - 1000, ..Port::default() };
        assert_eq!(port.sends(1000, 20), []);
        assert_eq!(port.sends(600_000, 1), [], "a burst");
        assert_eq!(port.sends(30_000, 1), []);
        assert_eq!(port.sends(600_000, 20), [1]);
        assert_eq!(port.choice.lane(), Lane::Busy);
        assert_eq!(port.sends(0, 99), []);
        assert_eq!(port.sends(30_000, 1), [], "not calm: the rest begins anew");
        assert_eq!(port.sends(10_000, 200), [100]);
        assert_eq!(port.choice.lane(), Lane::Calm);
    }

    #[test]
    fn looks_in_a_hurry_say_nothing() {
        let mut choice = LaneChoice::default();
        assert!(!choice.observe(0, Nanos(0)));
        assert!(!choice.observe(40_000, Nanos(1_000_000)), "not 40 million a second");
        assert!(!choice.observe(40_000, Nanos(1_000_000_000)));
    }

    #[test]
    fn two_looks_with_time_between_them_are_enough() {
        let mut choice = LaneChoice::default();
        let mut looks = |ms: u64| choice.observe(ms * 1000, Nanos(ms * 1_000_000));
        assert!((0..10).all(|ms| !looks(ms)), "a million frames a second, but only for 9 ms");
        assert_eq!([10, 15, 20].map(looks), [false, false, true]);
    }

    #[test]
    fn lanes_are_numbered_in_their_order() {
        assert_eq!(Lane::ALL.map(Lane::index), [0, 1]);
    }

    #[test]
    fn what_could_not_be_done_is_tried_again_after_a_rest() {
        let mut port = Port::default();
        assert_eq!(port.sends(600_000, 3), [2]);
        port.choice.undo(Nanos(port.now));
        assert_eq!(port.choice.lane(), Lane::Calm);
        assert_eq!(port.sends(600_000, 200), [99]);
    }

    proptest! {
        /// Whatever a port sends, it changes back and forth no more often than its rest allows.
        #[test]
        fn changes_are_rare(rates in proptest::collection::vec(0u64..200_000, 1..300)) {
            let (mut port, mut changes) = (Port::default(), 0);
            for rate in &rates {
                changes += port.sends(*rate, 1).len();
            }
            prop_assert!(changes <= 2 * (rates.len() / 100 + 1), "{changes} changes in {} looks", rates.len());
        }
    }
}
