//! Buckets of a histogram of times: exact up to 16 ns, then eight to each power of two, so that a bucket is an eighth of
//! what it counts at most.

/// Buckets that a power of two is cut into, as a power of two.
const SUB_BITS: u32 = 3;
const SUB: u64 = 1 << SUB_BITS;
/// Times from here on, 18 minutes, count as this one.
const LONGEST: u64 = (1 << 40) - 1;

/// Which bucket a time belongs to, and which times a bucket holds.
#[derive(Clone, Copy, Debug)]
pub struct Buckets;

impl Buckets {
    /// How many there are.
    pub const COUNT: usize = Self::of(LONGEST) + 1;

    /// The bucket of a time.
    #[inline]
    pub const fn of(ns: u64) -> usize {
        let ns = if ns > LONGEST { LONGEST } else { ns };
        // The lowest bit changes no bucket; with it, 0 has a logarithm.
        let shift = (ns | 1).ilog2().saturating_sub(SUB_BITS);
        (shift as u64 * SUB + (ns >> shift)) as usize
    }

    /// The longest time that `bucket` holds.
    pub const fn longest(bucket: usize) -> u64 {
        Self::shortest(bucket as u64 + 1) - 1
    }

    /// The shortest time that `bucket` holds.
    const fn shortest(bucket: u64) -> u64 {
        let shift = (bucket / SUB).saturating_sub(1);
        (bucket - shift * SUB) << shift
    }

    /// The longest time of the bucket in which the share `part` of all counted times ends. `None`: nothing was counted.
    pub fn quantile(counts: &[u64], part: f64) -> Option<u64> {
        let all: u64 = counts.iter().sum();
        let wanted = ((all as f64 * part).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        let bucket = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Self::longest(bucket))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut counts = vec![0; Buckets::COUNT];
        for ns in 1..=1000 {
            counts[Buckets::of(ns)] += 1;
        }
        for (part, exact) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = Buckets::quantile(&counts, part).unwrap() as f64;
            assert!((exact..=exact * 1.125).contains(&found), "{part}: {found} for {exact}");
        }
        assert_eq!(Buckets::quantile(&[0; 4], 0.5), None);
    }

    #[test]
    fn a_longer_time_than_18_minutes_counts_as_18_minutes() {
        assert_eq!(Buckets::longest(Buckets::of(u64::MAX)), (1 << 40) - 1);
    }

    proptest! {
        #[test]
        fn a_time_lies_in_its_bucket_and_buckets_are_narrow(ns in prop_oneof![0..2000u64, 0..=LONGEST]) {
            let bucket = Buckets::of(ns);
            prop_assert!(bucket < Buckets::COUNT);
            let first = if bucket == 0 { 0 } else { Buckets::longest(bucket - 1) + 1 };
            prop_assert!((first..=Buckets::longest(bucket)).contains(&ns), "{ns} in {bucket}");
            prop_assert!(Buckets::longest(bucket) - first <= ns / 8);
        }

        #[test]
        fn no_time_is_too_long(ns: u64) {
            prop_assert!(Buckets::of(ns) < Buckets::COUNT);
        }
    }
}
