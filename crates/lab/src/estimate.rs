//! How near `forebay pool estimate` is: a daemon with so many veth ports, and what the machine has less afterwards.
//!
//! The kernel's side is the growth of `Slab`, `VmallocUsed`, `Percpu` and `PageTables`, the daemon's what is present of its
//! own mappings. The growth of all that is not available (`MemAvailable`) is printed beside: it counts everything, and
//! what others on the machine do meanwhile too. Nothing else should run.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use forebay_control::memory::Estimate;
use forebay_control::port::{Attach, PortSpec};
use forebay_testbed::dut::{Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::measure::memory;
use forebay_testbed::{Lab, Result, wait};

/// How long memory may take to stand still, how long it must, and what still counts as standing.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
const STILL_LOOKS: u32 = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(100);
const STILL_BYTES: u64 = 64 << 10;
/// A sum that is so near is good, in percent. What one port takes is printed and not judged: a hundred ports find room in
/// slabs that others left half full.
const NEAR_PERCENT: f64 = 10.0;

/// Arguments of `estimate`.
#[derive(Debug, Args)]
pub(crate) struct EstimateArgs {
    /// Numbers of ports to measure with, as in 100,1000
    #[arg(long, value_delimiter = ',', default_value = "100,1000", value_name = "N,…")]
    ports: Vec<usize>,
    /// Packets that an RX ring holds
    #[arg(long, default_value_t = 1024)]
    depth: u32,
    /// Number of workers
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// Number of frames in the pool
    #[arg(long, default_value_t = 16384)]
    frames: u32,
    /// Attach ports by XDP instead of tcx
    #[arg(long)]
    xdp: bool,
}

/// Measures and prints; the status says whether every sum was near.
///
/// # Errors
/// When a lab can't be made or the daemon refuses.
pub(crate) fn run(args: &EstimateArgs) -> Result<ExitCode> {
    let mut is_near = true;
    for ports in &args.ports {
        let (estimate, measured) = measure(args, *ports)?;
        is_near &= print(&estimate, &measured);
    }
    Ok(if is_near { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Memory in use at one moment.
#[derive(Debug, Clone, Copy)]
struct Held {
    kernel: u64,
    user: u64,
    unavailable: u64,
}

/// What was in use more than before, without ports and with them.
struct Measured {
    started: Held,
    with_ports: Held,
}

fn measure(args: &EstimateArgs, ports: usize) -> Result<(Estimate, Measured)> {
    let lab = Lab::new("estimate")?;
    let _peers = lab.bulk_veths(ports)?;
    let config = format!(
        "[switch]\nworkers = {}\n[pool]\nframes = {}\nrx_ring_depth = {}\n",
        args.workers, args.frames, args.depth
    );
    let before = settled(None)?;
    let mut forebay = Forebay::start(&lab, ForebayOptions::with_config(config))?;
    let pid = forebay.daemon().pid();
    let started = settled(Some(pid))?.since(before);
    forebay.add_ports(&wanted(ports, args.xdp))?;
    let with_ports = settled(Some(pid))?.since(before);
    Ok((estimated(args, ports, forebay.client())?, Measured { started, with_ports }))
}

fn estimated(args: &EstimateArgs, ports: usize, client: &Client) -> Result<Estimate> {
    let numbers = [ports as u32, args.depth, args.workers, args.frames].map(|number| number.to_string());
    let attach = if args.xdp { "xdp" } else { "tcx" };
    let [ports, depth, workers, frames] = numbers.each_ref().map(String::as_str);
    client.estimate(&[
        "--ports",
        ports,
        "--depth",
        depth,
        "--workers",
        workers,
        "--frames",
        frames,
        "--attach",
        attach,
    ])
}

fn wanted(ports: usize, is_xdp: bool) -> Vec<PortSpec> {
    let attach = if is_xdp { Attach::Xdp } else { Attach::Tcx };
    (1..=ports).map(|n| PortSpec { attach, ..PortSpec::new(format!("p{n}")) }).collect()
}

impl Held {
    fn now(pid: Option<u32>) -> Result<Held> {
        Ok(Held {
            kernel: memory::kernel()? + memory::page_tables()?,
            user: pid.map_or(0, memory::own),
            unavailable: u64::MAX - memory::available()?,
        })
    }

    fn since(self, before: Held) -> Held {
        Held {
            kernel: self.kernel.saturating_sub(before.kernel),
            user: self.user - before.user,
            unavailable: self.unavailable.saturating_sub(before.unavailable),
        }
    }

    fn total(self) -> u64 {
        self.kernel + self.user
    }
}

/// Memory when what was done before has come to rest.
fn settled(pid: Option<u32>) -> Result<Held> {
    let (mut last, mut still) = (Held::now(pid)?, 0);
    wait::until("memory to stand still (what else is running?)", SETTLE_LIMIT, || {
        std::thread::sleep(LOOK_PAUSE);
        let now = Held::now(pid).unwrap_or(last);
        still = if now.total().abs_diff(last.total()) < STILL_BYTES { still + 1 } else { 0 };
        last = now;
        still >= STILL_LOOKS
    })?;
    Ok(last)
}

fn print(estimate: &Estimate, measured: &Measured) -> bool {
    let ports = u64::from(estimate.ports.max(1));
    println!("{} ports, {} RX rings of {} packets", estimate.ports, estimate.rings, estimate.depth);
    println!("{:<28} {:>14} {:>14} {:>8}", "bytes", "estimated", "measured", "off by");
    let all = measured.with_ports;
    line("user", estimate.user_bytes, all.user);
    line("kernel", estimate.kernel_bytes, all.kernel);
    let off = line("together", estimate.total_bytes, all.total());
    line("together, by MemAvailable", estimate.total_bytes, all.unavailable);
    let a_port = |with: u64, without: u64| with.saturating_sub(without) / ports;
    let (started, with) = (measured.started, measured.with_ports);
    line("each port", estimate.bytes_a_port, a_port(with.total(), started.total()));
    line("each port, by MemAvailable", estimate.bytes_a_port, a_port(with.unavailable, started.unavailable));
    println!(
        "each port: user {}, kernel {}; without ports: user {}, kernel {}\n",
        a_port(with.user, started.user),
        a_port(with.kernel, started.kernel),
        started.user,
        started.kernel
    );
    off.abs() <= NEAR_PERCENT
}

/// Prints one comparison; says by how many percent the estimate is off.
fn line(what: &str, estimated: u64, measured: u64) -> f64 {
    let off = (estimated as f64 / measured.max(1) as f64 - 1.0) * 100.0;
    println!("{what:<28} {estimated:>14} {measured:>14} {off:>+7.1}%");
    off
}
