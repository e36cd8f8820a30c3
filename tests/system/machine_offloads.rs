//! What a virtual machine leaves undone: long packets and unfinished checksums go through whole, and are cut and finished
//! for those that take none.

use std::net::Ipv4Addr;

use forebay_control::port::PortShow;
use forebay_testbed::dut::{Client, ForebayOptions};
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::{Host, Lab, LabError, PortKind, Result};

use crate::bed::Bed;
use crate::harness::{Outcome, Subject, Suite, ensure_program};

pub const V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
pub const OTHER_V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 2);
const DATAGRAM_PORT: u16 = 5202;
const STREAM_BYTES: u64 = 64 << 20;
/// What a stream takes if each packet fills an Ethernet frame.
const SHORT_PACKETS: u64 = STREAM_BYTES / 1448;
/// Prints what the machine's driver has agreed on: that it takes unfinished checksums (the second feature; ethtool's
/// `rx-checksumming` is on without it, too), and its offloads.
const OFFLOADS: &str = "\
    case $(cut -c2 /sys/class/net/eth0/device/features) in 1) echo guest-csum: on;; *) echo guest-csum: off;; esac
    ethtool -k eth0 | grep -E '^(tx-checksumming|tcp-segmentation-offload|rx-gro-hw):'";
/// Prints how many packets the machine has received, and how many of them its stack found damaged.
pub const SNMP: &str = "cat /proc/net/snmp; echo rx $(cat /sys/class/net/eth0/statistics/rx_packets)";

pub fn register(suite: &mut Suite) {
    suite.heavy_on_forebay("long_packets_of_a_virtual_machine_go_through_whole", whole);
    suite.heavy_once("a_virtual_machine_gets_what_another_leaves_undone", || between_two("", "", ["on"; 4]));
    suite.heavy_once("a_virtual_machine_that_takes_no_long_packets_gets_short_ones", || {
        between_two("-guest-gso", "", ["on", "on", "on", "off"])
    });
    suite.heavy_once("a_virtual_machine_that_takes_nothing_undone_gets_finished_packets", || {
        between_two("-csum,-gso", "", ["off"; 4])
    });
    suite.heavy_once("a_virtual_machine_that_is_told_to_take_no_long_packets_gets_short_ones", || {
        let setting = "ethtool -K eth0 rx-gro-hw off || ethtool -K eth0 lro off";
        between_two("", setting, ["on", "on", "on", "off"])
    });
}

/// A switch with a host, and ports for machines.
pub struct Scene {
    pub client: Client,
    pub host: Host,
    pub bed: Bed,
}

impl Scene {
    /// `masks`: each machine's port, and the features that it is not offered.
    pub fn new(subject: Subject, masks: &[(&str, &str)]) -> Result<Scene> {
        let mut bed = Bed::of(Lab::new("offloads")?, ForebayOptions::default())?;
        let host = bed.lab.host("h1", subject.kind())?;
        bed.attach([&host])?;
        let scene = Scene { client: bed.client(), host, bed };
        for (port, mask) in masks {
            let socket = scene.bed.lab.path(&format!("{port}.sock")).display().to_string();
            let features = format!("--features={mask}");
            scene.client.ok(&["port", "add", port, "--vhost-user", &socket, &features])?;
        }
        Ok(scene)
    }

    pub fn boot(&self, name: &str, v4: Ipv4Addr, script: &str) -> Result<Machine> {
        let socket = self.bed.lab.path(&format!("{name}.sock"));
        Machine::boot(&self.bed.lab, &MachineOptions::new(name, &socket, v4, script))
    }

    fn port(&self, name: &str) -> Result<PortShow> {
        self.client.port(name)
    }
}

/// Segments and datagrams with wrong checksums, by what /proc/net/snmp says: a line of names, then one of numbers.
pub fn damaged(snmp: &str) -> Vec<u64> {
    let of = |protocol: &str| {
        let mut lines = snmp.lines().filter_map(|line| line.trim().strip_prefix(protocol));
        let (names, numbers) = (lines.next()?, lines.next()?);
        let at = names.split_whitespace().position(|name| name == "InCsumErrors")?;
        numbers.split_whitespace().nth(at)?.parse().ok()
    };
    ["Tcp: ", "Udp: "].iter().filter_map(|protocol| of(protocol)).collect()
}

