//! Benchmarks: Forebay and its peers in turn, in one run on one machine.
//!
//! In every round each contender takes each measurement once, in a lab of its own; a ratio is taken within a round, so that
//! what disturbs the machine for a while disturbs both. Each round begins with another contender, so that none is always
//! measured first. Reported are the median and the extremes over the rounds.

mod asked;
mod contender;
mod guest_streams;
mod guests;
mod hints;
mod hundred_ports;
mod pair;
mod rates;
mod report;
mod starvation;
mod traffic;

use std::path::PathBuf;
use std::time::Duration;

pub use contender::Contender;
use forebay_testbed::{LabError, Result};
pub use report::Report;
use serde::Serialize;

/// The processor that sends.
const SENDER_CPU: usize = 0;
/// The processor that switches, where a contender has threads of its own.
const WORKER_CPU: usize = 1;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Benchmark {
    /// 60-byte frames a second, from a source that saturates.
    SmallPackets,
    /// One TCP stream.
    TcpStream,
    /// Eight TCP streams at a time.
    #[value(name = "tcp-streams-8")]
    TcpStreams8,
    /// Small datagrams from socket to socket, as many as one processor sends.
    SmallUdp,
    /// Request and response, TCP and UDP.
    Latency,
    /// TCP streams, small datagrams, request and response between a NIC's port and a container's, both ways.
    Uplink,
    /// wrk against nginx, over connections that are kept.
    Web,
    /// Short TCP connections, many at a time.
    Connections,
    /// Flows installed a second, and what the first packet of one costs.
    NewFlows,
    /// Cycles a 60-byte frame, at a rate that does not saturate.
    Cycles,
    /// What a flood on one port costs two others: pings, and TCP request and response.
    Starvation,
    /// Cycles of the packet thread for a packet that a rule drops, with the packet's hash as a hint and without.
    Hints,
    /// Packets a second between two guests of a DPDK program, by bytes and by packets in flight.
    Guests,
    /// One TCP stream each way, request and response, between a virtual machine and a container, and a stream between two machines.
    GuestStreams,
    /// Memory a port and processor time when idle, with a hundred ports.
    HundredPorts,
}

impl Benchmark {
    const ALL: [Benchmark; 15] = [
        Benchmark::SmallPackets,
        Benchmark::TcpStream,
        Benchmark::TcpStreams8,
        Benchmark::SmallUdp,
        Benchmark::Latency,
        Benchmark::Uplink,
        Benchmark::Web,
        Benchmark::Connections,
        Benchmark::NewFlows,
        Benchmark::Cycles,
        Benchmark::Starvation,
        Benchmark::Hints,
        Benchmark::Guests,
        Benchmark::GuestStreams,
        Benchmark::HundredPorts,
    ];

    /// Who takes part: the fast path where it makes a difference, the slow path beside Open vSwitch, which is its peer.
    fn contenders(self) -> &'static [Contender] {
        use Contender::{
            BareTcx, BareXdp, Bridge, BridgeNetfilter, BridgeXdp, Guests, Ovs, OvsDpdk, OvsDpdkWhole, Tcx,
            TcxRule, TcxSlow, Uplink, Xdp, XdpFlowIds, XdpHints, XdpSlow,
        };
        match self {
            Benchmark::SmallPackets => {
                &[Tcx, Xdp, TcxSlow, XdpSlow, Bridge, BridgeNetfilter, Ovs, BareTcx, BareXdp]
            }
            Benchmark::TcpStream | Benchmark::TcpStreams8 | Benchmark::Web => {
                &[Tcx, Xdp, Bridge, BridgeNetfilter, BareTcx]
            }
            Benchmark::SmallUdp => &[Tcx, Xdp, Bridge, BridgeNetfilter, BridgeXdp, BareTcx],
            Benchmark::Latency => &[Tcx, Xdp, TcxSlow, XdpSlow, Bridge, BridgeNetfilter, Ovs, BareTcx],
            Benchmark::Uplink => &[Uplink, BridgeXdp, Bridge],
            Benchmark::Connections => &[Tcx, Xdp, Bridge, BridgeNetfilter, BareTcx, TcxRule],
            Benchmark::NewFlows => &[Xdp],
            Benchmark::Guests => &[Guests, OvsDpdk],
            Benchmark::GuestStreams => &[Guests, Tcx, Bridge, OvsDpdk, OvsDpdkWhole],
            Benchmark::Hints => &[XdpFlowIds, XdpHints, XdpSlow, Ovs],
            Benchmark::Cycles | Benchmark::Starvation | Benchmark::HundredPorts => {
                &[TcxSlow, XdpSlow, Bridge, Ovs]
            }
        }
    }

    /// The measurements of this benchmark. Every contender takes the first one before any contender takes the second.
    fn measures(self) -> &'static [Measure] {
        match self {
            Benchmark::SmallPackets => &[rates::small_packets],
            Benchmark::TcpStream => &[traffic::one_stream],
            Benchmark::TcpStreams8 => &[traffic::eight_streams],
            Benchmark::SmallUdp => &[traffic::small_udp],
            Benchmark::Latency => &[rates::latency],
            Benchmark::Uplink => &traffic::UPLINK,
            Benchmark::Web => &[traffic::web],
            Benchmark::Connections => &[traffic::connections],
            Benchmark::NewFlows => &[rates::new_flows],
            Benchmark::Cycles => &[rates::cycles],
            Benchmark::Starvation => &[starvation::measure],
            Benchmark::Hints => &[hints::measure],
            Benchmark::Guests => &[guests::measure],
            Benchmark::GuestStreams => &[guest_streams::measure],
            Benchmark::HundredPorts => &[hundred_ports::measure],
        }
    }
}

