//! Turns: each policy has one in each cycle.

use std::time::Duration;

use forebay_testbed::Result;
use forebay_testbed::measure::latency::Latency;

use super::ways::Way;

/// Who has turns, how many, and how long.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) ways: Vec<Way>,
    pub(super) cycles: u32,
    pub(super) turn: Duration,
}

/// What was measured in each cycle, in the order of the plan's ways.
pub(super) type Cycles = Vec<Vec<Latency>>;

impl Plan {
    /// Has `cycle` done, with a turn for each way.
    pub(super) fn follow(&self, mut cycle: impl FnMut(&[Way]) -> Result<Vec<Latency>>) -> Result<Cycles> {
        in_turn(&self.ways, self.cycles, |_, ways| cycle(ways))
    }
}

/// Calls `cycle` once for each of `cycles` cycles, with the cycle's number from 1 on and the ways. The order of the ways is another
/// one each time. Returns the results of each cycle in the order of `ways`.
pub(super) fn in_turn<T>(
    ways: &[Way],
    cycles: u32,
    mut cycle: impl FnMut(u32, &[Way]) -> Result<Vec<T>>,
) -> Result<Vec<Vec<T>>> {
    let cycles = (0..cycles).map(|number| {
        let first = number as usize % ways.len();
        let mut turned = ways.to_vec();
        turned.rotate_left(first);
        let mut found = cycle(number + 1, &turned)?;
        found.rotate_right(first);
        Ok(found)
    });
    cycles.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_first_once_and_figures_are_in_the_order_of_the_ways() {
        let plan =
            Plan { ways: vec![Way::Off, Way::OffAgain, Way::Adaptive], cycles: 3, turn: Duration::ZERO };
        let (mut firsts, time) = (Vec::new(), |way: &Way| Duration::from_secs(1 + *way as u64));
        let cycles = plan.follow(|turned| {
            firsts.push(turned[0]);
            let of = |way: &Way| Latency {
                count: 1,
                p50: time(way),
                p99: time(way),
                p999: time(way),
                max: time(way),
            };
            Ok(turned.iter().map(of).collect())
        });
        assert_eq!(firsts, plan.ways);
        for cycle in cycles.expect("nothing fails") {
            let times: Vec<Duration> = cycle.iter().map(|latency| latency.p50).collect();
            assert_eq!(times, plan.ways.iter().map(time).collect::<Vec<_>>());
        }
    }
}
