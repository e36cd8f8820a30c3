//! Representors as ports: 64 of a switch's NIC and its uplink, in each spool mode.
//!
//! netdevsim makes these netdevs. The kernel links only physical ports of two netdevsims (`link_device` says of a
//! representor that it "is not a netdevsim"), and netdevsim has no netdevs for VFs. So the uplink is linked to a port of
//! another netdevsim, which a host has. Traffic control does for two representors what a NIC does between a representor
//! and its VF; netdevsim drops what the other 62 send.
//!
//! ```text
//!   c1 ── veth ──┐        ┌── pf0vf0 ── tc ── veth ── first
//!                │ switch ├── pf0vf1 … pf0vf62
//!   c2 ── veth ──┘        ├── pf0vf63 ── tc ── veth ── last
//!                         └── uplink ── link_device ── far
//! ```

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use forebay_control::port::{AttachKind, PortSpec, PortState};
use forebay_control::rxq::{RxqBinding, RxqShow};
use forebay_testbed::dut::{self, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, LabError, PortKind, Result, wait};

use crate::Outcome;

const REPRESENTORS: usize = 64;
/// Queues of each netdev, each way.
const QUEUES: usize = 4;
const BUS: &str = "/sys/bus/netdevsim";
const UP_LIMIT: Duration = Duration::from_secs(20);
/// An emulated processor carries some hundred Mbit/s.
const STREAM_BYTES: u64 = 4 << 20;

/// Each port has memory of its own, if XDP runs on it.
pub fn none() -> Outcome {
    // netdevsim runs no XDP programs, so its ports stay with the pool.
    carry_packets("none", [RxqBinding::Collector, RxqBinding::Direct])
}

/// All ports share one ring.
pub fn basic() -> Outcome {
    carry_packets("basic", [RxqBinding::Shared; 2])
}

/// Each port has a ring on one pool.
pub fn spp() -> Outcome {
    carry_packets("spp", [RxqBinding::Collector; 2])
}

/// `bindings`: of netdevsim's ports, and of a veth with an XDP program.
fn carry_packets(mode: &str, bindings: [RxqBinding; 2]) -> Outcome {
    let scene = Scene::new(mode)?;
    scene.check_ports(bindings)?;
    for v6 in [false, true] {
        scene.ping_all_pairs(v6)?;
    }
    scene.stream()?;
    scene.check_counters()?;
    Ok(())
}

/// A switch with representors, their uplink and two containers as ports.
struct Scene {
    // In this order: the switch and hosts before the lab they are in.
    switch: Forebay,
    /// Two containers, two hosts that have a VF, and the host beyond the uplink.
    hosts: [Host; 5],
    lab: Lab,
}

impl Scene {
    fn new(mode: &str) -> Result<Scene> {
        let mut lab = Lab::new("representors")?;
        let far = make_devices(&mut lab)?;
        let [first, last] = [0, REPRESENTORS - 1].map(representor);
        let hosts = [
            lab.host("c1", PortKind::VethTcx)?,
            lab.host("c2", PortKind::VethXdp)?,
            host_with_vf(&mut lab, "first", &first)?,
            host_with_vf(&mut lab, "last", &last)?,
            far,
        ];
        let mut switch = Forebay::start(&lab, ForebayOptions::default().offloaded())?;
        switch.client().ok(&["eswitch", "set", "spool-mode", mode])?;
        let netdevs = netdevsim_ports();
        let names: Vec<&str> = netdevs.iter().map(String::as_str).collect();
        switch.client().add(&PortSpec::new(""), &names)?;
        switch.add_ports(&dut::ports_of(&hosts[..2]))?;
        Ok(Scene { switch, hosts, lab })
    }

