use super::*;
use proptest::prelude::*;

const RATE: Rate = Rate { per_second: 1000, burst: 50 };

#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: u64,
    burst: u64,
}

impl Rate {
    fn bucket(self) -> TokenBucket {
        TokenBucket::new(self.per_second, self.burst)
    }
}

/// The definition, taken literally: every grant so far is kept, and a new one is allowed if no window that ends now
/// would exceed `burst + rate · window`. Exact in u128, in billionths of a token.
struct Oracle {
    rate: Rate,
    latest: u64,
    grants: Vec<(u64, u64)>,
}

impl Oracle {
    fn take(&mut self, now: u64, tokens: u64) -> bool {
        self.latest = self.latest.max(now);
        let billion = u128::from(Nanos::PER_SECOND);
        let fits = |since: u64, taken: u128| {
            let window = u128::from(self.latest - since) * u128::from(self.rate.per_second);
            taken * billion <= u128::from(self.rate.burst) * billion + window
        };
        let mut taken = u128::from(tokens);
        let mut allowed = fits(self.latest, taken);
        for (at, granted) in self.grants.iter().rev() {
            taken += u128::from(*granted);
            allowed &= fits(*at, taken);
        }
        let allowed = allowed || tokens == 0;
        if allowed {
            self.grants.push((self.latest, tokens));
        }
        allowed
    }
}

fn rates() -> impl Strategy<Value = Rate> {
    let small = (1u64..5000, 0u64..200);
    let awkward = (prop_oneof![Just(1u64), Just(3), Just(7), Just(999_999_937)], 1u64..1000);
    prop_oneof![small, awkward].prop_map(|(per_second, burst)| Rate { per_second, burst })
}

proptest! {
    #[test]
    fn the_bucket_decides_as_its_definition_does(
        rate in rates(),
        start in prop_oneof![Just(0u64), Just(u64::MAX - 20_000_000_000), any::<u32>().prop_map(u64::from)],
        steps in proptest::collection::vec((0u64..200_000_000, 0u64..60), 1..80),
    ) {
        let mut bucket = rate.bucket();
        let mut oracle = Oracle { rate, latest: start, grants: Vec::new() };
        let mut now = start;
        for (pause, tokens) in steps {
            now = now.saturating_add(pause);
            prop_assert_eq!(bucket.take(Nanos(now), tokens), oracle.take(now, tokens), "{} tokens at {}", tokens, now);
        }
    }

    #[test]
    fn a_clock_that_jumps_back_and_forth_gains_nothing(
        steps in proptest::collection::vec((0u64..100_000_000, 0u64..60), 1..80),
    ) {
        let mut bucket = RATE.bucket();
        let mut oracle = Oracle { rate: RATE, latest: 0, grants: Vec::new() };
        for (now, tokens) in steps {
            prop_assert_eq!(bucket.take(Nanos(now), tokens), oracle.take(now, tokens));
        }
    }

    #[test]
    fn any_numbers_at_all_are_survived(
        per_second: u64,
        burst: u64,
        steps in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..20),
    ) {
        let mut bucket = TokenBucket::new(per_second, burst);
        for (now, tokens) in steps {
            let before = bucket.available(Nanos(now));
            let taken = bucket.take(Nanos(now), tokens);
            prop_assert_eq!(taken, per_second == 0 || tokens <= before);
            if per_second != 0 {
                prop_assert_eq!(bucket.available(Nanos(now)), before - if taken { tokens } else { 0 });
                prop_assert!(before <= burst);
            }
        }
    }
}

/// Nanoseconds, rounded up, after which `tokens` have flowed in at 7 a second.
fn due(tokens: u64) -> Nanos {
    Nanos((u128::from(tokens) * 1_000_000_000).div_ceil(7) as u64)
}

#[test]
fn a_rate_that_divides_no_second_does_not_drift_in_ten_years() {
    let ten_years = 7 * 86_400 * 3650;
    let mut bucket = TokenBucket::new(7, ten_years);
    assert!(bucket.take(Nanos(0), ten_years));
    // From here on every token is taken the moment it is complete, one by one or many at once.
    let mut taken = 0;
    while taken < ten_years {
        let more = if taken % 2 == 0 { 1 } else { 100_003.min(ten_years - taken) };
        taken += more;
        assert!(!bucket.take(Nanos(due(taken).0 - 1), more), "token {taken} came early");
        assert!(bucket.take(due(taken), more), "token {taken} came late");
    }
}

#[test]
fn a_full_bucket_gives_its_burst_and_then_the_rate() {
    let mut bucket = RATE.bucket();
    let now = Nanos::from_secs(9);
    assert!(bucket.take(now, 50));
    assert!(!bucket.take(now, 1));
    assert!(!bucket.take(Nanos(now.0 + 999_999), 1), "a token takes a millisecond");
    assert!(bucket.take(Nanos(now.0 + 1_000_000), 1));
    assert_eq!(bucket.available(Nanos::from_secs(10)), 50, "no more than the burst is saved up");
}

#[test]
fn a_refused_take_takes_nothing() {
    let mut bucket = RATE.bucket();
    assert!(!bucket.take(Nanos(0), 51));
    assert!(bucket.take(Nanos(0), 50));
}

#[test]
fn a_rate_of_zero_is_no_limit() {
    let mut bucket = TokenBucket::new(0, 0);
    assert!(bucket.take(Nanos(0), u64::MAX));
    assert!(bucket.take(Nanos(0), u64::MAX));
}

#[test]
fn a_changed_rate_keeps_what_fits_and_invents_nothing() {
    let mut bucket = RATE.bucket();
    assert!(bucket.take(Nanos(0), 20));
    bucket.set_rate(Nanos(0), 1, 1000);
    assert_eq!(bucket.available(Nanos(0)), 30);
    bucket.set_rate(Nanos(0), 2, 10);
    assert_eq!(bucket.available(Nanos(0)), 10);
    assert_eq!((bucket.per_second(), bucket.burst()), (2, 10));
    bucket.set_rate(Nanos(0), 0, 0);
    bucket.set_rate(Nanos(0), RATE.per_second, RATE.burst);
    assert_eq!(bucket.available(Nanos(0)), 50);
}
