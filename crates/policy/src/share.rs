//! Sharing a rate: each taker is sure of an equal part of half of it, whatever the others ask for.
//!
//! A worker floods for many ports. A bucket that serves first come, first served is empty for a quiet port while five
//! others flood. So each port that flooded lately has an equal part of half the worker's rate to itself. It may take
//! that even from an empty bucket, which is then in debt, and the others wait until the debt is paid.
//!
//! The rule it keeps: all together take no more than the rate in the long run, and a few ports may use all of it. Beyond
//! that goes one packet of each port that has been quiet. A part is kept as the time by which it is paid (virtual clock,
//! Zhang 1990), so a quiet port costs nothing.

use crate::Nanos;

/// A port that asked within this window, or the one before, has a part.
const WINDOW: u64 = Nanos::PER_SECOND;
/// How much of its part a port may use ahead of time.
const AHEAD: u64 = 100_000_000;

/// A rate, shared by takers that are not known beforehand. All calls are constant-time and may be made on the packet path.
#[derive(Clone, Copy, Debug)]
pub struct SharedRate {
    per_second: u64,
    burst: u64,
    /// Billionths of a token; less than 0 while parts are to be paid for.
    level: i128,
    filled_at: Nanos,
    window: u64,
    /// Takers that asked within this window, and within the one before.
    takers: u64,
    takers_before: u64,
}

/// One taker's part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// What it has used is paid for by then.
    paid_at: Nanos,
    /// The window it was counted in last, plus 1.
    counted: u64,
}

impl SharedRate {
    /// Shares `per_second` tokens, 0 of which mean no limit at all; `burst` may be taken at once by whoever comes first.
    pub const fn new(per_second: u64, burst: u64) -> Self {
        let level = billionths(burst);
        Self { per_second, burst, level, filled_at: Nanos(0), window: 0, takers: 0, takers_before: 0 }
    }

    /// Takes `tokens` that are the taker's part, else such as are for everybody; takes nothing if there are not as many.
    #[must_use]
    pub fn take(&mut self, part: &mut Part, now: Nanos, tokens: u64) -> bool {
        if self.per_second == 0 {
            return true;
        }
        let takers = self.count(part, now);
        self.fill(now);
        let may_take = self.take_part(part, now, tokens, takers) || billionths(tokens) <= self.level;
        if may_take {
            self.level = self.level.saturating_sub(billionths(tokens));
        }
        may_take
    }

    fn fill(&mut self, now: Nanos) {
        let inflow = i128::from(now.since(self.filled_at)).saturating_mul(i128::from(self.per_second));
        self.level = self.level.saturating_add(inflow).min(billionths(self.burst));
        self.filled_at = self.filled_at.max(now);
    }

    /// How many takers there are.
    fn count(&mut self, part: &mut Part, now: Nanos) -> u64 {
        let window = now.0 / WINDOW;
        if window > self.window {
            self.takers_before = if window == self.window + 1 { self.takers } else { 0 };
            (self.window, self.takers) = (window, 0);
        }
        if part.counted != self.window + 1 {
            part.counted = self.window + 1;
            self.takers += 1;
        }
        self.takers.max(self.takers_before)
    }

    fn take_part(&self, part: &mut Part, now: Nanos, tokens: u64, takers: u64) -> bool {
        let may_take = part.paid_at.since(now) <= AHEAD;
        if may_take {
            // A taker's part of half the rate.
            let ns = u128::from(tokens) * u128::from(Nanos::PER_SECOND) * u128::from(2 * takers);
            let ns = u64::try_from(ns / u128::from(self.per_second)).unwrap_or(u64::MAX);
            part.paid_at = Nanos(part.paid_at.max(now).0.saturating_add(ns));
        }
        may_take
    }
}

const fn billionths(tokens: u64) -> i128 {
    tokens as i128 * Nanos::PER_SECOND as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// What each of `floods` ports, which ask for a token every 100 microseconds, and a quiet port, which asks for one
    /// every 100 ms, got within two seconds; the quiet one asks last.
    fn run(rate: &mut SharedRate, floods: usize) -> (Vec<u64>, u64) {
        let (mut parts, mut got) = (vec![Part::default(); floods], vec![0; floods]);
        let (mut quiet, mut quiet_got) = (Part::default(), 0);
        for step in 0..20_000u64 {
            let now = Nanos(5 * Nanos::PER_SECOND + step * MS / 10);
            for (part, got) in parts.iter_mut().zip(&mut got) {
                *got += u64::from(rate.take(part, now, 1));
            }
            if step % 1000 == 999 {
                quiet_got += u64::from(rate.take(&mut quiet, now, 1));
            }
        }
        (got, quiet_got)
    }

    #[test]
    fn a_quiet_taker_has_its_part_however_many_others_ask_for_more() {
        for floods in [1, 5, 50] {
            let mut rate = SharedRate::new(2000, 100);
            assert_eq!(run(&mut rate, floods).1, 20, "{floods} others");
        }
    }

    #[test]
    fn all_takers_together_get_the_rate_and_little_more() {
        for floods in [1, 5, 50, 500] {
            let mut rate = SharedRate::new(2000, 100);
            let (got, quiet) = run(&mut rate, floods);
            let sum: u64 = got.iter().sum::<u64>() + quiet;
            // Two seconds, a burst, what is used ahead of time, and a packet of each.
            let most = 2 * 2000 + 100 + 100 + floods as u64 + 1;
            assert!(sum <= most, "{floods}: {sum} of {most}");
            assert!(sum >= 2 * 1999, "{floods}: {sum}");
        }
    }

    #[test]
    fn takers_that_ask_alike_have_a_part_each() {
        let mut rate = SharedRate::new(2000, 100);
        let (got, _) = run(&mut rate, 10);
        // A tenth of 1000 a second, within two seconds.
        assert!(got.iter().all(|got| *got >= 2 * 1000 / 11), "{got:?}");
    }

    #[test]
    fn takers_that_ask_no_more_give_up_their_parts_one_window_later() {
        /// Tokens of a taker that asks a thousand times in the second, of 1000 that are all in parts.
        fn taken(rate: &mut SharedRate, part: &mut Part, second: u64) -> usize {
            let at = |ms| Nanos(second * WINDOW + ms * MS);
            (0..1000).filter(|ms| rate.take(part, at(*ms), 1)).count()
        }
        let mut rate = SharedRate::new(1000, 0);
        let mut parts = [Part::default(); 10];
        assert!(parts.iter_mut().all(|part| rate.take(part, Nanos(0), 1)));
        let with_ten = taken(&mut rate.clone(), &mut parts[0].clone(), 1);
        let after_them = taken(&mut rate, &mut parts[0], 2);
        assert!((50..=60).contains(&with_ten), "a tenth of 500, and a little ahead of time: {with_ten}");
        assert!((500..=560).contains(&after_them), "all of 500, and a little ahead of time: {after_them}");
    }

    #[test]
    fn a_single_taker_may_have_all_of_it_and_a_packet_of_any_size() {
        let mut rate = SharedRate::new(2000, 100);
        let mut part = Part::default();
        assert!(rate.take(&mut part, Nanos(0), 5000), "one that has been quiet is never too large");
        assert!(!rate.take(&mut part, Nanos(0), 1), "but it must be paid for");
        let paid = Nanos(5 * Nanos::PER_SECOND);
        assert!(rate.take(&mut part, paid, 100) && rate.take(&mut part, paid, 1));
    }

    #[test]
    fn no_limit_is_no_limit() {
        assert!(SharedRate::new(0, 0).take(&mut Part::default(), Nanos(0), u64::MAX));
    }
}
