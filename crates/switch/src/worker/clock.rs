//! The worker's clocks, read in the loop around the data plane and nowhere below it.

use std::time::{Duration, Instant};

use forebay_policy::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// How long the distance between two clocks is believed: an administrator may set one of them.
const BELIEVED: Duration = Duration::from_secs(1);
/// Comparisons of two clocks, of which the best counts.
const COMPARISONS: usize = 3;

/// One moment, on the clocks that packets are measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Since the switch was started; policies know no other clock.
    pub(crate) now: Nanos,
    /// Nanoseconds since 1970, as captures show them.
    pub(crate) realtime_ns: u64,
    /// The same without leap seconds (`CLOCK_TAI`): XDP programs and devices under PTP count so.
    pub(crate) tai_ns: u64,
}

/// Reads one clock and knows how far ahead the others are.
pub(super) struct Clock {
    started: Instant,
    compared: Instant,
    realtime_ahead_ns: u64,
    tai_ahead_ns: u64,
}

impl Clock {
    /// `started` is time zero.
    pub(super) fn new(started: Instant) -> Self {
        let mut clock = Self { started, compared: started, realtime_ahead_ns: 0, tai_ahead_ns: 0 };
        clock.compare(Instant::now());
        clock
    }

    /// Now.
    pub(super) fn read(&mut self) -> Moment {
        let instant = Instant::now();
        if instant.duration_since(self.compared) >= BELIEVED {
            self.compare(instant);
        }
        let now = self.since_start(instant);
        Moment { now, realtime_ns: now.0 + self.realtime_ahead_ns, tai_ns: now.0 + self.tai_ahead_ns }
    }

    fn compare(&mut self, instant: Instant) {
        self.compared = instant;
        self.realtime_ahead_ns = self.ahead(ClockId::Realtime);
        self.tai_ahead_ns = self.ahead(ClockId::Tai);
    }

    /// The thread may lose its processor between the two readings, which makes the distance look longer.
    fn ahead(&self, clock: ClockId) -> u64 {
        let compare = |_| {
            let now = self.since_start(Instant::now());
            clock_ns(clock).saturating_sub(now.0)
        };
        (0..COMPARISONS).map(compare).min().unwrap_or_default()
    }

    fn since_start(&self, instant: Instant) -> Nanos {
        Nanos(instant.saturating_duration_since(self.started).as_nanos() as u64)
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    Nanos::from_secs(now.tv_sec.unsigned_abs()).0 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_systems_on_every_clock() {
        let mut clock = Clock::new(Instant::now());
        let before = [ClockId::Realtime, ClockId::Tai].map(clock_ns);
        let moment = clock.read();
        let after = [ClockId::Realtime, ClockId::Tai].map(clock_ns);
        // What lies between two readings makes the distance longer, never shorter.
        const BETWEEN_NS: u64 = 1_000_000;
        for (index, read) in [moment.realtime_ns, moment.tai_ns].into_iter().enumerate() {
            assert!(
                (before[index]..after[index] + BETWEEN_NS).contains(&read),
                "{before:?} {moment:?} {after:?}"
            );
        }
    }
}
