//! Moderation of a guest's calls: limits are kept, are there again after a handover, and are refused if they are none.

use std::time::{Duration, Instant};

use forebay_control::coalesce::{CoalesceQueue, CoalesceShow};
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::frame::Frame;
use forebay_testbed::measure::cpu;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::{Lab, PortKind, wait};
use forebay_vhost::driver::FrontEnd;

use super::{LIMIT, Scene, connect, guest, join, mac, quiet};
use crate::harness::{Outcome, Suite, ensure_program};

const PACKETS: usize = 100;
/// A thread that has no turn for so long sleeps: many of its periods.
const RESTS: Duration = Duration::from_millis(300);

pub fn register(suite: &mut Suite) {
    suite.once("a_guest_is_called_within_the_limits_that_are_set", || within_limits("offload"));
    suite.once("a_guest_is_called_within_the_limits_of_one_thread_for_all", || within_limits("onload"));
    suite.once("one_thread_for_all_sleeps_until_a_guest_has_packets", rests);
    suite.once("how_a_guest_is_moderated_is_there_again_after_its_daemon_was_killed", taken_over);
    suite.once("a_guest_is_called_within_the_limits_that_the_file_states", by_file);
    suite.once("what_can_not_be_moderated_is_refused_by_name", refused);
}

/// The queue of packets to the guest.
fn queue(client: &Client) -> Result<CoalesceQueue, Box<dyn std::error::Error>> {
    let shown: CoalesceShow = client.json(&["coalesce", "show", "vm1"])?;
    let port = shown.ports.into_iter().next().ok_or("there is one port")?;
    port.queues.into_iter().next().ok_or_else(|| "it has queues".into())
}

/// Waits until the guest is called, and takes note of that.
fn wait_for_call(guest: &FrontEnd) -> Outcome {
    Ok(wait::until("a call", LIMIT, || guest.take_calls() > 0)?)
}

/// Takes the next packet without waiting for a call.
fn take(guest: &mut FrontEnd) -> Outcome {
    wait::until("a packet", LIMIT, || guest.receive().is_some())?;
    Ok(())
}

