//! Netdevs that go down, change their name, move away, vanish and come back: the port says so and recovers, and
//! nothing else is disturbed.

use std::process::Command;
use std::time::{Duration, Instant};

use forebay_control::port::PortState;
use forebay_testbed::dut::{self, Client, Dut, ForebayOptions};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::programs::udp::{Stream, StreamReport};
use forebay_testbed::{Host, Lab, PortKind, Result, command, wait};

use crate::bed::{Bed, while_stopped};
use crate::connectivity::ping_all;
use crate::harness::{Outcome, Subject, Suite, ensure_program};

const RECOVERY_LIMIT: Duration = Duration::from_secs(10);

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_netdev_that_goes_down_comes_back_with_its_port", down_and_up);
    suite.on_netdevs("a_netdev_that_was_down_before_anybody_looked_is_not_down", was_down);
    suite.on_netdevs("a_renamed_netdev_keeps_its_port", rename);
    suite.on_netdevs("a_netdev_that_moves_to_another_namespace_and_back_is_found_again", moves);
    suite.on_netdevs("a_netdev_deleted_and_made_again_is_found_again", deleted_and_made_again);
    suite.once("a_netdev_without_ethernet_headers_is_refused_by_its_type", without_ethernet);
    suite.on_netdevs("a_netdev_that_comes_back_without_ethernet_headers_is_not_attached", back_as_tun);
    suite.on_netdevs(
        "a_netdev_that_changes_all_the_time_costs_a_bounded_number_of_snapshots",
        changes_all_the_time,
    );
    suite.on_netdevs("lost_events_are_made_up_for_as_soon_as_netdevs_can_be_listed", lost_events);
    suite.on_forebay("ports_deleted_and_added_under_traffic_lose_no_frame", ports_come_and_go);
}

/// Three hosts; datagrams flow from the first to the second all the while, something happens to the third's port.
fn beside_traffic(subject: Subject, event: impl FnOnce(&mut Bed, &mut Host, &Host) -> Outcome) -> Outcome {
    let (mut bed, mut hosts) = Bed::with_hosts(subject, 3)?;
    let mut third = hosts.pop().expect("three hosts were made");
    let stream = Stream::start(&hosts[0], &hosts[1])?;
    event(&mut bed, &mut third, &hosts[0])?;
    let report = stream.finish()?;
    assert!(is_undisturbed(report), "{report:?}");
    let check = bed.client().stats_check()?;
    assert!(check.balanced || settles(&bed.client()), "{check:?}");
    Ok(())
}

fn is_undisturbed(report: StreamReport) -> bool {
    report.sent == report.received && report.duplicates == 0
}

fn settles(client: &Client) -> bool {
    let balanced = || client.stats_check().is_ok_and(|check| check.balanced);
    wait::until("the counters to balance", RECOVERY_LIMIT, balanced).is_ok()
}

/// Waits until the port is up, and its host answers.
fn assert_recovered(bed: &mut Bed, host: &Host, from: &Host) -> Result<()> {
    bed.client().wait_port_state(host.name(), PortState::Up)?;
    let answers = || Ping::new(host.v4()).count(1).from(from).is_ok_and(|report| report.is_complete());
    wait::until(&format!("{} to answer", host.name()), RECOVERY_LIMIT, answers)
}

fn state(bed: &mut Bed, port: &str) -> Result<PortState> {
    Ok(bed.client().port(port)?.state)
}

pub fn down_and_up(subject: Subject) -> Outcome {
    beside_traffic(subject, |bed, host, other| {
        bed.lab.switch().ip(&["link", "set", host.name(), "down"])?;
        bed.client().wait_port_state(host.name(), PortState::NetdevDown)?;
        bed.lab.switch().ip(&["link", "set", host.name(), "up"])?;
        Ok(assert_recovered(bed, host, other)?)
    })
}

