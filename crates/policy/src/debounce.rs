//! How often something that changes again and again is looked at.

use crate::{Nanos, TokenBucket};

/// Looks at one thing. The first changes after a quiet time are looked at at once; under a stream of them there are only so
/// many looks a second, and the last change of all is never missed.
#[derive(Debug, Clone, Copy)]
pub struct Debounce {
    looks: TokenBucket,
    /// A change was put off.
    is_waiting: bool,
}

impl Debounce {
    /// `burst` looks at once, and `per_second` in the long run.
    pub const fn new(per_second: u64, burst: u64) -> Self {
        Self { looks: TokenBucket::new(per_second, burst), is_waiting: false }
    }

    /// It has changed. `true`: look now; otherwise the change is put off.
    #[must_use]
    pub fn change(&mut self, now: Nanos) -> bool {
        self.is_waiting = !self.looks.take(now, 1);
        !self.is_waiting
    }

    /// It has changed, and may be looked at later.
    pub fn put_off(&mut self) {
        self.is_waiting = true;
    }

    /// Whether to look now because of a change that was put off.
    #[must_use]
    pub fn is_due(&mut self, now: Nanos) -> bool {
        self.is_waiting && self.change(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn the_first_changes_are_looked_at_at_once_and_so_is_one_after_a_quiet_time() {
        let mut debounce = Debounce::new(10, 3);
        let looks = |debounce: &mut Debounce, now| (0..5).map(|_| debounce.change(now)).collect::<Vec<_>>();
        assert_eq!(looks(&mut debounce, Nanos(0)), [true, true, true, false, false]);
        assert_eq!(looks(&mut debounce, Nanos::from_secs(1)), [true, true, true, false, false]);
    }

    #[test]
    fn a_stream_of_changes_is_looked_at_a_bounded_number_of_times() {
        let (mut debounce, mut looks) = (Debounce::new(10, 3), 0);
        for now in (0..10_000).map(|ms| Nanos(ms * MILLISECOND)) {
            looks += u64::from(debounce.change(now)) + u64::from(debounce.is_due(now));
        }
        assert!((100..=103).contains(&looks), "{looks} looks in ten seconds");
    }

    #[test]
    fn a_change_that_is_put_off_is_looked_at_later() {
        let mut debounce = Debounce::new(10, 1);
        assert!(!debounce.is_due(Nanos(0)), "nothing has changed");
        debounce.put_off();
        assert_eq!([0, 1].map(|now| debounce.is_due(Nanos(now))), [true, false]);
    }

    #[test]
    fn the_last_change_is_looked_at_once_and_then_nothing_waits() {
        let mut debounce = Debounce::new(10, 1);
        assert!(debounce.change(Nanos(0)) && !debounce.change(Nanos(1)));
        let later = |ms| Nanos(ms * MILLISECOND);
        assert_eq!([50, 150, 300, 450].map(|ms| debounce.is_due(later(ms))), [false, true, false, false]);
    }
}
