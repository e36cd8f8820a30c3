//! Guests and daemons that are killed, memory that vanishes, and front ends that come and go: nobody else loses anything,
//! and nothing is left behind.

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::command::Background;
use forebay_testbed::dut::{Forebay, ForebayOptions};
use forebay_testbed::measure::held::Held;
use forebay_testbed::measure::memory;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Lab, wait};
use nix::sys::signal::Signal;

use super::{FLOOD_VARIABLE, LIMIT, Scene, connect, guest, join};
use crate::harness::{Outcome, Suite, ensure_program};

const KILLED_GUESTS: usize = 100;
const KILLED_DAEMONS: usize = 10;
const RECONNECTS: usize = 1000;
/// Packets that a guest has sent before it is killed.
const FLOOD_PACKETS: u64 = 200;
/// Growth of the daemon's memory that is no leak: allocators round up, and threads touch their stacks.
const SLACK_BYTES: u64 = 2 << 20;
/// Pause between two pings beside the faults.
const PAUSE: Duration = Duration::from_millis(5);

pub fn register(suite: &mut Suite) {
    suite.heavy_once("guests_that_are_killed_under_traffic_disturb_nobody", killed_guests);
    suite.heavy_once("guests_go_on_after_each_kill_of_the_daemon", killed_daemons);
    suite.once("a_guest_whose_memory_is_cut_off_breaks_its_port_alone", truncated);
    suite.heavy_once("front_ends_that_connect_again_and_again_leave_nothing_behind", reconnects);
}

/// Has `work` done while one host pings another, and checks that no ping is lost.
fn undisturbed(scene: &Scene, work: impl FnOnce() -> Outcome) -> Outcome {
    let log = scene.lab.path("ping.log");
    let mut outcome = Ok(());
    let (_, report, longest_outage) =
        Ping::new(scene.hosts[1].v4()).every(PAUSE).during(&scene.hosts[0], &log, || {
            outcome = work();
            Ok(())
        })?;
    outcome?;
    // Nobody waits for the reply to the last request.
    assert!(report.sent - report.received <= 1 && longest_outage <= 1, "{report:?}");
    assert!(report.received > 3 && report.duplicates == 0, "{report:?}");
    Ok(())
}

