//! A count that goes on when what counts is replaced, as a netdev is that was unplugged and comes back.

/// Sum of what several sources counted one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odometer {
    total: u64,
    last: Option<(u32, u64)>,
}

impl Odometer {
    /// Takes in what `source` has counted so far. What a new source had counted before is not added.
    pub fn observe(&mut self, source: u32, count: u64) {
        let fresh = match self.last {
            // A driver that makes its queues anew begins at 0.
            Some((same, last)) if same == source => count.checked_sub(last).unwrap_or(count),
            _ => 0,
        };
        self.total = self.total.saturating_add(fresh);
        self.last = Some((source, count));
    }

    /// The sum.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_count_goes_on_when_its_source_is_replaced_or_begins_anew() {
        let mut odometer = Odometer::default();
        for (source, count, total) in
            [(1, 1000, 0), (1, 1010, 10), (2, 5, 10), (2, 7, 12), (2, 7, 12), (2, 1, 13), (1, 2000, 13)]
        {
            odometer.observe(source, count);
            assert_eq!(odometer.total(), total, "{source} {count}");
        }
    }

    proptest! {
        #[test]
        fn it_never_goes_back(looks in proptest::collection::vec((0..3u32, any::<u64>()), 1..50)) {
            let mut odometer = Odometer::default();
            for (source, count) in looks {
                let before = odometer.total();
                odometer.observe(source, count);
                prop_assert!(odometer.total() >= before);
            }
        }
    }
}
