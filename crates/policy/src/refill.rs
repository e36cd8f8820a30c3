//! Refill: how many free frames a fill ring is kept at.
//!
//! *Static* keeps it at the high watermark, always. *Adaptive* is the adjustable receive queue of "Shared Memory Pool for Representors"
//! (Netdev 0x18, 2024): at rest the ring is kept at the low watermark, twice the NAPI budget; once polling stays
//! busy it is filled to the high one; when the burst is over, frames that packets came in are not posted again until
//! the ring is down at the low watermark. The kernel gives posted frames back only with packets in them.
//!
//! ```text
//!            a poll used the whole budget, or the ring fell below half of the low watermark
//!   ┌──────┐ ──────────────────────────────────────────────────────────────────────────────► ┌──────┐
//!   │ rest │                                                                                  │ busy │
//!   └──────┘ ◄────────────────────────────────────────────────────────────────────────────── └──────┘
//!   target low              for QUIET, polls of next to nothing each, that left nothing      target high
//! ```

use crate::Nanos;

/// A poll of at most this part of the budget, leaving nothing, is quiet.
const QUIET_PART: u32 = 16;

/// Which rule a fill ring follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefillRule {
    /// At the high watermark, always.
    Static,
    /// At the low watermark while nothing much happens.
    Adaptive,
}

/// What one poll of the rings behind a fill ring was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Packets of the poll.
    pub packets: u32,
    /// Packets after which it pauses.
    pub budget: u32,
    /// Nothing is left: a driver would go back to its interrupt, a worker sleeps.
    pub complete: bool,
    /// Frames posted that the kernel has not taken.
    pub posted: u32,
}

/// One fill ring's state.
#[derive(Clone, Debug)]
pub struct Refill {
    rule: RefillRule,
    low: u32,
    high: u32,
    busy: bool,
    /// When the polls began that were all quiet.
    quiet_since: Option<Nanos>,
}

impl Refill {
    /// The kernel's NAPI budget, by which a burst is told from a few packets.
    pub const NAPI_BUDGET: u32 = 64;
    /// Twice the NAPI budget.
    pub const LOW: u32 = 2 * Self::NAPI_BUDGET;

    /// Nanoseconds of quiet polls after which a burst is over. A hundred web clients pause for milliseconds all the time;
    /// a ring that came to rest in such pauses met each of their bursts with too few frames, and packets were lost.
    pub const QUIET: u64 = Nanos::PER_SECOND / 4;

    /// A fill ring of `high` entries; `low` is what rest means, and no more than `high` counts.
    pub fn new(rule: RefillRule, low: u32, high: u32) -> Self {
        Self { rule, low: low.min(high), high, busy: false, quiet_since: None }
    }

    /// Frames that the ring is to be filled up to now.
    pub fn target(&self) -> u32 {
        match self.rule {
            RefillRule::Adaptive if !self.busy => self.low,
            RefillRule::Adaptive | RefillRule::Static => self.high,
        }
    }

    /// Whether polling is busy, of a ring that can be at rest.
    pub fn is_busy(&self) -> bool {
        self.rule == RefillRule::Adaptive && self.busy
    }

    /// Learns what a poll was like; packet path.
    #[inline]
    pub fn observe(&mut self, poll: Poll, now: Nanos) {
        if poll.packets >= poll.budget || poll.posted < self.low / 2 {
            self.busy = true;
            self.quiet_since = None;
        } else if poll.complete && poll.packets <= poll.budget / QUIET_PART {
            let since = *self.quiet_since.get_or_insert(now);
            self.busy &= now.since(since) < Self::QUIET;
        } else {
            self.quiet_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BUDGET: u32 = Refill::NAPI_BUDGET;

    fn poll(packets: u32, posted: u32) -> Poll {
        Poll { packets, budget: BUDGET, complete: packets < BUDGET, posted }
    }

    #[test]
    fn static_is_full_at_all_times() {
        let mut refill = Refill::new(RefillRule::Static, 128, 1024);
        for seen in [poll(1, 1000), poll(0, 1000), poll(64, 0), poll(0, 64)] {
            refill.observe(seen, Nanos(0));
            assert_eq!(refill.target(), 1024);
        }
    }

    #[test]
    fn a_ring_at_rest_has_two_budgets_and_a_burst_is_over_after_a_quarter_of_a_second() {
        assert_eq!((Refill::LOW, Refill::QUIET), (128, 250_000_000));
    }

    #[test]
    fn a_ring_below_half_of_the_low_watermark_is_busy_unless_it_never_rests() {
        for (rule, posted, busy) in [
            (RefillRule::Adaptive, 64, false),
            (RefillRule::Adaptive, 63, true),
            (RefillRule::Static, 63, false),
        ] {
            let mut refill = Refill::new(rule, 128, 1024);
            refill.observe(poll(5, posted), Nanos(0));
            assert_eq!(refill.is_busy(), busy, "{rule:?}, {posted} posted");
        }
    }

    #[test]
    fn adaptive_rests_at_the_low_watermark_and_fills_up_when_polling_is_busy() {
        let mut refill = Refill::new(RefillRule::Adaptive, 128, 1024);
        assert_eq!(refill.target(), 128);
        refill.observe(poll(20, 108), Nanos(0));
        assert_eq!(refill.target(), 128, "a few packets are not a burst");
        refill.observe(poll(BUDGET, 64), Nanos(0));
        for at in [1, 2, Refill::QUIET] {
            refill.observe(poll(3, 1021), Nanos(at));
            assert_eq!(refill.target(), 1024, "a short pause is not the end of a burst");
        }
        refill.observe(poll(0, 1021), Nanos(1 + Refill::QUIET));
        assert_eq!(refill.target(), 128);
    }

    #[test]
    fn a_pause_is_counted_from_its_beginning() {
        let mut refill = Refill::new(RefillRule::Adaptive, 128, 1024);
        for (packets, at) in [(BUDGET, 0), (1, 1), (20, 2), (1, Refill::QUIET)] {
            refill.observe(poll(packets, 1000), Nanos(at));
        }
        refill.observe(poll(1, 1000), Nanos(2 * Refill::QUIET - 1));
        assert_eq!(refill.target(), 1024, "twenty packets were a poll that was not quiet");
        refill.observe(poll(1, 1000), Nanos(2 * Refill::QUIET));
        assert_eq!(refill.target(), 128);
    }

    #[test]
    fn many_ports_with_few_packets_each_are_a_burst_too() {
        let mut refill = Refill::new(RefillRule::Adaptive, 128, 1024);
        refill.observe(poll(1, 63), Nanos(0));
        assert_eq!(refill.target(), 1024);
    }

    #[test]
    fn a_low_watermark_above_the_depth_is_the_depth() {
        assert_eq!(Refill::new(RefillRule::Adaptive, 128, 64).target(), 64);
    }

    proptest! {
        #[test]
        fn the_target_is_a_watermark_and_rest_brings_it_down(
            low in 1..512u32,
            high in 512..4096u32,
            seen in prop::collection::vec((0..=64u32, 0..4096u32), 0..200),
        ) {
            let mut refill = Refill::new(RefillRule::Adaptive, low, high);
            for (at, (packets, posted)) in seen.into_iter().enumerate() {
                refill.observe(poll(packets, posted), Nanos(at as u64));
                prop_assert!([low, high].contains(&refill.target()));
            }
            for pause in 1..=2 { refill.observe(poll(0, high), Nanos(pause * Refill::QUIET)) }
            prop_assert_eq!(refill.target(), low);
        }
    }
}
