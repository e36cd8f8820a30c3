//! What happens to a NIC while it carries traffic. Containers beside it notice nothing, and no frame is unaccounted for.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_control::port::{AttachKind, PortState};
use forebay_testbed::dut::{self, Client};
use forebay_testbed::frame::Frame;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{LabError, Result, guest, wait};

use crate::Outcome;
use crate::uplink::Scene;

/// How often each fault happens.
const TIMES: u32 = 10;
/// Pings between the containers beside.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for a device to come back, and for the driver to have it ready. Some NICs negotiate for seconds.
const DEVICE_LIMIT: Duration = Duration::from_secs(20);
/// Frames that the far host sends at a time.
const BURST: usize = 32;

/// Causes the fault [`TIMES`] times while frames come in at the NIC, and more go out. Afterwards packets pass as before.
fn under_traffic(fault: impl FnMut(&Scene, u32) -> Outcome) -> Outcome {
    under_traffic_of(Scene::new()?, fault)
}

/// As [`under_traffic`], on another scene.
pub fn under_traffic_of(scene: Scene, mut fault: impl FnMut(&Scene, u32) -> Outcome) -> Outcome {
    dut::wait_until_it_carries(&scene.far, &scene.containers[0])?;
    dut::wait_until_it_carries(&scene.containers[0], &scene.containers[1])?;
    let stop = AtomicBool::new(false);
    let log = scene.lab.path("quiet-ping.log");
    let [one, other] = &scene.containers;
    let (outcome, quiet, outage) = std::thread::scope(|scope| {
        let flood = Flood(&stop);
        let senders = [(&scene.far, one), (one, &scene.far)].map(|(from, to)| {
            let (stop, frame) = (&stop, datagram(from, to));
            scope.spawn(move || send_until(from, &frame, stop))
        });
        let during = Ping::new(other.v4())
            .every(PAUSE)
            .during(one, &log, || Ok((0..TIMES).try_for_each(|time| fault(&scene, time))));
        drop(flood);
        senders.into_iter().try_for_each(|sender| sender.join().expect("sending does not panic"))?;
        during
    })?;
    outcome?;
    // The last may have been under way.
    assert!(quiet.received + 1 >= quiet.sent && quiet.duplicates == 0, "{quiet:?}, longest outage {outage}");
    for container in &scene.containers {
        dut::wait_until_it_carries(&scene.far, container)?;
    }
    assert!(scene.switch.client().stats_check()?.balanced);
    println!("{quiet:?}");
    Ok(())
}

fn datagram(from: &forebay_testbed::Host, to: &forebay_testbed::Host) -> Vec<u8> {
    let end = |host: &forebay_testbed::Host| (host.mac(), host.v4().octets(), 9);
    Frame::udp4(end(from), end(to), &[0; 200]).build()
}

/// Ends the senders, also after a panic: a scope waits for its threads.
struct Flood<'a>(&'a AtomicBool);

impl Drop for Flood<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A NIC that is down takes no frames, which is no error here.
fn send_until(from: &forebay_testbed::Host, frame: &[u8], stop: &AtomicBool) -> Result<()> {
    let socket = FrameSocket::open(from)?;
    while !stop.load(Ordering::Relaxed) {
        (0..BURST).for_each(|_| _ = socket.send(frame));
        std::thread::yield_now();
    }
    Ok(())
}

fn is_up(client: &Client) -> Result<()> {
    client.wait_port_state_for("nic", PortState::Up, DEVICE_LIMIT)
}

/// The PCI device of one of the switch's NICs, of whatever driver.
pub fn device(scene: &Scene, netdev: &str) -> Result<PathBuf> {
    let said = scene.lab.switch().run("ethtool", &["-i", netdev])?.stdout;
    let bus = said.lines().find_map(|line| line.strip_prefix("bus-info: ")).unwrap_or_default();
    Ok(Path::new("/sys/bus/pci/devices").join(bus))
}

pub fn write(path: &Path, value: &str) -> Result<()> {
    std::fs::write(path, value)
        .map_err(|error| LabError::system(format!("writing {}", path.display()), error))
}

