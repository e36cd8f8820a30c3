//! A hundred thousand flows: what they take, how fast they come, carry and go, what the first packet of one costs, and
//! what a flood of 5-tuples does to the others.
//!
//! ```text
//!   q1 ─ p1 ══► p2 ─ q2     a grid of senders × receivers, all behind two XDP ports
//!   q3 ─ p3 ══► p4 ─ q4     the flood: one sender, one receiver, ten million UDP 5-tuples
//! ```

mod first;
mod flood;
mod grid;
mod scene;
mod tables;
mod woken;

use forebay_testbed::Result;
use hdrhistogram::Histogram;
use scene::Scene;

use super::{OutputOptions, Report};

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of flows, rounded up to a square number
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1024..=400_000))]
    pub flows: u32,
    /// Duration of each measurement of a rate, in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Number of rounds; each measures the rate of one flow and of all flows
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Number of new flows whose first packets are timed
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub firsts: u32,
    /// Number of distinct 5-tuples in the flood
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    pub tuples: u64,
    /// Frames a second of the flood
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..=5_000_000))]
    pub flood_rate: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

impl Options {
    /// Senders, and as many receivers.
    fn side(&self) -> u16 {
        (1..u16::MAX).find(|side| u32::from(*side).pow(2) >= self.flows).unwrap_or(u16::MAX)
    }

    fn all(&self) -> u64 {
        u64::from(self.side()).pow(2)
    }
}

/// Measures and reports; false when flows stay away, do not go, or a flood makes many.
///
/// # Errors
/// When the lab can't be made or the switch does not take its configuration.
pub fn run(options: &Options) -> Result<bool> {
    let title = format!("{} flows", options.all());
    let about = "Flows are pairs of MAC addresses between two XDP ports. Frames of 60 bytes come from a source in the kernel \
                 on processor 0, the switch's worker is on processor 1, and what arrives is counted by XDP. The table \
                 is made for two and a half times as many flows, since one port may have half of what is free.";
    let mut report = Report::begin("flows", title, about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

/// What new flows cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewFlows {
    /// Flows installed a second while all are new.
    pub(crate) installs: f64,
    /// Of a flow's first packet, from socket to socket.
    pub(crate) first: Quantiles,
    /// Of those that follow a flow.
    pub(crate) later: Quantiles,
    /// Of a thread on the worker's processor that is woken, and answers.
    pub(crate) woken: Quantiles,
}

/// Of a latency, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// Measures only what new flows cost, with so many of them.
pub(crate) fn new_flows(flows: u32, firsts: u32) -> Result<NewFlows> {
    let none = OutputOptions { json: None, html: None };
    let options = Options { flows, firsts, seconds: 1, rounds: 1, tuples: 0, flood_rate: 0, output: none };
    let mut scene = Scene::set(&options)?;
    // In this order: a flow that is there has no first packet.
    let first = first::measure(&mut scene, &options)?;
    let install = grid::install(&scene, &options)?;
    let micros = |times: &Histogram<u64>| {
        let [p50, p99] = [0.5, 0.99].map(|q| times.value_at_quantile(q) as f64 / 1e3);
        Quantiles { p50, p99 }
    };
    Ok(NewFlows {
        installs: install.rate,
        first: micros(&first.first),
        later: micros(&first.later),
        woken: micros(&first.woken),
    })
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let mut scene = Scene::set(options)?;
    let grid = grid::measure(&mut scene, options)?;
    tables::grid(report, options, &grid);
    let first = first::measure(&mut scene, options)?;
    tables::first(report, &first);
    let flood = flood::measure(&scene, options)?;
    tables::flood(report, &flood);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn a_number_of_flows_is_rounded_up_to_a_square() {
        let options = |flows: &str| Line::parse_from(["x", "--flows", flows]).options;
        assert_eq!((options("100000").side(), options("100000").all()), (317, 100_489));
        assert_eq!(options("1024").side(), 32);
    }
}
