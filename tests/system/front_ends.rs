//! Ports of virtual machines against a front end of the test's own, which connects in a moment and again after either end
//! was killed: options of the socket, client mode, and faults.

mod client;
mod crowd;
mod faults;
mod lent;
mod moderation;
mod moved;
mod socket;
mod undone;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_control::DropReason;
use forebay_control::port::PortState;
use forebay_testbed::dut::{Client, Forebay, ForebayOptions};
use forebay_testbed::frame::Frame;
use forebay_testbed::standstill::while_stopped;
use forebay_testbed::{Host, Lab, PortKind, wait};
use forebay_vhost::Features;
use forebay_vhost::driver::{FrontEnd, FrontEndOptions};

use crate::harness::{Outcome, Suite, ensure_program};

const LIMIT: Duration = Duration::from_secs(30);
/// Entries of each ring.
const RING: u16 = 64;
/// Names the socket of a front end that this program is to be, in the place of a test.
pub const FLOOD_VARIABLE: &str = "FOREBAY_TEST_FRONT_END";

pub fn register(suite: &mut Suite) {
    socket::register(suite);
    client::register(suite);
    crowd::register(suite);
    faults::register(suite);
    lent::register(suite);
    moderation::register(suite);
    moved::register(suite);
    undone::register(suite);
    suite.once("the_next_guest_of_a_port_is_probed_although_nothing_has_passed", probed_anew);
    suite.once("settings_of_rings_are_refused_for_virtual_machines", ringless);
    suite.once("a_guests_packets_to_another_worker_take_of_its_ports_part_in_the_pool", handed_over);
}

/// MAC address of the guest of this number.
fn mac(number: u8) -> [u8; 6] {
    [2, 0xfc, 0, 0, 0, number]
}

/// No loop probes among the packets that a guest gets.
fn quiet() -> ForebayOptions {
    ForebayOptions::with_config("[loop]\ndetect = false\n")
}

/// A daemon with hosts.
struct Scene {
    // In this order: the daemon and hosts before the lab they are in.
    daemon: Forebay,
    hosts: Vec<Host>,
    lab: Lab,
}

fn probed_anew() -> Outcome {
    let scene = Scene::new(0, ForebayOptions::default())?;
    scene.add("vm1", &[])?;
    let sent = || scene.client().port("vm1").map(|port| port.counters.tx_loop_probes);
    for _ in 0..3 {
        let (before, mut guest) = (sent()?, guest()?);
        join(&mut guest, &scene, "vm1")?;
        wait::until("a probe", LIMIT, || sent().is_ok_and(|sent| sent > before))?;
        drop(guest);
        scene.client().wait_port_state("vm1", PortState::Waiting)?;
    }
    Ok(())
}

/// Settings of rings that a virtual machine's port has not.
fn ringless() -> Outcome {
    let scene = Scene::new(0, ForebayOptions::default())?;
    scene.add("vm1", &[])?;
    for settings in [&["rxq", "set", "vm1", "--depth", "512"][..], &["rss", "show", "vm1"]] {
        let finished = scene.client().call(settings)?;
        let said = &finished.stderr;
        assert!(
            !finished.status.success() && said.contains("virtual machine's own memory"),
            "{settings:?}: {said}"
        );
    }
    Ok(())
}

/// Packets to a guest of another worker take of their port's part in the pool on their way.
fn handed_over() -> Outcome {
    const BURST: u64 = 32;
    let config = "[switch]\nworkers = 2\n[loop]\ndetect = false\n";
    let mut scene = Scene::new(0, ForebayOptions::with_config(config))?;
    let pid = scene.daemon.daemon().pid();
    let [mut one, mut other] = [guest()?, guest()?];
    for (guest, port) in [(&mut one, "vm1"), (&mut other, "vm2")] {
        scene.add(port, &[])?;
        join(guest, &scene, port)?;
    }
    scene.exchange([&mut one, &mut other])?;
    let client = scene.client();
    let frame = Frame::marked(mac(1), mac(2), 1).build();
    let one_frame = client.pool()?.frame_size.to_string();
    for (part, is_enough) in [(["--static", &one_frame], false), (["--th", "10"], true)] {
        client.ok(&[&["pool", "set", "vm1"], &part[..]].concat())?;
        while other.receive().is_some() {}
        let counters = || client.port("vm2").map(|port| port.counters);
        let before = counters()?;
        while_stopped(pid, || {
            (0..BURST).for_each(|_| assert!(one.transmit(&frame), "its ring has room"));
            Ok(())
        })?;
        let (mut sent, mut refused) = (0, 0);
        wait::until("the burst to be over", LIMIT, || {
            let Ok(now) = counters() else { return false };
            sent = now.tx_packets - before.tx_packets;
            refused = now.drops[DropReason::TxOverShare] - before.drops[DropReason::TxOverShare];
            sent + refused == BURST
        })?;
        assert!(sent > 0 && (refused == 0) == is_enough, "{part:?}: {sent} sent, {refused} refused");
        let holds = || client.pool().is_ok_and(|pool| pool.ports[0].used > 0);
        wait::until("its packets to hold nothing", LIMIT, || !holds())?;
    }
    let shown = &client.pool()?.ports[0];
    assert!(shown.max > 0 && shown.limit > BURST, "{shown:?}");
    assert!(client.stats_check()?.balanced);
    Ok(())
}

