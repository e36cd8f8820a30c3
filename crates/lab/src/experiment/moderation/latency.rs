//! Request and response, and streams with a window, with policies in short turns, so that all policies have the same noise.
//!
//! A second with one policy and a second with another say little on a machine that others use: between two seconds with the same
//! policy, p99 may double. So each policy has a fraction of a second, again and again, and is compared with the turn of `off` in
//! the same cycle. The median of many such ratios is known well although each is not, and `off` a second time in each cycle
//! says how well.

use std::time::Duration;

use forebay_testbed::Result;
use forebay_testbed::measure::spread::number;

use super::linux::{Case, Congestion, Mask};
use super::turns::{Column, Plan};
use super::ways::{self, Way};
use super::{Guest, driver, linux};
use crate::experiment::{Cell, OutputOptions, Report, Table};

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Kinds of guest, as in `driver`
    #[arg(long, value_delimiter = ',', default_value = "driver,linux")]
    pub guests: Vec<Guest>,
    /// Policies, as in `dim-eqe,adaptive`; each is compared with `off`, which is always measured
    #[arg(long, value_delimiter = ',', default_value = "off-again,dim-eqe,adaptive")]
    pub policies: Vec<Way>,
    /// How many turns each policy has
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..=1000))]
    pub cycles: u32,
    /// Duration of a turn, in milliseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=3000))]
    pub turn_ms: u32,
    /// What an interrupt costs the driver, in microseconds
    #[arg(long, default_value_t = 2)]
    pub cost: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports.
///
/// # Errors
/// When the lab can't be made or the machine does not boot.
pub fn run(options: &Options) -> Result<bool> {
    let about = "Request and response, one at a time, and streams with a window, with policies in short turns. Ratios are to \
                 `off` of the same cycle: their median, and its interval of confidence (95 %). `off, again` is the same \
                 as `off`, so its ratios are what the machine does by itself.";
    let mut report =
        Report::begin("moderation-latency", "What moderation costs an exchange, and a window", about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let plan = Plan {
        ways: ways::beside_off(&options.policies),
        cycles: options.cycles,
        turn: Duration::from_millis(options.turn_ms.into()),
    };
    for guest in &options.guests {
        let (title, found) = match guest {
            Guest::Driver => {
                let cost = Duration::from_micros(options.cost.into());
                let title = format!("A driver, {} µs for an interrupt", options.cost);
                (title, driver::in_turns(cost, &plan)?)
            }
            Guest::Linux => {
                let case = Case {
                    mask: Mask::None,
                    memory_mb: 512,
                    congestion: Congestion::Cubic,
                    duration: plan.turn,
                    streams_only: false,
                };
                (case.title(), linux::in_turns(&case, &plan)?)
            }
        };
        report.table(table(&title, &plan, &found));
    }
    Ok(())
}

fn table(title: &str, plan: &Plan, columns: &[Column]) -> Table {
    let names = std::iter::once("policy").chain(columns.iter().map(|column| column.name.as_str()));
    let mut table = Table::new(title, names);
    for (at, way) in plan.ways.iter().enumerate() {
        let mut row = vec![Cell::from(way.name())];
        for Column { unit, cycles, .. } in columns {
            row.push(match at {
                0 => plain(median_of(cycles.iter().map(|cycle| cycle[0])), unit),
                _ => ratio(median_of(cycles.iter().map(|cycle| cycle[at] / cycle[0]))),
            });
        }
        table.row(row);
    }
    table
}

fn plain([_, median, _]: [f64; 3], unit: &str) -> Cell {
    format!("{} {unit}", number(median)).into()
}

fn ratio([low, median, high]: [f64; 3]) -> Cell {
    format!("{median:.3} ({low:.3}–{high:.3})").into()
}

/// The median of six numbers or more, between two of them that bound it with a confidence of 95 %. The rank of each lies 1.96
/// standard deviations of a binomial distribution from the middle.
fn median_of(numbers: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let rank = (count as f64 / 2.0 - 1.96 * (count as f64).sqrt() / 2.0).max(1.0) as usize;
    let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
    [sorted[rank - 1], median, sorted[count - rank]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_a_hundred_lies_between_the_fortieth_and_the_sixty_first() {
        let numbers = |most: u32| (1..=most).rev().map(f64::from);
        assert_eq!(median_of(numbers(100)), [40.0, 50.5, 61.0]);
        assert_eq!(median_of(numbers(24)), [7.0, 12.5, 18.0]);
        assert_eq!(median_of(numbers(6)), [1.0, 3.5, 6.0]);
    }
}
