//! What moderation of a virtual machine's interrupts is worth, and what it costs.
//!
//! ```text
//!   container ── the switch ── virtual machine (Linux 6.1 in user mode, its own virtio_net)
//! ```
//!
//! The machine is booted once a round and once more without event suppression; policies are set in turn while it runs, so
//! that all have the same machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use forebay_control::coalesce::CoalesceShow;
use forebay_testbed::dut::{Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::host::{Host, PortKind};
use forebay_testbed::lab::Lab;
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::measure::cpu::process_time;
use forebay_testbed::measure::latency::{self, Latency};
use forebay_testbed::measure::spread::Spread;
use forebay_testbed::programs::iperf::Iperf;
use forebay_testbed::{LabError, Result};

use super::{OutputOptions, Report, Table, WORKER_CPU};

const NAME: &str = "vm1";
const V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
const ECHO_PORT: u16 = 5002;
const SERVING: &str = "Server listening";

/// Names of the policies that are compared, and the options that set each. All are compared with the first. The second is the
/// first again: its difference is noise.
const WAYS: [(&str, &[&str]); 10] = [
    ("off", &["--policy", "off", "--where", "offload"]),
    ("off, again", &["--policy", "off"]),
    ("static 8 µs / 64", &["--policy", "static", "--usecs", "8", "--frames", "64"]),
    ("static 64 µs / 64", &["--policy", "static", "--usecs", "64", "--frames", "64"]),
    ("VPP: static 1 ms / 32", &["--policy", "static", "--usecs", "1000", "--frames", "32"]),
    ("dim, EQE", &["--policy", "dim", "--profile", "eqe"]),
    ("dim, CQE", &["--policy", "dim", "--profile", "cqe"]),
    ("adaptive", &["--policy", "adaptive"]),
    ("dim, EQE, onload", &["--policy", "dim", "--profile", "eqe", "--where", "onload"]),
    ("adaptive, onload", &["--policy", "adaptive", "--where", "onload"]),
];

/// What the machine is not offered.
const MASKS: [(&str, &str); 2] = [("with event suppression", ""), ("without it", "-event-idx")];

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3))]
    pub seconds: u32,
    /// Number of rounds; each measures every policy once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// What one policy does in one round.
#[derive(Debug, Clone, Copy)]
struct Figures {
    gigabits: f64,
    /// Interrupts a second, of packets to the machine and from it.
    interrupts: f64,
    /// Shares of a processor.
    machine: f64,
    switch: f64,
    alone: Latency,
    beside: Latency,
}

