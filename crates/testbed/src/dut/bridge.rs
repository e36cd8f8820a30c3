//! The kernel's bridge: the peer with the least features and the most history.

use std::path::Path;

use forebay_control::Vid;
use forebay_control::port::PortSpec;
use forebay_control::vlan::VlanMode;

use libbpf_rs::{Link, Object};

use super::Dut;
use crate::lab::Lab;
use crate::{LabError, Result, bpf, netns};

/// The netdev's name.
const NAME: &str = "br0";

/// What has a bridge's packets pass netfilter, where br_netfilter is loaded or built in.
const NETFILTER: [&str; 3] =
    ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"];

/// A bridge in the lab's switch namespace; goes away with the namespace.
#[derive(Debug)]
pub struct Bridge {
    netns: String,
    /// Present for their drop, which detaches.
    _passing: Vec<XdpPass>,
}

impl Bridge {
    /// Makes the bridge, without multicast snooping: it needs a querier to be right. Its packets pass no netfilter, as on
    /// most hosts.
    ///
    /// # Errors
    /// When the kernel has no bridge.
    pub fn start(lab: &Lab) -> Result<Bridge> {
        let netns = lab.switch();
        call_netfilter(lab, false)?;
        netns.ip(&["link", "add", NAME, "type", "bridge", "mcast_snooping", "0", "forward_delay", "0"])?;
        netns.ip(&["link", "set", NAME, "up"])?;
        Ok(Bridge { netns: netns.name().to_owned(), _passing: Vec::new() })
    }

    /// The same, with netfilter called for each packet, as on hosts with Docker.
    ///
    /// # Errors
    /// When the kernel has no br_netfilter.
    pub fn start_with_netfilter(lab: &Lab) -> Result<Bridge> {
        let bridge = Bridge::start(lab)?;
        call_netfilter(lab, true)?;
        Ok(bridge)
    }

    /// Has this netdev of the lab carry an XDP program that passes everything on.
    ///
    /// # Errors
    /// When it cannot be attached.
    pub fn passing_by_xdp(mut self, netdev: &str) -> Result<Bridge> {
        self._passing.push(XdpPass::attach(&self.netns, netdev)?);
        Ok(self)
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

/// Whether br_netfilter is there to be called.
pub fn has_netfilter() -> bool {
    Path::new("/proc/sys/net/bridge").join(NETFILTER[0]).exists()
}

/// Whether packets of the bridges in the lab's switch namespace pass netfilter.
///
/// # Errors
/// They are to, and the kernel has no br_netfilter.
pub(crate) fn call_netfilter(lab: &Lab, is_called: bool) -> Result<()> {
    if !is_called && !has_netfilter() {
        return Ok(());
    }
    let value = if is_called { "1" } else { "0" };
    NETFILTER.iter().try_for_each(|setting| lab.switch().set(&format!("bridge/{setting}"), value))
}

/// An XDP program that passes everything on, detached when dropped.
#[derive(Debug)]
struct XdpPass {
    // In this order: detached before its program is closed. Both are present for their drop.
    _link: Link,
    _object: Object,
}

impl XdpPass {
    fn attach(netns: &str, netdev: &str) -> Result<XdpPass> {
        netns::enter(netns, || {
            let ifindex = netns::ifindex(netdev)?.cast_signed();
            let mut object = bpf::load()?;
            let link = bpf::program(&mut object, "pass_xdp").attach_xdp(ifindex);
            let link = link.map_err(|error| LabError::bpf("attaching an XDP program that passes", error))?;
            Ok(XdpPass { _link: link, _object: object })
        })?
    }
}

/// Refuses what a device under test does not offer.
pub(super) fn not_offered(dut: &'static str, what: impl Into<String>) -> LabError {
    LabError::Unsupported { dut, what: what.into() }
}
