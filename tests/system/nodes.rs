//! Groups on machines that are not there: sysfs and /proc/irq say that members are PCI functions on two NUMA nodes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use forebay_control::channels::ChannelShow;
use forebay_control::port::PortState;
use forebay_control::rss::RssShow;
use forebay_testbed::dut::{Forebay, ForebayOptions};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::{Host, Lab, PortKind, Result};

use crate::groups::{GROUP, QUEUES, Scene, add_group, netdev};
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const NODES: usize = 2;
/// Of each node one, which has a worker.
const PROCESSORS: [&str; NODES] = ["0", "1"];
const WORKERS: &str = "[switch]\nworkers = 2\ncpus = [0, 1]\n";
/// Every interrupt may go anywhere at first, and every processor sends by no queue.
const ANYWHERE: &str = "0-1";
const NOBODY: &str = "0";
const FIRST_IRQ: usize = 40;
/// What must stay on one node.
const ASKED_SHARE: f64 = 0.95;

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("packets_of_two_members_on_two_nodes_stay_on_one", |subject| stay(subject, 2));
    suite.on_netdevs("packets_of_four_members_on_two_nodes_stay_on_one", |subject| stay(subject, 4));
    suite.once("what_a_killed_daemon_had_set_for_a_group_is_put_back_by_the_next", killed);
    suite.once("a_sysfs_that_lies_is_named_and_packets_pass", lies);
    suite.once("without_interrupts_channels_say_so_and_packets_pass", no_interrupts);
    suite.once("an_interrupt_that_the_kernel_manages_is_named_and_packets_pass", managed);
}

/// What the daemon sees, in a directory of the lab.
struct Described {
    root: PathBuf,
    members: usize,
}

impl Described {
    /// Members are named against the order of their functions: the last one leads.
    fn new(lab: &Lab, members: usize) -> Result<Described> {
        let described = Described { root: lab.path("machine"), members };
        described.file("system/cpu/online", "0-1");
        described.file("system/cpu/possible", "0-1");
        for (node, processor) in PROCESSORS.iter().enumerate() {
            described.file(&format!("system/node/node{node}/cpulist"), processor);
            described.file(&format!("system/node/node{node}/distance"), ["10 21", "21 10"][node]);
        }
        for member in 0..members {
            described.describe(lab, member)?;
        }
        Ok(described)
    }

    fn describe(&self, lab: &Lab, member: usize) -> Result<()> {
        let (name, function) = (netdev(member), self.function(member));
        self.file(&format!("pci/devices/{function}/numa_node"), &self.node(member).to_string());
        let said = |file: &str| {
            let path = format!("/sys/class/net/{name}/{file}");
            lab.switch().run("cat", &[&path]).map(|said| said.stdout)
        };
        for file in ["ifindex", "address"] {
            self.file(&format!("net/{name}/{file}"), &said(file)?);
        }
        let device = self.root.join(format!("net/{name}/device"));
        symlink(format!("/sys/bus/pci/devices/{function}"), device).expect("it can be made");
        for queue in 0..QUEUES as usize {
            let irq = FIRST_IRQ + member * QUEUES as usize + queue;
            self.file(&format!("pci/devices/{function}/msi_irqs/{irq}"), "msix");
            self.file(&format!("actions/{irq}/actions"), &format!("{name}-rx-{queue}"));
            self.file(&format!("irq/{irq}/smp_affinity_list"), ANYWHERE);
            self.file(&format!("net/{name}/queues/tx-{queue}/xps_cpus"), NOBODY);
        }
        Ok(())
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().expect("files lie in directories")).expect("it can be made");
        fs::write(path, format!("{}\n", text.trim())).expect("it can be written");
    }

    /// Numbers by the order of functions.
    fn position(&self, member: usize) -> usize {
        self.members - 1 - member
    }

    fn node(&self, member: usize) -> usize {
        self.position(member) * NODES / self.members
    }

    fn function(&self, member: usize) -> String {
        let (bus, each) = (["3b", "af"][self.node(member)], self.members / NODES);
        format!("0000:{bus}:00.{}", self.position(member) % each)
    }

    fn options(&self) -> ForebayOptions {
        let places = [
            ("system", "/sys/devices/system"),
            ("pci", "/sys/bus/pci"),
            ("net", "/sys/class/net"),
            ("actions", "/sys/kernel/irq"),
            ("irq", "/proc/irq"),
        ];
        let see =
            |options: ForebayOptions, (directory, place)| options.seeing(self.root.join(directory), place);
        places.into_iter().fold(ForebayOptions::with_config(WORKERS), see)
    }

    /// What the daemon has written: of each queue of each member the interrupt's processors, and the senders.
    fn written(&self) -> Vec<(String, String)> {
        let read =
            |name: String| fs::read_to_string(self.root.join(name)).unwrap_or_default().trim().to_owned();
        let queues =
            (0..self.members).flat_map(|member| (0..QUEUES as usize).map(move |queue| (member, queue)));
        queues
            .map(|(member, queue)| {
                let irq = FIRST_IRQ + member * QUEUES as usize + queue;
                let senders = format!("net/{}/queues/tx-{queue}/xps_cpus", netdev(member));
                (read(format!("irq/{irq}/smp_affinity_list")), read(senders))
            })
            .collect()
    }
}

