//! The kernel's own NetDIM as a third opinion on the policy `dim`.
//!
//! The kernel's virtio_net has a device of ours, by VDUSE, and moderates it with DIM (`ethtool -C … adaptive-rx on`). The
//! device delivers packets at changing rates, and obeys the limits that virtio_net sets. A probe records what the kernel's
//! `net_dim` is told and what it decides. Then `dim` is told the same, and must decide the same.
//!
//! ```text
//!   load ──► VduseNet ──► virtio_net ──► net_dim ──► recorder ──► dim
//!               ▲                           │                      │ compared with
//!               └───── VQ_NOTF_COAL_SET ◄───┴──────────────────────┘
//! ```

mod load;
mod opinion;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use forebay_testbed::net_dim::Recorder;
use forebay_testbed::vduse::VduseNet;
use forebay_testbed::{LabError, Result, command, wait};
use forebay_vhost::Features;
use rustix::event::{EventfdFlags, eventfd};

use self::load::Load;
use self::opinion::Opinion;
use crate::Outcome;

pub const NAME: &str = "dim_decides_as_the_kernels_own_does_on_the_same_windows";
/// If this variable is set, the scenario writes the windows too, as `recorded.txt` of the policy's tests has them.
pub const WINDOWS_VARIABLE: &str = "FOREBAY_DIM_WINDOWS";
/// The same in the guest.
pub const WINDOWS_SETTING: &str = "FOREBAY_DIM_WINDOWS=1";

const DEVICE: &str = "fbdim";
/// Processors that take interrupts of the receive queue.
const AFFINITY: &str = "/sys/class/vduse/fbdim/vq0/irq_cb_affinity";
const FIRST_PROCESSOR: &str = "1";
const MAC: [u8; 6] = [2, 0xfe, 0xfe, 0, 0, 1];
const FEATURES: Features = Features(
    Features::CTRL_VQ.0
        | Features::NOTF_COAL.0
        | Features::VQ_NOTF_COAL.0
        | Features::MRG_RXBUF.0
        | Features::INDIRECT_DESC.0
        | Features::EVENT_IDX.0,
);
/// Calls of `net_dim`; a window takes some 64.
const CALLS: u64 = 64_000;
const LIMIT: Duration = Duration::from_secs(240);
/// Windows that are too few to mean anything.
const FEWEST: usize = 800;

/// Of a guest with the module vduse.
pub fn same_windows() -> Outcome {
    let device = VduseNet::new(DEVICE, FEATURES, MAC)?;
    let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
    let recorder = Recorder::start()?;
    let (driven, device) = std::thread::scope(|scope| {
        let driver = device.driver_command();
        let load = scope.spawn(|| Load::new(device, &stop).run());
        let driven = drive(driver, &recorder);
        stop_load(&stop);
        (driven, load.join().expect("a load does not panic"))
    });
    let (device, _) = (device?, driven?);
    let calls = recorder.finish()?;
    let opinion = Opinion::on(&calls)?;
    if std::env::var_os(WINDOWS_VARIABLE).is_some() {
        opinion.windows().iter().for_each(|window| println!("window: {window}"));
    }
    let asked: Vec<_> = device.asked().iter().map(|limits| (limits.max_usecs, limits.max_packets)).collect();
    let decided: Vec<_> = opinion.decided().iter().map(|limits| (limits.usecs, limits.packets)).collect();
    println!("{}, {} VQ_NOTF_COAL_SET; Linux {}", opinion.summary(), asked.len(), release());
    assert!(opinion.windows().len() >= FEWEST, "too few windows");
    // virtio_net may not have asked yet for what was decided last.
    let is_asked = decided.starts_with(&asked) && decided.len() <= asked.len() + 1;
    assert!(is_asked, "asked: {asked:?}, decided: {decided:?}");
    Ok(())
}

/// Has virtio_net moderate the device until there are enough calls.
fn drive(driver: Command, recorder: &Recorder) -> Result<()> {
    command::run_ok(driver)?;
    let netdev = netdev()?;
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words);
        command::run_ok(command).map(drop)
    };
    run("ip", &["link", "set", &netdev, "up"])?;
    // virtio_net calls net_dim after its poll has ended, when another processor may be in the next poll already. Calls that
    // overlap find counts that go back, which nobody could tell apart from a wrong decision.
    std::fs::write(AFFINITY, FIRST_PROCESSOR)
        .map_err(|error| LabError::system("binding interrupts", error))?;
    run("ethtool", &["-C", &netdev, "adaptive-rx", "on"])?;
    let mut count = Ok(0);
    wait::until("the kernel's DIM to be called often enough", LIMIT, || {
        count = recorder.count();
        count.as_ref().map_or(true, |count| *count >= CALLS)
    })?;
    count.map(drop)
}

fn stop_load(stop: &OwnedFd) {
    rustix::io::write(stop, &1u64.to_ne_bytes()).expect("an eventfd takes one number");
}

/// Name of the device's netdev.
fn netdev() -> Result<String> {
    let below = |path: &Path, prefix: &str| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .find(|name| name.starts_with(prefix))
    };
    wait::until_some("the device's netdev", Duration::from_secs(20), || {
        let device = Path::new("/sys/bus/vdpa/devices").join(DEVICE);
        let virtio = device.join(below(&device, "virtio")?);
        below(&virtio.join("net"), "eth")
    })
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}
