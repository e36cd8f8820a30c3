//! Linger: how long a worker goes on looking for packets before it sleeps.
//!
//! To wake a worker costs whoever sends: an interrupt to the worker's processor, and of a virtual machine an exit. Where
//! the next packets come before that would have been worth it, the worker stays awake for them. It tries so long as the
//! last waits were, up to a limit: the window opens while waits are short and closes at the first long one, as that of
//! KVM's halt polling does. So pings cost nothing, and a flood hardly ever has to wake a worker.
//!
//! Who lingers where somebody else waits for the processor does harm twice, for the worker is then itself the one who
//! waits. The processor was taken away if there is a gap between two looks; then the worker sleeps for some time whenever
//! it has nothing to do, twice as long if that happens again soon.

use crate::Nanos;

/// The first window.
const FIRST: u64 = 8_000;
/// Between two looks there is less, unless somebody else had the processor: a look takes a sixth of a microsecond, and a
/// timer's interrupt up to 50 on a virtual machine.
const GAP: u64 = 100_000;
/// How long the worker does not linger after that, at first and at most.
const PATIENCE: [u64; 2] = [1_000_000, 1_000_000_000];
/// Within so much time it happens again soon.
const SOON: u64 = 100_000_000;

/// One worker's.
#[derive(Clone, Debug)]
pub struct Linger {
    longest: u64,
    window: u64,
    patience: u64,
    barred_until: Nanos,
}

impl Linger {
    /// Of a worker that lingers for at most `longest` nanoseconds.
    pub fn new(longest: u64) -> Self {
        Self { longest, window: 0, patience: PATIENCE[0], barred_until: Nanos(0) }
    }

    /// Nanoseconds to go on looking for, from `now` on.
    #[inline]
    pub fn window(&self, now: Nanos) -> u64 {
        if now < self.barred_until { 0 } else { self.window }
    }

    /// Between two looks while it lingered there was so much time. Whether it may go on.
    #[inline]
    pub fn goes_on(&mut self, gap: u64, now: Nanos) -> bool {
        if gap < GAP {
            return true;
        }
        let is_soon = self.barred_until > Nanos(0) && now.since(self.barred_until) < SOON;
        self.patience = if is_soon { (2 * self.patience).min(PATIENCE[1]) } else { PATIENCE[0] };
        self.barred_until = Nanos(now.0.saturating_add(self.patience));
        false
    }

    /// Somebody came when it had waited for so long, awake or asleep.
    #[inline]
    pub fn waited(&mut self, nanos: u64) {
        if nanos > self.longest {
            self.window = 0;
        } else if nanos > self.window {
            self.window = (2 * self.window).max(FIRST).min(self.longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(5_000_000_000);

    #[test]
    fn short_waits_open_the_window_and_a_long_one_closes_it() {
        let mut linger = Linger::new(50_000);
        assert_eq!(linger.window(NOW), 0);
        let windows = [30_000; 5].map(|nanos| {
            linger.waited(nanos);
            linger.window(NOW)
        });
        assert_eq!(windows, [8_000, 16_000, 32_000, 32_000, 32_000]);
        linger.waited(32_000);
        assert_eq!(linger.window(NOW), 32_000, "the window was wide enough");
        linger.waited(50_000);
        assert_eq!(linger.window(NOW), 50_000);
        linger.waited(50_001);
        assert_eq!(linger.window(NOW), 0);
    }

    #[test]
    fn who_may_not_linger_never_does() {
        let mut linger = Linger::new(0);
        [0, 1, 1_000_000].into_iter().for_each(|nanos| linger.waited(nanos));
        assert_eq!(linger.window(NOW), 0);
    }

    #[test]
    fn the_first_loss_of_the_processor_is_no_second_one_however_early_it_is() {
        let mut linger = Linger::new(50_000);
        linger.waited(10_000);
        assert!(!linger.goes_on(GAP, Nanos(GAP)));
        assert_eq!(linger.window(Nanos(GAP + PATIENCE[0])), FIRST);
    }

    #[test]
    fn who_loses_its_processor_sleeps_for_some_time_and_longer_if_that_happens_again_soon() {
        let mut linger = Linger::new(50_000);
        linger.waited(10_000);
        assert!(linger.goes_on(GAP - 1, NOW));
        let mut now = NOW;
        for millis in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000] {
            assert!(!linger.goes_on(GAP, now));
            let over = Nanos(now.0 + millis * 1_000_000);
            assert_eq!([linger.window(Nanos(over.0 - 1)), linger.window(over)], [0, FIRST], "{millis} ms");
            now = over;
        }
        now.0 += SOON;
        assert!(!linger.goes_on(GAP, now));
        assert_eq!(linger.window(Nanos(now.0 + 1_000_000)), FIRST);
    }
}