    /// Every port is up, and its packets wait where the mode says.
    fn check_ports(&self, bindings: [RxqBinding; 2]) -> Result<()> {
        let client = self.switch.client();
        let all_up =
            || client.ports().is_ok_and(|ports| ports.iter().all(|port| port.state == PortState::Up));
        wait::until("all ports to be up", UP_LIMIT, all_up)?;
        assert_eq!(client.ports()?.len(), REPRESENTORS + 3);
        let rings: RxqShow = client.json(&["rxq", "show"])?;
        let binding = |name: &str| rings.ports.iter().find(|port| port.name == name).map(|port| port.binding);
        for name in netdevsim_ports() {
            let port = client.port(&name)?;
            assert_eq!((port.state, port.attach), (PortState::Up, AttachKind::Tcx), "{port:?}");
            assert_eq!(binding(&name), Some(bindings[0]), "{name}");
        }
        assert_eq!(binding("c2"), Some(bindings[1]));
        Ok(())
    }

    fn ping_all_pairs(&self, v6: bool) -> Result<()> {
        for from in &self.hosts {
            for to in self.hosts.iter().filter(|to| to.name() != from.name()) {
                let report = Ping::new(to.address(v6)).payload_bytes(1400).from(from)?;
                let ports = || self.switch.client().ok(&["stats"]).map(|said| said.stdout);
                assert!(
                    report.is_complete(),
                    "{} to {}, IPv6 {v6}: {report:?}\n{}",
                    from.name(),
                    to.name(),
                    ports()?
                );
            }
        }
        Ok(())
    }

    /// From a container and from a VF to the host beyond the uplink, and from one VF to the other.
    fn stream(&self) -> Result<()> {
        let [container, _, first, last, far] = &self.hosts;
        for (from, to) in [(container, far), (first, far), (first, last)] {
            let _server = IperfServer::start(&self.lab, to)?;
            for reverse in [false, true] {
                let report = Iperf::bytes(STREAM_BYTES).reverse(reverse).run(from, to)?;
                let pair = format!("{} to {}, reverse {reverse}", from.name(), to.name());
                assert!(report.is_complete(STREAM_BYTES), "{pair}: {report:?}");
            }
        }
        Ok(())
    }

    /// Floods left by every representor, packets came in where a host is, and every packet was counted once.
    fn check_counters(&self) -> Result<()> {
        let client = self.switch.client();
        let with_host = [representor(0), representor(REPRESENTORS - 1), "uplink".to_owned()];
        for port in client.ports()? {
            assert!(port.counters.tx_packets > 0, "{port:?}");
            let is_silent = port.name.starts_with("pf0vf") && !with_host.contains(&port.name);
            assert_eq!(port.counters.rx_packets == 0, is_silent, "{port:?}");
        }
        assert!(client.stats_check()?.balanced);
        Ok(())
    }
}

/// Name of the netdev of a representor, as the kernel gives it for its port.
fn representor(vf: usize) -> String {
    format!("pf0vf{vf}")
}

/// Names of all netdevs that netdevsim runs and that become ports.
fn netdevsim_ports() -> Vec<String> {
    (0..REPRESENTORS).map(representor).chain(["uplink".to_owned()]).collect()
}

/// Makes the NIC in the switch's namespace: an uplink and its representors. Returns the host beyond the uplink.
fn make_devices(lab: &mut Lab) -> Result<Host> {
    // A device and its netdevs belong to the namespace of the thread that asks for it.
    lab.switch().enter(|| write("new_device", &format!("1 1 {QUEUES}")))??;
    write("new_device", &format!("2 1 {QUEUES}"))?;
    let nic = Links::of(lab, "p1")?;
    // A lab takes both ends of a cable from this process's namespace.
    lab.switch().ip(&["link", "set", &nic.only()?, "netns", "1", "name", "near"])?;
    let beyond = beyond()?;
    link(["near", &beyond])?;
    let far = lab.host_beyond("uplink", ["near", &beyond])?;
    make_representors(lab)?;
    Ok(far)
}

