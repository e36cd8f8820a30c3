//! Loops: a cable plugged in twice, a bridge behind two ports. One port is blocked, and nobody else notices for long.

use std::path::Path;
use std::time::Duration;

use forebay_control::fdb::FdbEntry;
use forebay_control::port::{Attach, PortShow, PortSpec, PortState};
use forebay_testbed::dut::Client;
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Netns, PortKind, Result, wait};
use nix::sys::signal::Signal;

use crate::bed::{Bed, with_offload};
use crate::harness::{Outcome, Subject, Suite};

/// Probes come five times a second instead of once, where the time does not matter.
const OFTEN: &str = "[loop]\ninterval_ms = 200\n";
/// How long until a loop is found, or found to be gone, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
/// Requests that others may miss in a row, one each [`PAUSE`]: a second.
const OUTAGE: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// A station that nobody has, to which packets go round.
const NOWHERE: [u8; 6] = [2, 0xcc, 0, 0, 0, 1];
const NOWHERE_TEXT: &str = "02:cc:00:00:00:01";
const ENDS: [&str; 2] = ["loop1", "loop2"];

pub fn register(suite: &mut Suite) {
    suite.heavy_on_veths("a_cable_plugged_in_twice_is_cut_and_others_hardly_notice", |subject| {
        with_offload(|| double_cable(subject.kind()))
    });
    suite.heavy_on_veths("a_loop_that_keeps_every_processor_busy_is_found", |subject| {
        with_offload(|| busy_loop(subject.kind()))
    });
    suite.heavy_on_forebay("a_bridge_behind_two_ports_is_cut_and_others_hardly_notice", |subject| {
        with_offload(|| bridge_behind(subject))
    });
    suite.heavy_on_forebay("a_loop_is_cut_without_the_fast_path", bridge_behind);
    suite.on_forebay("a_tenant_who_replays_probes_blocks_no_port_but_its_own", replayed_probes);
    suite.on_forebay("probes_are_no_packets_of_any_port", quiet_probes);
    suite.once("a_guest_is_probed_while_packets_pass_and_not_otherwise", rests);
    suite.once("a_loop_of_two_guests_stays_cut_while_nothing_passes", quiet_loop);
    suite.once("a_cable_between_two_vlans_is_no_loop", between_vlans);
    suite.once("an_uplink_that_is_never_to_be_blocked_stays_open", spared_uplink);
}

/// A veth pair whose ends are both ports.
fn plug_cable(bed: &mut Bed, kind: PortKind) -> Result<()> {
    let switch = bed.lab.switch();
    switch.ip(&["link", "add", ENDS[0], "type", "veth", "peer", "name", ENDS[1]])?;
    if kind == PortKind::VethXdp {
        ENDS.iter().try_for_each(|end| switch.ethtool(end, &["gro", "on"]).map(drop))?;
    }
    ENDS.iter().try_for_each(|end| switch.ip(&["link", "set", end, "up"]).map(drop))?;
    bed.dut().add_ports(&ENDS.map(|end| port_spec(end, kind)))
}

fn port_spec(netdev: &str, kind: PortKind) -> PortSpec {
    let attach = if kind == PortKind::VethXdp { Attach::Xdp } else { Attach::Tcx };
    PortSpec { attach, ..PortSpec::new(netdev) }
}

/// Waits until one of two ports is blocked and the other is not, and says which one.
fn one_is_blocked(client: &Client, names: [&str; 2]) -> Result<PortShow> {
    wait::until_some("one of the loop's ports to be blocked", LIMIT, || {
        let [a, b] = names.map(|name| client.port(name).ok());
        match (a?, b?) {
            (a, b) if a.state == PortState::Blocked && b.state == PortState::Up => Some(a),
            (a, b) if b.state == PortState::Blocked && a.state == PortState::Up => Some(b),
            _ => None,
        }
    })
}

fn assert_blocked_for_a_loop(port: &PortShow) {
    assert!(port.state_reason.starts_with("loop: "), "{port:?}");
    assert!(port.counters.rx_loop_probes > 0, "{port:?}");
}

fn both_are_up(client: &Client, names: [&str; 2]) -> Result<()> {
    wait::until("both ports to be up", LIMIT, || {
        names.iter().all(|name| client.port(name).is_ok_and(|port| port.state == PortState::Up))
    })
}

