//! Clocks, samples, and what is said of many of them.

use std::fs;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::world::{Counted, World};

/// What a sender says of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Packets, or copies of packets, that were to arrive.
    pub(crate) offered: u64,
    /// Those that the kernel refused.
    pub(crate) refused: u64,
    pub(crate) syscalls: u64,
    /// Frames not yet free when the call that sent them returned.
    pub(crate) late_frames: u64,
}

/// One run of one sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) tally: Tally,
    pub(crate) arrived: Counted,
    wall_ns: u64,
    /// The sending thread's CPU time, with the softirqs that ran in it, and that of the CPU's softirq thread.
    cpu_ns: u64,
}

impl Sample {
    pub(crate) fn wall_ns_per_packet(&self) -> f64 {
        self.wall_ns as f64 / self.arrived.packets.max(1) as f64
    }

    pub(crate) fn cpu_ns_per_packet(&self) -> f64 {
        self.cpu_ns as f64 / self.arrived.packets.max(1) as f64
    }

    pub(crate) fn cpu_ns_per_kilobyte(&self) -> f64 {
        self.cpu_ns as f64 * 1000.0 / self.arrived.bytes.max(1) as f64
    }

    pub(crate) fn gigabits_per_second(&self) -> f64 {
        self.arrived.bytes as f64 * 8.0 / self.wall_ns.max(1) as f64
    }

    pub(crate) fn lost(&self) -> u64 {
        self.tally.offered.saturating_sub(self.arrived.packets)
    }
}

/// The CPU that sends, and its softirq thread, to which the kernel moves work when there is much.
pub(crate) struct Cpu {
    softirq_thread: Option<String>,
}

impl Cpu {
    /// Binds the calling thread to `cpu`.
    pub(crate) fn pin(cpu: usize) -> Cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).expect("the CPU is there");
        Cpu { softirq_thread: find_thread(&format!("ksoftirqd/{cpu}")) }
    }

    pub(crate) fn sees_softirq_thread(&self) -> bool {
        self.softirq_thread.is_some()
    }

    fn used_ns(&self) -> u64 {
        let own = clock_gettime(ClockId::ThreadCPUTime);
        own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64 + self.softirq_thread_ns()
    }

    /// First field of schedstat: nanoseconds on the CPU (Documentation/scheduler/sched-stats.rst).
    fn softirq_thread_ns(&self) -> u64 {
        let text = self.softirq_thread.as_ref().and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
    }

    /// Measures one run of `send` into `world`.
    pub(crate) fn sample(&self, world: &World, send: impl FnOnce() -> Tally) -> Sample {
        let before = world.counted();
        let (cpu, wall) = (self.used_ns(), Instant::now());
        let tally = send();
        let (wall_ns, cpu_ns) = (wall.elapsed().as_nanos() as u64, self.used_ns() - cpu);
        let arrived = world.arrived_since(before, tally.offered - tally.refused);
        Sample { tally, arrived, wall_ns, cpu_ns }
    }
}

fn find_thread(name: &str) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    let mut paths = processes.flatten().map(|entry| entry.path());
    let path =
        paths.find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name))?;
    Some(path.join("schedstat").to_string_lossy().into_owned())
}

/// Median, least and greatest of many samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Spread { median: sorted[sorted.len() / 2], least: sorted[0], greatest: sorted[sorted.len() - 1] }
    }

    /// As `median [least–greatest]`.
    pub(crate) fn show(&self, decimals: usize) -> String {
        format!("{:.decimals$} [{:.decimals$}–{:.decimals$}]", self.median, self.least, self.greatest)
    }
}
