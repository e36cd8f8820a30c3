//! Devices under test: what switches between the hosts.
//!
//! All answer to the same few verbs, so that a scenario or a measurement is written once; what one can't do it
//! refuses by name.

pub mod api;
pub mod bare;
pub mod bridge;
pub mod client;
pub mod counters;
pub mod forebay;
pub mod ovs;

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use forebay_control::port::{Attach, PortSpec};
use forebay_control::vhost_user::VhostUser;

use crate::host::{Host, PortKind};
use crate::measure::cpu;
use crate::programs::ping::Ping;
use crate::{Result, wait};

pub use api::Api;
pub use bare::Bare;
pub use bridge::Bridge;
pub use client::Client;
pub use forebay::{Forebay, ForebayOptions};
pub use ovs::Ovs;

/// Time for the first packets to go through.
const WARM_UP_LIMIT: Duration = Duration::from_secs(10);

/// What packet threads did since start, as they count it themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Processed {
    /// Packets that they took.
    pub packets: u64,
    /// Cycles in rounds that had packets.
    pub cycles: u64,
    /// What not every switch has.
    pub facts: Option<Facts>,
}

/// More about those packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Packets that came with hints.
    pub hinted: u64,
    /// Packets whose rule was known.
    pub cached: u64,
    /// Packets that were decided about as the one before.
    pub repeated: u64,
    /// Bursts that they came in.
    pub bursts: u64,
}

impl Processed {
    /// What was done since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Processed) -> Processed {
        let facts = |now: Facts, before: Facts| Facts {
            hinted: now.hinted - before.hinted,
            repeated: now.repeated - before.repeated,
            cached: now.cached - before.cached,
            bursts: now.bursts - before.bursts,
        };
        Processed {
            packets: self.packets - earlier.packets,
            cycles: self.cycles - earlier.cycles,
            facts: self.facts.zip(earlier.facts).map(|(now, before)| facts(now, before)),
        }
    }
}

/// A switch in the lab's switch namespace; it ends when dropped.
pub trait Dut {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Adds ports.
    ///
    /// # Errors
    /// When it refuses one of them.
    fn add_ports(&mut self, ports: &[PortSpec]) -> Result<()>;

    /// Adds a port for a virtual machine, by a vhost-user socket.
    ///
    /// # Errors
    /// When it has no such ports, or refuses this one.
    fn add_guest(&mut self, name: &str, _socket: &Path) -> Result<()> {
        Err(bridge::not_offered(self.name(), format!("be the back end of {name}")))
    }

    /// Whether it connects to the sockets of virtual machines. Otherwise it makes them.
    fn connects_to_guests(&self) -> bool {
        false
    }

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

    /// What it asks of the hosts' netdevs before packets pass, as words for `ethtool -K`; mostly nothing.
    fn settings_of_hosts(&self) -> &'static [&'static str] {
        &[]
    }

    /// Lets TCP to this address and ports 80 to 90 pass by a rule that looks at addresses, protocol and ports.
    ///
    /// # Errors
    /// When it has no such rules.
    fn add_rule(&mut self, to: Ipv4Addr) -> Result<()> {
        Err(bridge::not_offered(self.name(), format!("have a rule for {to}")))
    }

    /// Drops UDP to this address and port by a rule, in the packet thread.
    ///
    /// # Errors
    /// When it has no such rules.
    fn add_drop_rule(&mut self, to: Ipv4Addr, port: u16) -> Result<()> {
        Err(bridge::not_offered(self.name(), format!("drop what goes to {to}:{port}")))
    }

    /// Has this program write hints to what comes in by a port.
    ///
    /// # Errors
    /// When it has no hints, or refuses the program.
    fn load_hints(&mut self, netdev: &str, _object: &Path) -> Result<()> {
        Err(bridge::not_offered(self.name(), format!("read hints at {netdev}")))
    }

    /// Has its own programs write hints to what comes in by a port.
    ///
    /// # Errors
    /// When it has none.
    fn write_hints(&mut self, netdev: &str) -> Result<()> {
        Err(bridge::not_offered(self.name(), format!("write hints at {netdev}")))
    }

    /// What its packet threads did.
    ///
    /// # Errors
    /// When it has none, or does not say.
    fn processed(&self) -> Result<Processed> {
        Err(bridge::not_offered(self.name(), "count the cycles of a packet thread"))
    }
}

/// Gives the hosts' netdevs the settings that a switch asks for.
///
/// # Errors
/// When ethtool refuses.
pub fn set_up_hosts(dut: &dyn Dut, hosts: &[Host]) -> Result<()> {
    let settings = dut.settings_of_hosts();
    if settings.is_empty() {
        return Ok(());
    }
    hosts.iter().try_for_each(|host| host.netns().ethtool("eth0", settings).map(drop))
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
    if host.kind() == PortKind::Guest {
        let vhost_user = Some(VhostUser::new(host.socket().display().to_string()));
        return PortSpec { vhost_user, name: Some(host.name().to_owned()), ..PortSpec::new("") };
    }
    let attach = match host.kind() {
        PortKind::VethXdp => Attach::Xdp,
        PortKind::VethTcx | PortKind::Tap => Attach::Tcx,
        PortKind::Guest | PortKind::Nic => Attach::Auto,
    };
    PortSpec { attach, ..PortSpec::new(host.name()) }
}

/// The ports of these hosts.
pub fn ports_of<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> Vec<PortSpec> {
    hosts.into_iter().map(port_of).collect()
}
