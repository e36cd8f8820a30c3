//! Ports with several members, between two switches: what is at the other end of each member's cable is a member of the
//! other switch's group.

use std::time::Duration;

use forebay_control::channels::ChannelShow;
use forebay_control::port::{PortShow, PortState};
use forebay_testbed::dut::{self, Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, LabError, PortKind, Result, wait};

use crate::harness::{Outcome, Subject, Suite, ensure_program};

/// Hosts at each switch: enough pairs of stations for each member to have some.
const HOSTS: usize = 3;
pub const GROUP: &str = "uplink";
/// Of each member of a group whose queues are looked at.
pub const QUEUES: u32 = 2;
const STREAM_BYTES: u64 = 16 << 20;
/// Probes are sent once a second, and what came of one is remembered for ten.
const ECHO_LIMIT: Duration = Duration::from_secs(30);
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
/// How often a member goes and comes.
const TIMES: usize = 10;

pub fn register(suite: &mut Suite) {
    suite.on_forebay("a_group_of_two_members_is_one_port", |subject| one_port(subject, 2));
    suite.on_forebay("a_group_of_four_members_is_one_port", |subject| one_port(subject, 4));
    suite.once("a_strict_group_goes_with_a_member_and_comes_back_with_it", strict);
    suite.once("a_group_of_any_members_goes_on_with_those_that_are_left", any);
    suite.once("a_member_without_a_carrier_gets_no_packets", without_carrier);
    suite.once("what_can_not_be_a_member_is_refused_by_name", refused);
    suite.once("a_group_waits_for_its_members_and_follows_renamed_ones", waits);
    suite.once("every_processor_sends_by_one_channel_of_a_group_while_it_is_a_port", senders);
    suite.once("a_member_that_comes_up_later_has_all_its_queues_as_channels", comes_up);
    suite.once("a_group_that_is_not_one_at_the_other_end_says_so", not_one);
    suite.once("a_group_is_there_again_after_its_daemon_was_killed", killed);
}

/// Two switches with hosts, and cables between them.
pub struct Scene {
    // In this order: switches and hosts before the labs they are in.
    pub switches: [Forebay; 2],
    pub near: Vec<Host>,
    pub far: Vec<Host>,
    pub labs: [Lab; 2],
}

impl Scene {
    pub fn new(kind: PortKind, members: usize, membership: &str) -> Result<Scene> {
        Scene::with(kind, members, membership, |_| Ok(ForebayOptions::default()))
    }

    /// The near switch has these options, which may depend on what is in its lab.
    pub fn with(
        kind: PortKind,
        members: usize,
        membership: &str,
        options: impl FnOnce(&Lab) -> Result<ForebayOptions>,
    ) -> Result<Scene> {
        let mut labs = [Lab::new("near")?, Lab::new("far")?];
        let host = |lab: &mut Lab, side: &str, kind, n| lab.host(&format!("{side}{n}"), kind);
        let near = (0..HOSTS).map(|n| host(&mut labs[0], "n", kind, n)).collect::<Result<Vec<_>>>()?;
        // Made in the same lab, so that no two have the same address.
        let far =
            (0..HOSTS).map(|n| host(&mut labs[0], "f", PortKind::VethTcx, n)).collect::<Result<Vec<_>>>()?;
        let [near_netns, far_netns] = [labs[0].switch(), labs[1].switch()];
        for host in &far {
            near_netns.ip(&["link", "set", host.name(), "netns", far_netns.name()])?;
            far_netns.ip(&["link", "set", host.name(), "up"])?;
        }
        (0..members).try_for_each(|member| plug_in(&labs, member))?;
        let far_switch = Forebay::start(&labs[1], ForebayOptions::default())?;
        let mut switches = [Forebay::start(&labs[0], options(&labs[0])?)?, far_switch];
        for (switch, hosts) in switches.iter_mut().zip([&near, &far]) {
            for host in hosts {
                switch.add_ports(&[dut::port_of(host)])?;
            }
            add_group(switch.client(), members, &["--members", membership])?;
            switch.client().wait_port_state(GROUP, PortState::Up)?;
        }
        Ok(Scene { switches, near, far, labs })
    }