/// Checks that the daemon holds as much as before, once it has seen the front ends go.
fn nothing_leaked(scene: &mut Scene, before: (Held, u64)) -> Outcome {
    let process = scene.daemon.daemon().pid();
    before.0.wait_until_again_by(process, LIMIT)?;
    let grown = memory::own(process).saturating_sub(before.1);
    assert!(grown <= SLACK_BYTES, "the daemon's memory has grown by {grown} bytes");
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

fn killed_guests() -> Outcome {
    let mut scene = Scene::new(2, ForebayOptions::default())?;
    scene.add("vm1", &[])?;
    let one_killed = |scene: &Scene| -> Outcome {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(FLOOD_VARIABLE, scene.socket("vm1"));
        let before = scene.client().port("vm1")?.counters.rx_packets;
        let mut flood = Background::start(command, &scene.lab.path("guest.log"))?;
        flood.wait_until("packets of the guest", LIMIT, |_| {
            scene.client().port("vm1").is_ok_and(|port| port.counters.rx_packets > before + FLOOD_PACKETS)
        })?;
        flood.signal(Signal::SIGKILL);
        flood.wait(LIMIT)?;
        Ok(scene.client().wait_port_state("vm1", PortState::Waiting)?)
    };
    for _ in 0..5 {
        one_killed(&scene)?;
    }
    let process = scene.daemon.daemon().pid();
    let before = (Held::by(process), memory::own(process));
    undisturbed(&scene, || (0..KILLED_GUESTS).try_for_each(|_| one_killed(&scene)))?;
    nothing_leaked(&mut scene, before)
}

fn killed_daemons() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("frontends")?;
    let pins = BpfFs::mount(&lab)?;
    let options = ForebayOptions::default().handing_over(&pins);
    let mut scene = Scene::in_lab(lab, 2, options.clone())?;
    // Split rings, and packed ones whose front end keeps what the last daemon noted.
    let (mut one, mut other) = (guest()?, super::guest_with(forebay_vhost::Features::RING_PACKED)?);
    for port in ["vm1", "vm2"] {
        scene.add(port, &[])?;
    }
    join(&mut one, &scene, "vm1")?;
    join(&mut other, &scene, "vm2")?;
    for _ in 0..KILLED_DAEMONS {
        scene.exchange([&mut one, &mut other])?;
        scene.daemon.kill()?;
        // What the guest sends meanwhile is not lost.
        let unsent = one.transmit(&super::Frame::marked(super::mac(1), super::mac(2), 77).build());
        assert!(unsent, "the ring has room");
        scene.daemon = Forebay::start(&scene.lab, options.clone())?;
        join(&mut other, &scene, "vm2")?;
        while other.receive().is_some() {}
        join(&mut one, &scene, "vm1")?;
        let marked = |packet: Vec<u8>| forebay_testbed::frame::mark_of(&packet) == Some(77);
        wait::until("what was sent meanwhile", LIMIT, || std::iter::from_fn(|| other.receive()).any(marked))?;
        let report = Ping::new(scene.hosts[1].v4()).count(5).from(&scene.hosts[0])?;
        assert!(report.is_complete(), "{report:?}");
    }
    assert_eq!((one.transmit_backlog(), other.transmit_backlog()), (0, 0));
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

fn truncated() -> Outcome {
    let scene = Scene::new(2, ForebayOptions::default())?;
    for port in ["vm1", "vm2"] {
        scene.add(port, &[])?;
    }
    let mut other = guest()?;
    join(&mut other, &scene, "vm2")?;
    let one = guest()?;
    undisturbed(&scene, || {
        let mut one = one;
        for _ in 0..5 {
            join(&mut one, &scene, "vm1")?;
            scene.exchange([&mut one, &mut other])?;
            std::fs::File::from(one.memory_file().try_clone()?).set_len(0)?;
            // The other guest's packet is for this one, whose memory is gone.
            let frame = super::Frame::marked(super::mac(2), super::mac(1), 2).build();
            wait::until("the port to break", LIMIT, || {
                other.transmit(&frame);
                scene.client().port("vm1").is_ok_and(|port| port.state == PortState::Broken)
            })?;
            let reason = scene.client().port("vm1")?.state_reason;
            assert!(reason.contains("memory"), "{reason}");
            assert_eq!(scene.client().port("vm2")?.state, PortState::Up);
            one = guest()?;
        }
        join(&mut one, &scene, "vm1")?;
        scene.exchange([&mut one, &mut other])
    })?;
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

fn reconnects() -> Outcome {
    let mut scene = Scene::new(2, ForebayOptions::default())?;
    for port in ["vm1", "vm2"] {
        scene.add(port, &[])?;
    }
    let mut other = guest()?;
    join(&mut other, &scene, "vm2")?;
    let mut one = guest()?;
    let again = |scene: &Scene, one: &mut _, other: &mut _| -> Outcome {
        connect(one, &scene.socket("vm1"))?;
        scene.exchange([one, other])?;
        one.disconnect();
        // One that says nothing, too.
        drop(UnixStream::connect(scene.socket("vm1"))?);
        Ok(())
    };
    for _ in 0..50 {
        again(&scene, &mut one, &mut other)?;
    }
    let process = scene.daemon.daemon().pid();
    scene.client().wait_port_state("vm1", PortState::Waiting)?;
    let before = (Held::by(process), memory::own(process));
    undisturbed(&scene, || (0..RECONNECTS).try_for_each(|_| again(&scene, &mut one, &mut other)))?;
    scene.client().wait_port_state("vm1", PortState::Waiting)?;
    nothing_leaked(&mut scene, before)
}