/// Packets that the machine has received.
fn received(output: &str) -> u64 {
    let number = output.lines().find_map(|line| line.trim().strip_prefix("rx ")?.parse().ok());
    number.expect("the script ends with it")
}

/// No damaged packet came to the host.
pub fn is_host_content(host: &Host) -> Result<bool> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
    let snmp = host.netns().enter(read)?.map_err(|error| LabError::system("reading snmp", error))?;
    Ok(damaged(&snmp) == [0, 0])
}

fn whole(subject: Subject) -> Outcome {
    ensure_program()?;
    let scene = Scene::new(subject, &[("vm1", "")])?;
    let _server = IperfServer::start(&scene.bed.lab, &scene.host)?;
    let host = scene.host.v4();
    let datagrams = format!("iperf3 -u -c {host} -n 1M -l 1000 -b 0 | grep -E 'sender|receiver'");
    let script = format!(
        "iperf3 -c {host} -n {STREAM_BYTES} | grep -E 'sender|receiver'; {datagrams}; echo sent; iperf3 -s -1; \
         {SNMP}"
    );
    let mut machine = scene.boot("vm1", V4, &script)?;
    machine.wait_for_output("Server listening")?;
    let sent = scene.port("vm1")?.counters.rx_packets;
    let report = Iperf::bytes(STREAM_BYTES).to(&scene.host, V4.into())?;
    assert!(report.is_complete(STREAM_BYTES), "{report:?}");
    let said = machine.wait()?;
    assert!(received(&said) < SHORT_PACKETS / 2, "segments are joined: {said}");
    assert!(sent < SHORT_PACKETS / 4, "{sent} packets");
    assert_eq!(damaged(&said), [0, 0], "{said}");
    assert!(is_host_content(&scene.host)?);
    assert!(scene.client.stats_check()?.balanced);
    Ok(())
}

/// What the first machine takes: its port has a mask of features, or it is told so while its driver runs. `offloads` are those
/// of the machine that does not get what is masked, in the order in which [`OFFLOADS`] prints them.
fn between_two(mask: &str, setting: &str, offloads: [&str; 4]) -> Outcome {
    ensure_program()?;
    let scene = Scene::new(Subject::Forebay(PortKind::VethTcx), &[("vm1", mask), ("vm2", "")])?;
    let servers = format!(
        "{setting}\n{OFFLOADS}\niperf3 -s -1 -p {DATAGRAM_PORT} & datagrams=$!; iperf3 -s -1; wait $datagrams; {SNMP}"
    );
    let mut server = scene.boot("vm1", V4, &servers)?;
    server.wait_for_output(&format!("Server listening on {DATAGRAM_PORT}"))?;
    server.wait_for_output("Server listening on 5201")?;
    let (stream, datagrams) = (
        format!("iperf3 -c {V4} -n {STREAM_BYTES}"),
        format!("iperf3 -u -c {V4} -p {DATAGRAM_PORT} -n 1M -l 1000 -b 100M"),
    );
    let said = scene.boot("vm2", OTHER_V4, &format!("{stream}; {datagrams}; {SNMP}"))?.wait()?;
    assert_eq!(said.matches("receiver").count(), 2, "{said}");
    let heard = server.wait()?;
    assert_eq!([damaged(&said), damaged(&heard)], [[0, 0], [0, 0]], "{said}\n{heard}");
    let shown = heard.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        ["guest-csum", "tx-checksumming", "tcp-segmentation-offload", "rx-gro-hw"]
            .contains(&name)
            .then(|| value.split_whitespace().next().unwrap_or_default())
    });
    assert_eq!(shown.collect::<Vec<_>>(), offloads, "{heard}");
    let is_cut = received(&heard) > SHORT_PACKETS;
    assert_eq!(is_cut, !mask.is_empty() || !setting.is_empty(), "{heard}");
    let sent = scene.port("vm2")?.counters.rx_packets;
    assert!(sent < SHORT_PACKETS / 4, "{sent} packets");
    assert!(scene.client.stats_check()?.balanced);
    Ok(())
}
