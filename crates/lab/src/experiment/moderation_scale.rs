//! What it costs to moderate many virtual machines that are idle: in the workers, and in one thread that reads all queues a
//! hundred times a second.
//!
//! The machines are the small ones of [`guests`](super::guests).

use std::time::Duration;

use forebay_control::coalesce::{CoalescePlace, CoalescePolicy, CoalescePort, CoalesceSet};
use forebay_testbed::dut::{Dut as _, Forebay, ForebayOptions};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::cpu;
use forebay_testbed::{Result, wait};

use super::guests::{FILES, LIMIT, MORE_FILES, add, connect, guest, raise_file_limit, up};
use super::{Cell, OutputOptions, Report, Table, WORKER_CPU};

/// Names of the ways that are compared, and what each sets for every machine.
const WAYS: [(&str, CoalescePolicy, CoalescePlace); 3] = [
    ("off", CoalescePolicy::Off, CoalescePlace::Offload),
    ("adaptive, offload", CoalescePolicy::Adaptive, CoalescePlace::Offload),
    ("adaptive, onload", CoalescePolicy::Adaptive, CoalescePlace::Onload),
];
/// Promise: what workers do for idle machines costs less than a thousandth of a processor.
const PROMISED: f64 = 0.001;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Numbers of virtual machines
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,4000")]
    pub guests: Vec<u32>,
    /// Seconds for which the idle switch is measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub idle_seconds: u32,
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
                 in nanoseconds a second beyond `off`.";
    let mut report = Report::begin("moderation-scale", "Moderation of many idle machines", about);
    let outcome = measure(options, &mut report);
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

fn shares(guests: u32, idle: Duration) -> Result<[f64; WAYS.len()]> {
    raise_file_limit(u64::from(guests) * FILES + MORE_FILES)?;
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
        *share = cpu::share_of(&forebay.pids(), idle);
    }
    Ok(shares)
}
