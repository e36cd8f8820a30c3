//! Ways to transmit, side by side: which one should a switch with thousands of ports use? docs/transmit.md has the
//! answer and the figures.
//!
//! ```text
//!   (a) packet socket, sendmmsg ───────────────► port ══ veth ══► sink, counts and drops
//!   (b) AF_XDP TX ring of the port ────────────► port
//!   (c) AF_XDP TX ring of a relay ══ veth ══► tcx: tag names the port ──► port
//!   (d) packet socket, many TCP segments a send ► port
//!   (e) BPF program run by us: memory both have mapped ► port
//! ```
//!
//! All of it happens in two network namespaces that end with the process. The candidates take turns in rounds, one
//! thread sends, on one CPU; printed are the median of the rounds with the least and the greatest, and the median of
//! each round's ratio to (a). `FB_TXB_ROUNDS` and `FB_TXB_CPU` set the number of rounds (9) and the CPU (the last).

mod experiment;
mod gso;
mod measure;
mod packet;
mod program;
mod report;
mod world;
mod xdp;

use std::process::Command;

use forebay_kernel::netlink::PrivateNetns;

use crate::experiment::{Setting, binding_memory, flooding, forwarding, segments};
use crate::measure::{Cpu, Tally};
use crate::world::{Sink, World};

/// A way to transmit, with what it sends and where.
pub(crate) trait Sender {
    /// Gets ready to send `batch` packets a turn; not measured.
    fn prepare(&mut self, _batch: u32) {}

    /// Sends `packets` to the ports in turn, `batch` of them a turn.
    fn send(&mut self, packets: u64, batch: u32) -> Tally;
}

/// The start of a frame from nobody to nobody, `bytes` long.
pub(crate) fn frame(bytes: u16) -> Vec<u8> {
    let mut frame = vec![0; usize::from(bytes)];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    frame
}

fn main() {
    if let Some(missing) = missing() {
        println!("SKIP: {missing}");
        return;
    }
    let rounds = setting("FB_TXB_ROUNDS").unwrap_or(9).max(1);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = setting("FB_TXB_CPU").unwrap_or(cpus - 1);
    describe_machine(rounds, cpu);
    for (ports, sink) in [(1000, Sink::Xdp), (16, Sink::Tcx)] {
        let netns = PrivateNetns::new("fb-txb-ports").expect("root may make a namespace");
        netns.run(move || measure_all(ports, sink, rounds, cpu));
    }
}

fn measure_all(ports: usize, sink: Sink, rounds: usize, cpu: usize) {
    let cpu = Cpu::pin(cpu);
    if !cpu.sees_softirq_thread() {
        println!("(the CPU's softirq thread is hidden here: its time is missing from CPU time)");
    }
    let world = World::new(ports, sink);
    println!("\n## Sink: {sink:?}, {ports} ports made\n");
    binding_memory(&world);
    for outputs in [1, 16, 1000].into_iter().filter(|outputs| *outputs <= ports) {
        for frame_bytes in [60, 1514] {
            forwarding(&Setting { world: &world, cpu: &cpu, rounds, ports: outputs, frame_bytes });
        }
    }
    if ports >= 100 {
        for frame_bytes in [60, 1514] {
            flooding(&Setting { world: &world, cpu: &cpu, rounds, ports: 100, frame_bytes });
        }
    }
    segments(&Setting { world: &world, cpu: &cpu, rounds, ports: 1, frame_bytes: 1514 });
}

fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root, for network namespaces and BPF");
    }
    let clang = Command::new("clang").arg("--version").output();
    (!clang.is_ok_and(|output| output.status.success())).then_some("needs clang, for the sinks' programs")
}

fn setting(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn describe_machine(rounds: usize, cpu: usize) {
    let system = rustix::system::uname();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "Linux {}, CPU {cpu}, {rounds} rounds, load {}",
        system.release().to_string_lossy(),
        load.trim()
    );
}