fn scene(kind: PortKind, members: usize, spoil: impl FnOnce(&Described)) -> Result<(Scene, PathBuf)> {
    let mut root = PathBuf::new();
    let scene = Scene::with(kind, members, "strict", |lab| {
        let described = Described::new(lab, members)?;
        spoil(&described);
        root.clone_from(&described.root);
        Ok(described.options())
    })?;
    Ok((scene, root))
}

/// A second of small datagrams over several connections.
fn send(lab: &Lab, from: &Host, to: &Host) -> Result<()> {
    let _server = IperfServer::start(lab, to)?;
    Iperf::seconds(1).streams(4).udp(1_000_000, 200).run(from, to).map(drop)
}

fn stay(subject: Subject, members: usize) -> Outcome {
    ensure_program()?;
    let (scene, root) = scene(subject.kind(), members, |_| {})?;
    let described = Described { root, members };
    let client = scene.switches[0].client();
    let names: Vec<_> = scene.group()?.members.into_iter().map(|member| member.netdev).collect();
    assert_eq!(names, (0..members).rev().map(netdev).collect::<Vec<_>>(), "by their functions");

    let channels: Vec<ChannelShow> = client.json(&["channels", "show", GROUP])?;
    assert_eq!(channels.len(), members * QUEUES as usize);
    let mut senders = 0u32;
    for channel in &channels {
        let node = channel.member as usize * NODES / members;
        assert_eq!((channel.node, channel.problems.len()), (Some(node as u32), 0), "{channel:?}");
        assert_eq!(channel.processors.as_deref(), Some(PROCESSORS[node]), "{channel:?}");
        let mask = channel.xps_cpus.as_deref().and_then(|mask| u32::from_str_radix(mask, 16).ok());
        let mask = mask.ok_or("a channel has a mask of senders")?;
        assert_eq!((senders & mask, mask & !(1 << node)), (0, 0), "each once, by its own node: {channel:?}");
        senders |= mask;
    }
    assert_eq!(senders, 0b11, "{channels:?}");
    let shown: Vec<RssShow> = client.json(&["rss", "show", GROUP])?;
    for (channel, has) in channels.iter().zip(&shown[0].channels) {
        assert_eq!(Some(has.worker), channel.node, "the worker on the member's node");
    }

    scene.ping_all()?;
    // Those with XDP are served by all workers, so no node is theirs.
    if subject.kind() != PortKind::VethXdp {
        receive_on_one_node(&scene)?;
        send_on_one_node(&scene, &described)?;
        count_far(&scene, &described)?;
    }
    assert!(scene.is_balanced()?);
    client.ok(&["port", "del", GROUP])?;
    let before = (ANYWHERE.to_owned(), NOBODY.to_owned());
    assert!(described.written().iter().all(|written| *written == before), "{:?}", described.written());
    Ok(())
}

fn receive_on_one_node(scene: &Scene) -> Result<()> {
    let client = scene.switches[0].client();
    let count = || client.json::<Vec<RssShow>>(&["rss", "show", GROUP]).map(|mut shown| shown.remove(0));
    let before = count()?;
    for host in &scene.near {
        send(&scene.labs[0], &scene.far[0], host)?;
    }
    let after = count()?;
    let all = after.steered_packets - before.steered_packets;
    let share = 1.0 - (after.across_packets - before.across_packets) as f64 / all as f64;
    assert!(all > 1000 && share >= ASKED_SHARE, "{share} of {all}");
    Ok(())
}

/// While all packets go to the first channel's worker, on node 0, those are far that come in on node 1.
fn count_far(scene: &Scene, described: &Described) -> Result<()> {
    let client = scene.switches[0].client();
    client.ok(&["eswitch", "set", "offload", "off"])?;
    client.ok(&["rss", "set", GROUP, "--steering", "hash", "--equal", "1"])?;
    let look = || -> Result<(RssShow, u64)> {
        let on_node_1 = (0..described.members).filter(|member| described.node(*member) == 1);
        let received = on_node_1.map(|member| scene.labs[0].switch().received_packets(&netdev(member)));
        let received = received.sum::<Result<u64>>()?;
        Ok((client.json::<Vec<RssShow>>(&["rss", "show", GROUP])?.remove(0), received))
    };
    let before = look()?;
    for host in &scene.near {
        send(&scene.labs[0], &scene.far[0], host)?;
    }
    let after = look()?;
    let far = after.0.far_packets - before.0.far_packets;
    let all = after.0.slow_path_packets - before.0.slow_path_packets;
    let received = after.1 - before.1;
    // A GSO packet is one to the netdev; loop probes are none to workers.
    let is_about = far.abs_diff(received) <= 20 + received / 20;
    assert!(is_about && far <= all && all > 1000, "{far} of {all} are far, {received} came in on node 1");
    Ok(())
}