/// Measures and reports.
///
/// # Errors
/// When the lab can't be made or the machine does not boot.
pub fn run(options: &Options) -> Result<bool> {
    let about = "One TCP stream from a container to a virtual machine; then request and response over TCP, one at a time, \
                 alone and beside such a stream. Interrupts: those that the switch made, of both directions, during the \
                 stream. Machine: processor time of all its processes during the stream, in hundredths of a processor; \
                 switch: of the daemon. Ratios are to `off` of the same round.";
    let mut report = Report::begin("moderation", "Moderation of a virtual machine's interrupts", about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    for (mask, features) in MASKS {
        let mut rounds = Vec::new();
        for round in 1..=options.rounds {
            eprintln!("round {round}, {mask}");
            rounds.push(Scene::new(features)?.figures(Duration::from_secs(options.seconds.into()))?);
        }
        report.table(figures(mask, &rounds));
        report.table(ratios(mask, &rounds));
    }
    Ok(())
}

type Round = [Figures; WAYS.len()];

fn text(numbers: impl Iterator<Item = f64>) -> super::Cell {
    Spread::of(numbers).map_or_else(String::new, Spread::text).into()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn figures(mask: &str, rounds: &[Round]) -> Table {
    let columns = [
        "policy",
        "Gbit/s",
        "interrupts, 1000 a second",
        "machine, %",
        "switch, %",
        "alone: p50, µs",
        "p99",
        "p99.9",
        "beside: p50, µs",
        "p99",
        "p99.9",
    ];
    let mut table = Table::new(format!("A virtual machine {mask}: median (least–most)"), columns);
    for (way, (name, _)) in WAYS.iter().enumerate() {
        let cell = |figure: fn(&Figures) -> f64| text(rounds.iter().map(|round| figure(&round[way])));
        table.row([
            (*name).into(),
            cell(|figures| figures.gigabits),
            cell(|figures| figures.interrupts / 1e3),
            cell(|figures| 100.0 * figures.machine),
            cell(|figures| 100.0 * figures.switch),
            cell(|figures| micros(figures.alone.p50)),
            cell(|figures| micros(figures.alone.p99)),
            cell(|figures| micros(figures.alone.p999)),
            cell(|figures| micros(figures.beside.p50)),
            cell(|figures| micros(figures.beside.p99)),
            cell(|figures| micros(figures.beside.p999)),
        ]);
    }
    table
}

fn ratios(mask: &str, rounds: &[Round]) -> Table {
    let columns = [
        "policy",
        "throughput",
        "interrupts",
        "machine a bit",
        "switch a bit",
        "alone: p50",
        "p99",
        "beside: p50",
        "p99",
    ];
    let mut table = Table::new(format!("The same beside `off`, {mask}"), columns);
    for (way, (name, _)) in WAYS.iter().enumerate().skip(1) {
        let cell = |figure: fn(&Figures) -> f64| {
            text(rounds.iter().map(|round| figure(&round[way]) / figure(&round[0]).max(f64::MIN_POSITIVE)))
        };
        table.row([
            (*name).into(),
            cell(|figures| figures.gigabits),
            cell(|figures| figures.interrupts / figures.gigabits),
            cell(|figures| figures.machine / figures.gigabits),
            cell(|figures| figures.switch / figures.gigabits),
            cell(|figures| micros(figures.alone.p50)),
            cell(|figures| micros(figures.alone.p99)),
            cell(|figures| micros(figures.beside.p50)),
            cell(|figures| micros(figures.beside.p99)),
        ]);
    }
    table
}

struct Scene {
    // In this order: the machine before its switch, both before the lab they are in.
    machine: Machine,
    forebay: Forebay,
    host: Host,
    _lab: Lab,
}

impl Scene {
    fn new(features: &str) -> Result<Scene> {
        let mut lab = Lab::new("moderation")?;
        let host = lab.host("h1", PortKind::VethTcx)?;
        let forebay = Forebay::start(&lab, ForebayOptions::default().pinned_to(WORKER_CPU))?;
        let client = forebay.client();
        client.ok(&["port", "add", host.name()])?;
        let socket = lab.path("vm1.sock");
        let path = socket.display().to_string();
        client.ok(&["port", "add", NAME, "--vhost-user", &path, &format!("--features={features}")])?;
        let script = format!("busybox nc -ll -p {ECHO_PORT} -e cat & iperf3 -s --forceflush");
        let options = MachineOptions { name: NAME, socket: &socket, v4: V4, pairs: 1, script: &script };
        let mut machine = Machine::boot(&lab, &options)?;
        machine.wait_for_output(SERVING)?;
        Ok(Scene { machine, forebay, host, _lab: lab })
    }

    fn figures(&self, duration: Duration) -> Result<Round> {
        let mut found = Vec::new();
        for (name, way) in WAYS {
            eprintln!("  {name}");
            self.client().ok(&[&["coalesce", "set", NAME], way].concat())?;
            found.push(self.measure(duration)?);
        }
        found.try_into().map_err(|_| LabError::output("the figures", "not one of each policy"))
    }

    fn measure(&self, duration: Duration) -> Result<Figures> {
        let seconds = duration.as_secs() as u32;
        let server = SocketAddr::new(V4.into(), ECHO_PORT);
        let (calls, time, began) = (self.interrupts()?, self.times(), Instant::now());
        let stream = Iperf::seconds(seconds).to(&self.host, V4.into())?;
        let (wall, after) = (began.elapsed().as_secs_f64(), self.times());
        let interrupts = (self.interrupts()? - calls) as f64 / wall;
        let share = |which: usize| (after[which].saturating_sub(time[which])).as_secs_f64() / wall;
        let alone = latency::tcp_to(&self.host, server, duration)?;
        let beside = std::thread::scope(|scope| {
            let stream = scope.spawn(|| Iperf::seconds(seconds + 1).to(&self.host, V4.into()));
            let measured = latency::tcp_to(&self.host, server, duration);
            stream.join().expect("a stream does not panic")?;
            measured
        })?;
        Ok(Figures {
            gigabits: stream.received_bits_per_second / 1e9,
            interrupts,
            machine: share(0),
            switch: share(1),
            alone,
            beside,
        })
    }

    fn client(&self) -> &Client {
        self.forebay.client()
    }

    /// Of the machine and the switch.
    fn times(&self) -> [Duration; 2] {
        let sum = |pids: &[u32]| pids.iter().map(|pid| process_time(*pid)).sum();
        [sum(&self.machine.pids()), sum(&self.forebay.pids())]
    }

    fn interrupts(&self) -> Result<u64> {
        let shown: CoalesceShow = self.client().json(&["coalesce", "show", NAME])?;
        Ok(shown.ports.iter().flat_map(|port| &port.queues).map(|queue| queue.interrupts).sum())
    }
}