/// Measures one contender for about this long.
type Measure = fn(Contender, Duration) -> Result<Vec<Value>>;

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

    fn in_micros(metric: &'static str, time: Duration) -> Value {
        Value::new(metric, time.as_secs_f64() * 1e6)
    }
}

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchOptions {
    /// Number of rounds; each round measures every switch once
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 3)]
    pub seconds: u32,
    /// Only these benchmarks
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<Benchmark>,
    /// Only these switches and programs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub contenders: Vec<Contender>,
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
    println!("{}\n{NOTES}", report.table());
    report.asked().into_iter().for_each(|table| println!("{table}"));
    println!("{}", report.machine());
    let json = serde_json::to_string_pretty(&report).expect("numbers and names are always JSON");
    std::fs::write(&options.json, json)
        .map_err(|error| LabError::system(format!("writing {}", options.json.display()), error))?;
    println!("Every number is in {}.", options.json.display());
    outcome
}

const NOTES: &str = "\
Median (least–most) over the rounds; ratios are the contender's number / the peer's, within a round. Forebay repeats
its decisions in the kernel, except where it says slow path. The bare redirects join two ports and decide nothing.
Hosts keep their default offloads, except with OVS, through which TCP passes only after `ethtool -K eth0 tx off`, and
with the bare XDP redirect, which needs `gro on`. Sender and receiver of TCP streams have a processor each.
Cycles: run time of the sender, the daemon and ksoftirqd, less that of sending the same frames into a drop at the
switch's port, times the processor's nominal rate; for OVS, whose thread spins, its own count of processing cycles.
Cycles a packet that a rule drops: of the packet thread, as the switch itself counts them.";

fn rounds(options: &BenchOptions, report: &mut Report) -> Result<()> {
    let duration = Duration::from_secs(options.seconds.into());
    for round in 1..=options.rounds {
        for benchmark in Benchmark::ALL {
            if !options.only.is_empty() && !options.only.contains(&benchmark) {
                continue;
            }
            let is_wanted = |of: &Contender| options.contenders.is_empty() || options.contenders.contains(of);
            let (mut here, absent): (Vec<_>, Vec<_>) =
                benchmark.contenders().iter().copied().filter(is_wanted).partition(|of| of.is_here());
            for contender in absent {
                eprintln!(
                    "round {round}: {benchmark:?}, {}: is not on this machine, left out",
                    contender.name()
                );
            }
            let first = (round - 1) as usize % here.len().max(1);
            here.rotate_left(first);
            for measure in benchmark.measures() {
                for contender in here.iter().copied() {
                    eprintln!("round {round}: {benchmark:?}, {}", contender.name());
                    report.add(round, contender, measure(contender, duration)?);
                }
            }
        }
    }
    Ok(())
}
