//! Two Linux kernels in user mode, each with an unmodified `virtio_net`, talk through the example `bridge`.

mod bed;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bed::{Bridge, is_installed};
use forebay_uml::EMULATOR;

/// The first program of a guest. The root file system is the host's, and read-only.
const INIT: &str = r#"#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmpfs /run
for module in net/core/failover drivers/net/net_failover drivers/net/virtio_net; do
    insmod /usr/lib/uml/modules/*/kernel/$module.ko
done
me=$(sed -n 's/.*me=\([12]\).*/\1/p' /proc/cmdline)
ip addr add 10.9.9.$me/24 dev eth0
ip link set eth0 up
ethtool -C eth0 rx-usecs 32 rx-frames 16 tx-usecs 64 tx-frames 8 && echo "coalescing set"
tries=0
until ping -c 1 -W 1 10.9.9.$((3 - me)) >/dev/null 2>&1 || [ $tries -ge 30 ]; do tries=$((tries + 1)); done
ping -c 5 -i 0.2 -s 8000 10.9.9.$((3 - me))
# The other one may still be asking.
sleep 2
poweroff -f
"#;

fn output_of(bridge: &Bridge, number: u8) -> PathBuf {
    bridge.folder().join(format!("guest{number}"))
}

/// Boots a guest, which reads its first program from the host's file system.
fn boot(bridge: &Bridge, number: u8) -> Child {
    let output = std::fs::File::create(output_of(bridge, number)).expect("our own folder");
    let folder = bridge.folder().display();
    let mut command = Command::new("timeout");
    forebay_uml::run_on_any_processor(&mut command, bridge.folder()).expect("our own folder");
    command
        .args(["-k", "2", "50", EMULATOR])
        .args(["mem=128M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
        .args(["con=null", "con0=null,fd:1", "ssl=null", "quiet"])
        .arg(format!("init={folder}/init"))
        .arg(format!("me={}", number + 1))
        .arg(format!("uml_dir={folder}"))
        .arg(format!("umid=guest-{number}"))
        .arg(format!("virtio_uml.device={}:1", bridge.socket(number).display()))
        .env("TMPDIR", "/dev/shm")
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("a descriptor"))
        .stderr(output)
        .spawn()
        .expect("timeout is part of coreutils")
}

fn talk(features: &str) {
    if !is_installed(EMULATOR, "user-mode-linux") {
        return;
    }
    let bridge = Bridge::start(features);
    let init = bridge.folder().join("init");
    std::fs::write(&init, INIT).expect("our own folder");
    std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    for mut guest in [0, 1].map(|number| boot(&bridge, number)) {
        guest.wait().expect("it ends, be it by timeout");
    }
    let read = |number| std::fs::read_to_string(output_of(&bridge, number)).expect("our own folder");
    let said = bridge.said();
    for guest in [0, 1].map(read) {
        assert!(guest.contains("5 packets transmitted, 5 received"), "{guest}\n{said}");
        assert!(guest.contains("coalescing set"), "{guest}\n{said}");
    }
    assert!(said.contains("max_packets: 16, max_usecs: 32"), "{said}");
    assert!(!said.contains("the guest:") && !said.contains("the front end:"), "{said}");
}

#[test]
fn two_linux_guests_talk_over_split_rings() {
    talk("-packed");
}

#[test]
fn two_linux_guests_talk_over_packed_rings() {
    talk("packed");
}
