//! What flows lead to or come from ends: netdevs go, the daemon is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_testbed::dut::{Forebay, ForebayOptions};
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::{Result, wait};

use super::{Scene, flow_list, tell};
use crate::bed::take_frames;
use crate::faults::traces;
use crate::harness::{Outcome, Subject, Suite};
use crate::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(100);

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("an_output_whose_netdev_goes_takes_nothing_along", output_goes);
    suite.on_netdevs("after_kill_9_no_flow_is_followed_and_the_next_start_is_clean", killed);
}

fn output_goes(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject, 3)?;
    let client = scene.client();
    scene.introduce()?;
    let pid = scene.bed.forebay().daemon().pid();
    let losses = || -> Result<u64> {
        let stats = client.stats()?;
        Ok(stats.ports.iter().flat_map(|port| port.counters.drops.iter()).map(|(_, count)| count).sum())
    };
    for _ in 0..3 {
        scene.until_carried(0, tell(0, 1), &[1])?;
        scene.until_carried(0, tell(0, 2), &[2])?;
        let (flood, stop) = (FrameSocket::open(&scene.hosts[0])?, AtomicBool::new(false));
        std::thread::scope(|scope| -> Outcome {
            let sender = scope.spawn(|| send_until(&flood, &stop));
            let gone = (|| -> Outcome {
                scene.hosts[1].pull_out()?;
                client.wait_port_state("h2", PortState::NetdevMissing)?;
                let before = losses()?;
                Ok(wait::until("losses to be counted", LIMIT, || losses().is_ok_and(|now| now > before))?)
            })();
            stop.store(true, Ordering::Relaxed);
            sender.join().expect("sending does not panic")?;
            gone
        })?;
        // What is left of the flood may still fill a queue.
        wait::until("the others to go on", LIMIT, || {
            let frame = tell(0, 2)(scene.wire.mark()).build();
            scene.wire.socket(0).send(&frame).expect("a frame can be sent");
            let arrived = scene.wire.socket(2).collect(1, SHORT, |bytes| *bytes == frame);
            arrived.expect("the socket works").len() == 1
        })?;
        scene.hosts[1].plug_in(scene.bed.lab.switch())?;
        take_frames(&scene.hosts[1])?;
        client.wait_port_state("h2", PortState::Up)?;
        scene.wire = Wire::new(&scene.hosts)?;
        scene.introduce()?;
    }
    scene.until_carried(0, tell(0, 1), &[1])?;
    scene.until_carried(1, tell(1, 0), &[0])?;
    assert_eq!(scene.bed.forebay().daemon().pid(), pid);
    assert!(client.stats_check()?.balanced);
    Ok(())
}

/// Frames for the first mark of all, which nobody waits for.
fn send_until(socket: &FrameSocket, stop: &AtomicBool) -> Result<()> {
    let frame = tell(0, 1)(0).build();
    while !stop.load(Ordering::Relaxed) {
        socket.send(&frame)?;
    }
    Ok(())
}

fn killed(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject, 2)?;
    scene.introduce()?;
    scene.until_carried(0, tell(0, 1), &[1])?;
    scene.bed.forebay().kill()?;
    let bed = &scene.bed;
    wait::until("the kernel to take down its side", LIMIT, || {
        traces(&bed.lab).is_ok_and(|left| left.is_empty())
    })
    .map_err(|error| format!("{error}: {:?}", traces(&bed.lab)))?;
    assert_eq!(pins(), [""; 0]);
    let mark = scene.wire.mark();
    scene.wire.socket(0).send(&tell(0, 1)(mark).build())?;
    assert_eq!(scene.wire.drain(1)?, Vec::<Vec<u8>>::new(), "nobody switches any more");
    *scene.bed.forebay() = Forebay::start(&scene.bed.lab, ForebayOptions::default().offloaded())?;
    scene.bed.attach(&scene.hosts)?;
    let client = scene.client();
    assert!(flow_list(&client)?.flows.is_empty());
    scene.introduce()?;
    scene.until_carried(0, tell(0, 1), &[1])?;
    assert!(client.stats_check()?.balanced);
    Ok(())
}

/// Names below the BPF file system that are ours.
fn pins() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/fs/bpf") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("forebay")).collect()
}
