//! What a flood on one port costs two others, in every spool mode, with the kernel's bridge as yardstick.
//!
//! Four hosts: the attacker, whom it floods, and a victim that pings a server and exchanges single bytes with it over
//! TCP, first undisturbed and then under the flood. What the flood loses must be counted where it belongs: on the
//! attacker's port.

pub(crate) mod scene;

use std::time::Duration;

use forebay_control::eswitch::SpoolMode;
use forebay_testbed::Result;
use forebay_testbed::dut::{Bridge, Dut, Ovs};
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::latency::Latency;
use scene::{Ledger, Scene, Seen};

use super::{Cell, Chart, OutputOptions, Report, Series, Setup, Shape, Table, WORKER_CPU};

/// The processor that the flood has for itself.
const ATTACKER_CPU: usize = 0;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of pings from a port that the flood may harm, one a millisecond
    #[arg(long, default_value_t = scene::PINGS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub pings: u32,
    /// Seconds of TCP requests and responses without the flood, and again with it
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Forebay { mode: SpoolMode, ports: PortKind },
    Bridge,
    Ovs,
}

/// Bridge first, so that the yardstick is there whatever comes after.
const CONTENDERS: [Contender; 7] = [
    Contender::Bridge,
    Contender::Forebay { mode: SpoolMode::Spp, ports: PortKind::VethTcx },
    Contender::Forebay { mode: SpoolMode::Spp, ports: PortKind::VethXdp },
    Contender::Forebay { mode: SpoolMode::Basic, ports: PortKind::VethTcx },
    Contender::Forebay { mode: SpoolMode::Basic, ports: PortKind::VethXdp },
    Contender::Forebay { mode: SpoolMode::None, ports: PortKind::VethXdp },
    Contender::Ovs,
];

impl Contender {
    fn name(self) -> String {
        match self {
            Contender::Forebay { mode, ports: PortKind::VethXdp } => format!("{mode} (xdp)"),
            Contender::Forebay { mode, .. } => format!("{mode} (tcx)"),
            Contender::Bridge => "kernel bridge".to_owned(),
            Contender::Ovs => "ovs-afxdp".to_owned(),
        }
    }