impl Scene {
    fn new(hosts: usize, options: ForebayOptions) -> Result<Scene, Box<dyn std::error::Error>> {
        ensure_program()?;
        Scene::in_lab(Lab::new("frontends")?, hosts, options)
    }

    fn in_lab(
        mut lab: Lab,
        hosts: usize,
        options: ForebayOptions,
    ) -> Result<Scene, Box<dyn std::error::Error>> {
        let hosts = lab.hosts(hosts, PortKind::VethTcx)?;
        let daemon = Forebay::start(&lab, options)?;
        for host in &hosts {
            daemon.client().ok(&["port", "add", host.name()])?;
        }
        Ok(Scene { daemon, hosts, lab })
    }

    fn client(&self) -> &Client {
        self.daemon.client()
    }

    fn socket(&self, port: &str) -> PathBuf {
        self.lab.path(&format!("{port}.sock"))
    }

    fn add(&self, port: &str, arguments: &[&str]) -> Outcome {
        let socket = self.socket(port).display().to_string();
        self.client().ok(&[&["port", "add", port, "--vhost-user", &socket], arguments].concat())?;
        Ok(())
    }

    /// Sends packets between two guests both ways until some have come.
    fn exchange(&self, guests: [&mut FrontEnd; 2]) -> Outcome {
        let [one, other] = guests;
        pass(one, other, 1, 2)?;
        pass(other, one, 2, 1)
    }
}

/// A guest that is not connected.
fn guest() -> Result<FrontEnd, Box<dyn std::error::Error>> {
    guest_with(Features::default())
}

fn guest_with(features: Features) -> Result<FrontEnd, Box<dyn std::error::Error>> {
    let features = features.with(Features::MRG_RXBUF).with(Features::EVENT_IDX);
    let keeps_notes = features.has(Features::RING_PACKED);
    Ok(FrontEnd::new(FrontEndOptions { features, size: RING, buffer_bytes: 16_384, keeps_notes })?)
}

/// Connects a guest to the socket of its port, and waits until the port is up.
fn join(guest: &mut FrontEnd, scene: &Scene, port: &str) -> Outcome {
    connect(guest, &scene.socket(port))?;
    Ok(scene.client().wait_port_state(port, PortState::Up)?)
}

/// Connects a guest, also to a daemon that is only starting.
fn connect(guest: &mut FrontEnd, socket: &Path) -> Outcome {
    wait::until_some("a connection", LIMIT, || guest.connect(UnixStream::connect(socket).ok()?).ok())?;
    Ok(())
}

/// Sends a packet from one guest to another until it arrives.
fn pass(from: &mut FrontEnd, to: &mut FrontEnd, source: u8, destination: u8) -> Outcome {
    while to.receive().is_some() {}
    let frame = Frame::marked(mac(source), mac(destination), source.into()).build();
    wait::until("a packet between guests", LIMIT, || {
        from.transmit(&frame);
        std::iter::from_fn(|| to.receive()).any(|packet| packet == frame)
    })?;
    Ok(())
}

/// This program as a front end whose guest sends packets until it is killed.
pub fn flood_if_asked() {
    let Ok(socket) = std::env::var(FLOOD_VARIABLE) else { return };
    let mut guest = guest().expect("memory for a guest");
    connect(&mut guest, Path::new(&socket)).expect("the switch listens");
    let frame = Frame::marked(mac(1), [0xff; 6], 1).payload_bytes(1000).build();
    loop {
        while guest.receive().is_some() {}
        if !guest.transmit(&frame) {
            std::thread::yield_now();
        }
    }
}