/// Something that goes round, of stations that talk: frames for everybody, and for a station that nobody knows.
fn stir(hosts: &[Host]) -> Result<()> {
    for host in hosts {
        let socket = FrameSocket::open(host)?;
        for mark in 0..20 {
            socket.send(&Frame::marked(host.mac(), BROADCAST, mark).build())?;
            socket.send(&Frame::marked(host.mac(), NOWHERE, 100 + mark).build())?;
        }
    }
    Ok(())
}

/// Does something while one host pings another, whose replies must not be missing for longer than a second.
fn while_pinging<T>(hosts: &[Host], log: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let ping = Ping::new(hosts[1].v4()).every(PAUSE);
    let (acted, report, worst) = ping.during(&hosts[0], log, act)?;
    println!("{report:?}, longest outage {worst}");
    assert!(report.received > 0 && worst <= OUTAGE, "{worst} replies in a row were missing: {report:?}");
    Ok(acted)
}

fn double_cable(kind: PortKind) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(Subject::Forebay(kind), 3)?;
    let client = bed.client();
    let log = bed.lab.path("ping.log");
    while_pinging(&hosts, &log, || {
        plug_cable(&mut bed, kind)?;
        stir(&hosts[..3])?;
        let blocked = one_is_blocked(&client, ENDS)?;
        assert_blocked_for_a_loop(&blocked);
        stir(&hosts[..3])?;
        // It stays blocked while the loop is there.
        let probes = client.port(&blocked.name)?.counters.rx_loop_probes;
        wait::until("more probes to come back", LIMIT, || {
            client.port(&blocked.name).is_ok_and(|port| port.counters.rx_loop_probes > probes + 4)
        })?;
        one_is_blocked(&client, ENDS)?;
        // Each end gets a cable of its own.
        let elsewhere = bed.lab.extra_netns("apart")?;
        bed.lab.switch().ip(&["link", "del", ENDS[0]])?;
        for end in ENDS {
            let peer = ["peer", "name", end, "netns", elsewhere.name()];
            bed.lab.switch().ip(&[&["link", "add", end, "type", "veth"][..], &peer].concat())?;
            bed.lab.switch().ip(&["link", "set", end, "up"])?;
            elsewhere.ip(&["link", "set", end, "up"])?;
        }
        both_are_up(&client, ENDS)
    })?;
    assert!(client.stats_check()?.balanced);
    Ok(())
}

/// Detection begins when packets for a known station have gone round at full speed for a while.
fn busy_loop(kind: PortKind) -> Outcome {
    let quiet = "[switch]\nworkers = 2\n[loop]\ndetect = false\n";
    let mut bed = Bed::with_config(Subject::Forebay(kind), quiet)?;
    let hosts = bed.lab.hosts(3, kind)?;
    bed.attach(&hosts)?;
    plug_cable(&mut bed, kind)?;
    let client = bed.client();
    client.ok(&["fdb", "add", NOWHERE_TEXT, "--port", ENDS[1]])?;
    let rounds = || client.port(ENDS[0]).map_or(0, |port| port.counters.rx_packets);
    let before = rounds();
    stir(&hosts[..3])?;
    wait::until("packets to go round", LIMIT, || rounds() > before + 100_000)?;
    std::fs::write(bed.lab.path("forebay.toml"), "[switch]\nworkers = 2\n")?;
    bed.forebay().daemon().signal(Signal::SIGHUP);
    assert_blocked_for_a_loop(&one_is_blocked(&client, ENDS)?);
    // What went round has ended.
    wait::until("the loop to be quiet", LIMIT, || rounds() == rounds())?;
    wait::until("the others to talk", LIMIT, || {
        Ping::new(hosts[1].v4()).from(&hosts[0]).is_ok_and(|report| report.is_complete())
    })?;
    assert!(client.stats_check()?.balanced);
    Ok(())
}

/// Joins the far ends of two hosts' ports by bridges: in each host one, with a cable between them.
fn join(hosts: [&Host; 2]) -> Result<()> {
    let [a, b] = hosts.map(Host::netns);
    a.ip(&["link", "add", "joint", "type", "veth", "peer", "name", "joint", "netns", b.name()])?;
    for netns in [a, b] {
        netns.ip(&["link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0"])?;
        for netdev in ["eth0", "joint"] {
            netns.ip(&["link", "set", netdev, "master", "br0"])?;
        }
        netns.ip(&["link", "set", "br0", "up"])?;
    }
    set_joint(a, true)?;
    set_joint(b, true)
}

