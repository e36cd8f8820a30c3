//! What moderation of a virtual machine's interrupts is worth, and what it costs.
//!
//! Two kinds of guest: a machine with an unmodified Linux, whose costs are what they are; and a driver in this process that
//! charges a stated cost for each interrupt. Policies are set in turn for one guest while it runs.

mod driver;
mod figures;
pub mod latency;
mod linux;
mod turns;
mod ways;

use std::time::Duration;

use forebay_testbed::Result;

use self::linux::Case;
pub use self::linux::{Congestion, Mask};
pub use self::ways::Way;
use super::{OutputOptions, Report};

/// A kind of guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Guest {
    /// Linux 6.1 in user mode, with its own driver
    Linux,
    /// A driver in this process
    Driver,
}

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Kinds of guest, as in `driver`
    #[arg(long, value_delimiter = ',', default_value = "driver,linux")]
    pub guests: Vec<Guest>,
    /// Policies, as in `dim-eqe,adaptive`; each is compared with `off`, which is always measured
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "off-again,static8,static64,vpp,dim-eqe,dim-cqe,adaptive,dim-onload,adaptive-onload"
    )]
    pub policies: Vec<Way>,
    /// What a Linux guest is not offered, as in `none,event-idx`
    #[arg(long, value_delimiter = ',', default_value = "none,event-idx,guest-tso")]
    pub masks: Vec<Mask>,
    /// Costs of an interrupt for the driver, in microseconds, as in `0,8`
    #[arg(long, value_delimiter = ',', default_value = "0,2,8")]
    pub costs: Vec<u32>,
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3))]
    pub seconds: u32,
    /// Number of rounds; each measures every policy once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Congestion controls of those who send to a Linux guest, as in `cubic,bbr`
    #[arg(long, value_delimiter = ',', default_value = "cubic")]
    pub congestions: Vec<Congestion>,
    /// Memory of a Linux guest, in megabytes: it bounds the windows of its sockets
    #[arg(long, value_delimiter = ',', default_value = "512", value_parser = clap::value_parser!(u32).range(64..=4096))]
    pub memory: Vec<u32>,
    /// Of Linux guests, measure streams alone, without request and response: a fifth of the time
    #[arg(long)]
    pub streams_only: bool,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports.
///
/// # Errors
/// When the lab can't be made or the machine does not boot.
pub fn run(options: &Options) -> Result<bool> {
    let about = "One stream to a guest; then request and response, one at a time, alone and beside such a stream. \
                 Interrupts: those that the switch made during the stream, for packets to the guest and from it. Guest: its \
                 processor time during the stream, in hundredths of a processor (of a driver: the time for which it works; \
                 waking up does not count). Switch: processor time of the daemon. Ratios are to `off` of the same round. \
                 The worker has a processor, and a Linux guest has another.";
    let mut report = Report::begin("moderation", "Moderation of a virtual machine's interrupts", about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

/// All combinations that were asked for of a Linux guest.
fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for memory_mb in options.memory.iter().copied() {
        for mask in options.masks.iter().copied() {
            for congestion in options.congestions.iter().copied() {
                let duration = Duration::from_secs(options.seconds.into());
                let streams_only = options.streams_only;
                cases.push(Case { mask, memory_mb, congestion, duration, streams_only });
            }
        }
    }
    cases
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let ways = ways::beside_off(&options.policies);
    let duration = Duration::from_secs(options.seconds.into());
    for guest in &options.guests {
        match guest {
            Guest::Driver => {
                for load in driver::LOADS {
                    for cost in &options.costs {
                        let cost = Duration::from_micros((*cost).into());
                        let title =
                            format!("A driver, {} µs for an interrupt; {}", cost.as_micros(), load.name());
                        let round = |ways: &[Way]| driver::round(load, cost, ways, duration);
                        figures::report(report, &title, &ways, options.rounds, round)?;
                    }
                }
            }
            Guest::Linux => {
                for case in cases(options) {
                    let round = |ways: &[Way]| linux::round(&case, ways);
                    figures::report(report, &case.title(), &ways, options.rounds, round)?;
                }
            }
        }
    }
    Ok(())
}
