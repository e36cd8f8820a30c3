//! A virtual machine that floods, and what a container and another machine notice.

mod attacker;
mod scene;

use std::time::Duration;

use forebay_testbed::Result;
use forebay_testbed::machine::Machine;
use forebay_testbed::measure::latency::Latency;
use forebay_testbed::programs::guest_flood::GuestFlood;
use forebay_testbed::programs::ping::PingReport;

use super::{Cell, OutputOptions, Report, SENDER_CPU, Table, WORKER_CPU};
use attacker::Kind;
use scene::{Scene, Seen, Victim};

/// Promise: the p99 of TCP request and response under a flood is at most this many times that without.
const PROMISED_RATIO: f64 = 3.0;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of pings to a container, and as many to a machine, one a millisecond
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub pings: u32,
    /// Seconds of TCP requests and responses without the flood, and again with it
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10))]
    pub seconds: u32,
    /// Floods to measure, in this order
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "unknown,known,machine,broadcast,in-process"
    )]
    pub floods: Vec<Kind>,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a ping was lost, or a response took too long.
///
/// # Errors
/// When the lab can't be made, or the switch does not carry packets at all.
pub fn run(options: &Options) -> Result<bool> {
    let about = format!(
        "A guest of a vhost-user port sends 60-byte frames as fast as it can, from processor {SENDER_CPU}, which it has for \
         itself; the switch's worker is on processor {WORKER_CPU}, and so is everybody else where there are two. The \
         virtual machine that is pinged runs there before all others, as if it had a processor of its own. Meanwhile \
         a container pings another container and a virtual machine {} times each, one a millisecond, and exchanges single \
         bytes over TCP with each. Ratio: p99 under the flood to p99 before.",
        options.pings
    );
    let mut report =
        Report::begin("guest-flood", "A virtual machine that floods, and what others notice", about);
    let mut rows = Vec::new();
    let outcome = measure(options, &mut report, &mut rows);
    fill(&mut report, &rows);
    report.conclude(outcome, &options.output)
}

type Row = (Kind, Seen);

fn measure(options: &Options, report: &mut Report, rows: &mut Vec<Row>) -> Result<()> {
    if !Machine::is_installed() {
        report.skip("a virtual machine beside the flood: user-mode-linux is not installed");
        return Ok(());
    }
    for kind in &options.floods {
        if kind.is_dpdk() && !GuestFlood::is_installed() {
            report.skip(format!("{kind}: dpdk-dev is not installed"));
            continue;
        }
        eprintln!("{kind}");
        let duration = Duration::from_secs(options.seconds.into());
        let seen = Scene::new()?.play(*kind, options.pings, duration)?;
        judge(report, *kind, &seen);
        rows.push((*kind, seen));
    }
    Ok(())
}

fn judge(report: &mut Report, kind: Kind, seen: &Seen) {
    for victim in &seen.victims {
        let name = victim.name;
        if !victim.pings.is_complete() {
            report.broken(format!("{kind}, {name}: {:?}", victim.pings));
        }
        match &victim.flooded {
            Ok(flooded) if ratio(&victim.quiet, flooded) <= PROMISED_RATIO => {}
            Ok(flooded) => report.broken(format!(
                "{kind}, {name}: the p99 is {:.2} times that without the flood",
                ratio(&victim.quiet, flooded)
            )),
            Err(error) => report.broken(format!("{kind}, {name}: {error}")),
        }
    }
    if !seen.is_balanced {
        report.broken(format!("{kind}: the counters do not balance"));
    }
}

fn ratio(quiet: &Latency, flooded: &Latency) -> f64 {
    flooded.p99.as_secs_f64() / quiet.p99.as_secs_f64()
}

fn lost(pings: &PingReport) -> u32 {
    pings.sent.saturating_sub(pings.received)
}

/// Reasons and numbers, as `tx_full 12`.
fn drops_of(victim: &Victim) -> String {
    let drops = victim.drops.iter().map(|(reason, packets)| format!("{reason} {packets}"));
    drops.collect::<Vec<_>>().join(", ")
}

fn fill(report: &mut Report, rows: &[Row]) {
    let columns = [
        "flood",
        "offered, Mpps",
        "taken, Mpps",
        "to",
        "pings lost quiet",
        "pings lost",
        "of",
        "dropped at its port",
        "p50 quiet, µs",
        "p50 flooded, µs",
        "p99 quiet, µs",
        "p99 flooded, µs",
        "ratio",
    ];
    let mut table = Table::new("Beside the flood", columns);
    for (kind, seen) in rows {
        for victim in &seen.victims {
            let micros = |latency: Option<&Latency>, of: fn(&Latency) -> Duration| -> Cell {
                latency.map(|latency| of(latency).as_secs_f64() * 1e6).into()
            };
            let (quiet, flooded) = (&victim.quiet, victim.flooded.as_ref().ok());
            table.row([
                kind.to_string().as_str().into(),
                seen.offered_mpps.into(),
                seen.taken_mpps.into(),
                victim.name.into(),
                lost(&victim.quiet_pings).into(),
                lost(&victim.pings).into(),
                victim.pings.sent.into(),
                drops_of(victim).into(),
                micros(Some(quiet), |latency| latency.p50),
                micros(flooded, |latency| latency.p50),
                micros(Some(quiet), |latency| latency.p99),
                micros(flooded, |latency| latency.p99),
                flooded.map(|flooded| ratio(quiet, flooded)).into(),
            ]);
        }
    }
    report.table(table);
    report.note(
        "Offered: packets that the guest's ring took. Taken: packets that the switch counted at the port. Quiet: before the \
         flood. Dropped: all packets for the victim that the switch dropped while it was pinged, those of the flood included.",
    );
}