/// Hosts are worker 0's and worker 1's in turn, and so on node 0 and on node 1.
fn send_on_one_node(scene: &Scene, described: &Described) -> Result<()> {
    for offload in ["off", "on"] {
        scene.switches[0].client().ok(&["eswitch", "set", "offload", offload])?;
        for (number, host) in scene.near.iter().enumerate() {
            let sent = || -> Result<Vec<u64>> {
                (0..described.members)
                    .map(|member| scene.labs[0].switch().sent_packets(&netdev(member)))
                    .collect()
            };
            let before = sent()?;
            send(&scene.labs[0], host, &scene.far[0])?;
            let sent: Vec<u64> = sent()?.iter().zip(before).map(|(after, before)| after - before).collect();
            let near = (0..described.members).filter(|member| described.node(*member) == number % NODES);
            let share = near.map(|member| sent[member]).sum::<u64>() as f64 / sent.iter().sum::<u64>() as f64;
            assert!(share >= ASKED_SHARE, "offload {offload}, {}: {share} of {sent:?}", host.name());
        }
    }
    Ok(())
}

/// The next daemon puts back what is as it was set, and leaves alone what somebody else has changed since.
fn killed() -> Outcome {
    ensure_program()?;
    let (mut scene, root) = scene(PortKind::VethTcx, 2, |_| {})?;
    let described = Described { root, members: 2 };
    let before = || (ANYWHERE.to_owned(), NOBODY.to_owned());
    let set = described.written();
    assert!(set.iter().all(|written| *written != before()), "{set:?}");
    scene.switches[0].kill()?;
    assert_eq!(described.written(), set, "a killed daemon puts nothing back");
    let changed = format!("irq/{FIRST_IRQ}/smp_affinity_list");
    described.file(&changed, "1,0");
    scene.switches[0] = Forebay::start(&scene.labs[0], described.options())?;
    let written = described.written();
    assert_eq!((written[0].0.as_str(), written[0].1.as_str()), ("1,0", NOBODY), "{written:?}");
    assert!(written[1..].iter().all(|written| *written == before()), "{written:?}");

    // Once more with the group, and this time the port is deleted.
    described.file(&changed, ANYWHERE);
    add_group(scene.switches[0].client(), 2, &[])?;
    scene.switches[0].client().wait_port_state(GROUP, PortState::Up)?;
    assert_eq!(described.written(), set);
    scene.switches[0].kill()?;
    scene.switches[0] = Forebay::start(&scene.labs[0], described.options())?;
    add_group(scene.switches[0].client(), 2, &[])?;
    scene.switches[0].client().wait_port_state(GROUP, PortState::Up)?;
    assert_eq!(described.written(), set);
    scene.switches[0].client().ok(&["port", "del", GROUP])?;
    let written = described.written();
    assert!(written.iter().all(|written| *written == before()), "{written:?}");
    Ok(())
}

/// The daemon says what is wrong, and packets pass.
fn spoiled(spoil: impl FnOnce(&Described), expected: &str) -> Outcome {
    ensure_program()?;
    let (scene, _) = scene(PortKind::VethTcx, 2, spoil)?;
    let channels: Vec<ChannelShow> = scene.switches[0].client().json(&["channels", "show", GROUP])?;
    let problems: Vec<_> = channels.iter().flat_map(|channel| &channel.problems).collect();
    assert!(problems.iter().any(|problem| problem.contains(expected)), "{problems:?}");
    scene.ping_all()?;
    assert!(scene.is_balanced()?);
    Ok(())
}

fn lies() -> Outcome {
    spoiled(
        |described| described.file("system/node/node1/distance", "ten"),
        "which is not a list of distances",
    )
}

fn no_interrupts() -> Outcome {
    spoiled(
        |described| fs::remove_dir_all(described.root.join("irq/40")).expect("it is there"),
        "/proc/irq/40/smp_affinity_list",
    )
}

/// The kernel refuses to move an interrupt that it manages with EIO, as it refuses to write to this file.
fn managed() -> Outcome {
    let spoil = |described: &Described| {
        let path = described.root.join("irq/41/smp_affinity_list");
        fs::remove_file(&path).expect("it is there");
        symlink("/proc/version", path).expect("it can be made");
    };
    spoiled(spoil, "/proc/irq/41/smp_affinity_list")
}