/// The events about it are still to be read when it is up again.
fn was_down(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let daemon = bed.dut().pids()[0];
    let (switch, port) = (bed.lab.switch(), hosts[0].name());
    while_stopped(daemon, || {
        switch.ip(&["link", "set", port, "down"])?;
        switch.ip(&["link", "set", port, "up"]).map(drop)
    })?;
    // The other port's event comes after them.
    bed.lab.switch().ip(&["link", "set", hosts[1].name(), "down"])?;
    bed.client().wait_port_state(hosts[1].name(), PortState::NetdevDown)?;
    let log = bed.forebay().log();
    assert!(!log.contains(&format!("{}\" state=netdev-down", hosts[0].name())), "{log}");
    Ok(())
}

pub fn rename(subject: Subject) -> Outcome {
    beside_traffic(subject, |bed, host, other| {
        let port = host.name().to_owned();
        assert!(Ping::new(host.v4()).count(1).from(other)?.is_complete());
        bed.lab.switch().ip(&["link", "set", &port, "name", "renamed"])?;
        bed.client().wait_port_state(&port, PortState::NetdevRenamed)?;
        assert!(Ping::new(host.v4()).from(other)?.is_complete(), "the port follows its netdev");
        bed.lab.switch().ip(&["link", "set", "renamed", "name", &port])?;
        Ok(assert_recovered(bed, host, other)?)
    })
}

fn moves(subject: Subject) -> Outcome {
    beside_traffic(subject, |bed, host, other| {
        let port = host.name().to_owned();
        let elsewhere = bed.lab.extra_netns("elsewhere")?;
        bed.lab.switch().ip(&["link", "set", &port, "netns", elsewhere.name()])?;
        let is_gone = |state| matches!(state, PortState::NetdevMoved | PortState::NetdevMissing);
        wait::until("the port to say that its netdev is gone", RECOVERY_LIMIT, || {
            state(bed, &port).is_ok_and(is_gone)
        })?;
        elsewhere.ip(&["link", "set", &port, "netns", bed.lab.switch().name()])?;
        bed.lab.switch().ip(&["link", "set", &port, "up"])?;
        Ok(assert_recovered(bed, host, other)?)
    })
}

pub fn deleted_and_made_again(subject: Subject) -> Outcome {
    beside_traffic(subject, |bed, host, other| {
        for _ in 0..2 {
            host.pull_out()?;
            bed.client().wait_port_state(host.name(), PortState::NetdevMissing)?;
            host.plug_in(bed.lab.switch())?;
            assert_recovered(bed, host, other)?;
        }
        Ok(())
    })
}

/// A refusal names the netdev, its type and the way out.
fn assert_names_the_type(said: &str) {
    for word in ["`layer3` is a tun netdev of type link/none", "no Ethernet header", "mode tap"] {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
}

fn without_ethernet() -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(Subject::Forebay(PortKind::VethTcx), 2)?;
    bed.lab.switch().ip(&["tuntap", "add", "mode", "tun", "name", "layer3"])?;
    for attach in ["auto", "tcx", "xdp"] {
        let refused = bed.client().call(&["port", "add", "layer3", "--attach", attach])?;
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert_names_the_type(&refused.stderr);
    }
    assert_eq!(bed.client().ports()?.len(), 2);
    Ok(ping_all(&hosts, false)?)
}

fn back_as_tun(subject: Subject) -> Outcome {
    beside_traffic(subject, |bed, host, other| {
        host.pull_out()?;
        bed.client().wait_port_state(host.name(), PortState::NetdevMissing)?;
        bed.lab.switch().ip(&["tuntap", "add", "mode", "tun", "name", "layer3"])?;
        bed.lab.switch().ip(&["link", "set", "layer3", "name", host.name()])?;
        bed.client().wait_port_state(host.name(), PortState::AttachFailed)?;
        let reason = bed.client().port(host.name())?.state_reason;
        assert_names_the_type(&reason.replace(host.name(), "layer3"));
        bed.lab.switch().ip(&["link", "del", host.name()])?;
        host.plug_in(bed.lab.switch())?;
        Ok(assert_recovered(bed, host, other)?)
    })
}

