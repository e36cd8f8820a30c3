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

/// One figure of every turn.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) unit: &'static str,
    /// Of each cycle, in the order of the plan's ways.
    pub(super) cycles: Vec<Vec<f64>>,
}

impl Plan {
    /// Has `cycle` done, with a turn for each way. Returns the results of each cycle in the order of the plan's ways.
    pub(super) fn follow<T>(&self, mut cycle: impl FnMut(&[Way]) -> Result<Vec<T>>) -> Result<Vec<Vec<T>>> {
        in_turn(&self.ways, self.cycles, |_, ways| cycle(ways))
    }
}

impl Column {
    /// `of` each result.
    pub(super) fn of<T>(
        name: String,
        unit: &'static str,
        cycles: &[Vec<T>],
        of: impl Fn(&T) -> f64,
    ) -> Column {
        Column { name, unit, cycles: cycles.iter().map(|cycle| cycle.iter().map(&of).collect()).collect() }
    }

    /// What half of all exchanges exceed, and what one of a hundred does.
    pub(super) fn of_exchanges(name: &str, cycles: &[Vec<Latency>]) -> [Column; 2] {
        let rank = |rank, of: fn(&Latency) -> Duration| {
            Column::of(format!("{name}: {rank}"), "µs", cycles, |latency| of(latency).as_secs_f64() * 1e6)
        };
        [rank("p50", |latency| latency.p50), rank("p99", |latency| latency.p99)]
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
            Ok(turned.iter().map(time).collect())
        });
        assert_eq!(firsts, plan.ways);
        for cycle in cycles.expect("nothing fails") {
            assert_eq!(cycle, plan.ways.iter().map(time).collect::<Vec<_>>());
        }
    }
}
