//! Thousands of ports on one pool of 32 MB: what they cost, how long they take, and whether every host is served.
//!
//! Hosts come first: their veths, addresses and namespace are there before the baseline is read, so that what grows
//! afterwards is the switch's, the kernel's part included. Memory is read several times at every point, and once more
//! before anything is started, which shows how far the figure wanders by itself.

mod crowd;
mod point;
mod tables;

use std::time::{Duration, Instant};

use crowd::{Crowd, Reached};
use forebay_control::port::{Attach, PortSpec, PortState};
use forebay_testbed::dut::counters::Reading;
use forebay_testbed::dut::{Dut, Forebay};
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::cpu;
use forebay_testbed::{LabError, Result};
pub(super) use point::Point;

use super::{OutputOptions, Report, Setup};

const POOL_FRAMES: u32 = 8192;
const FRAME_BYTES: u32 = 4096;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of hosts with a port each; one more host is the one that all others reach
    #[arg(long, default_value_t = tables::PROMISED_PORTS, value_parser = clap::value_parser!(u32).range(1..=60000))]
    pub ports: u32,
    /// Seconds for which the idle switch is measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub idle_seconds: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a host was not reached or the counters do not balance.
///
/// # Errors
/// When the lab can't be made or the switch refuses the ports: its words name the limit.
pub fn run(options: &Options) -> Result<bool> {
    let title = format!("{} ports on one pool of 32 MB", options.ports);
    let about = "Veths in one namespace, each with a MAC and an IPv4 address of its own, are ports of one switch (spp, 8192 \
                 frames of 4096 bytes). Memory: the kernel's (slabs, vmalloc, per-CPU, page tables, stacks) and the \
                 daemon's own, less what both were before the daemon started; beside it the same by MemAvailable. \
                 Every host sends UDP from a socket bound to its veth to one common host, whose answer must come back \
                 on that veth.";
    let mut report = Report::begin("thousand", title, about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

/// The machine with all hosts and without the switch.
struct Bare {
    first: Point,
    /// Read after some time in which nothing was done.
    baseline: Point,
    /// Share of a processor.
    interrupts: f64,
}

/// The switch with all ports, carrying nothing.
struct Attached {
    without_ports: Point,
    with_ports: Point,
    /// How long the request took.
    request: Duration,
    pool_bytes: u64,
    /// Shares of a processor.
    daemon: f64,
    interrupts: f64,
}

/// After every host has spoken.
struct Spoken {
    reached: Reached,
    memory: Point,
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let mut lab = Lab::new("thousand")?;
    let idle = Duration::from_secs(options.idle_seconds.into());
    eprintln!("making {} hosts", options.ports);
    let common = lab.host("common", PortKind::VethTcx)?;
    let crowd = Crowd::gather(&lab, options.ports, &common)?;
    eprintln!("watching the machine without the switch");
    let bare = bare(idle)?;
    let setup = Setup { frames: Some(POOL_FRAMES), frame_size: Some(FRAME_BYTES), ..Setup::default() };
    let Some(forebay) = setup.start(&lab, report)? else { return Ok(()) };
    let attached = attached(&forebay, options.ports, idle)?;
    eprintln!("every host speaks");
    let reached = crowd.reach(&common)?;
    if let Err(error) = Reading::settled(forebay.client()) {
        report.broken(format!("the counters do not balance: {error}"));
    }
    let spoken = Spoken { reached, memory: Point::read(&forebay.pids())? };
    tables::fill(report, options.ports, &bare, &attached, &spoken);
    Ok(())
}

fn bare(idle: Duration) -> Result<Bare> {
    let first = Point::read(&[])?;
    let interrupts = cpu::share_of_interrupts(idle);
    Ok(Bare { first, baseline: Point::read(&[])?, interrupts })
}

fn attached(forebay: &Forebay, ports: u32, idle: Duration) -> Result<Attached> {
    let pids = forebay.pids();
    let without_ports = Point::read(&pids)?;
    eprintln!("attaching {} ports", ports + 1);
    let request = attach(forebay, ports)?;
    let with_ports = Point::read(&pids)?;
    eprintln!("watching the switch doing nothing");
    let (daemon, interrupts) = idle_shares(&pids, idle);
    let pool_bytes = forebay.client().pool()?.bytes_total;
    Ok(Attached { without_ports, with_ports, request, pool_bytes, daemon, interrupts })
}

/// Attaches all hosts and the common one by one request and says how long that took.
fn attach(forebay: &Forebay, ports: u32) -> Result<Duration> {
    let names: Vec<String> = (1..=ports).map(|n| format!("p{n}")).chain(["common".to_owned()]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let start = Instant::now();
    forebay.client().add(&PortSpec { attach: Attach::Auto, ..PortSpec::new("any") }, &names)?;
    let elapsed = start.elapsed();
    let shown = forebay.client().ports()?;
    let is_down = |port: &&forebay_control::port::PortShow| port.state != PortState::Up;
    match shown.iter().find(is_down) {
        Some(port) => {
            let why = format!("{}: {}", port.state, port.state_reason);
            Err(LabError::output(format!("port {}", port.name), why))
        }
        None => Ok(elapsed),
    }
}

/// The daemon's and interrupts' shares of a processor, at the same time.
fn idle_shares(pids: &[u32], duration: Duration) -> (f64, f64) {
    std::thread::scope(|scope| {
        let interrupts = scope.spawn(|| cpu::share_of_interrupts(duration));
        let daemon = cpu::share_of(pids, duration);
        (daemon, interrupts.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