fn within_limits(place: &str) -> Outcome {
    let scene = Scene::new(1, quiet())?;
    scene.add("vm1", &[])?;
    let mut guest = guest()?;
    join(&mut guest, &scene, "vm1")?;
    scene.client().ok(&["fdb", "add", "02:fc:00:00:00:01", "--port", "vm1"])?;
    scene.hosts[0].silence()?;
    let socket = FrameSocket::open(&scene.hosts[0])?;
    let frame = Frame::marked(scene.hosts[0].mac(), mac(1), 7).payload_bytes(1000).build();
    let set = |limits: &[&str]| {
        let words = ["coalesce", "set", "vm1", "--rx", "--policy", "static", "--where", place];
        scene.client().ok(&[&words, limits].concat())
    };

    set(&["--usecs", "0", "--frames", "0"])?;
    while guest.receive().is_some() {}
    guest.take_calls();
    guest.want_calls(true);
    socket.send(&frame)?;
    wait_for_call(&guest)?;
    take(&mut guest)?;

    // One packet, and nothing behind it: only the timer can call.
    set(&["--usecs", "20000", "--frames", "1000"])?;
    wait::until("the limits", LIMIT, || queue(scene.client()).is_ok_and(|queue| queue.usecs_now == 20_000))?;
    guest.want_calls(true);
    socket.send(&frame)?;
    take(&mut guest)?;
    wait_for_call(&guest)?;

    // Packets share calls, although each is in a turn of its own.
    set(&["--usecs", "65535", "--frames", "1000"])?;
    wait::until("the limits", LIMIT, || queue(scene.client()).is_ok_and(|queue| queue.usecs_now == 65_535))?;
    let before = queue(scene.client())?;
    for _ in 0..PACKETS {
        guest.want_calls(true);
        socket.send(&frame)?;
        take(&mut guest)?;
    }
    let after = queue(scene.client())?;
    let (turns, calls) = (after.turns - before.turns, after.interrupts - before.interrupts);
    assert_eq!((after.packets - before.packets, turns), (PACKETS as u64, PACKETS as u64));
    assert!(calls < turns, "{calls} calls in {turns} turns");
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

/// Nothing but a note of the worker can wake the thread, and only a thread that looks can choose other limits.
fn rests() -> Outcome {
    let scene = Scene::new(1, quiet())?;
    scene.add("vm1", &[])?;
    let mut guest = guest()?;
    join(&mut guest, &scene, "vm1")?;
    scene.client().ok(&["fdb", "add", "02:fc:00:00:00:01", "--port", "vm1"])?;
    let socket = FrameSocket::open(&scene.hosts[0])?;
    let frame = Frame::marked(scene.hosts[0].mac(), mac(1), 7).payload_bytes(1000).build();
    scene.client().ok(&["coalesce", "set", "vm1", "--rx", "--policy", "dim", "--where", "onload"])?;
    for round in 0..2 {
        let turns =
            || scene.daemon.pids().into_iter().map(|pid| cpu::turns_of(pid, "moderator")).sum::<u64>();
        let mut seen = (turns(), Instant::now());
        wait::until("the thread to sleep", LIMIT, || {
            let turns = turns();
            if turns != seen.0 {
                seen = (turns, Instant::now());
            }
            seen.1.elapsed() > RESTS
        })?;
        let before = queue(scene.client())?.moves;
        wait::until("other limits", LIMIT, || {
            for _ in 0..PACKETS {
                guest.want_calls(true);
                let _ = socket.send(&frame);
                while guest.receive().is_some() {}
            }
            queue(scene.client()).is_ok_and(|queue| queue.moves > before)
        })
        .map_err(|error| format!("round {round}: {error}"))?;
    }
    Ok(())
}

fn by_file() -> Outcome {
    let limits = "guests = { policy = \"static\", usecs = 20000, frames = 1000 }";
    let text = format!("[loop]\ndetect = false\n[coalesce]\n{limits}\n");
    let scene = Scene::new(1, ForebayOptions::with_config(text))?;
    scene.add("vm1", &[])?;
    let mut guest = guest()?;
    join(&mut guest, &scene, "vm1")?;
    let is_in_force =
        || queue(scene.client()).is_ok_and(|queue| (queue.usecs_now, queue.frames_now) == (20_000, 1000));
    Ok(wait::until("the limits", LIMIT, is_in_force)?)
}

fn taken_over() -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("frontends")?;
    let pins = BpfFs::mount(&lab)?;
    let host = lab.host("h1", PortKind::VethTcx)?;
    let start = || Forebay::start(&lab, quiet().handing_over(&pins));
    let mut daemon = start()?;
    let path = lab.path("vm1.sock");
    daemon.client().ok(&["port", "add", host.name()])?;
    daemon.client().ok(&[
        "port",
        "add",
        "vm1",
        "--vhost-user",
        &path.display().to_string(),
        "--queues",
        "2",
    ])?;
    let table = "1,2,n_3,4,n_5,6,n_7,8,n_9,10,n";
    let set = ["coalesce", "set", "vm1", "--queue", "1", "--tx", "--policy", "dim", "--profile", table];
    daemon.client().ok(&set)?;
    daemon.client().ok(&["coalesce", "set", "vm1", "--rx", "--policy", "adaptive", "--where", "onload"])?;
    let settings = |daemon: &Forebay| {
        let shown: CoalesceShow = daemon.client().json(&["coalesce", "show"])?;
        let queues = shown.ports.into_iter().flat_map(|port| port.queues);
        Ok::<_, Box<dyn std::error::Error>>(queues.map(|queue| queue.setting).collect::<Vec<_>>())
    };
    let before = settings(&daemon)?;
    assert_eq!(before.len(), 4);
    let mut guest = guest()?;
    connect(&mut guest, &path)?;
    daemon.kill()?;
    daemon = start()?;
    assert_eq!(settings(&daemon)?, before);
    connect(&mut guest, &path)?;
    Ok(())
}

fn refused() -> Outcome {
    let scene = Scene::new(1, quiet())?;
    scene.add("vm1", &["--queues", "2"])?;
    let cases: [(&[&str], &str); 7] = [
        (&["vm1", "--policy", "driver"], "give --policy adaptive"),
        (&["h1", "--policy", "dim", "--guest", "ignored"], "leave --guest out"),
        (&["vm2", "--policy", "dim"], "vm2"),
        (&["vm1", "--queue", "2", "--policy", "dim"], "0 to 1"),
        (&["vm1", "--policy", "static", "--usecs", "65536"], "65535"),
        (&["vm1", "--policy", "dim", "--profile", "1,2,n"], "5 lines"),
        (&["vm1", "--policy", "adaptive", "--frames", "8"], "set policy static too"),
    ];
    for (words, expected) in cases {
        let said = scene.client().call(&[&["coalesce", "set"], words].concat())?;
        assert!(!said.status.success() && said.stderr.contains(expected), "{words:?}: {said:?}");
    }
    let shown: CoalesceShow = scene.client().json(&["coalesce", "show", "vm1"])?;
    let changed = |queue: &CoalesceQueue| queue.setting != Default::default();
    assert!(!shown.ports.iter().flat_map(|port| &port.queues).any(changed), "nothing has changed");
    Ok(())
}
