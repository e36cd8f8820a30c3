//! The switch connects to front ends that listen.

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Forebay, ForebayOptions};
use forebay_testbed::programs::{self, testpmd::TestpmdOptions};
use forebay_testbed::{Lab, wait};
use forebay_vhost::driver::FrontEnd;

use super::{LIMIT, Scene, guest};
use crate::harness::{Outcome, Suite, ensure_program};

/// Packets that must come from a port for its traffic to count as alive.
const ENOUGH: u64 = 10_000;

pub fn register(suite: &mut Suite) {
    suite.once("the_switch_connects_to_a_front_end_in_any_order_and_again", any_order);
    suite.heavy_once("dpdk_that_listens_goes_on_with_each_daemon_that_comes", dpdk);
    suite.heavy_once("dpdk_is_served_with_each_kind_of_ring", each_kind);
}

/// Waits for the switch at a socket, and connects the guest.
fn accept(listener: &UnixListener, guest: &mut FrontEnd) -> Outcome {
    listener.set_nonblocking(true)?;
    let stream = wait::until_some("the switch to connect", LIMIT, || listener.accept().ok())?.0;
    stream.set_nonblocking(false)?;
    Ok(guest.connect(stream)?)
}

fn any_order() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("frontends")?;
    let (early, late) = (lab.path("early.sock"), lab.path("late.sock"));
    // One listens before the switch starts, the other later.
    let early_listener = UnixListener::bind(&early)?;
    let port = |name: &str, path: &Path| {
        format!(
            "[[port]]\nname = \"{name}\"\nvhost_user = {{ path = \"{}\", client = true }}\n",
            path.display()
        )
    };
    let config = format!("{}{}", port("early", &early), port("late", &late));
    let mut scene = Scene::in_lab(lab, 1, ForebayOptions::with_config(config.clone()))?;
    let (mut one, mut other) = (guest()?, guest()?);
    accept(&early_listener, &mut one)?;
    let missing = || scene.client().port("late").is_ok_and(|port| port.state_reason.contains("No such file"));
    wait::until("the reason why there is no guest", LIMIT, missing)?;
    assert_eq!(scene.client().port("late")?.state, PortState::Waiting);
    let late_listener = UnixListener::bind(&late)?;
    accept(&late_listener, &mut other)?;
    scene.client().wait_port_state("late", PortState::Up)?;
    scene.exchange([&mut one, &mut other])?;
    // A front end goes, and comes again; its socket too.
    one.disconnect();
    scene.client().wait_port_state("early", PortState::Waiting)?;
    accept(&early_listener, &mut one)?;
    drop(late_listener);
    std::fs::remove_file(&late)?;
    other.disconnect();
    scene.client().wait_port_state("late", PortState::Waiting)?;
    let late_listener = UnixListener::bind(&late)?;
    accept(&late_listener, &mut other)?;
    scene.exchange([&mut one, &mut other])?;
    // The switch goes, and comes again.
    scene.daemon.kill()?;
    scene.daemon = Forebay::start(&scene.lab, ForebayOptions::with_config(config))?;
    accept(&late_listener, &mut other)?;
    accept(&early_listener, &mut one)?;
    scene.exchange([&mut one, &mut other])?;
    scene.client().ok(&["port", "del", "early", "late"])?;
    assert!(early.exists() && late.exists(), "sockets of the front end stay");
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

/// DPDK's testpmd with two ports that listen, and send for ever.
struct Testpmd {
    program: Child,
    keyboard: ChildStdin,
}

impl Testpmd {
    fn start(scene: &Scene) -> Result<Testpmd, Box<dyn std::error::Error>> {
        let device = |number: u8| {
            let path = scene.socket(&format!("vm{}", number + 1));
            format!("net_virtio_user{number},path={},queues=1,server=1", path.display())
        };
        let log = std::fs::File::create(scene.lab.path("testpmd.log"))?;
        #[rustfmt::skip]
        let mut program = Command::new("timeout")
            .args(["-k", "2", "100", "dpdk-testpmd", "--lcores", "0@0-1,1@0-1", "--no-huge", "-m", "256", "--no-pci"])
            .args(["--no-telemetry", "--vdev", &device(0), "--vdev", &device(1)])
            .args(["--", "-i", "--total-num-mbufs=8192", "--forward-mode=txonly"])
            // DPDK leaves a folder behind, which goes with ours.
            .env("RUNTIME_DIRECTORY", scene.lab.directory())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let keyboard = program.stdin.take().ok_or("its input is a pipe")?;
        Ok(Testpmd { program, keyboard })
    }

