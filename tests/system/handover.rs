//! From one daemon to the next: what goes on without one, and what the next takes over.

mod identity;
mod promiscuous;
mod refused;
mod stations;

use std::time::Duration;

use forebay_control::hints::{HintsShow, HintsState};
use forebay_control::port::PortState;
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Client, Forebay, ForebayOptions};
use forebay_testbed::programs::hints::PROGRAMS;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, PortKind, wait};
use serde_json::Value;

use crate::bed::{Bed, take_frames};
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const LIMIT: Duration = Duration::from_secs(20);
/// Those of one `Ping`.
const PINGS: u64 = 3;

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_killed_daemon_leaves_flows_that_go_on_and_the_next_takes_over", killed);
    suite.on_netdevs("a_daemon_that_is_asked_to_leaves_everything_to_the_next", handed_over);
    suite.on_netdevs("what_was_asked_for_a_port_is_asked_of_the_next_daemon", settings);
    suite.once("programs_are_not_taken_over_by_a_daemon_that_allows_none", programs);
    suite.on_netdevs("what_was_left_in_another_format_is_replaced", other_format);
    suite.on_netdevs("sigterm_is_a_full_stop_although_something_could_be_left", full_stop);
    suite.on_netdevs("what_is_not_wanted_any_more_is_removed", cleaned);
    suite.on_netdevs("what_the_file_asks_for_no_more_goes_with_the_next_daemon", other_file);
    suite.on_netdevs("a_port_whose_netdev_went_meanwhile_waits_for_it", missing_netdev);
    suite.on_netdevs("a_port_whose_netdev_was_replaced_meanwhile_gets_nothing_by_old_flows", replaced_netdev);
    identity::register(suite);
    promiscuous::register(suite);
    refused::register(suite);
    stations::register(suite);
}

/// Two hosts whose packets the kernel carries, and a file system for what stays.
struct Scene {
    // In this order: the daemon before what it has pinned.
    bed: Bed,
    hosts: Vec<Host>,
    options: ForebayOptions,
    pins: BpfFs,
}

impl Scene {
    fn new(subject: Subject) -> Result<Scene, Box<dyn std::error::Error>> {
        ensure_program()?;
        let lab = Lab::new("handover")?;
        let pins = BpfFs::mount(&lab)?;
        let options = ForebayOptions::default().offloaded().handing_over(&pins);
        let mut bed = Bed::of(lab, options.clone())?;
        let hosts = bed.lab.hosts(2, subject.kind())?;
        bed.attach(&hosts)?;
        hosts.iter().try_for_each(take_frames)?;
        let mut scene = Scene { bed, hosts, options, pins };
        scene.talk()?;
        Ok(scene)
    }

    /// Until the kernel carries all pings both ways.
    fn talk(&mut self) -> Outcome {
        let client = self.bed.client();
        let ping = Ping::new(self.hosts[1].v4());
        let carried =
            || ["h1", "h2"].map(|port| counted(&client, port).map_or(0, |(_, offloaded)| offloaded));
        wait::until("flows both ways", LIMIT, || {
            let before = carried();
            let is_complete = ping.from(&self.hosts[0]).is_ok_and(|report| report.is_complete());
            is_complete && carried().iter().zip(before).all(|(after, before)| after - before >= PINGS)
        })?;
        Ok(())
    }

    fn restart(&mut self) -> Outcome {
        *self.bed.forebay() = Forebay::start(&self.bed.lab, self.options.clone())?;
        Ok(())
    }

    fn ping(&self) -> Outcome {
        let report = Ping::new(self.hosts[1].v4()).from(&self.hosts[0])?;
        assert!(report.is_complete(), "{report:?}");
        Ok(())
    }
}

fn programs() -> Outcome {
    let mut scene = Scene::new(Subject::Forebay(PortKind::VethXdp))?;
    let options = scene.options.clone();
    let state = |scene: &mut Scene| -> Result<HintsState, Box<dyn std::error::Error>> {
        let shown: HintsShow = scene.bed.client().json(&["hints", "show", "h1"])?;
        Ok(shown.ports[0].state)
    };
    scene.options = options.clone().allowing_programs();
    scene.bed.forebay().kill()?;
    scene.restart()?;
    let object = PROGRAMS[0].compile(&scene.bed.lab)?;
    scene.bed.client().ok(&["hints", "set", "h1", "--program", &object.to_string_lossy()])?;
    scene.bed.forebay().kill()?;
    scene.restart()?;
    assert_eq!(state(&mut scene)?, HintsState::On, "taken over by one that allows it");
    scene.options = options;
    scene.bed.forebay().kill()?;
    scene.restart()?;
    assert_eq!(state(&mut scene)?, HintsState::Off);
    scene.ping()?;
    is_balanced(&scene.bed.client())
}

