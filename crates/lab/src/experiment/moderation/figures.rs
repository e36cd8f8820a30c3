//! What one policy does, and the tables of it.

use std::time::Duration;

use forebay_control::coalesce::{CoalesceDirection, CoalesceShow};
use forebay_testbed::Result;
use forebay_testbed::dut::Client;
use forebay_testbed::measure::latency::Latency;
use forebay_testbed::measure::spread::Spread;

use super::turns::in_turn;
use super::ways::Way;
use crate::experiment::{Cell, Report, Table};

/// What one policy does in one round.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    pub(super) gigabits: f64,
    /// Interrupts a second, of packets to the guest and from it.
    pub(super) interrupts: [f64; 2],
    /// Shares of a processor.
    pub(super) guest: f64,
    pub(super) switch: f64,
    /// Request and response, as far as they were measured, in the order of [`EXCHANGES`].
    pub(super) exchanges: Vec<Latency>,
}

impl Figures {
    fn all_interrupts(&self) -> f64 {
        self.interrupts.iter().sum()
    }
}

/// The median, and what one of a hundred and one of a thousand exceed.
const RANKS: [fn(&Latency) -> Duration; 3] =
    [|latency| latency.p50, |latency| latency.p99, |latency| latency.p999];

/// Names of what is measured of request and response.
const EXCHANGES: [&str; 4] = ["alone", "beside", "UDP alone", "UDP beside"];

/// Measures `rounds` rounds and adds a table of their figures. A round gives one figure for each of the ways that it is given,
/// in their order, which is another one in each round. The first of `ways` is `off`.
pub(super) fn report(
    report: &mut Report,
    title: &str,
    ways: &[Way],
    rounds: u32,
    mut round: impl FnMut(&[Way]) -> Result<Vec<Figures>>,
) -> Result<()> {
    let found = in_turn(ways, rounds, |number, turned| {
        eprintln!("{title}: round {number}");
        round(turned)
    })?;
    report.table(figures(title, ways, &found));
    report.table(ratios(title, ways, &found));
    Ok(())
}

fn text(numbers: impl Iterator<Item = f64>) -> Cell {
    Spread::of(numbers).map_or_else(String::new, Spread::text).into()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn exchanges(rounds: &[Vec<Figures>]) -> usize {
    rounds.iter().flatten().map(|figures| figures.exchanges.len()).min().unwrap_or(0)
}

fn figures(title: &str, ways: &[Way], rounds: &[Vec<Figures>]) -> Table {
    let first = ["policy", "Gbit/s", "interrupts to it, 1000/s", "from it", "guest, %", "switch, %"];
    let count = exchanges(rounds);
    let more = EXCHANGES[..count]
        .iter()
        .flat_map(|name| ["p50", "p99", "p99.9"].map(|rank| format!("{name}: {rank}, µs")));
    let columns: Vec<String> = first.map(str::to_owned).into_iter().chain(more).collect();
    let mut table = Table::new(format!("{title}: median (least–most)"), columns.iter().map(String::as_str));
    for (at, way) in ways.iter().enumerate() {
        let cell = |figure: &dyn Fn(&Figures) -> f64| text(rounds.iter().map(|round| figure(&round[at])));
        let mut row = vec![
            way.name().into(),
            cell(&|figures| figures.gigabits),
            cell(&|figures| figures.interrupts[0] / 1e3),
            cell(&|figures| figures.interrupts[1] / 1e3),
            cell(&|figures| 100.0 * figures.guest),
            cell(&|figures| 100.0 * figures.switch),
        ];
        for exchange in 0..count {
            for rank in RANKS {
                row.push(cell(&|figures| {
                    figures.exchanges.get(exchange).map_or(f64::NAN, |found| micros(rank(found)))
                }));
            }
        }
        table.row(row);
    }
    table
}

fn ratios(title: &str, ways: &[Way], rounds: &[Vec<Figures>]) -> Table {
    let first = ["policy", "throughput", "interrupts a bit", "guest a bit", "switch a bit"];
    let count = exchanges(rounds);
    let more =
        EXCHANGES[..count].iter().flat_map(|name| ["p50", "p99"].map(|rank| format!("{name}: {rank}")));
    let columns: Vec<String> = first.map(str::to_owned).into_iter().chain(more).collect();
    let mut table = Table::new(format!("{title}: beside `off`"), columns.iter().map(String::as_str));
    for (at, way) in ways.iter().enumerate().skip(1) {
        let cell = |figure: &dyn Fn(&Figures) -> f64| {
            text(rounds.iter().map(|round| figure(&round[at]) / figure(&round[0]).max(f64::MIN_POSITIVE)))
        };
        let mut row = vec![
            way.name().into(),
            cell(&|figures| figures.gigabits),
            cell(&|figures| figures.all_interrupts() / figures.gigabits),
            cell(&|figures| figures.guest / figures.gigabits),
            cell(&|figures| figures.switch / figures.gigabits),
        ];
        for exchange in 0..count {
            for rank in &RANKS[..2] {
                row.push(cell(&|figures| {
                    figures.exchanges.get(exchange).map_or(f64::NAN, |found| micros(rank(found)))
                }));
            }
        }
        table.row(row);
    }
    table
}

/// Interrupts of a port's queues so far, of packets to the guest and from it.
pub(super) fn interrupts(client: &Client, port: &str) -> Result<[u64; 2]> {
    let shown: CoalesceShow = client.json(&["coalesce", "show", port])?;
    let queues = || shown.ports.iter().flat_map(|port| &port.queues);
    Ok([CoalesceDirection::Rx, CoalesceDirection::Tx].map(|direction| {
        queues().filter(|queue| queue.direction == direction).map(|queue| queue.interrupts).sum()
    }))
}

/// Two counters as rates: what they grew by in `seconds` seconds, for each second.
pub(super) fn rates(before: [u64; 2], after: [u64; 2], seconds: f64) -> [f64; 2] {
    [0, 1].map(|which| after[which].saturating_sub(before[which]) as f64 / seconds)
}
