//! Benchmarks: Forebay and its peers in turn, in one run on one machine.
//!
//! In every round each contender is measured once, in a lab of its own; a ratio is taken within a round, so that
//! what disturbs the machine for a while disturbs both. Reported are the median and the extremes over the rounds.

mod hundred_ports;
mod rates;
mod report;
mod starvation;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::dut::{DutKind, Ovs};
use crate::host::PortKind;
use crate::{LabError, Result};

pub use report::Report;

/// The processor that sends.
const SENDER_CPU: usize = 0;
/// The processor that switches, where a contender has threads of its own.
const WORKER_CPU: usize = 1;

/// One contender: a device under test and how its ports are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Contender {
    /// The device under test.
    pub dut: DutKind,
    /// How hosts are connected.
    pub ports: PortKind,
}

impl Contender {
    /// All, Forebay first.
    pub const ALL: [Contender; 4] = [
        Contender { dut: DutKind::Forebay, ports: PortKind::VethTcx },
        Contender { dut: DutKind::Forebay, ports: PortKind::VethXdp },
        Contender { dut: DutKind::Bridge, ports: PortKind::VethTcx },
        Contender { dut: DutKind::Ovs, ports: PortKind::VethXdp },
    ];

    /// The name in tables.
    pub fn name(self) -> String {
        match self.dut {
            DutKind::Forebay if self.ports == PortKind::VethXdp => "forebay (xdp)".to_owned(),
            DutKind::Forebay => "forebay (tcx)".to_owned(),
            DutKind::Bridge | DutKind::Ovs => self.dut.name().to_owned(),
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Benchmark {
    /// 60-byte frames a second, from a source that saturates.
    SmallPackets,
    /// One TCP stream.
    TcpStream,
    /// Request and response, TCP and UDP.
    Latency,
    /// Cycles a 60-byte frame, at a rate that does not saturate.
    Cycles,
    /// What a flood on one port costs two others: pings, and TCP request and response.
    Starvation,
    /// Memory a port and processor time when idle, with a hundred ports.
    HundredPorts,
}

impl Benchmark {
    const ALL: [Benchmark; 6] = [
        Benchmark::SmallPackets,
        Benchmark::TcpStream,
        Benchmark::Latency,
        Benchmark::Cycles,
        Benchmark::Starvation,
        Benchmark::HundredPorts,
    ];

    fn measure(self, contender: Contender, duration: Duration) -> Result<Vec<Value>> {
        match self {
            Benchmark::SmallPackets => rates::small_packets(contender, duration),
            Benchmark::TcpStream => rates::tcp_stream(contender, duration),
            Benchmark::Latency => rates::latency(contender, duration),
            Benchmark::Cycles => rates::cycles(contender, duration),
            Benchmark::Starvation => starvation::measure(contender, duration),
            Benchmark::HundredPorts => hundred_ports::measure(contender, duration),
        }
    }
}

/// One measured number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Value {
    /// What was measured, with its unit.
    pub metric: &'static str,
    /// The number.
    pub value: f64,
}

impl Value {
    fn new(metric: &'static str, value: f64) -> Value {
        Value { metric, value }
    }
}

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchOptions {
    /// Rounds; each measures every contender once
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3)]
    pub seconds: u32,
    /// Only these benchmarks
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<Benchmark>,
    /// Write every number to this file
    #[arg(long, value_name = "FILE", default_value = "bench.json")]
    pub json: PathBuf,
}

/// Measures everything, prints a table and writes the JSON file.
///
/// # Errors
/// When a lab can't be made or a contender fails; what was measured so far is printed before.
pub fn run(options: &BenchOptions) -> Result<()> {
    let mut report = Report::begin();
    let outcome = rounds(options, &mut report);
    println!("{}\n{NOTES}\n{}", report.table(), report.machine());
    let json = serde_json::to_string_pretty(&report).expect("numbers and names are always JSON");
    std::fs::write(&options.json, json)
        .map_err(|error| LabError::system(format!("writing {}", options.json.display()), error))?;
    println!("Every number is in {}.", options.json.display());
    outcome
}

const NOTES: &str = "\
Median (least–most) over the rounds; ratios are forebay / peer within a round. Forebay runs its slow path.
Hosts keep their default offloads, except with OVS, through which TCP passes only after `ethtool -K eth0 tx off`.
Cycles: run time of the sender, the daemon and ksoftirqd, less that of sending the same frames into a drop at the
switch's port, times the processor's nominal rate; for OVS, whose thread spins, its own count of processing cycles.";

fn rounds(options: &BenchOptions, report: &mut Report) -> Result<()> {
    let duration = Duration::from_secs(options.seconds.into());
    for round in 1..=options.rounds {
        for benchmark in Benchmark::ALL {
            if !options.only.is_empty() && !options.only.contains(&benchmark) {
                continue;
            }
            for contender in contenders() {
                eprintln!("round {round}: {benchmark:?}, {}", contender.name());
                report.add(round, contender, benchmark.measure(contender, duration)?);
            }
        }
    }
    Ok(())
}

fn contenders() -> impl Iterator<Item = Contender> {
    let is_here = |contender: &Contender| contender.dut != DutKind::Ovs || Ovs::is_installed();
    Contender::ALL.into_iter().filter(is_here)
}