fn kernel_flows(client: &Client) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let list: Value = serde_json::from_str(&client.ok(&["flow", "list", "--json"])?.stdout)?;
    let flows = list["flows"].as_array().cloned().unwrap_or_default();
    Ok(flows
        .into_iter()
        .filter(|flow| flow["runs"] == "kernel" && flow["dst_mac"] != "ff:ff:ff:ff:ff:ff")
        .collect())
}

/// Packets that came in at this port, and were carried by the kernel.
fn counted(client: &Client, port: &str) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let ports = client.ports()?;
    let port = ports.iter().find(|shown| shown.name == port).ok_or("no such port")?;
    Ok((port.counters.rx_packets, port.counters.offloaded_packets))
}

fn is_balanced(client: &Client) -> Outcome {
    client.ok(&["stats", "--check"])?;
    Ok(())
}

fn killed(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    let before = (
        kernel_flows(&client)?.len(),
        counted(&client, "h1")?,
        client.ok(&["fdb", "list"])?.stdout.lines().count(),
    );
    for _ in 0..3 {
        scene.bed.forebay().kill()?;
        scene.ping()?;
        scene.restart()?;
        scene.ping()?;
        // A daemon that is killed as soon as it has begun may leave less than it found.
        scene.talk()?;
    }
    let after = (
        kernel_flows(&client)?.len(),
        counted(&client, "h1")?,
        client.ok(&["fdb", "list"])?.stdout.lines().count(),
    );
    assert!(after.0 >= before.0, "flows: {before:?} {after:?}");
    assert!(after.1.0 >= before.1.0 + 6 && after.1.1 >= before.1.1 + 6, "counters: {before:?} {after:?}");
    assert!(after.2 >= before.2, "stations: {before:?} {after:?}");
    is_balanced(&client)
}

fn handed_over(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    client.ok(&[
        "flow",
        "add",
        "--priority",
        "7",
        "--ip-proto",
        "tcp",
        "--dport",
        "23",
        "--action",
        "drop",
    ])?;
    client.ok(&["port", "set", "h2", "--vlan", "access:10"])?;
    client.ok(&["port", "set", "h1", "--vlan", "access:10"])?;
    scene.talk()?;
    let before = counted(&client, "h1")?;
    let next = Forebay::start(&scene.bed.lab, scene.options.clone())?;
    let mut last = std::mem::replace(scene.bed.forebay(), next);
    assert!(last.daemon().wait(LIMIT)?.success(), "{}", last.log());
    scene.ping()?;
    let after = counted(&client, "h1")?;
    assert!(after.0 > before.0, "{before:?} {after:?}");
    let rules = client.ok(&["flow", "list"])?.stdout;
    assert!(rules.contains("dport=23"), "{rules}");
    let ports = client.ok(&["port", "list"])?.stdout;
    assert_eq!(ports.matches("access:10").count(), 2, "{ports}");
    is_balanced(&client)
}

fn settings(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    client.ok(&["pool", "set", "h1", "--th", "7", "--reserve", "32"])?;
    client.ok(&["pool", "set", "h2", "--static", "65536"])?;
    client.ok(&["rxq", "set", "h2", "--depth", "256", "--refill", "adaptive", "--low", "64"])?;
    client.ok(&["hints", "set", "h1", "on"])?;
    for member in ["a", "b"] {
        let (near, far) = (format!("{member}0"), format!("{member}1"));
        scene.bed.lab.switch().ip(&["link", "add", &near, "up", "type", "veth", "peer", "name", &far])?;
        scene.bed.lab.switch().ip(&["link", "set", &far, "up"])?;
    }
    client.ok(&["port", "add", "both", "--group", "a0,b0"])?;
    client.ok(&["rss", "set", "both", "--steering", "hash", "--weights", "3,1"])?;
    let shown = || -> Result<Vec<Value>, Box<dyn std::error::Error>> {
        let parts = [
            (["pool", "show", "--json"], ["name", "threshold", "reserve"]),
            (["rxq", "show", "--json"], ["depth", "refill", "low"]),
            (["hints", "show", "--json"], ["name", "state", "program"]),
        ];
        client.wait_port_state("both", PortState::Up)?;
        let mut shown: Vec<Value> = client.json(&["rss", "show"])?;
        for (command, fields) in parts {
            let part: Value = serde_json::from_str(&client.ok(&command)?.stdout)?;
            let ports = part["ports"].as_array().ok_or("there are ports")?;
            shown.extend(ports.iter().flat_map(|port| fields.map(|field| port[field].clone())));
        }
        Ok(shown)
    };
    let before = shown()?;
    scene.bed.forebay().kill()?;
    scene.restart()?;
    assert_eq!(shown()?, before);
    scene.talk()?;
    is_balanced(&client)
}

