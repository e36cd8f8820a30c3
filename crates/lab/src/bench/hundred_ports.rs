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

pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let lab = Lab::new("bench-ports")?;
    let _peers = lab.bulk_veths(PORTS)?;
    let at_first = settled_memory()?;
    let mut dut = contender.dut.start(&lab, WORKER_CPU)?;
    let started = settled_memory()?;
    dut.add_ports(&ports(contender))?;
    let with_ports = settled_memory()?;
    let idle = idle_share(&dut.pids(), duration);
    let megabytes = |before: u64, after: u64| (before as f64 - after as f64) / 1e6;
    Ok(vec![
        Value::new("memory a port, MB", megabytes(started, with_ports) / PORTS as f64),
        Value::new("memory of 100 ports and all, MB", megabytes(at_first, with_ports)),
        Value::new("idle with 100 ports, % of a core", idle * 100.0),
    ])
}

fn ports(contender: Contender) -> Vec<PortSpec> {
    let attach = if contender.ports == PortKind::VethXdp { Attach::Xdp } else { Attach::Tcx };
    (1..=PORTS).map(|n| PortSpec { attach, ..PortSpec::new(format!("p{n}")) }).collect()
}

/// Available memory when what was done before has come to rest.
fn settled_memory() -> Result<u64> {
    let mut last = memory::available()?;
    let mut still = 0;
    wait::until_some("available memory to stand still", SETTLE_LIMIT, || {
        std::thread::sleep(Duration::from_millis(100));
        let now = memory::available().ok()?;
        still = if now.abs_diff(last) < STILL_BYTES { still + 1 } else { 0 };
        last = now;
        (still >= 5).then_some(now)
    })
    .or(Ok(last))
}

/// The share of one processor that these processes use while nothing happens.
fn idle_share(pids: &[u32], duration: Duration) -> f64 {
    let time = || -> Duration { pids.iter().map(|pid| cpu::process_time(*pid)).sum() };
    let (start, before) = (Instant::now(), time());
    std::thread::sleep(duration);
    time().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64()
}