/// Makes the representors, with their kernel's names, up.
fn make_representors(lab: &Lab) -> Result<()> {
    let count = REPRESENTORS.to_string();
    // netdevsim has four VFs unless told.
    write_to("/sys/kernel/debug/netdevsim/netdevsim1/max_vfs", &count)?;
    write("devices/netdevsim1/sriov_numvfs", &count)?;
    lab.switch().run("devlink", &["dev", "eswitch", "set", "netdevsim/netdevsim1", "mode", "switchdev"])?;
    let links = Links::of(lab, "pf0vf")?;
    assert_eq!(links.0.len(), REPRESENTORS);
    assert!(links.0.iter().all(|link| link.switch_id.is_some() && link.switch_id == links.0[0].switch_id));
    let rename = |link: &Link| format!("link set {} name {} up", link.netdev, link.port_name);
    lab.switch().ip_batch(&links.0.iter().map(rename).collect::<Vec<_>>())?;
    Ok(())
}

/// A netdev that stands for a port of a NIC.
struct Link {
    netdev: String,
    port_name: String,
    switch_id: Option<String>,
}

struct Links(Vec<Link>);

impl Links {
    /// Those in the switch's namespace whose port's name begins so.
    fn of(lab: &Lab, port_name: &str) -> Result<Links> {
        let said = lab.switch().ip(&["-j", "-d", "link", "show"])?.stdout;
        let links: Vec<serde_json::Value> = serde_json::from_str(&said).expect("ip writes JSON");
        let text = |link: &serde_json::Value, key: &str| Some(link[key].as_str()?.to_owned());
        let read = |link: &serde_json::Value| {
            let port_name = text(link, "phys_port_name")?;
            Some(Link { netdev: text(link, "ifname")?, port_name, switch_id: text(link, "phys_switch_id") })
        };
        let of_name = links.iter().filter_map(read).filter(|link| link.port_name.starts_with(port_name));
        Ok(Links(of_name.collect()))
    }

    fn only(&self) -> Result<String> {
        match &self.0[..] {
            [link] => Ok(link.netdev.clone()),
            links => Err(LabError::output("the NIC's netdevs", format!("there are {}", links.len()))),
        }
    }
}

/// Name of the other device's netdev, in this process's namespace.
fn beyond() -> Result<String> {
    let path = format!("{BUS}/devices/netdevsim2/net");
    let entries =
        std::fs::read_dir(&path).map_err(|error| LabError::system(format!("reading {path}"), error))?;
    let name = entries.flatten().find_map(|entry| entry.file_name().into_string().ok());
    name.ok_or_else(|| LabError::output(path, "no netdev"))
}

/// Joins two netdevs of this process's namespace as by a cable.
fn link(netdevs: [&str; 2]) -> Result<()> {
    let own = File::open("/proc/self/ns/net");
    let own = own.map_err(|error| LabError::system("opening the namespace", error))?;
    let mut ends = Vec::new();
    for netdev in netdevs {
        let path = format!("/sys/class/net/{netdev}/ifindex");
        let ifindex = std::fs::read_to_string(&path);
        let ifindex = ifindex.map_err(|error| LabError::system(format!("reading {path}"), error))?;
        ends.push(format!("{}:{}", own.as_raw_fd(), ifindex.trim()));
    }
    write("link_device", &ends.join(" "))
}

/// A host whose netdev is the VF of this representor. The kernel gives what the host sends to the representor, as if
/// received, and what the representor sends to the host.
fn host_with_vf(lab: &mut Lab, name: &str, representor: &str) -> Result<Host> {
    let host = lab.host(name, PortKind::VethTcx)?;
    let tc = |words: String| lab.switch().run("tc", &words.split(' ').collect::<Vec<_>>()).map(drop);
    for (from, way, to) in [(name, "ingress", representor), (representor, "egress", name)] {
        tc(format!("qdisc add dev {from} clsact"))?;
        tc(format!("filter add dev {from} {way} matchall action mirred {way} redirect dev {to}"))?;
    }
    Ok(host)
}

/// Writes to one of netdevsim's files.
fn write(file: &str, text: &str) -> Result<()> {
    write_to(&format!("{BUS}/{file}"), text)
}

fn write_to(path: &str, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| LabError::system(format!("writing {text} to {path}"), error))
}