fn other_format(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    scene.bed.forebay().kill()?;
    let format = scene.pins.find("format").ok_or("the format is pinned")?;
    bump(&format)?;
    scene.ping()?;
    scene.restart()?;
    scene.talk()?;
    assert_eq!(client.ports()?.len(), 2);
    is_balanced(&client)
}

/// Writes another version into the pinned format, in front of all else.
fn bump(format: &std::path::Path) -> Outcome {
    let mut show = std::process::Command::new("bpftool");
    show.args(["-j", "map", "lookup", "pinned"]).arg(format).args(["key", "0", "0", "0", "0"]);
    let shown = forebay_testbed::command::run_ok(show)?.stdout;
    let shown: Value = serde_json::from_str(&shown)?;
    let mut bytes: Vec<String> = shown["value"]
        .as_array()
        .ok_or("bpftool shows the value")?
        .iter()
        .map(|byte| byte.as_str().unwrap_or("0x00").to_owned())
        .collect();
    bytes[0] = "0xfe".to_owned();
    let mut update = std::process::Command::new("bpftool");
    update
        .args(["map", "update", "pinned"])
        .arg(format)
        .args(["key", "0", "0", "0", "0", "value"])
        .args(&bytes);
    forebay_testbed::command::run_ok(update)?;
    Ok(())
}

fn full_stop(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    assert!(scene.bed.forebay().stop()?.success());
    assert_eq!(scene.pins.pinned(), Vec::<String>::new());
    wait::until("everything to be detached", LIMIT, || {
        crate::faults::traces(&scene.bed.lab).is_ok_and(|left| left.is_empty())
    })?;
    scene.restart()?;
    assert_eq!(scene.bed.client().ports()?.len(), 0, "nothing was left");
    Ok(())
}

fn cleaned(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    scene.bed.forebay().kill()?;
    assert!(!scene.pins.pinned().is_empty());
    let mut options = scene.options.clone();
    options.arguments.push("--clean".to_owned());
    *scene.bed.forebay() = Forebay::start(&scene.bed.lab, options)?;
    let client = scene.bed.client();
    assert_eq!((client.ports()?.len(), kernel_flows(&client)?.len()), (0, 0));
    scene.bed.attach(&scene.hosts)?;
    scene.talk()
}

/// The second host goes, and its netdev with it.
fn remove_second(scene: &mut Scene) -> Outcome {
    drop(scene.hosts.pop());
    wait::until("the netdev to be gone", LIMIT, || {
        scene.bed.lab.switch().ip(&["link", "show", "h2"]).is_err()
    })?;
    Ok(())
}

fn missing_netdev(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    scene.bed.forebay().kill()?;
    remove_second(&mut scene)?;
    scene.restart()?;
    let client = scene.bed.client();
    let ports = client.ok(&["port", "list"])?.stdout;
    assert!(ports.contains("netdev-missing"), "{ports}");
    scene.hosts.push(scene.bed.lab.host("h2", subject.kind())?);
    scene.hosts.iter().try_for_each(take_frames)?;
    scene.talk()?;
    is_balanced(&client)
}

fn replaced_netdev(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    scene.bed.forebay().kill()?;
    // Another host under the name of the second, which nobody saw come.
    remove_second(&mut scene)?;
    scene.hosts.push(scene.bed.lab.host("h2", subject.kind())?);
    scene.restart()?;
    scene.hosts.iter().try_for_each(take_frames)?;
    let client = scene.bed.client();
    wait::until("the port to be there", LIMIT, || {
        client.ports().is_ok_and(|ports| ports.iter().any(|port| port.name == "h2"))
    })?;
    scene.talk()?;
    is_balanced(&client)
}

fn other_file(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject)?;
    let client = scene.bed.client();
    let host = scene.bed.lab.host("h3", subject.kind())?;
    let rule = |dport: u16| {
        format!("[[flows.rules]]\npriority = 1\nip_proto = \"tcp\"\ndport = {dport}\naction = \"drop\"\n")
    };
    let port = "[[port]]\nnetdev = \"h3\"\n";
    for (config, ports, dports) in [
        (format!("{port}{}{}", rule(23), rule(25)), 3, "dport=23 dport=25"),
        (rule(25), 2, "dport=25"),
        (String::new(), 2, ""),
    ] {
        scene.bed.forebay().kill()?;
        scene.options.config = Some(config);
        scene.restart()?;
        let rules = client.ok(&["flow", "list"])?.stdout;
        let found: Vec<&str> = rules.split_whitespace().filter(|word| word.starts_with("dport=")).collect();
        assert_eq!((client.ports()?.len(), found.join(" ").as_str()), (ports, dports), "{rules}");
    }
    drop(host);
    // The first two were not the file's.
    scene.talk()?;
    is_balanced(&client)
}
