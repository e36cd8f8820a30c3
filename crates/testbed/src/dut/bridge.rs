//! The kernel's bridge: the peer with the least features and the most history.

use forebay_control::Vid;
use forebay_control::port::PortSpec;
use forebay_control::vlan::VlanMode;

use super::Dut;
use crate::lab::Lab;
use crate::{LabError, Result};

/// The netdev's name.
const NAME: &str = "br0";

/// A bridge in the lab's switch namespace; goes away with the namespace.
#[derive(Debug)]
pub struct Bridge {
    netns: String,
}

impl Bridge {
    /// Makes the bridge, without multicast snooping: it needs a querier to be right.
    ///
    /// # Errors
    /// When the kernel has no bridge.
    pub fn start(lab: &Lab) -> Result<Bridge> {
        let netns = lab.switch();
        netns.ip(&["link", "add", NAME, "type", "bridge", "mcast_snooping", "0", "forward_delay", "0"])?;
        netns.ip(&["link", "set", NAME, "up"])?;
        Ok(Bridge { netns: netns.name().to_owned() })
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        let mut command = std::process::Command::new(program);
        command.args(["-n", &self.netns]).args(args);
        crate::command::run_ok(command).map(drop)
    }

    fn add_port(&self, port: &PortSpec) -> Result<()> {
        self.run("ip", &["link", "set", &port.netdev, "master", NAME])?;
        if port.isolated {
            self.run("ip", &["link", "set", &port.netdev, "type", "bridge_slave", "isolated", "on"])?;
        }
        match &port.vlan {
            VlanMode::All => Ok(()),
            // The bridge takes packets with the port's own tag either way.
            VlanMode::Access(vid) | VlanMode::AccessTagged(vid) => self.add_vlans(port, &[], Some(*vid)),
            VlanMode::Trunk { vids, native } => self.add_vlans(port, vids, *native),
        }
    }

    fn add_vlans(&self, port: &PortSpec, tagged: &[Vid], untagged: Option<Vid>) -> Result<()> {
        self.run("ip", &["link", "set", NAME, "type", "bridge", "vlan_filtering", "1"])?;
        self.run("bridge", &["vlan", "del", "dev", &port.netdev, "vid", "1"])?;
        for vid in tagged {
            self.run("bridge", &["vlan", "add", "dev", &port.netdev, "vid", &vid.to_string()])?;
        }
        if let Some(vid) = untagged {
            let vid = vid.to_string();
            let entry = ["vlan", "add", "dev", &port.netdev, "vid", &vid, "pvid", "untagged"];
            self.run("bridge", &entry)?;
        }
        Ok(())
    }
}

impl Dut for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn add_ports(&mut self, ports: &[PortSpec]) -> Result<()> {
        ports.iter().try_for_each(|port| self.add_port(port))
    }

    fn delete_port(&mut self, netdev: &str) -> Result<()> {
        self.run("ip", &["link", "set", netdev, "nomaster"])
    }

    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// Refuses what a device under test does not offer.
pub(super) fn not_offered(dut: &'static str, what: impl Into<String>) -> LabError {
    LabError::Unsupported { dut, what: what.into() }
}
