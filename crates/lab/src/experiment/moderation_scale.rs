//! What it costs to moderate many virtual machines that are idle: in the workers, and in one thread for all queues. And how
//! many calls come too late when many are busy.
//!
//! The machines are the small ones of [`guests`](super::guests).

mod busy;

use std::time::Duration;

use forebay_control::coalesce::{CoalescePlace, CoalescePolicy, CoalescePort, CoalesceSet};
use forebay_testbed::dut::{Dut as _, Forebay, ForebayOptions};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::cpu;
use forebay_testbed::{Result, wait};

use super::guests::{LIMIT, add, connect, guest, raise_file_limit, up};
use super::{Cell, OutputOptions, Report, Table, WORKER_CPU};

/// Names of the ways that are compared, and what each sets for every machine.
const WAYS: [(&str, CoalescePolicy, CoalescePlace); 3] = [
    ("off", CoalescePolicy::Off, CoalescePlace::Offload),
    ("adaptive, offload", CoalescePolicy::Adaptive, CoalescePlace::Offload),
    ("adaptive, onload", CoalescePolicy::Adaptive, CoalescePlace::Onload),
];
/// Promise: what workers do for idle machines costs less than a thousandth of a processor.
const PROMISED: f64 = 0.001;

/// After this time the daemon has done what requests have left to do.
const SETTLING: Duration = Duration::from_secs(1);

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Numbers of virtual machines
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,4000")]
    pub guests: Vec<u32>,
    /// Seconds for which the idle switch is measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub idle_seconds: u32,
    /// Numbers of virtual machines that are busy; 0: none
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    pub busy: Vec<u32>,
    /// Packets a second to all of them together
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: u32,
    /// Seconds for which the busy switch is measured with each policy
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub busy_seconds: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when it costs more than promised.
///
/// # Errors
/// When the lab can't be made or the switch refuses the ports.
pub fn run(options: &Options) -> Result<bool> {
    let about = "Each machine has a port, a vhost-user connection and a pair of split rings of 64 entries. Share of one \
                 processor that the daemon uses while nobody sends, in thousandths, and what that is for each machine \
                 in nanoseconds a second beyond `off`. Busy: each packet is the only one that waits in its queue, and a timer \
                 calls for it; late: more than 50 µs after that. A timer alone has nothing else beside it: its row \
                 says how well the machine keeps time.";
    let mut report = Report::begin("moderation-scale", "Moderation of many idle machines", about);
    let outcome = measure(options, &mut report).and_then(|()| measure_busy(options, &mut report));
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let columns = ["machines", "moderation", "processor, ‰", "ns a second and machine, beyond off"];
    let mut table = Table::new("Idle machines", columns);
    for guests in &options.guests {
        eprintln!("{guests} virtual machines");
        let shares = shares(*guests, Duration::from_secs(options.idle_seconds.into()))?;
        for ((name, ..), share) in WAYS.iter().zip(shares) {
            let beyond = (share - shares[0]) * 1e9 / f64::from(*guests);
            table.row([
                Cell::Number((*guests).into()),
                (*name).into(),
                Cell::Number(1e3 * share),
                Cell::Number(beyond),
            ]);
        }
        if shares[1] >= PROMISED {
            report.broken(format!("{guests} idle machines take {:.5} of a processor", shares[1]));
        }
    }
    report.table(table);
    Ok(())
}

/// Policies with busy machines: `off`, one whose holds are long beside a wake-up, and one whose holds are not.
fn busy_ways() -> [(&'static str, CoalesceSet); 3] {
    let way = |policy| CoalesceSet {
        policy: Some(policy),
        place: Some(CoalescePlace::Offload),
        ..CoalesceSet::default()
    };
    let limits = CoalesceSet { usecs: Some(200), frames: Some(64), ..way(CoalescePolicy::Static) };
    [("off", way(CoalescePolicy::Off)), ("static 200 µs / 64", limits), ("dim", way(CoalescePolicy::Dim))]
}

fn measure_busy(options: &Options, report: &mut Report) -> Result<()> {
    let columns = [
        "machines",
        "moderation",
        "packets, 1000/s",
        "calls, 1000/s",
        "due by time",
        "late",
        "late, ‰",
        "switch, %",
    ];
    let mut table = Table::new("Busy machines", columns);
    let ways = busy_ways();
    if options.busy.iter().any(|guests| *guests > 0) {
        let [timed, late] = busy::timer_alone()?;
        let none = || Cell::from("–");
        let share = Cell::Number(per_mille(late, timed));
        table.row([none(), "a timer alone".into(), none(), none(), timed.into(), late.into(), share, none()]);
    }
    for guests in options.busy.iter().filter(|guests| **guests > 0) {
        eprintln!("{guests} busy virtual machines");
        let changes: Vec<_> = ways.iter().map(|(_, change)| change.clone()).collect();
        let duration = Duration::from_secs(options.busy_seconds.into());
        let found = busy::measure(*guests, options.rate, duration, &changes)?;
        for ((name, _), found) in ways.iter().zip(found) {
            table.row([
                Cell::Number((*guests).into()),
                (*name).into(),
                Cell::Number(found.sent_a_second / 1e3),
                Cell::Number(found.calls_a_second / 1e3),
                found.timed.into(),
                found.late.into(),
                Cell::Number(per_mille(found.late, found.timed)),
                Cell::Number(100.0 * found.switch),
            ]);
        }
    }
    report.table(table);
    Ok(())
}

fn per_mille(some: u64, all: u64) -> f64 {
    1e3 * some as f64 / (all as f64).max(1.0)
}

fn shares(guests: u32, idle: Duration) -> Result<[f64; WAYS.len()]> {
    raise_file_limit(guests)?;
    let lab = Lab::new("scale")?;
    let config = format!("[switch]\nmax_ports = {}\n[flood]\ncopies_per_second = 0\n", guests + 16);
    let forebay = Forebay::start(&lab, ForebayOptions::with_config(&config).pinned_to(WORKER_CPU))?;
    let client = forebay.client();
    let mut crowd = (0..guests).map(|_| guest()).collect::<Result<Vec<_>>>()?;
    let socket = |number: u32| lab.path(&format!("{number}"));
    add(client, guests, socket)?;
    for (number, guest) in (0..).zip(&mut crowd) {
        connect(guest, &socket(number))?;
    }
    wait::until("all ports to be up", LIMIT, || up(client) == crowd.len())?;
    let mut shares = [0.0; WAYS.len()];
    for (share, (name, policy, place)) in shares.iter_mut().zip(WAYS) {
        eprintln!("  {name}");
        let change = CoalesceSet { policy: Some(policy), place: Some(place), ..CoalesceSet::default() };
        for number in 0..guests {
            let path = format!("/v1/coalesce/ports/vm{number}");
            let _: CoalescePort = client.api().send("PATCH", &path, &change)?;
        }
        std::thread::sleep(SETTLING);
        *share = cpu::share_of(&forebay.pids(), idle);
    }
    Ok(shares)
}