fn set_joint(netns: &Netns, up: bool) -> Result<()> {
    netns.ip(&["link", "set", "joint", if up { "up" } else { "down" }]).map(drop)
}

fn bridge_behind(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 5)?;
    let client = bed.client();
    let ends = [hosts[3].name(), hosts[4].name()];
    let log = bed.lab.path("ping.log");
    while_pinging(&hosts, &log, || {
        join([&hosts[3], &hosts[4]])?;
        stir(&hosts[..3])?;
        assert_blocked_for_a_loop(&one_is_blocked(&client, ends)?);
        stir(&hosts[..3])?;
        set_joint(hosts[3].netns(), false)?;
        both_are_up(&client, ends)
    })?;
    let check = client.stats_check()?;
    assert!(check.balanced, "{check:?}");
    drop(bed.client());
    Ok(())
}

/// The next probe that a host's port sends to it. A guest's gets one because something passes.
fn provoke_probe(host: &Host) -> Result<Vec<u8>> {
    let mut socket = FrameSocket::open(host)?;
    socket.send(&Frame::marked(host.mac(), BROADCAST, 0).build())?;
    await_probe(&mut socket)
}

fn await_probe(socket: &mut FrameSocket) -> Result<Vec<u8>> {
    let mut probes = socket.collect(1, LIMIT, |frame| frame[12..14] == [0x90, 0])?;
    Ok(probes.pop().expect("it waited for one"))
}

fn probes_sent(client: &Client, name: &str) -> u64 {
    client.port(name).map_or(0, |port| port.counters.tx_loop_probes)
}

fn replayed_probes(subject: Subject) -> Outcome {
    let mut bed = Bed::with_config(subject, OFTEN)?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let sockets = hosts.iter().map(FrameSocket::open).collect::<Result<Vec<_>>>()?;
    let received = |name: &str| client.port(name).map_or(0, |port| port.counters.rx_loop_probes);
    // Forged, and into the port that it left by.
    let mut forged = provoke_probe(&hosts[0])?;
    forged[30] ^= 1;
    for frame in [&forged, &provoke_probe(&hosts[0])?] {
        let before = received("h1");
        sockets[0].send(frame)?;
        wait::until("the probe to come in", LIMIT, || received("h1") > before)?;
    }
    let before = received("h2");
    sockets[1].send(&forged)?;
    wait::until("the probe to come in", LIMIT, || received("h2") > before)?;
    let report = Ping::new(hosts[1].v4()).every(PAUSE).count(10).from(&hosts[0])?;
    assert!(report.is_complete(), "{report:?}");
    assert!(client.ports()?.iter().all(|port| port.state == PortState::Up));
    // An accomplice with a port of its own gets that one blocked, and not the one that the probe is of.
    wait::until("the accomplice's port to be blocked", LIMIT, || {
        let probe = provoke_probe(&hosts[0]);
        probe.and_then(|probe| sockets[1].send(&probe)).is_ok()
            && client.port("h2").is_ok_and(|port| port.state == PortState::Blocked)
    })?;
    let report = Ping::new(hosts[2].v4()).every(PAUSE).count(10).from(&hosts[0])?;
    assert!(report.is_complete(), "{report:?}");
    both_are_up(&client, ["h1", "h3"])?;
    client.wait_port_state("h2", PortState::Up)?;
    drop(bed.client());
    Ok(())
}

fn quiet_probes(subject: Subject) -> Outcome {
    let mut bed = Bed::with_config(subject, OFTEN)?;
    let hosts = bed.lab.hosts(2, subject.kind())?;
    hosts.iter().try_for_each(Host::silence)?;
    // A guest's port is probed when it begins, and then when a probe comes in.
    let mut sockets = hosts.iter().map(FrameSocket::open).collect::<Result<Vec<_>>>()?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let (probe, counted) = bed.watch(|_| {
        let probes = sockets.iter_mut().map(await_probe).collect::<Result<Vec<_>>>()?;
        for _ in 0..3 {
            let before = probes_sent(&client, "h2");
            // The switch drops a probe that comes back. No other host gets it.
            sockets[1].send(&probes[1])?;
            wait::until("another probe", LIMIT, || probes_sent(&client, "h2") > before)?;
        }
        Ok(probes[1].clone())
    })?;
    counted.exactly(&[]);
    let is_probes = |entry: &FdbEntry| entry.mac.0 == probe[6..12];
    assert!(!client.fdb()?.iter().any(is_probes), "a station was learned from it");
    Ok(())
}