    /// Pings from each host to each other, and back by the answers.
    pub fn ping_all(&self) -> Result<()> {
        let all = || self.near.iter().chain(&self.far);
        for (from, to) in all().flat_map(|from| all().map(move |to| (from, to))) {
            if from.name() != to.name() {
                let report = Ping::new(to.v4()).count(3).from(from)?;
                let complete = report.is_complete() && report.duplicates == 0;
                assert!(complete, "{} to {}: {report:?}", from.name(), to.name());
            }
        }
        Ok(())
    }

    pub fn is_balanced(&self) -> Result<bool> {
        let balanced = |switch: &Forebay| switch.client().stats_check().map(|check| check.balanced);
        Ok(balanced(&self.switches[0])? && balanced(&self.switches[1])?)
    }

    pub fn group(&self) -> Result<PortShow> {
        self.switches[0].client().port(GROUP)
    }

    pub fn wait_for(&self, state: PortState) -> Result<()> {
        self.switches.iter().try_for_each(|switch| switch.client().wait_port_state(GROUP, state))
    }

    pub fn wait_for_members(&self, count: usize) -> Result<()> {
        wait::until(&format!("the groups to have {count} members"), CHANGE_LIMIT, || {
            self.switches
                .iter()
                .all(|switch| switch.client().port(GROUP).is_ok_and(|port| port.members.len() == count))
        })
    }

    pub fn unplug(&self, member: usize) -> Result<()> {
        self.labs[0].switch().ip(&["link", "del", &netdev(member)]).map(drop)
    }
}

pub fn netdev(member: usize) -> String {
    format!("m{member}")
}

/// A cable between the switches.
pub fn plug_in([near, far]: &[Lab; 2], member: usize) -> Result<()> {
    let name = netdev(member);
    let queues = format!("numtxqueues {QUEUES} numrxqueues {QUEUES}");
    let peer = format!("peer name {name} {queues} netns {}", far.switch().name());
    near.switch().ip_batch(&[format!("link add {name} up {queues} type veth {peer}")])?;
    far.switch().ip(&["link", "set", &name, "up"]).map(drop)
}

pub fn add_group(client: &Client, members: usize, words: &[&str]) -> Result<()> {
    let names: Vec<String> = (0..members).map(netdev).collect();
    let names = names.join(",");
    client.ok(&[&["port", "add", GROUP, "--group", &names], words].concat()).map(drop)
}

fn one_port(subject: Subject, members: usize) -> Outcome {
    ensure_program()?;
    let scene = Scene::new(subject.kind(), members, "strict")?;
    let shown = scene.group()?;
    let names: Vec<_> = shown.members.iter().map(|member| member.netdev.clone()).collect();
    assert_eq!(names, (0..members).map(netdev).collect::<Vec<_>>(), "the leader first");
    scene.ping_all()?;
    let _server = IperfServer::start(&scene.labs[0], &scene.far[0])?;
    for reverse in [false, true] {
        let report = Iperf::bytes(STREAM_BYTES).reverse(reverse).run(&scene.near[0], &scene.far[0])?;
        assert!(report.is_complete(STREAM_BYTES), "reverse {reverse}: {report:?}");
    }
    assert!(scene.is_balanced()?);
    let used = (0..members).filter(|member| {
        let sent = scene.labs[1].switch().received_packets(&netdev(*member));
        // What every netdev sends by itself is less.
        sent.is_ok_and(|packets| packets > 20)
    });
    assert!(used.count() > 1, "all packets left by one member");
    Ok(())
}

fn strict() -> Outcome {
    ensure_program()?;
    let scene = Scene::new(PortKind::VethTcx, 2, "strict")?;
    for time in 0..TIMES {
        let member = time % 2;
        scene.unplug(member)?;
        scene.wait_for(PortState::Waiting)?;
        let reason = scene.group()?.state_reason;
        let says = |text: &str| reason.contains(text);
        assert!(says("1 of 2 members are there") && says(&netdev(member)), "{reason}");
        assert!(Ping::new(scene.near[1].v4()).count(1).from(&scene.near[0])?.is_complete());
        plug_in(&scene.labs, member)?;
        scene.wait_for(PortState::Up)?;
        assert_eq!(scene.group()?.members.len(), 2, "it is up with all of them or not at all");
        dut::wait_until_it_carries(&scene.near[0], &scene.far[0])?;
    }
    scene.ping_all()?;
    assert!(scene.is_balanced()?);
    Ok(())
}

