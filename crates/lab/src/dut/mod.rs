//! Devices under test: what switches between the hosts.
//!
//! All answer to the same few verbs, so that a scenario or a measurement is written once; what one can't do it
//! refuses by name.

pub mod bridge;
pub mod client;
pub mod counters;
pub mod forebay;
pub mod ovs;

use std::time::Duration;

use forebay_control::port::{Attach, PortSpec};

use crate::host::{Host, PortKind};
use crate::lab::Lab;
use crate::measure::cpu;
use crate::programs::ping::Ping;
use crate::{Result, wait};

pub use bridge::Bridge;
pub use client::Client;
pub use forebay::{Forebay, ForebayOptions};
pub use ovs::Ovs;

/// Time for the first packets to go through.
const WARM_UP_LIMIT: Duration = Duration::from_secs(10);

/// A switch in the lab's switch namespace; it ends when dropped.
pub trait Dut {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Adds ports.
    ///
    /// # Errors
    /// When it refuses one of them.
    fn add_ports(&mut self, ports: &[PortSpec]) -> Result<()>;

    /// Deletes a port by its netdev's name.
    ///
    /// # Errors
    /// When it refuses.
    fn delete_port(&mut self, netdev: &str) -> Result<()>;

    /// The processes that do its work; empty when the kernel does.
    fn pids(&self) -> Vec<u32>;

    /// Processor time its processes spent on packets since start: their run time, unless they spin when idle.
    ///
    /// # Errors
    /// When it can't be found out.
    fn work_time(&self) -> Result<Duration> {
        Ok(self.pids().into_iter().map(cpu::process_time).sum())
    }

    /// Whether TCP passes only after the hosts' transmit offloads were switched off.
    fn needs_offloads_off(&self) -> bool {
        false
    }
}

/// Which device under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DutKind {
    /// Forebay.
    Forebay,
    /// The kernel's bridge.
    Bridge,
    /// Open vSwitch with AF_XDP ports.
    Ovs,
}

impl DutKind {
    /// Every kind.
    pub const ALL: [DutKind; 3] = [DutKind::Forebay, DutKind::Bridge, DutKind::Ovs];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            DutKind::Forebay => "forebay",
            DutKind::Bridge => "bridge",
            DutKind::Ovs => "ovs-afxdp",
        }
    }

    /// Starts one in the lab, its workers on `cpu` where it has workers.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(self, lab: &Lab, cpu: usize) -> Result<Box<dyn Dut>> {
        Ok(match self {
            DutKind::Forebay => {
                let options = ForebayOptions::default().pinned_to(cpu);
                Box::new(Forebay::start(lab, options)?)
            }
            DutKind::Bridge => Box::new(Bridge::start(lab)?),
            DutKind::Ovs => Box::new(Ovs::start(lab, cpu)?),
        })
    }
}

/// Waits until a switch carries packets both ways between two hosts; Open vSwitch takes a while to begin.
///
/// # Errors
/// When it does not within ten seconds.
pub fn wait_until_it_carries(from: &Host, to: &Host) -> Result<()> {
    let answers = || Ping::new(to.v4()).from(from).is_ok_and(|report| report.is_complete());
    wait::until("the switch to carry packets", WARM_UP_LIMIT, answers)
}

/// The port that this host is connected to, as its kind asks for.
pub fn port_of(host: &Host) -> PortSpec {
    let attach = match host.kind() {
        PortKind::VethXdp => Attach::Xdp,
        PortKind::VethTcx | PortKind::Tap => Attach::Tcx,
    };
    PortSpec { attach, ..PortSpec::new(host.name()) }
}

/// The ports of these hosts.
pub fn ports_of<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> Vec<PortSpec> {
    hosts.into_iter().map(port_of).collect()
}