pub fn unplug() -> Outcome {
    under_traffic(|scene, _| {
        let client = scene.switch.client();
        write(&device(scene, "nic")?.join("remove"), "1")?;
        client.wait_port_state("nic", PortState::NetdevMissing)?;
        write(Path::new("/sys/bus/pci/rescan"), "1")?;
        // It comes in the first namespace, under a name that the kernel gives it.
        let name = wait::until_some("the NIC to be there again", DEVICE_LIMIT, || guest::end(0, 0).ok())?;
        let switch = scene.lab.switch();
        forebay_testbed::netns::ip(&["link", "set", &name, "netns", switch.name(), "name", "other"])?;
        switch.ip(&["link", "set", "other", "up"])?;
        assert_eq!(client.port("nic")?.state, PortState::NetdevMissing, "that is another name");
        switch.ip(&["link", "set", "other", "down"])?;
        switch.ip(&["link", "set", "other", "name", "nic", "up"])?;
        Ok(is_up(client)?)
    })
}

pub fn flap() -> Outcome {
    under_traffic(|scene, _| {
        for way in ["down", "up"] {
            scene.lab.switch().ip(&["link", "set", "nic", way])?;
        }
        Ok(is_up(scene.switch.client())?)
    })
}

/// Its active member is another one, goes down, or is taken out and put in again.
pub fn bond() -> Outcome {
    under_traffic_of(Scene::with_bond()?, |scene, time| {
        let switch = scene.lab.switch();
        let member = ["m0", "m1"][time as usize % 2];
        switch.ip(&["link", "set", "nic", "type", "bond", "active_slave", member])?;
        for way in ["down", "up"] {
            switch.ip(&["link", "set", member, way])?;
        }
        switch.ip(&["link", "set", member, "nomaster"])?;
        switch.ip(&["link", "set", member, "down", "master", "nic"])?;
        Ok(is_up(scene.switch.client())?)
    })
}

pub fn mtu() -> Outcome {
    under_traffic(|scene, time| {
        let mtu = [600, 9000, 1400, 1500][time as usize % 4];
        // A driver may allow less while it has an XDP program.
        if scene.lab.switch().ip(&["link", "set", "nic", "mtu", &mtu.to_string()]).is_ok() {
            wait::until("the port to have its new MTU", DEVICE_LIMIT, || {
                scene.switch.client().port("nic").is_ok_and(|port| port.mtu == mtu)
            })?;
        }
        Ok(is_up(scene.switch.client())?)
    })
}

/// What ethtool may change of this NIC, and what it says to the rest.
fn change(scene: &Scene, words: &[&str]) -> Result<bool> {
    let (verb, settings) = words.split_first().expect("a verb");
    let words = [&[*verb, "nic"], settings].concat();
    let changed = scene.lab.switch().run("ethtool", &words);
    Ok(changed.is_ok())
}

/// Some drivers change their queues only while they have no XDP program, so the port has none from the middle on.
pub fn rings() -> Outcome {
    let mut changes = 0;
    under_traffic(|scene, time| {
        if time == TIMES / 2 {
            let client = scene.switch.client();
            client.ok(&["port", "del", "nic"])?;
            client.ok(&["port", "add", "nic", "--attach", "tcx"])?;
        }
        let (rings, queues) = [("128", "1"), ("256", "2")][time as usize % 2];
        for words in [&["-G", "rx", rings, "tx", rings][..], &["-L", "combined", queues]] {
            changes += u32::from(change(scene, words)?);
        }
        Ok(is_up(scene.switch.client())?)
    })?;
    println!("{changes} of {} changes were possible", 2 * TIMES);
    Ok(())
}

/// An XDP program that would not see tags makes place for tcx.
pub fn offloads() -> Outcome {
    let mut changes = 0;
    let names = ["rxvlan", "txvlan", "rx", "tx", "gro", "lro", "tso"];
    under_traffic(|scene, time| {
        let way = ["off", "on"][time as usize % 2];
        for name in names {
            changes += u32::from(change(scene, &["-K", name, way])?);
        }
        let client = scene.switch.client();
        if time == 0 {
            // A driver that leaves tags in frames may have native XDP.
            client.ok(&["port", "del", "nic"])?;
            client.ok(&["port", "add", "nic"])?;
        }
        is_up(client)?;
        let strips =
            scene.lab.switch().run("ethtool", &["-k", "nic"])?.stdout.contains("rx-vlan-offload: on");
        wait::until("the port to have a program that sees tags", DEVICE_LIMIT, || {
            client.port("nic").is_ok_and(|port| !strips || port.attach == AttachKind::Tcx)
        })?;
        Ok(())
    })?;
    println!("{changes} of {} changes were possible", names.len() as u32 * TIMES);
    Ok(())
}