fn any() -> Outcome {
    ensure_program()?;
    let scene = Scene::new(PortKind::VethTcx, 2, "any")?;
    for time in 0..TIMES {
        let member = time % 2;
        scene.unplug(member)?;
        scene.wait_for_members(1)?;
        let shown = scene.group()?;
        assert_eq!((shown.state, shown.members[0].netdev.clone()), (PortState::Up, netdev(1 - member)));
        assert!(shown.state_reason.contains("1 of 2 members"), "{}", shown.state_reason);
        scene.ping_all()?;
        plug_in(&scene.labs, member)?;
        scene.wait_for_members(2)?;
        scene.ping_all()?;
    }
    let report = scene.group()?;
    assert_eq!((report.state, report.state_reason.as_str()), (PortState::Up, ""));
    assert!(scene.is_balanced()?);
    Ok(())
}

fn without_carrier() -> Outcome {
    ensure_program()?;
    let scene = Scene::new(PortKind::VethTcx, 2, "strict")?;
    scene.ping_all()?;
    let carrying = |count: usize| {
        let counts = |port: PortShow| port.members.iter().filter(|member| member.carries).count() == count;
        wait::until("the members' carriers to be noticed", CHANGE_LIMIT, || {
            scene.switches.iter().all(|switch| switch.client().port(GROUP).is_ok_and(counts))
        })
    };
    scene.labs[1].switch().ip(&["link", "set", "m0", "down"])?;
    carrying(1)?;
    assert_eq!(scene.group()?.state, PortState::Up);
    scene.ping_all()?;
    scene.labs[1].switch().ip(&["link", "set", "m1", "down"])?;
    scene.wait_for(PortState::NetdevDown)?;
    for member in ["m0", "m1"] {
        scene.labs[1].switch().ip(&["link", "set", member, "up"])?;
    }
    carrying(2)?;
    scene.ping_all()?;
    assert!(scene.is_balanced()?);
    Ok(())
}

fn refused() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("refused")?;
    let netns = lab.switch();
    for member in ["m0", "m1", "m2"] {
        netns.ip(&["link", "add", member, "up", "type", "veth", "peer", "name", &format!("{member}p")])?;
    }
    let forebay = Forebay::start(&lab, ForebayOptions::default())?;
    let client = forebay.client();
    let refused = |words: &[&str], parts: &[&str]| {
        let said = client.call(&[&["port", "add"], words].concat())?;
        assert!(!said.status.success(), "{words:?}: {}", said.stdout);
        for part in parts {
            assert!(said.stderr.contains(part), "{words:?}: {}", said.stderr);
        }
        Ok::<_, LabError>(())
    };
    refused(&["up", "--group", "m0"], &["2 to 16 members", "value: m0"])?;
    refused(&["up", "--group", "m0,m0"], &["each member once"])?;
    refused(&["up", "--group", "m0,m1", "--attach", "xdp"], &["attach", "auto or tcx"])?;
    refused(&["up", "--group", "m0,nothing"], &["there is no netdev `nothing`"])?;
    refused(&["up", "--group", "m0,0000:ff:1f.7"], &["no netdev of the PCI function 0000:ff:1f.7"])?;
    refused(&["up", "--group", "m0,0000:ff:1f.9"], &["group", "0000:ff:1f.9"])?;
    refused(&["up", "other", "--group", "m0,m1"], &["--group goes with one name"])?;
    netns.ip(&["link", "set", "m1", "mtu", "1400"])?;
    refused(&["up", "--group", "m0,m1"], &["another MTU", "value: 1400", "limit: 1500", "mtu 1500"])?;
    netns.ip(&["link", "set", "m1", "mtu", "1500"])?;
    netns.ip(&["tuntap", "add", "slow", "mode", "tap"])?;
    netns.ip(&["link", "set", "dev", "slow", "up"])?;
    netns.run("ethtool", &["-s", "slow", "speed", "1000", "duplex", "full"])?;
    refused(&["up", "--group", "m0,slow"], &["another speed than `m0`", "value: 1000", "limit: 10000"])?;
    refused(&["up", "--group", "auto"], &["no two netdevs are on one physical port", "--group A,B"])?;
    refused(&["up", "--group", "auto:m0"], &["driver of `m0` does not tell", "value: m0"])?;
    refused(&["up", "--group", "auto:nothing"], &["there is no netdev `nothing`"])?;
    refused(&["up", "--group", "auto:a/b"], &["value: a/b"])?;
    client.ok(&["port", "add", "later", "--group", "auto:m0", "--wait"])?;
    let waits = client.port("later")?;
    assert_eq!(waits.state, PortState::Waiting, "{waits:?}");
    assert!(waits.state_reason.contains("does not tell"), "{}", waits.state_reason);
    client.ok(&["port", "del", "later"])?;
    client.ok(&["port", "add", "m2"])?;
    refused(&["up", "--group", "m1,m2"], &["`m2` is a port already"])?;
    client.ok(&["port", "add", "up", "--group", "m0,m1"])?;
    refused(&["m1"], &["`m1` is a port already, called `up`"])?;
    refused(&["again", "--group", "m0,m1"], &["is a port already, called `up`"])?;
    client.ok(&["port", "del", "up"])?;
    client.ok(&["port", "add", "m1"])?;
    assert!(client.stats_check()?.balanced);
    Ok(())
}

