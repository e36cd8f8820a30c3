//! A port of NICs on two NUMA nodes, and a host beyond whose bond spreads its flows over all of them.

use std::path::Path;
use std::time::Duration;

use forebay_control::channels::ChannelShow;
use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue, QueueType};
use forebay_control::port::PortState;
use forebay_control::rss::RssShow;
use forebay_testbed::dut::{self, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::netns::{self, Netns};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::{Host, Lab, PortKind, Result, guest, wait};

use crate::Outcome;
use crate::faults::{device, under_traffic_of, write};
use crate::uplink::Scene;

/// Of the port with two NICs.
const MEMBERS: [&str; 2] = ["m0", "m1"];
/// Of the one with four, the next two on the same nodes.
const FOUR: [&str; 4] = ["m0", "m1", "m2", "m3"];
const DEVICE_LIMIT: Duration = Duration::from_secs(20);

/// Channels: the member, its queue and node, the processor that takes its interrupt, and the mask of those that send.
type Channel = (u32, u32, u32, &'static str, &'static str);
const OF_TWO: [Channel; 4] =
    [(0, 0, 0, "0", "1"), (1, 0, 1, "2", "4"), (0, 1, 0, "1", "2"), (1, 1, 1, "3", "8")];
/// Two NICs share each node's processors, and each has one channel more than processors.
const OF_FOUR: [Channel; 8] = [
    (0, 0, 0, "0", "1"),
    (1, 0, 1, "2", "4"),
    (2, 0, 0, "1", "2"),
    (3, 0, 1, "3", "8"),
    (0, 1, 0, "0", "0"),
    (1, 1, 1, "2", "0"),
    (2, 1, 0, "1", "0"),
    (3, 1, 1, "3", "0"),
];

fn scene(members: &[&str], membership: &str) -> Result<Scene> {
    let kinds = [PortKind::VethTcx, PortKind::VethXdp];
    scene_of(kinds, members, membership, ForebayOptions::default().offloaded())
}

fn scene_of<const N: usize>(
    kinds: [PortKind; N],
    members: &[&str],
    membership: &str,
    options: ForebayOptions,
) -> Result<Scene<N>> {
    let mut lab = Lab::new("guest")?;
    let mut containers = Vec::new();
    for (number, kind) in kinds.into_iter().enumerate() {
        containers.push(lab.host(&format!("c{}", number + 1), kind)?);
    }
    let ends = guest::ends(0)?;
    let far = lab.host_beyond("nic", [&ends[0], &ends[1]])?;
    arrange(&lab, &far, members)?;
    let mut switch = Forebay::start(&lab, options)?;
    for host in &containers {
        switch.add_ports(&[dut::port_of(host)])?;
    }
    // Named against the order of their addresses.
    let group = members.iter().rev().copied().collect::<Vec<_>>().join(",");
    switch.client().ok(&["port", "add", "nic", "--group", &group, "--members", membership])?;
    switch.client().wait_port_state("nic", PortState::Up)?;
    let Ok(containers) = containers.try_into() else { unreachable!("one of each kind") };
    let scene = Scene { switch, containers, far, lab };
    for container in &scene.containers {
        dut::wait_until_it_carries(&scene.far, container)?;
    }
    Ok(scene)
}

/// The switch's ends of all cables, and a bond of the host's.
fn arrange(lab: &Lab, far: &Host, members: &[&str]) -> Result<()> {
    lab.switch().ip_batch(&["link set nic down name m0".to_owned(), "link set m0 up".to_owned()])?;
    for (cable, name) in members.iter().enumerate().skip(1) {
        let [near, beyond] = guest::ends(cable)?;
        adopt(lab, &near, name)?;
        netns::ip(&["link", "set", &beyond, "netns", far.netns().name(), "name", name])?;
    }
    let (netns, mac): (&Netns, _) = (far.netns(), far.mac_text());
    netns.ip_batch(&[
        "addr flush dev eth0".to_owned(),
        "link set eth0 down name m0".to_owned(),
        format!("link add eth0 address {mac} type bond mode balance-xor xmit_hash_policy layer3+4 miimon 20"),
        "link set eth0 up".to_owned(),
        format!("addr add {}/16 dev eth0", far.v4()),
        format!("addr add {}/64 dev eth0 nodad", far.v6()),
    ])?;
    let enslave = |member: &&str| format!("link set {member} down master eth0");
    netns.ip_batch(&members.iter().map(enslave).collect::<Vec<_>>())?;
    Ok(())
}

/// A NIC of the first namespace becomes a member.
fn adopt(lab: &Lab, netdev: &str, name: &str) -> Result<()> {
    netns::ip(&["link", "set", netdev, "netns", lab.switch().name(), "name", name])?;
    lab.switch().ip(&["link", "set", name, "up"]).map(drop)
}

fn channels(scene: &Scene) -> Result<Vec<ChannelShow>> {
    scene.switch.client().json(&["channels", "show", "nic"])
}

/// Packets that each channel has received.
fn received(channels: &[ChannelShow]) -> Vec<u64> {
    channels.iter().map(|channel| channel.received_packets.expect("virtio_net counts them")).collect()
}

/// What the kernel says of a channel's interrupt and senders.
fn settings(scene: &Scene, channel: &ChannelShow) -> Result<[String; 2]> {
    let (irq, netdev) = (channel.irq.unwrap_or_default(), channel.netdev.clone().unwrap_or_default());
    let paths = [
        format!("/proc/irq/{irq}/smp_affinity_list"),
        format!("/sys/class/net/{netdev}/queues/tx-{}/xps_cpus", channel.queue),
    ];
    let [affinity, xps] = paths.map(|path| scene.lab.switch().run("cat", &[&path]));
    Ok([affinity?, xps?].map(|said| said.stdout.trim().to_owned()))
}

/// `queue-get` and `napi-get` say the same of the channels, and /proc/interrupts calls their interrupts by their queues.
fn check_queues(scene: &Scene, shown: &[ChannelShow]) -> Result<()> {
    let client = scene.switch.client();
    let queues: Vec<NetdevQueue> = client.json(&["queue-get", "nic"])?;
    let napis: Vec<NetdevNapi> = client.json(&["napi-get", "nic"])?;
    let interrupts = scene.lab.switch().run("cat", &["/proc/interrupts"])?.stdout;
    for channel in shown {
        let netdev = channel.netdev.clone().unwrap_or_default();
        let is_its = |queue: &&NetdevQueue| {
            (queue.kind, Some(queue.ifindex), queue.id) == (QueueType::Rx, channel.ifindex, channel.queue)
        };
        let queue = queues.iter().find(is_its).expect("`queue-get` has all queues");
        assert_eq!(queue.napi_id, channel.napi, "{channel:?}");
        let napi = napis.iter().find(|napi| Some(napi.id) == channel.napi);
        let irq = napi.and_then(|napi| napi.irq);
        assert!(irq.is_none() || irq == channel.irq, "{napi:?} {channel:?}");
        let link = scene.lab.switch().run("readlink", &[&format!("/sys/class/net/{netdev}/device")])?.stdout;
        let device = link.trim().rsplit('/').next().unwrap_or_default();
        let begins = format!("{}:", channel.irq.unwrap_or_default());
        let line = interrupts.lines().find(|line| line.trim_start().starts_with(&begins)).unwrap_or_default();
        assert!(line.ends_with(&format!("{device}-input.{}", channel.queue)), "{line} {channel:?}");
    }
    Ok(())
}

/// The channels are where they should be, and packets pass.
fn talk(members: &[&str], expected: &[Channel]) -> Outcome {
    let scene = scene(members, "strict")?;
    let shown = channels(&scene)?;
    assert_eq!(shown.len(), expected.len(), "{shown:?}");
    for (channel, (member, queue, node, processor, senders)) in shown.iter().zip(expected) {
        assert_eq!(
            (channel.member, channel.queue, channel.node),
            (*member, *queue, Some(*node)),
            "{channel:?}"
        );
        assert_eq!(channel.netdev.as_deref(), Some(members[*member as usize]), "{channel:?}");
        assert!(channel.problems.is_empty(), "{channel:?}");
        let kernel = settings(&scene, channel)?;
        assert_eq!(kernel, [*processor, *senders], "{channel:?}");
        assert_eq!([channel.processors.clone(), channel.xps_cpus.clone()], kernel.map(Some));
    }
    check_queues(&scene, &shown)?;
    scene.check_talk()?;
    let mut used = 0;
    for member in members {
        let received = scene.lab.switch().received_packets(member)?;
        println!("{member} received {received} packets");
        used += usize::from(received > 100);
    }
    println!("{}", scene.switch.client().ok(&["channels", "show"])?.stdout);
    // Drivers count for all channels, and more than what netdevs send by themselves.
    let counted: u64 = received(&channels(&scene)?).iter().sum();
    assert!(counted > 100 * used as u64, "{counted} packets by all channels");
    // The host's bond puts some dozen flows on them.
    assert!(used > members.len() / 2, "{used} of {} members", members.len());
    Ok(())
}

pub fn talk_over_two() -> Outcome {
    talk(&MEMBERS, &OF_TWO)
}

pub fn talk_over_four() -> Outcome {
    talk(&FOUR, &OF_FOUR)
}

/// Eight streams of small datagrams, two seconds long: the bond beyond spreads them over its members.
fn send(lab: &Lab, from: &Host, to: &Host) -> Result<()> {
    let _server = IperfServer::start(lab, to)?;
    Iperf::seconds(2).streams(8).udp(300_000, 200).run(from, to).map(drop)
}

/// What passes through workers has the worker, and leaves by the member, of its container's node.
pub fn on_one_node() -> Outcome {
    let options = ForebayOptions::with_config("[switch]\nworkers = 4\ncpus = [0, 1, 2, 3]\n");
    let scene = scene_of([PortKind::VethTcx; 4], &MEMBERS, "strict", options)?;
    let client = scene.switch.client();
    let shown: Vec<RssShow> = client.json(&["rss", "show", "nic"])?;
    // Channels 0 and 2 are the first member's, on node 0; processors 0 and 1 are there.
    let workers: Vec<_> = shown[0].channels.iter().map(|channel| channel.worker).collect();
    assert_eq!(workers, [0, 2, 1, 3], "{shown:?}");
    let send_in = |steering: &str| -> Result<f64> {
        client.ok(&["rss", "set", "nic", "--steering", steering])?;
        let before: Vec<RssShow> = client.json(&["rss", "show", "nic"])?;
        for container in &scene.containers {
            send(&scene.lab, &scene.far, container)?;
        }
        let after: Vec<RssShow> = client.json(&["rss", "show", "nic"])?;
        let all = after[0].steered_packets - before[0].steered_packets;
        assert!(all > 1000, "{before:?} {after:?}");
        Ok(1.0 - (after[0].across_packets - before[0].across_packets) as f64 / all as f64)
    };
    let [by_hash, to_outputs] = [send_in("hash")?, send_in("output")?];
    println!(
        "to the worker of the output's node: {:.1} % by hash, {:.1} % by output",
        by_hash * 100.0,
        to_outputs * 100.0
    );
    println!("{}", client.ok(&["rss", "show"])?.stdout);
    println!("{}", client.ok(&["channels", "show"])?.stdout);
    assert!(to_outputs >= 0.95, "{to_outputs}");
    for offload in ["off", "on"] {
        client.ok(&["eswitch", "set", "offload", offload])?;
        let mut near = 0;
        let mut all = 0;
        for (number, container) in scene.containers.iter().enumerate() {
            let node = usize::from(number >= 2);
            let sent = |member: usize| scene.lab.switch().sent_packets(MEMBERS[member]);
            let before = [sent(0)?, sent(1)?];
            send(&scene.lab, container, &scene.far)?;
            let after = [sent(0)?, sent(1)?];
            near += after[node] - before[node];
            all += after[0] + after[1] - before[0] - before[1];
        }
        let share = near as f64 / all as f64;
        println!("by the member on the container's node, offload {offload}: {:.1} %", share * 100.0);
        assert!(share >= 0.95, "{share}");
    }
    Ok(())
}

/// Interrupts and XPS are as they were before, once the port is gone.
pub fn put_back() -> Outcome {
    let scene = scene(&MEMBERS, "strict")?;
    let client = scene.switch.client();
    let during = channels(&scene)?;
    client.ok(&["port", "del", "nic"])?;
    let before = during.iter().map(|channel| settings(&scene, channel)).collect::<Result<Vec<_>>>()?;
    assert!(
        during.iter().zip(&before).any(|(channel, before)| channel.xps_cpus.as_ref() != Some(&before[1]))
    );
    let function = during[0].pci.expect("it is a PCI function").to_string();
    let twice = client.call(&["port", "add", "nic", "--group", &format!("m0,{function}")])?;
    assert!(twice.stderr.contains("which is a member already"), "{}", twice.stderr);
    let other = during[1].pci.expect("it is a PCI function").to_string();
    client.ok(&["port", "add", "nic", "--group", &format!("{other},{function}")])?;
    client.wait_port_state("nic", PortState::Up)?;
    assert_eq!(client.port("nic")?.netdev, "m0,m1");
    client.ok(&["port", "del", "nic"])?;
    let after = during.iter().map(|channel| settings(&scene, channel)).collect::<Result<Vec<_>>>()?;
    assert_eq!(after, before);
    Ok(())
}

/// Under traffic each member goes and comes back five times (an emulated processor may lose all of a second's packets for
/// the slow path, and the port says so then); in between a strict group waits, and another one goes on.
fn unplug(membership: &str, without: PortState) -> Outcome {
    under_traffic_of(scene(&MEMBERS, membership)?, |scene, time| {
        let client = scene.switch.client();
        let member = time as usize % MEMBERS.len();
        let before = received(&channels(scene)?);
        write(&device(scene, MEMBERS[member])?.join("remove"), "1")?;
        let is_noticed = || {
            client.port("nic").is_ok_and(|port| {
                port.state.carries() == without.carries() && port.members.len() < MEMBERS.len()
            })
        };
        wait::until("the member to be missed", DEVICE_LIMIT, is_noticed)?;
        if without == PortState::Up {
            // The host's bond must have noticed, too, that a cable ends nowhere; so it is told.
            scene.far.netns().ip(&["link", "set", MEMBERS[member], "down"])?;
            dut::wait_until_it_carries(&scene.far, &scene.containers[0])?;
            scene.wait_for_pings("pings with one member to be answered")?;
        }
        write(Path::new("/sys/bus/pci/rescan"), "1")?;
        let name =
            wait::until_some("the NIC to be there again", DEVICE_LIMIT, || guest::end(member, 0).ok())?;
        adopt(&scene.lab, &name, MEMBERS[member])?;
        scene.far.netns().ip(&["link", "set", MEMBERS[member], "up"])?;
        wait::until("the member to be back", DEVICE_LIMIT, || {
            let is_whole = |port: forebay_control::port::PortShow| {
                port.state.carries()
                    && port.members.iter().filter(|member| member.carries).count() == MEMBERS.len()
            };
            client.port("nic").is_ok_and(is_whole)
        })?;
        let leader = client.port("nic")?.members[0].netdev.clone();
        assert_eq!(leader, MEMBERS[0], "whichever came last");
        dut::wait_until_it_carries(&scene.far, &scene.containers[0])?;
        let shown = channels(scene)?;
        assert!(
            shown.iter().all(|channel| channel.problems.is_empty() && channel.netdev.is_some()),
            "{shown:?}"
        );
        let after = received(&shown);
        assert_eq!(before.len(), after.len(), "{shown:?}");
        assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "{before:?} {after:?}");
        assert!(before.iter().sum::<u64>() < after.iter().sum(), "{before:?} {after:?}");
        Ok(())
    })
}

pub fn unplug_strict() -> Outcome {
    unplug("strict", PortState::Waiting)
}

pub fn unplug_any() -> Outcome {
    unplug("any", PortState::Up)
}
