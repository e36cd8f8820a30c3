//! A NIC as a port: containers behind the switch, and a host at the far end of the NIC's cable.

use std::net::Ipv4Addr;
use std::time::Duration;

use forebay_control::port::{Attach, AttachKind, PortState, Promiscuity};
use forebay_control::vlan::VlanMode;
use forebay_testbed::dut::{self, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::netns::{self, Netns};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, PortKind, Result, guest, wait};

use crate::Outcome;

/// An emulated processor carries some hundred Mbit/s.
const STREAM_BYTES: u64 = 4 << 20;
const JUMBO_MTU: u32 = 9000;
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
const PINGS_LIMIT: Duration = Duration::from_secs(10);
/// IPv4 and ICMP headers.
const PING_HEADERS: u32 = 28;

/// A switch with a container, another one, and a host beyond the NIC `nic`.
pub struct Scene<const CONTAINERS: usize = 2> {
    // In this order: the switch and hosts before the lab they are in.
    pub switch: Forebay,
    pub containers: [Host; CONTAINERS],
    pub far: Host,
    pub lab: Lab,
}

impl Scene {
    pub fn new() -> Result<Scene> {
        Self::with_vlans(["all"; 3])
    }

    /// The NIC is a bond of two, each with a cable to the host.
    pub fn with_bond() -> Result<Scene> {
        Self::build(["all"; 3], bond)
    }

    /// With the VLANs of the containers' ports and of the NIC's.
    fn with_vlans(vlans: [&str; 3]) -> Result<Scene> {
        Self::build(vlans, |_, _| Ok(()))
    }

    /// `arrange` sees the NICs before they are ports.
    fn build(vlans: [&str; 3], arrange: impl FnOnce(&Lab, &Host) -> Result<()>) -> Result<Scene> {
        let mut lab = Lab::new("guest")?;
        let containers = [lab.host("c1", PortKind::VethTcx)?, lab.host("c2", PortKind::VethXdp)?];
        let ends = guest::ends(0)?;
        let far = lab.host_beyond("nic", [&ends[0], &ends[1]])?;
        arrange(&lab, &far)?;
        let mut switch = Forebay::start(&lab, ForebayOptions::default().offloaded())?;
        for (host, vlan) in [&containers[0], &containers[1], &far].into_iter().zip(vlans) {
            let mut port = dut::port_of(host);
            port.vlan = vlan.parse::<VlanMode>().expect("a test's VLAN mode is well-formed");
            switch.add_ports(&[port])?;
            switch.client().wait_port_state(host.name(), PortState::Up)?;
        }
        Ok(Scene { switch, containers, far, lab })
    }

    /// Pings between each container and the far host, both ways.
    fn ping_with(&self, what: &str, ping: impl Fn(&Host) -> Ping) -> Result<()> {
        let unanswered = self.unanswered(ping)?;
        assert!(unanswered.is_none(), "{what}, {}", unanswered.unwrap_or_default());
        Ok(())
    }

    /// The first of these pings that is not answered as it should be, and what the switch has counted then.
    fn unanswered(&self, ping: impl Fn(&Host) -> Ping) -> Result<Option<String>> {
        for container in &self.containers {
            for (from, to) in [(container, &self.far), (&self.far, container)] {
                let report = ping(to).from(from)?;
                if !report.is_complete() {
                    let ports = self.switch.client().ok(&["stats"])?.stdout;
                    return Ok(Some(format!("{} to {}: {report:?}\n{ports}", from.name(), to.name())));
                }
            }
        }
        Ok(None)
    }

    /// Repeats a few short pings until all are answered. The hosts may flood at the same time. After each change their flood
    /// takes the slow path for a moment, and pings that wait in the same ring are lost.
    pub fn wait_for_pings(&self, what: &str) -> Result<()> {
        wait::until_ok(what, PINGS_LIMIT, || match self.unanswered(|to| Ping::new(to.v4())) {
            Ok(None) => Ok(()),
            Ok(Some(unanswered)) => Err(unanswered),
            Err(error) => Err(error.to_string()),
        })
    }

    fn stream(&self, v6: bool) -> Result<()> {
        let _server = IperfServer::start(&self.lab, &self.far)?;
        for container in &self.containers {
            for reverse in [false, true] {
                let report = Iperf::bytes(STREAM_BYTES).v6(v6).reverse(reverse).run(container, &self.far)?;
                assert!(
                    report.is_complete(STREAM_BYTES),
                    "{}, reverse {reverse}: {report:?}",
                    container.name()
                );
            }
        }
        Ok(())
    }

    pub fn check_talk(&self) -> Outcome {
        for v6 in [false, true] {
            self.ping_with("short", |to| Ping::new(to.address(v6)))?;
            self.ping_with("whole", |to| Ping::new(to.address(v6)).payload_bytes(1400))?;
            self.stream(v6)?;
        }
        self.check_balance()?;
        Ok(())
    }

