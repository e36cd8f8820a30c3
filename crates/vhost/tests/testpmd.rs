//! DPDK's testpmd, with two virtio-user ports, sends packets in a circle through the example `bridge`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Everything is over in much less; a child that hangs is ended then.
const LIMIT: &str = "60";
/// Packets that must have gone round for the test to pass.
const ENOUGH: u64 = 10_000;

fn example() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let example = test.parent().and_then(Path::parent).expect("cargo's folders").join("examples/bridge");
    assert!(example.exists(), "{} is missing: cargo build -p forebay-vhost --examples", example.display());
    example
}

fn start(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], output: &Path) -> Child {
    let output = std::fs::File::create(output).expect("a file in our own folder");
    Command::new("timeout")
        .args(["-k", "2", LIMIT])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(output.try_clone().expect("a descriptor"))
        .stderr(output)
        .spawn()
        .expect("timeout is part of coreutils")
}

/// Waits until `is_done`, or fails with what the two programs said.
fn wait(folder: &Path, what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !is_done() {
        if Instant::now() > deadline {
            let said = ["bridge", "testpmd"].map(|name| std::fs::read_to_string(folder.join(name)));
            panic!("{what} did not happen: {said:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Packets per second each way, by line.
fn rates(folder: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(folder.join("bridge")).expect("the bridge's output");
    let rate = |line: &str| {
        let (one, rest) = line.split_once(" -> ")?;
        let (two, _) = rest.split_once(" <- ")?;
        Some((one.trim().parse().ok()?, two.trim().parse().ok()?))
    };
    text.lines().filter_map(rate).collect()
}

fn circle(options: &str, wanted: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let (a, b) = (path("a"), path("b"));
    let mut bridge = start(example(), &[&a, &b, LIMIT], &folder.path().join("bridge"));
    wait(folder.path(), "listening", || Path::new(&b).exists());
    let device = |number: u8, path: &str| format!("net_virtio_user{number},path={path},queues=1{options}");
    let prefix = format!("fb-{}-{}", std::process::id(), options.len());
    #[rustfmt::skip]
    let arguments = [
        "--lcores", "0@0-1,1@0-1", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--file-prefix", &prefix,
        "--vdev", &device(0, &a), "--vdev", &device(1, &b),
        "--", "-i", "--total-num-mbufs=8192", "--no-lsc-interrupt", "--forward-mode=io",
    ];
    let mut testpmd = start("dpdk-testpmd", &arguments, &folder.path().join("testpmd"));
    let mut keyboard = testpmd.stdin.take().expect("its input is a pipe");
    keyboard.write_all(b"start tx_first 2\n").expect("testpmd reads");
    let sums = || rates(folder.path()).iter().fold((0, 0), |sum, rate| (sum.0 + rate.0, sum.1 + rate.1));
    wait(folder.path(), "traffic both ways", || sums().0 > ENOUGH && sums().1 > ENOUGH);
    keyboard.write_all(b"stop\nquit\n").expect("testpmd reads");
    assert!(testpmd.wait().expect("it ends").success());
    let said = || std::fs::read_to_string(folder.path().join("bridge")).expect("the bridge's output");
    wait(folder.path(), "both ends", || said().matches("the front end has gone").count() == 2);
    bridge.kill().expect("it is our child");
    bridge.wait().expect("it ends");
    let said = said();
    assert!(said.contains(wanted) && !said.contains("the guest:"), "{said}");
}

fn is_installed() -> bool {
    let found =
        Command::new("dpdk-testpmd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("SKIP: dpdk-testpmd (Debian's dpdk-dev)");
    }
    found.is_ok()
}

#[test]
fn packets_of_dpdk_go_round_over_split_rings() {
    if is_installed() {
        circle("", "\"mrg\"");
    }
}

#[test]
fn packets_of_dpdk_go_round_over_packed_rings() {
    if is_installed() {
        circle(",packed_vq=1", "\"packed\"");
    }
}