    fn ports(self) -> PortKind {
        match self {
            Contender::Forebay { ports, .. } => ports,
            Contender::Bridge => PortKind::VethTcx,
            Contender::Ovs => PortKind::VethXdp,
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// When a lab can't be made or a switch does not carry packets at all.
pub fn run(options: &Options) -> Result<bool> {
    let about = format!(
        "One host floods another with 60-byte frames made in the kernel, from processor {ATTACKER_CPU}, which it has for \
         itself; the switch's worker is on processor {WORKER_CPU}, and so is everybody else where there are two. Meanwhile \
         a third host pings a fourth {} times, one a millisecond, and exchanges single bytes with it over TCP. Ratio: p99 \
         under the flood to p99 before.",
        options.pings
    );
    let mut report = Report::begin("starvation", "A flood on one port, and what two others notice", about);
    let mut rows = Vec::new();
    let outcome = measure(options, &mut report, &mut rows);
    fill(&mut report, &rows);
    report.conclude(outcome, &options.output)
}

type Row = (String, Seen);

fn measure(options: &Options, report: &mut Report, rows: &mut Vec<Row>) -> Result<()> {
    for contender in CONTENDERS {
        eprintln!("{}", contender.name());
        let mut lab = Lab::new("starvation")?;
        let hosts = lab.hosts(scene::HOSTS, contender.ports())?;
        let scene = Scene {
            lab: &lab,
            hosts: &hosts,
            duration: Duration::from_secs(options.seconds.into()),
            pings: options.pings,
            attacker_cpu: ATTACKER_CPU,
        };
        if let Some(seen) = play(contender, &scene, report)? {
            if let Err(error) = &seen.flooded {
                report.note(format!("{}, under the flood: {error}", contender.name()));
            }
            rows.push((contender.name(), seen));
        }
    }
    report.note(
        "The slides say of shared queues without thresholds (basic): all buffers are the attacker's, the victim gets no \
         bandwidth at all.",
    );
    Ok(())
}

fn play(contender: Contender, scene: &Scene<'_>, report: &mut Report) -> Result<Option<Seen>> {
    let mut dut: Box<dyn Dut> = match contender {
        Contender::Forebay { mode, .. } => {
            let setup = Setup { mode, ..Setup::default() };
            let Some(mut forebay) = setup.start(scene.lab, report)? else { return Ok(None) };
            let client = forebay.client().clone();
            return scene.play(&mut forebay, Some(&client)).map(Some);
        }
        Contender::Bridge => Box::new(Bridge::start(scene.lab)?),
        Contender::Ovs if Ovs::is_installed() => Box::new(Ovs::start(scene.lab, WORKER_CPU)?),
        Contender::Ovs => {
            report.skip("Open vSwitch: openvswitch-switch-dpdk is not installed");
            return Ok(None);
        }
    };
    scene.play(dut.as_mut(), None).map(Some)
}

fn fill(report: &mut Report, rows: &[Row]) {
    let victim = [
        "switch",
        "pings lost",
        "of",
        "TCP p50 quiet, µs",
        "TCP p50 flooded, µs",
        "TCP p99 quiet, µs",
        "TCP p99 flooded, µs",
        "ratio",
    ];
    let mut table = Table::new("The victim", victim);
    rows.iter().for_each(|row| table.row(victim_cells(row)));
    report.table(table);
    let attacker = [
        "switch",
        "offered load, Mpps",
        "carried, Mpps",
        "frames sent",
        "lost",
        "counted on the attacker's port",
        "on the target's port",
        "before the switch",
        "found, %",
    ];
    let mut table = Table::new("The attacker", attacker);
    rows.iter().for_each(|row| table.row(attacker_cells(row)));
    report.table(table);
    report.note(
        "Before the switch: frames that the attacker's own veth lost, before the port's program saw them. Found: the part \
         of all lost frames that these three counters hold; where the counters come to rest before the sink's does, or a \
         few other packets enter the port, it is a little off 100.",
    );
    charts(report, rows);
}

fn micros(latency: Option<&Latency>, of: fn(&Latency) -> Duration) -> Option<f64> {
    latency.map(|latency| of(latency).as_secs_f64() * 1e6)
}

fn p99(latency: &Latency) -> Duration {
    latency.p99
}

fn p50(latency: &Latency) -> Duration {
    latency.p50
}

fn victim_cells((name, seen): &Row) -> [Cell; 8] {
    let (quiet, flooded) = (Some(&seen.quiet), seen.flooded.as_ref().ok());
    let ratio = micros(flooded, p99).zip(micros(quiet, p99)).map(|(flooded, quiet)| flooded / quiet);
    [
        name.as_str().into(),
        (seen.pings.sent.saturating_sub(seen.pings.received)).into(),
        seen.pings.sent.into(),
        micros(quiet, p50).into(),
        micros(flooded, p50).into(),
        micros(quiet, p99).into(),
        micros(flooded, p99).into(),
        ratio.into(),
    ]
}

fn attacker_cells((name, seen): &Row) -> [Cell; 9] {
    let of = |part: fn(&Ledger) -> u64| seen.ledger.as_ref().map(part);
    let found = seen.ledger.as_ref().and_then(|ledger| ledger.found_percent(&seen.flood));
    [
        name.as_str().into(),
        seen.flood.offered_load_mpps().into(),
        seen.flood.carried_mpps().into(),
        seen.flood.sent.into(),
        seen.flood.lost().into(),
        of(|ledger| ledger.on_attacker).into(),
        of(|ledger| ledger.on_target).into(),
        of(|ledger| ledger.before_switch).into(),
        found.into(),
    ]
}

fn charts(report: &mut Report, rows: &[Row]) {
    let names = || rows.iter().map(|(name, _)| name.as_str());
    let values =
        |value: fn(&Seen) -> Option<f64>| rows.iter().map(|(_, seen)| value(seen)).collect::<Vec<_>>();
    let lost = Chart::new("Pings lost under the flood", "%", Shape::Bars, names());
    report.chart(lost.with(Series::new("lost", values(|seen| Some(seen.pings.lost_percent())))));
    let latency = Chart::new("TCP request and response, p99", "µs", Shape::Bars, names()).logarithmic();
    let latency = latency.with(Series::new("quiet", values(|seen| micros(Some(&seen.quiet), p99))));
    report
        .chart(latency.with(Series::new("flooded", values(|seen| micros(seen.flooded.as_ref().ok(), p99)))));
}

#[cfg(test)]
mod tests {
    use forebay_testbed::LabError;
    use forebay_testbed::measure::flood::Flooded;
    use forebay_testbed::programs::ping::PingReport;

    use super::*;

    fn seen(flooded: Result<Latency>) -> Seen {
        let micros = Duration::from_micros;
        Seen {
            quiet: Latency {
                count: 10,
                p50: micros(80),
                p99: micros(100),
                p999: micros(150),
                max: micros(200),
            },
            flooded,
            pings: PingReport { sent: 10_000, received: 9_000, duplicates: 0 },
            flood: Flooded { sent: 4_000_000, arrived: 1_000_000, duration: Duration::from_secs(2) },
            ledger: Some(Ledger { on_attacker: 2_900_000, on_target: 60_000, before_switch: 40_000 }),
        }
    }

    #[test]
    fn the_ratio_is_of_p99_and_what_was_lost_is_found_on_the_attackers_port() {
        let micros = Duration::from_micros;
        let row = (
            "spp".to_owned(),
            seen(Ok(Latency {
                count: 10,
                p50: micros(90),
                p99: micros(250),
                p999: micros(270),
                max: micros(300),
            })),
        );
        let texts = victim_cells(&row).map(|cell| cell.text());
        assert_eq!(texts[1..3], ["1000", "10000"]);
        assert_eq!(texts[7], "2.50");
        let texts = attacker_cells(&row).map(|cell| cell.text());
        assert_eq!(texts[4..], ["3000000", "2900000", "60000", "40000", "100"]);
    }

    #[test]
    fn a_victim_without_an_answer_has_no_ratio() {
        let row = ("basic".to_owned(), seen(Err(LabError::output("x", "y"))));
        assert_eq!(victim_cells(&row)[6..], [Cell::None, Cell::None]);
    }
}
