//! A hundred ports that carry nothing: what they cost.

use std::time::Duration;

use forebay_control::port::{Attach, PortSpec};
use forebay_testbed::Result;
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::cpu;
use forebay_testbed::measure::memory::InUse;

use super::{Contender, Value};

const PORTS: usize = 100;

pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let lab = Lab::new("bench-ports")?;
    let _peers = lab.bulk_veths(PORTS)?;
    let at_first = InUse::settled(&[])?;
    let mut dut = contender.start(&lab)?;
    let started = InUse::settled(&dut.pids())?;
    dut.add_ports(&ports(contender))?;
    let with_ports = InUse::settled(&dut.pids())?;
    let idle = cpu::share_of(&dut.pids(), duration);
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
    let attach = if contender.port() == PortKind::VethXdp { Attach::Xdp } else { Attach::Tcx };
    (1..=PORTS).map(|n| PortSpec { attach, ..PortSpec::new(format!("p{n}")) }).collect()
}
