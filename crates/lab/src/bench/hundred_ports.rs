//! A hundred ports that carry nothing: what they cost.

use std::time::{Duration, Instant};

use forebay_control::port::{Attach, PortSpec};

use super::{Contender, Value, WORKER_CPU};
use crate::host::PortKind;
use crate::lab::Lab;
use crate::measure::{cpu, memory};
use crate::{Result, wait};

const PORTS: usize = 100;
/// How long memory may take to stand still.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// Two readings this near to each other are the same.
const STILL_BYTES: u64 = 1 << 20;

/// Memory in use at one moment, measured in two ways.
struct Memory {
    /// What the kernel holds for itself and what the switch's processes have.
    held: u64,
    /// What all programs could still get.
    available: u64,
}

pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let lab = Lab::new("bench-ports")?;
    let _peers = lab.bulk_veths(PORTS)?;
    let at_first = settled_memory(&[])?;
    let mut dut = contender.dut.start(&lab, WORKER_CPU)?;
    let started = settled_memory(&dut.pids())?;
    dut.add_ports(&ports(contender))?;
    let with_ports = settled_memory(&dut.pids())?;
    let idle = idle_share(&dut.pids(), duration);
    let a_port = megabytes(started.held, with_ports.held) / PORTS as f64;
    let a_port_available = megabytes(with_ports.available, started.available) / PORTS as f64;
    Ok(vec![
        Value::new("memory a port, MB", a_port),
        Value::new("memory a port, by MemAvailable, MB", a_port_available),
        Value::new("memory of 100 ports and all, MB", megabytes(at_first.held, with_ports.held)),
        Value::new("idle with 100 ports, % of a core", idle * 100.0),
    ])
}

fn megabytes(less: u64, more: u64) -> f64 {
    (more as f64 - less as f64) / 1e6
}

fn ports(contender: Contender) -> Vec<PortSpec> {
    let attach = if contender.ports == PortKind::VethXdp { Attach::Xdp } else { Attach::Tcx };
    (1..=PORTS).map(|n| PortSpec { attach, ..PortSpec::new(format!("p{n}")) }).collect()
}

/// Memory when what was done before has come to rest, or after ten seconds.
fn settled_memory(pids: &[u32]) -> Result<Memory> {
    let now = || -> Result<u64> {
        let own: u64 = pids.iter().map(|pid| memory::resident(*pid)).sum();
        Ok(memory::kernel()? + own)
    };
    let (mut last, mut still) = (now()?, 0);
    let _ = wait::until("memory to stand still", SETTLE_LIMIT, || {
        std::thread::sleep(Duration::from_millis(100));
        let held = now().unwrap_or(last);
        still = if held.abs_diff(last) < STILL_BYTES { still + 1 } else { 0 };
        last = held;
        still >= 5
    });
    Ok(Memory { held: now()?, available: memory::available()? })
}

/// The share of one processor that these processes use while nothing happens.
fn idle_share(pids: &[u32], duration: Duration) -> f64 {
    let time = || -> Duration { pids.iter().map(|pid| cpu::process_time(*pid)).sum() };
    let (start, before) = (Instant::now(), time());
    std::thread::sleep(duration);
    time().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64()
}