fn waits() -> Outcome {
    ensure_program()?;
    let labs = [Lab::new("near")?, Lab::new("far")?];
    let forebay = Forebay::start(&labs[0], ForebayOptions::default())?;
    let client = forebay.client();
    add_group(client, 2, &["--wait"])?;
    assert_eq!(client.port(GROUP)?.state, PortState::Waiting);
    plug_in(&labs, 1)?;
    wait::until("the group to miss one", CHANGE_LIMIT, || {
        client.port(GROUP).is_ok_and(|port| port.state_reason.contains("`m0`"))
    })?;
    assert_eq!(client.port(GROUP)?.state, PortState::Waiting);
    plug_in(&labs, 0)?;
    client.wait_port_state(GROUP, PortState::Up)?;
    labs[0].switch().ip(&["link", "set", "m0", "name", "other"])?;
    wait::until("the group to have the member under its new name", CHANGE_LIMIT, || {
        client.port(GROUP).is_ok_and(|port| port.netdev == "other,m1")
    })?;
    assert_eq!(client.port(GROUP)?.state, PortState::Up);
    // Its old name is another netdev's now, which has no place in the group.
    labs[0].switch().ip(&["link", "add", "m0", "up", "type", "veth", "peer", "name", "m0p"])?;
    labs[0].switch().ip(&["link", "set", "m1", "down"])?;
    wait::until("the group to be seen with a member down", CHANGE_LIMIT, || {
        client.port(GROUP).is_ok_and(|port| port.members.iter().any(|member| !member.carries))
    })?;
    let shown = client.port(GROUP)?;
    assert_eq!((shown.state, shown.netdev.as_str()), (PortState::Up, "other,m1"), "{}", shown.state_reason);
    Ok(())
}

/// Which processors send by each queue of each member, as masks.
fn senders_of(lab: &Lab, members: usize) -> Result<Vec<u32>> {
    let queues = (0..members).flat_map(|member| (0..QUEUES).map(move |queue| (member, queue)));
    let read = |(member, queue)| {
        let path = format!("/sys/class/net/{}/queues/tx-{queue}/xps_cpus", netdev(member));
        let said = lab.switch().run("cat", &[&path])?.stdout;
        let mask = u32::from_str_radix(said.trim(), 16);
        mask.map_err(|error| LabError::output(format!("{path} ({error})"), said))
    };
    queues.map(read).collect()
}