fn rests() -> Outcome {
    let mut bed = Bed::with_config(Subject::Forebay(PortKind::VethTcx), OFTEN)?;
    let hosts = [bed.lab.host("h1", PortKind::VethTcx)?, bed.lab.host("vm1", PortKind::Guest)?];
    hosts.iter().try_for_each(Host::silence)?;
    bed.attach(&hosts)?;
    let client = bed.client();
    let sent = |name| probes_sent(&client, name);
    let some_intervals = || {
        let before = sent("h1");
        wait::until("probes to the host", LIMIT, || sent("h1") > before + 4)
    };
    wait::until("a probe to the guest", LIMIT, || sent("vm1") > 0)?;
    some_intervals()?;
    for _ in 0..3 {
        let probes = sent("vm1");
        some_intervals()?;
        assert_eq!(sent("vm1"), probes, "nothing passes");
        FrameSocket::open(&hosts[0])?.send(&Frame::marked(hosts[0].mac(), BROADCAST, 0).build())?;
        wait::until("a probe to the guest", LIMIT, || sent("vm1") > probes)?;
    }
    Ok(())
}

fn quiet_loop() -> Outcome {
    let mut bed = Bed::with_config(Subject::Forebay(PortKind::Guest), OFTEN)?;
    let hosts = bed.lab.hosts(2, PortKind::Guest)?;
    bed.attach(&hosts)?;
    for host in &hosts {
        host.silence()?;
        host.netns().set("ipv6/conf/default/disable_ipv6", "1")?;
    }
    join([&hosts[0], &hosts[1]])?;
    let client = bed.client();
    let blocked = || client.port("h2").ok().filter(|port| port.state == PortState::Blocked);
    wait::until("the later port to be blocked", LIMIT, || stir(&hosts[..1]).is_ok() && blocked().is_some())?;
    let probes = || client.port("h2").map_or(0, |port| port.counters.rx_loop_probes);
    let before = probes();
    wait::until("more probes to come back", LIMIT, || probes() > before + 8)?;
    assert_blocked_for_a_loop(&blocked().ok_or("it was released")?);
    Ok(())
}

fn spared_uplink() -> Outcome {
    let kind = PortKind::VethTcx;
    // Of two ports the second one is blocked, unless it is spared.
    let config = format!("{OFTEN}never_block = [\"{}\"]\n", ENDS[1]);
    let mut bed = Bed::with_config(Subject::Forebay(kind), &config)?;
    plug_cable(&mut bed, kind)?;
    let blocked = one_is_blocked(&bed.client(), ENDS)?;
    assert_eq!(blocked.name, ENDS[0], "{blocked:?}");
    Ok(())
}

fn between_vlans() -> Outcome {
    let mut bed = Bed::with_config(Subject::Forebay(PortKind::VethTcx), OFTEN)?;
    let client = bed.client();
    plug_cable(&mut bed, PortKind::VethTcx)?;
    one_is_blocked(&client, ENDS)?;
    for (end, vlan) in ENDS.iter().zip(["access:10", "access:20"]) {
        client.ok(&["port", "set", end, "--vlan", vlan])?;
    }
    both_are_up(&client, ENDS)?;
    let received = || client.port(ENDS[1]).map_or(0, |port| port.counters.rx_loop_probes);
    let before = received();
    wait::until("probes in the other VLAN", LIMIT, || received() > before + 2)?;
    both_are_up(&client, ENDS)?;
    // A trunk is probed in one of its VLANs after the other.
    client.ok(&["port", "set", ENDS[0], "--vlan", "trunk:20,30"])?;
    client.ok(&["port", "set", ENDS[1], "--vlan", "trunk:30,40"])?;
    one_is_blocked(&client, ENDS)?;
    Ok(())
}