    /// DPDK notices that a connection is gone, and listens again, only when it is asked about the link.
    fn look_at_links(&mut self) {
        let _ = self.keyboard.write_all(b"show port info all\n");
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.keyboard.write_all(b"quit\n");
        // It ends by itself, or `timeout` ends it.
        let _ = self.program.wait();
    }
}

/// Packets come from both ports, whatever becomes of the daemon.
fn dpdk() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("frontends")?;
    let pins = BpfFs::mount(&lab)?;
    let options = ForebayOptions::with_config("[flood]\ncopies_per_second = 0\n").handing_over(&pins);
    let mut scene = Scene::in_lab(lab, 2, options.clone())?;
    for port in ["vm1", "vm2"] {
        scene.add(port, &["--client"])?;
    }
    let mut testpmd = Testpmd::start(&scene)?;
    testpmd.keyboard.write_all(b"start\n")?;
    for round in 0..3 {
        for port in ["vm1", "vm2"] {
            let what = format!("packets of {port} in round {round}");
            wait::until(&what, LIMIT, || {
                testpmd.look_at_links();
                scene.client().port(port).is_ok_and(|port| port.counters.rx_packets > ENOUGH)
            })?;
        }
        if round < 2 {
            scene.daemon.kill()?;
            scene.daemon = Forebay::start(&scene.lab, options.clone())?;
        }
    }
    // A turn is always under way while it sends.
    testpmd.keyboard.write_all(b"stop\n")?;
    let is_balanced = || scene.client().stats_check().is_ok_and(|check| check.balanced);
    Ok(wait::until("the counters to balance", LIMIT, is_balanced)?)
}

/// Packets go round between two ports of DPDK, whatever its rings are, also when its driver has been started again.
fn each_kind() -> Outcome {
    ensure_program()?;
    // Options of the devices, of testpmd, and segments of its packets.
    let kinds: [(&str, &[&str], &str); 9] = [
        (",queues=1,mrg_rxbuf=0,in_order=0", &[], "64"),
        (",queues=1,mrg_rxbuf=0,vectorized=1", &[], "64"),
        (",queues=1,queue_size=1024", &["--txd=1024", "--rxd=1024"], "64"),
        (",queues=4", &["--rxq=4", "--txq=4"], "64"),
        (",queues=1", &["--tx-offloads=0x8000"], "64,128,400"),
        (",queues=1,packed_vq=1", &["--tx-offloads=0x802c", "--rx-offloads=0x1c"], "64"),
        (",queues=1,packed_vq=1,mrg_rxbuf=0,in_order=0", &[], "1514"),
        (",queues=2,packed_vq=1", &["--rxq=2", "--txq=2"], "64"),
        (",queues=1,packed_vq=1", &["--tx-offloads=0x8000"], "64,128,400"),
    ];
    let scene = Scene::in_lab(Lab::new("frontends")?, 0, super::quiet())?;
    for (device, arguments, packets) in kinds {
        for port in ["vm1", "vm2"] {
            scene.add(port, &["--queues", "4"])?;
        }
        let sockets = [scene.socket("vm1"), scene.socket("vm2")];
        let sockets = [sockets[0].as_path(), sockets[1].as_path()];
        let options = TestpmdOptions { sockets, listens: false, processor: 0, packets, device, arguments };
        let mut guests = programs::testpmd::Testpmd::start(&scene.lab, &options)?;
        for time in ["the first time", "the second time"] {
            let rate = guests.measure(64, Duration::from_millis(100))?;
            let ports = scene.client().ports()?;
            assert!(rate > 0.0, "{time}, with `{device}` and segments of {packets} bytes: {ports:?}");
            guests.restart_ports()?;
        }
        drop(guests);
        scene.client().ok(&["port", "del", "vm1", "vm2"])?;
    }
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}