fn senders() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("senders")?;
    for member in 0..2 {
        let queues = format!("numtxqueues {QUEUES} numrxqueues {QUEUES}");
        let name = netdev(member);
        lab.switch()
            .ip_batch(&[format!("link add {name} up {queues} type veth peer name {name}p {queues}")])?;
        lab.switch().ip(&["link", "set", &format!("{name}p"), "up"])?;
    }
    let before = senders_of(&lab, 2)?;
    let forebay = Forebay::start(&lab, ForebayOptions::default())?;
    let client = forebay.client();
    add_group(client, 2, &["--members", "any"])?;
    let during = senders_of(&lab, 2)?;
    let processors = std::thread::available_parallelism()?.get() as u32;
    // All of them, each once.
    assert_eq!(during.iter().map(|mask| mask.count_ones()).sum::<u32>(), processors, "{during:?}");
    assert_eq!(during.iter().fold(0, |all, mask| all | mask).count_ones(), processors, "{during:?}");
    let shown: Vec<ChannelShow> = client.json(&["channels", "show", GROUP])?;
    let homes: Vec<_> = shown.iter().map(|channel| (channel.member, channel.queue)).collect();
    assert_eq!(homes, [(0, 0), (1, 0), (0, 1), (1, 1)]);
    let of_channel = |channel: &ChannelShow| during[(channel.member * QUEUES + channel.queue) as usize];
    for channel in &shown {
        let mask = channel.xps_cpus.as_deref().and_then(|mask| u32::from_str_radix(mask, 16).ok());
        assert_eq!((mask, channel.problems.len()), (Some(of_channel(channel)), 0), "{channel:?}");
        assert_eq!(channel.received_packets, None, "a veth's driver does not count");
    }
    // A lost member's processors send by the other, and its own channels are there no more.
    lab.switch().ip(&["link", "del", "m1"])?;
    wait::until("the group to have one member", CHANGE_LIMIT, || {
        client.port(GROUP).is_ok_and(|port| port.members.len() == 1)
    })?;
    // They are told a step after the member has gone.
    wait::until("every processor to send by the member that is left", CHANGE_LIMIT, || {
        let left = senders_of(&lab, 1).unwrap_or_default();
        left.iter().map(|mask| mask.count_ones()).sum::<u32>() == processors
    })?;
    let shown: Vec<ChannelShow> = client.json(&["channels", "show"])?;
    assert_eq!(shown.iter().filter(|channel| channel.netdev.is_none()).count(), 2, "{shown:?}");
    client.ok(&["port", "del", GROUP])?;
    assert_eq!(senders_of(&lab, 1)?, before[..QUEUES as usize]);
    Ok(())
}

fn comes_up() -> Outcome {
    ensure_program()?;
    let labs = [Lab::new("near")?, Lab::new("far")?];
    (0..2).try_for_each(|member| plug_in(&labs, member))?;
    labs[0].switch().ip(&["link", "set", "m1", "down"])?;
    let forebay = Forebay::start(&labs[0], ForebayOptions::default())?;
    let client = forebay.client();
    add_group(client, 2, &[])?;
    let channels = || client.json::<Vec<ChannelShow>>(&["channels", "show", GROUP]);
    assert_eq!(channels()?.len(), 2, "nobody knows how many queues a netdev has that is down");
    labs[0].switch().ip(&["link", "set", "m1", "up"])?;
    wait::until("the group to have channels for all queues", CHANGE_LIMIT, || {
        channels().is_ok_and(|channels| channels.len() == 2 * QUEUES as usize)
    })?;
    let shown = channels()?;
    assert!(shown.iter().all(|channel| channel.problems.is_empty() && channel.netdev.is_some()), "{shown:?}");
    Ok(())
}

/// The other ends are two ports of a bridge.
fn not_one() -> Outcome {
    ensure_program()?;
    let labs = [Lab::new("near")?, Lab::new("far")?];
    let far = labs[1].switch();
    far.ip(&["link", "add", "br0", "up", "type", "bridge", "forward_delay", "0"])?;
    for member in 0..2 {
        plug_in(&labs, member)?;
        far.ip(&["link", "set", &netdev(member), "master", "br0"])?;
    }
    let forebay = Forebay::start(&labs[0], ForebayOptions::default())?;
    let client = forebay.client();
    add_group(client, 2, &[])?;
    let says = |yes: bool| {
        wait::until("the group to say whether it is one at the other end", ECHO_LIMIT, || {
            client.port(GROUP).is_ok_and(|port| {
                port.state == PortState::Up && port.state_reason.contains("comes in by another") == yes
            })
        })
    };
    says(true)?;
    far.ip(&["link", "set", "m1", "nomaster"])?;
    says(false)?;
    Ok(())
}

fn killed() -> Outcome {
    ensure_program()?;
    let mut scene = Scene::new(PortKind::VethTcx, 2, "strict")?;
    scene.ping_all()?;
    scene.switches[0].kill()?;
    let config = "[[port]]\nname = \"uplink\"\ngroup = [\"m0\", \"m1\"]\n";
    scene.switches[0] = Forebay::start(&scene.labs[0], ForebayOptions::with_config(config))?;
    for host in &scene.near {
        scene.switches[0].add_ports(&[dut::port_of(host)])?;
    }
    scene.wait_for(PortState::Up)?;
    dut::wait_until_it_carries(&scene.near[0], &scene.far[0])?;
    scene.ping_all()?;
    Ok(())
}
