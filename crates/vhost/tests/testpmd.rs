//! DPDK's testpmd, with two virtio-user ports, sends packets in a circle through the example `bridge`.

mod bed;

use std::io::Write;
use std::process::{Command, Stdio};

use bed::{Bridge, is_installed};

/// Packets that must have gone round for the test to pass.
const ENOUGH: u64 = 10_000;

/// Packets that went each way.
fn carried(bridge: &Bridge) -> [u64; 2] {
    let rates = |line: &str| -> Option<[u64; 2]> {
        let (there, rest) = line.split_once(" -> ")?;
        let (back, _) = rest.split_once(" <- ")?;
        Some([there.trim().parse().ok()?, back.trim().parse().ok()?])
    };
    let said = bridge.said();
    said.lines().filter_map(rates).fold([0, 0], |sum, rates| [sum[0] + rates[0], sum[1] + rates[1]])
}

fn circle(options: &str, wanted: &str) {
    if !is_installed("dpdk-testpmd", "dpdk-dev") {
        return;
    }
    let bridge = Bridge::start("-ctrl");
    let device = |number: u8| {
        let path = bridge.socket(number);
        format!("net_virtio_user{number},path={},queues=1{options}", path.display())
    };
    let output = bridge.folder().join("testpmd");
    let file = std::fs::File::create(&output).expect("our own folder");
    #[rustfmt::skip]
    let mut testpmd = Command::new("timeout")
        .args(["-k", "2", "60", "dpdk-testpmd", "--lcores", "0@0-1,1@0-1", "--no-huge", "-m", "256", "--no-pci"])
        .args(["--no-telemetry", "--vdev", &device(0), "--vdev", &device(1)])
        .args(["--", "-i", "--total-num-mbufs=8192", "--no-lsc-interrupt", "--forward-mode=io"])
        // DPDK leaves a folder behind, which goes with ours.
        .env("RUNTIME_DIRECTORY", bridge.folder())
        .stdin(Stdio::piped())
        .stdout(file.try_clone().expect("a descriptor"))
        .stderr(file)
        .spawn()
        .expect("timeout is part of coreutils");
    let mut keyboard = testpmd.stdin.take().expect("its input is a pipe");
    keyboard.write_all(b"start tx_first 2\n").expect("testpmd reads");
    bridge.wait("traffic both ways", |bridge| carried(bridge).iter().all(|packets| *packets > ENOUGH));
    keyboard.write_all(b"stop\nquit\n").expect("testpmd reads");
    assert!(testpmd.wait().expect("it ends").success(), "{:?}", std::fs::read_to_string(&output));
    bridge.wait("both ends", |bridge| bridge.said().matches("the front end has gone").count() == 2);
    let said = bridge.said();
    assert!(said.contains(wanted) && !said.contains("the guest:"), "{said}");
}

#[test]
fn packets_of_dpdk_go_round_over_split_rings() {
    circle("", "\"mrg\"");
}

#[test]
fn packets_of_dpdk_go_round_over_packed_rings() {
    circle(",packed_vq=1", "\"packed\"");
}