/// A port's netdev changes hundreds of times: the other end of a veth does that from within its container, and a tap
/// is switched off and on.
fn changes_all_the_time(subject: Subject) -> Outcome {
    // Twice as many events at least as there may be snapshots, in the seconds that they take.
    const CHANGES: u64 = 100;
    let options =
        ForebayOptions { arguments: vec!["--log-level".into(), "trace".into()], ..Default::default() };
    ensure_program()?;
    let mut bed = Bed::of(Lab::new("changes")?, options)?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach(&hosts)?;
    let snapshots = |bed: &mut Bed| bed.forebay().log().matches("workers have a new snapshot").count() as u64;
    let stream = Stream::start(&hosts[0], &hosts[1])?;
    let (before, began) = (snapshots(&mut bed), Instant::now());
    let change = match subject.kind() {
        PortKind::Tap => "ip link set h3 down; ip link set h3 up",
        _ => "ethtool -K eth0 gro on; ethtool -K eth0 gro off; ip link set eth0 down; ip link set eth0 up",
    };
    let place = if subject.kind() == PortKind::Tap { bed.lab.switch() } else { hosts[2].netns() };
    place.run("sh", &["-c", &format!("for i in $(seq {CHANGES}); do {change}; done")])?;
    let seconds = began.elapsed().as_secs() + 1;
    let made = snapshots(&mut bed) - before;
    // 16 looks at once and 10 a second, of which each makes two snapshots at most.
    assert!(made <= 2 * (16 + 10 * seconds), "{made} snapshots in {seconds} s");
    // The last change is not missed, and nobody else was disturbed.
    assert_recovered(&mut bed, &hosts[2], &hosts[0])?;
    let report = stream.finish()?;
    assert!(is_undisturbed(report), "{report:?}");
    Ok(())
}

/// A daemon that has missed that a netdev went, and has no descriptor to ask for what it missed.
fn lost_events(subject: Subject) -> Outcome {
    /// More than its socket has room for.
    const EVENTS: u32 = 12_000;
    let (mut bed, mut hosts) = Bed::with_hosts(subject, 3)?;
    let daemon = bed.dut().pids();
    let limit_files = |files: &str| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &daemon[0].to_string(), &format!("--nofile={files}:")]);
        command::run_ok(prlimit)
    };
    while_stopped(daemon[0], || {
        let changes = |n| format!("link set lo mtu {}", 60_000 + n % 2);
        bed.lab.switch().ip_batch(&(0..EVENTS).map(changes).collect::<Vec<_>>())?;
        hosts[2].pull_out()?;
        wait::until("the netdev to be gone", RECOVERY_LIMIT, || {
            bed.lab.switch().ip(&["link", "show", "h3"]).is_err()
        })?;
        // Fewer than are open, so that no further one can be had.
        limit_files("8").map(drop)
    })?;
    let log = |bed: &mut Bed| bed.forebay().log();
    wait::until("a list that cannot be had", RECOVERY_LIMIT, || log(&mut bed).contains("cannot be listed"))
        .map_err(|error| format!("{error}: {}", log(&mut bed)))?;
    limit_files("1024")?;
    bed.client().wait_port_state("h3", PortState::NetdevMissing)?;
    hosts[2].plug_in(bed.lab.switch())?;
    assert_recovered(&mut bed, &hosts[2], &hosts[0])?;
    Ok(())
}

pub fn ports_come_and_go(subject: Subject) -> Outcome {
    beside_traffic(subject, |bed, host, other| {
        let traffic = Stream::start(other, host)?;
        for _ in 0..5 {
            bed.forebay().delete_port(host.name())?;
            bed.forebay().add_ports(&[dut::port_of(host)])?;
            assert_recovered(bed, host, other)?;
        }
        // Its packets were lost while the port was away; none may have come twice.
        assert_eq!(traffic.finish()?.duplicates, 0);
        Ok(frames_are_all_there(bed)?)
    })
}

/// No frame was lost with a deleted port.
fn frames_are_all_there(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    let complete = || {
        client
            .pool()
            .is_ok_and(|pool| pool.frames_free + pool.frames_posted + pool.frames_held == pool.frames_total)
    };
    wait::until("every frame to be somewhere", RECOVERY_LIMIT, complete)
}