    fn check_balance(&self) -> Result<()> {
        assert!(self.switch.client().stats_check()?.balanced);
        Ok(())
    }
}

/// Bonds at both ends of two cables. The switch's receives by one of them at a time, the host's sends by both.
fn bond(lab: &Lab, far: &Host) -> Result<()> {
    let [near, beyond] = guest::ends(1)?;
    netns::ip(&["link", "set", &near, "netns", lab.switch().name(), "name", "m1"])?;
    netns::ip(&["link", "set", &beyond, "netns", far.netns().name(), "name", "m1"])?;
    let enslave = |netns: &Netns, name: &str, mode: &str, address: &str| {
        let add = format!("link add {name} {address} type bond mode {mode} miimon 20");
        let lines = [format!("link set {name} down name m0"), add, format!("link set {name} up")];
        netns.ip_batch(&lines)?;
        netns.ip_batch(&["m0", "m1"].map(|member| format!("link set {member} down master {name}")))
    };
    enslave(lab.switch(), "nic", "active-backup", "")?;
    let [mac, v4, v6] = [far.mac_text(), far.v4().to_string(), far.v6().to_string()];
    far.netns().ip(&["addr", "flush", "dev", "eth0"])?;
    enslave(far.netns(), "eth0", "broadcast", &format!("address {mac}"))?;
    let addresses = [format!("addr add {v4}/16 dev eth0"), format!("addr add {v6}/64 dev eth0 nodad")];
    far.netns().ip_batch(&addresses)?;
    Ok(())
}

/// A bond carries what its members do.
pub fn talk_over_a_bond() -> Outcome {
    let scene = Scene::with_bond()?;
    dut::wait_until_it_carries(&scene.far, &scene.containers[0])?;
    scene.check_talk()
}

/// With untouched settings of both NICs.
pub fn talk() -> Outcome {
    let scene = Scene::new()?;
    // Of the three drivers, one has native XDP and leaves tags in packets.
    let has_xdp = driver(&scene.lab)? == "virtio_net";
    let expected = if has_xdp { AttachKind::Xdp } else { AttachKind::Tcx };
    assert_eq!(scene.switch.client().port("nic")?.attach, expected);
    scene.check_talk()
}

/// Where the driver of the NIC leaves no room below packets, the source's id travels in front of them.
pub fn talk_over_xdp() -> Outcome {
    let mut scene = Scene::new()?;
    let client = scene.switch.client().clone();
    client.ok(&["port", "del", "nic"])?;
    let mut port = dut::port_of(&scene.far);
    port.attach = Attach::Xdp;
    if let Err(refused) = scene.switch.add_ports(std::slice::from_ref(&port)) {
        let refused = refused.to_string();
        if refused.contains("has no native XDP") {
            return Ok(());
        }
        assert!(refused.contains("rxvlan off"), "{refused}");
        scene.lab.switch().ethtool("nic", &["rxvlan", "off"])?;
        scene.switch.add_ports(&[port])?;
    }
    client.wait_port_state("nic", PortState::Up)?;
    scene.check_talk()
}

/// The NIC is told which stations are behind the other ports.
pub fn talk_unpromiscuously() -> Outcome {
    let mut scene = Scene::new()?;
    let client = scene.switch.client().clone();
    client.ok(&["port", "del", "nic"])?;
    let mut port = dut::port_of(&scene.far);
    port.promiscuous = Promiscuity::Off;
    scene.switch.add_ports(&[port])?;
    client.wait_port_state("nic", PortState::Up)?;
    for container in &scene.containers {
        dut::wait_until_it_carries(&scene.far, container)?;
    }
    wait::until("both containers to be in the NIC's filter", CHANGE_LIMIT, || {
        client.port("nic").is_ok_and(|port| port.unicast_filter.is_some_and(|stations| stations >= 2))
    })?;
    // vmxnet3's driver cannot tell its device, so the kernel lets that receive everything.
    let filters = driver(&scene.lab)? != "vmxnet3";
    assert_eq!(promiscuity(&scene.lab)?, u64::from(!filters), "how many want the NIC to be promiscuous");
    scene.check_talk()
}

/// The far host has VLAN netdevs on its NIC.
pub fn trunk() -> Outcome {
    const VIDS: [u16; 2] = [10, 20];
    let scene = Scene::with_vlans(["access:10", "access:20", "trunk:10,20"])?;
    for (container, vid) in scene.containers.iter().zip(VIDS) {
        let [near, far] = [Ipv4Addr::new(10, 67, vid as u8, 1), Ipv4Addr::new(10, 67, vid as u8, 2)];
        container.netns().ip(&["addr", "add", &format!("{near}/24"), "dev", "eth0"])?;
        scene.far.netns().ip_batch(&[
            format!("link add link eth0 name v{vid} type vlan id {vid}"),
            format!("addr add {far}/24 dev v{vid}"),
            format!("link set v{vid} up"),
        ])?;
        for (from, to) in [(container, far), (&scene.far, near)] {
            let report = Ping::new(to).payload_bytes(1400).from(from)?;
            assert!(report.is_complete(), "VLAN {vid}, {} to {to}: {report:?}", from.name());
        }
    }
    scene.check_balance()?;
    Ok(())
}

