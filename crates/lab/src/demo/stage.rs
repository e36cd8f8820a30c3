//! The hosts, a virtual machine, and the switch between them.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use forebay_testbed::dut::{self, Client, Dut, Forebay, ForebayOptions};
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::{Host, Lab, LabError, PortKind, Result};

/// Each host's name, how it is connected, and what that stands for.
const CAST: [(&str, PortKind, &str); 4] = [
    ("web", PortKind::VethTcx, "a container: veth, tcx program"),
    ("app", PortKind::VethTcx, "a container: veth, tcx program"),
    ("edge", PortKind::VethXdp, "a network card: veth, XDP program"),
    ("vm", PortKind::Tap, "a virtual machine's tap: tcx program"),
];

/// The virtual machine's name and address.
pub(super) const GUEST: &str = "guest";
pub(super) const GUEST_V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);

/// What stands while the demo runs; all of it goes with the value.
#[derive(Debug)]
pub(super) struct Stage {
    // In this order: what lives in the lab before the lab.
    machine: Option<Machine>,
    pub(super) switch: Forebay,
    pub(super) hosts: Vec<Host>,
    pub(super) lab: Lab,
}

impl Stage {
    /// The hosts, and the switch without ports.
    pub(super) fn build() -> Result<Stage> {
        let mut lab = Lab::new("demo")?;
        let hosts = CAST.iter().map(|(name, kind, _)| lab.host(name, *kind)).collect::<Result<Vec<_>>>()?;
        let switch = Forebay::start(&lab, ForebayOptions::default().offloaded())?;
        Ok(Stage { machine: None, switch, hosts, lab })
    }

    /// Makes the hosts' netdevs ports of the switch.
    pub(super) fn add_ports(&mut self) -> Result<()> {
        self.switch.add_ports(&dut::ports_of(&self.hosts))
    }

    /// Boots a virtual machine at a port of its own. It does what the script says.
    pub(super) fn boot(&mut self, script: &str) -> Result<&mut Machine> {
        let socket = self.guest_socket();
        self.switch.add_guest(GUEST, &socket)?;
        let options = MachineOptions::new(GUEST, &socket, GUEST_V4, script);
        Ok(self.machine.insert(Machine::boot(&self.lab, &options)?))
    }

    /// The socket of the virtual machine's port.
    pub(super) fn guest_socket(&self) -> PathBuf {
        self.lab.path("guest.sock")
    }

    /// Whether a virtual machine runs.
    pub(super) fn has_guest(&self) -> bool {
        self.machine.is_some()
    }

    /// The host of this name.
    pub(super) fn host(&self, name: &str) -> &Host {
        let found = self.hosts.iter().find(|host| host.name() == name);
        found.expect("the names asked for are those of CAST")
    }

    /// What a host stands for.
    pub(super) fn role(&self, host: &Host) -> &'static str {
        CAST.iter().find(|(name, ..)| *name == host.name()).map_or("", |(_, _, role)| role)
    }

    /// The switch's command line.
    pub(super) fn client(&self) -> &Client {
        self.switch.client()
    }

    /// An error when the daemon has ended.
    pub(super) fn ensure_running(&mut self) -> Result<()> {
        let Ok(status) = self.switch.daemon().wait(Duration::ZERO) else { return Ok(()) };
        let command = "forebay run".to_owned();
        Err(LabError::Failed { command, status: status.to_string(), output: self.switch.log() })
    }
}
