//! QEMU as a front end: its firmware, iPXE, looks for a DHCP server by a virtio-net device of its own making.

mod bed;

use std::process::{Command, Stdio};

use bed::{Bridge, is_installed};

/// Packets that came from the first port, where nobody received them.
fn lost(bridge: &Bridge) -> u64 {
    let of = |line: &str| line.split_once("lost [")?.1.split_once(',')?.0.parse().ok();
    bridge.said().lines().filter_map(of).max().unwrap_or(0)
}

#[test]
fn qemu_starts_its_queues_and_the_firmware_sends() {
    if !is_installed("qemu-system-x86_64", "qemu-system-x86") {
        return;
    }
    let bridge = Bridge::start("-ctrl");
    let output = bridge.folder().join("qemu");
    let file = std::fs::File::create(&output).expect("our own folder");
    // Without KVM, QEMU 7.2 cannot use MSI-X with vhost-user.
    let mut qemu = Command::new("timeout")
        .args([
            "-k",
            "2",
            "60",
            "qemu-system-x86_64",
            "-M",
            "q35,accel=tcg",
            "-m",
            "128M",
            "-display",
            "none",
        ])
        .args(["-monitor", "none", "-object", "memory-backend-memfd,id=memory,size=128M,share=on"])
        .args(["-numa", "node,memdev=memory", "-netdev", "vhost-user,id=net,chardev=socket"])
        .args(["-chardev", &format!("socket,id=socket,path={}", bridge.socket(0).display())])
        .args(["-device", "virtio-net-pci,netdev=net,vectors=0,bootindex=1"])
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a descriptor"))
        .stderr(file)
        .spawn()
        .expect("timeout is part of coreutils");
    bridge.wait("a packet of the firmware", |bridge| lost(bridge) > 0);
    // To the child of `timeout`, which passes it on.
    let pid = rustix::process::Pid::from_child(&qemu);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is our child");
    qemu.wait().expect("it ends");
    bridge.wait("the end", |bridge| bridge.said().contains("the front end has gone"));
    let said = bridge.said();
    assert!(said.contains("queue 0 started") && said.contains("queue 1 started"), "{said}");
    assert!(!said.contains("the guest:") && !said.contains("the front end:"), "{said}");
}
