//! When to try something again that failed: soon at first, then at longer and longer intervals.

use crate::Nanos;

/// Retries of one thing. The interval doubles with each failure, up to a limit.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    shortest: Nanos,
    longest: Nanos,
    /// Interval after the next failure.
    interval: Nanos,
    /// Time of the next try; `None` while the last one succeeded.
    due: Option<Nanos>,
}

impl Backoff {
    /// Intervals from `shortest` to `longest`; nothing has failed so far.
    pub const fn new(shortest: Nanos, longest: Nanos) -> Self {
        Self { shortest, longest, interval: shortest, due: None }
    }

    /// It failed: the next try is due one interval after `now`.
    pub fn fail(&mut self, now: Nanos) {
        self.due = Some(Nanos(now.0.saturating_add(self.interval.0)));
        self.interval = Nanos(self.interval.0.saturating_mul(2)).min(self.longest);
    }

    /// It succeeded: no try is due, and the next failure counts as the first.
    pub fn succeed(&mut self) {
        *self = Self::new(self.shortest, self.longest);
    }

    /// Whether a try is due.
    pub fn is_due(&self, now: Nanos) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Time until the next try; `None` when nothing has failed.
    pub fn wait(&self, now: Nanos) -> Option<Nanos> {
        self.due.map(|due| Nanos(due.0.saturating_sub(now.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn backoff() -> Backoff {
        Backoff::new(Nanos(SECOND), Nanos(8 * SECOND))
    }

    #[test]
    fn nothing_is_due_before_something_failed() {
        let backoff = backoff();
        assert_eq!((backoff.is_due(Nanos(u64::MAX)), backoff.wait(Nanos(0))), (false, None));
    }

    #[test]
    fn intervals_double_up_to_the_longest() {
        let (mut backoff, mut now, mut waited) = (backoff(), Nanos(0), Vec::new());
        for _ in 0..6 {
            backoff.fail(now);
            let wait = backoff.wait(now).expect("it failed");
            assert!(!backoff.is_due(Nanos(now.0 + wait.0 - 1)) && backoff.is_due(Nanos(now.0 + wait.0)));
            now = Nanos(now.0 + wait.0);
            waited.push(wait.0 / SECOND);
        }
        assert_eq!(waited, [1, 2, 4, 8, 8, 8]);
    }

    #[test]
    fn a_success_begins_anew() {
        let mut backoff = backoff();
        backoff.fail(Nanos(0));
        backoff.fail(Nanos(0));
        backoff.succeed();
        assert_eq!(backoff.wait(Nanos(0)), None);
        backoff.fail(Nanos(0));
        assert_eq!(backoff.wait(Nanos(0)), Some(Nanos(SECOND)));
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        let mut backoff = Backoff::new(Nanos(u64::MAX), Nanos(u64::MAX));
        backoff.fail(Nanos(u64::MAX));
        assert!(backoff.is_due(Nanos(u64::MAX)));
    }
}