/// The XDP program sees packets on each queue.
pub fn spread() -> Outcome {
    let scene = Scene::new()?;
    scene.check_talk()?;
    let said = scene.lab.switch().run("ethtool", &["-S", "nic"])?.stdout;
    let packets_of = |queue: usize| {
        let line = format!("rx{queue}_xdp_packets:");
        let of_line = |line: &str| line.trim().parse::<u64>().ok();
        said.lines().find_map(|text| of_line(text.trim().strip_prefix(line.as_str())?))
    };
    let packets = [0, 1].map(packets_of);
    assert!(packets.iter().all(|packets| packets.is_some_and(|packets| packets > 0)), "{packets:?}\n{said}");
    println!("packets by queue: {packets:?}");
    Ok(())
}

pub fn jumbo() -> Outcome {
    pass_jumbo(&Scene::new()?)
}

/// The MTU grows while the port is attached by XDP, where the driver has that. Some drivers lose long frames then.
pub fn jumbo_after_xdp() -> Outcome {
    let scene = Scene::new()?;
    let client = scene.switch.client();
    // Where tags are taken off, `auto` takes tcx; not every driver lets that be changed.
    let _ = scene.lab.switch().ethtool("nic", &["rxvlan", "off"]);
    client.ok(&["port", "del", "nic"])?;
    client.ok(&["port", "add", "nic"])?;
    client.wait_port_state("nic", PortState::Up)?;
    let has_xdp = driver(&scene.lab)? != "e1000e";
    assert_eq!(client.port("nic")?.attach == AttachKind::Xdp, has_xdp);
    scene.far.set_mtu(scene.lab.switch(), JUMBO_MTU)?;
    let kind = if driver(&scene.lab)? == "virtio_net" { AttachKind::Xdp } else { AttachKind::Tcx };
    wait::until("the port to have a program that sees long frames", CHANGE_LIMIT, || {
        client.port("nic").is_ok_and(|port| port.mtu == JUMBO_MTU && port.attach == kind)
    })?;
    // vmxnet3 (Linux 6.12) that has had an XDP program loses long frames until it is loaded again.
    if kind == AttachKind::Tcx && has_xdp {
        return Ok(());
    }
    pass_jumbo(&scene)
}

fn pass_jumbo(scene: &Scene) -> Outcome {
    for host in scene.containers.iter().chain([&scene.far]) {
        host.set_mtu(scene.lab.switch(), JUMBO_MTU)?;
    }
    // Some NICs are without a carrier for seconds then.
    dut::wait_until_it_carries(&scene.far, &scene.containers[0])?;
    scene.ping_with("jumbo", |to| Ping::new(to.v4()).payload_bytes(JUMBO_MTU - PING_HEADERS).whole())?;
    scene.stream(false)?;
    scene.check_balance()?;
    Ok(())
}

pub fn promiscuous() -> Outcome {
    let mut scene = Scene::new()?;
    assert_eq!(promiscuity(&scene.lab)?, 1);
    scene.switch.client().ok(&["port", "del", "nic"])?;
    assert_eq!(promiscuity(&scene.lab)?, 0);
    scene.switch.add_ports(&[dut::port_of(&scene.far)])?;
    assert_eq!(promiscuity(&scene.lab)?, 1);
    // What an administrator set stays.
    scene.lab.switch().ip(&["link", "set", "nic", "promisc", "on"])?;
    scene.switch.kill()?;
    assert_eq!(promiscuity(&scene.lab)?, 1);
    scene.lab.switch().ip(&["link", "set", "nic", "promisc", "off"])?;
    assert_eq!(promiscuity(&scene.lab)?, 0);
    Ok(())
}

/// The NIC's driver.
fn driver(lab: &Lab) -> Result<String> {
    let said = lab.switch().run("ethtool", &["-i", "nic"])?.stdout;
    let line = said.lines().find_map(|line| line.strip_prefix("driver: "));
    Ok(line.unwrap_or_default().to_owned())
}

/// How many wish that the NIC receives everything.
fn promiscuity(lab: &Lab) -> Result<u64> {
    let said = lab.switch().ip(&["-j", "-d", "link", "show", "nic"])?.stdout;
    let links: serde_json::Value = serde_json::from_str(&said).expect("ip writes JSON");
    Ok(links[0]["promiscuity"].as_u64().expect("a link has a promiscuity"))
}
