//! A look at everything when traffic has stopped: what must balance, what must be back, what must not have grown.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_control::pool::PoolShow;
use forebay_control::stats::StatsShow;
use forebay_testbed::dut::counters::Reading;
use forebay_testbed::programs::ping::{Ping, PingReport};
use forebay_testbed::{Result, wait};

use super::census::{self, Holdings};
use super::ledger::Ledger;
use super::traffic::Tally;
use super::world::World;

mod sheet;

use sheet::Sheet;

/// How long frames may take to come back after traffic has stopped.
const BACK_LIMIT: Duration = Duration::from_secs(5);
/// How long the daemon may take to close what requests needed.
const IDLE_LIMIT: Duration = Duration::from_secs(15);
/// Growth of the daemon's resident memory since the first checkpoint with traffic behind it. Tables fill up and an
/// allocator keeps what it was given once; a leak goes on.
const RESIDENT_TOLERANCE_KIB: u64 = 8 << 10;
/// Growth of the kernel's own memory from the lowest reading of the first daemon's life to the lowest of the last's.
/// Other programs' is in it, and comes and goes; what leaks stays, and so raises every reading.
const KERNEL_TOLERANCE_KIB: u64 = 48 << 10;
/// Threads that ping at the same time.
const PINGERS: usize = 4;
/// Pings between two hosts: the first has to find its neighbour, the second has found it.
const REQUESTS: usize = 2;

/// Compares every checkpoint with the first one.
#[derive(Debug)]
pub(super) struct Inspector {
    number: u32,
    names: usize,
    idle: Option<Holdings>,
    resident_kib: Option<u64>,
    kernel: KernelMemory,
    tally: Option<Arc<Tally>>,
    disturbances: String,
}

impl Inspector {
    pub(super) fn new() -> Inspector {
        let names = census::own_namespaces();
        Inspector {
            number: 0,
            names,
            idle: None,
            resident_kib: None,
            kernel: KernelMemory::default(),
            tally: None,
            disturbances: String::new(),
        }
    }

    /// What the sources and the disturbances did since the last checkpoint.
    pub(super) fn note_traffic(&mut self, tally: Arc<Tally>, disturbances: String) {
        self.tally = Some(tally);
        self.disturbances = disturbances;
    }

    /// Looks at everything and prints the sheet; what is not as it must be is a finding.
    ///
    /// # Errors
    /// When the switch does not answer at all.
    pub(super) fn inspect(&mut self, world: &mut World) -> Result<()> {
        let mut sheet = Sheet::new(self.number);
        self.traffic(&mut sheet);
        self.connectivity(world, &mut sheet);
        counters(world, &mut sheet)?;
        frames(world, &mut sheet)?;
        self.holdings(world, &mut sheet);
        self.machine(world, &mut sheet);
        sheet.print(&world.ledger);
        self.number += 1;
        Ok(())
    }

    /// What was going on since the last checkpoint.
    fn traffic(&mut self, sheet: &mut Sheet) {
        let Some(tally) = self.tally.take() else { return };
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let megabytes = of(&tally.steady_bytes) >> 20;
        let streams = (of(&tally.steady_streams), of(&tally.steady_failures));
        let seen = format!("{megabytes} MiB in {} streams, {} without data", streams.0, streams.1);
        sheet.check("TCP between steady hosts", seen, "data", streams.0 > streams.1);
        sheet.tell("TCP between any hosts", format!("{} MiB", of(&tally.other_bytes) >> 20));
        let pings = (of(&tally.pings_sent), of(&tally.pings_answered));
        sheet.tell("pings amid it all", format!("{} of {} answered", pings.1, pings.0));
        let frames = (of(&tally.datagrams), of(&tally.broadcasts), of(&tally.rubbish));
        sheet
            .tell("datagrams, broadcasts, rubbish sent", format!("{}, {}, {}", frames.0, frames.1, frames.2));
        sheet.tell("disturbances", &self.disturbances);
    }

    /// All ports are up, and every host reaches the next one over both families without a loss.
    fn connectivity(&self, world: &mut World, sheet: &mut Sheet) {
        let is_up = world.wait_all_up().is_ok();
        let up = world.ports_up().unwrap_or(0);
        sheet.check("ports up", up, world.hosts.len(), is_up);
        if !is_up {
            not_up(world).into_iter().for_each(|port| world.ledger.note(port));
        }
        let before = world.client().stats().map(|stats| Reading::of(&stats));
        let failures = ping_ring(world);
        let wanted = 2 * world.hosts.len();
        sheet.check("pairs that ping without loss", wanted - failures.len(), wanted, failures.is_empty());
        if !failures.is_empty() {
            failures.iter().for_each(|failure| world.ledger.note(failure));
            explain_losses(world, &before.unwrap_or_default());
        }
    }

    /// Descriptors, threads, namespaces and BPF objects are as at the start, memory within its tolerance.
    fn holdings(&mut self, world: &mut World, sheet: &mut Sheet) {
        let pid = world.switch.daemon().pid();
        let mut now = census::holdings(pid);
        let idle = self.idle.get_or_insert_with(|| now.clone()).clone();
        // Connections of requests just answered may be closing, and a thread that answered one waits ten seconds for
        // the next before it ends.
        let is_back = || {
            now = census::holdings(pid);
            now.descriptors <= idle.descriptors && now.threads <= idle.threads
        };
        let _ = wait::until("descriptors to be closed", IDLE_LIMIT, is_back);
        sheet.bounded("daemon: file descriptors", now.descriptors, Some(idle.descriptors));
        sheet.bounded("daemon: threads", now.threads, Some(idle.threads));
        sheet.same("daemon: network namespaces", now.namespaces, idle.namespaces);
        let [kinds, limits] = [now.bpf.counts(), idle.bpf.counts()].map(|[p, m, l]| format!("{p}, {m}, {l}"));
        sheet.same("daemon: BPF programs, maps, links", kinds, limits);
        self.memory(pid, now.resident_kib, sheet);
    }

    fn memory(&mut self, pid: u32, resident_kib: u64, sheet: &mut Sheet) {
        let memory = census::memory();
        // The very first checkpoint has no traffic behind it: nothing to compare with.
        if self.number > 0 {
            self.resident_kib.get_or_insert(resident_kib);
            self.kernel.note(pid, memory.kernel_kib.iter().sum());
        }
        let limit = self.resident_kib.map(|first| first + RESIDENT_TOLERANCE_KIB);
        sheet.bounded("daemon: resident KiB", resident_kib, limit);
        let [slab, vmalloc, percpu] = memory.kernel_kib;
        let seen = format!("{slab}, {vmalloc}, {percpu}");
        sheet.tell("machine: SUnreclaim, VmallocUsed, Percpu KiB", seen);
        sheet.tell("machine: MemAvailable KiB", memory.available_kib);
    }

    /// Whether the kernel's memory has grown for good.
    pub(super) fn judge_kernel_memory(&self, ledger: &Ledger) {
        let Some((first, last)) = self.kernel.first_and_last() else { return };
        let growth =
            "kernel memory (SUnreclaim + VmallocUsed + Percpu), lowest with the first and the last daemon";
        let line = format!("{growth}: {first} and {last} KiB, may grow by {KERNEL_TOLERANCE_KIB}");
        println!("\n{line}");
        if last > first + KERNEL_TOLERANCE_KIB {
            ledger.note(line);
        }
    }

    /// Named namespaces and the log.
    fn machine(&self, world: &World, sheet: &mut Sheet) {
        sheet.same("named network namespaces", census::own_namespaces(), self.names);
        let log = world.switch.log();
        let panics = log.lines().filter(|line| line.contains("panicked")).count();
        let warnings = log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).count();
        sheet.same("panics in the log", panics, 0);
        // A netdev that goes again while its port is being attached is worth a warning, and no fault.
        sheet.tell("warnings and errors in the log", warnings);
    }
}

/// The lowest reading in each daemon's life, in KiB, by process id.
#[derive(Debug, Default)]
struct KernelMemory(Vec<(u32, u64)>);

impl KernelMemory {
    fn note(&mut self, pid: u32, kib: u64) {
        match self.0.last_mut() {
            Some((last, lowest)) if *last == pid => *lowest = kib.min(*lowest),
            _ => self.0.push((pid, kib)),
        }
    }

    fn first_and_last(&self) -> Option<(u64, u64)> {
        Some((self.0.first()?.1, self.0.last()?.1))
    }
}

/// Where packets may have gone that hosts missed: what the switch dropped meanwhile, and what its threads are at.
fn explain_losses(world: &mut World, before: &Reading) {
    let threads = census::threads(world.switch.daemon().pid());
    println!("  the daemon's threads: {}", threads.join("\n    "));
    match world.client().stats() {
        Ok(stats) => println!("  drops meanwhile: {:?}", Reading::of(&stats).since(before).drops()),
        Err(error) => println!("  drops meanwhile are not known: {error}"),
    }
}

fn not_up(world: &World) -> Vec<String> {
    let ports = world.client().ports().unwrap_or_default();
    let is_down = |port: &forebay_control::port::PortShow| port.state != forebay_control::port::PortState::Up;
    let down = ports.into_iter().filter(is_down);
    down.map(|port| format!("port {} is {}: {}", port.name, port.state, port.state_reason)).collect()
}

/// Everybody pings the next one; those that lost something.
fn ping_ring(world: &World) -> Vec<String> {
    let all: Vec<usize> = (0..world.hosts.len()).collect();
    let share = all.len().div_ceil(PINGERS);
    std::thread::scope(|scope| {
        let some = |part| scope.spawn(move || ping_next(world, part));
        let threads: Vec<_> = all.chunks(share).map(some).collect();
        let failures = threads.into_iter().map(|thread| thread.join());
        failures.flat_map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn ping_next(world: &World, from: &[usize]) -> Vec<String> {
    let both = from.iter().flat_map(|index| [(*index, false), (*index, true)]);
    both.filter_map(|(index, v6)| {
        let to = world.hosts.get((index + 1) % world.hosts.len()).address(v6);
        let from = world.hosts.get(index);
        // One request a run: between several, ping waits for late replies no longer than two round trips.
        let reports = (0..REQUESTS).map(|_| Ping::new(to).count(1).from(&from));
        let lost = reports.filter(|report| !report.as_ref().is_ok_and(PingReport::is_complete)).count();
        (lost > 0).then(|| format!("{lost} of {REQUESTS} pings from {} to {to} had no answer", from.name()))
    })
    .collect()
}

/// Every packet was counted out once, and the counters stand still.
fn counters(world: &World, sheet: &mut Sheet) -> Result<()> {
    let settled = Reading::settled(world.client());
    let stats = world.client().stats()?;
    sheet.check("counters balance and stand still", settled.is_ok(), true, settled.is_ok());
    if settled.is_err() {
        unbalanced(&stats).into_iter().for_each(|line| world.ledger.note(line));
    }
    sheet.tell(
        "packets in, out (this daemon)",
        format!("{}, {}", stats.total.rx_packets, stats.total.tx_packets),
    );
    for (reason, count) in stats.total.drops.iter().filter(|(_, count)| *count > 0) {
        sheet.tell(&format!("dropped: {reason}"), count);
    }
    Ok(())
}

fn unbalanced(stats: &StatsShow) -> Vec<String> {
    let wrong = stats.check.balances.iter().filter(|balance| balance.difference != 0);
    wrong.map(|sum| format!("{}: {} ≠ {}, by {}", sum.name, sum.left, sum.right, sum.difference)).collect()
}

/// All frames are free or posted; no port holds one.
fn frames(world: &World, sheet: &mut Sheet) -> Result<()> {
    let is_back = || world.client().pool().is_ok_and(|pool| is_complete(&pool) && used(&pool).is_empty());
    let outcome = wait::until("the frames to come back", BACK_LIMIT, is_back);
    let pool = world.client().pool()?;
    let seen = format!("{} + {} + {}", pool.frames_free, pool.frames_posted, pool.frames_held);
    sheet.check("frames: free + posted + held", seen, pool.frames_total, is_complete(&pool));
    let used = used(&pool);
    sheet.check("frames that ports use", used.len(), 0, used.is_empty());
    if outcome.is_err() {
        used.into_iter().for_each(|port| world.ledger.note(port));
    }
    Ok(())
}

fn is_complete(pool: &PoolShow) -> bool {
    pool.frames_free + pool.frames_posted == pool.frames_total && pool.frames_held == 0
}

fn used(pool: &PoolShow) -> Vec<String> {
    let holding = pool.ports.iter().filter(|port| port.used > 0);
    holding.map(|port| format!("port {} still uses {} frames", port.name, port.used)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;

    fn findings_of(readings: &[(u32, u64)]) -> usize {
        let mut kernel = KernelMemory::default();
        readings.iter().for_each(|(pid, mib)| kernel.note(*pid, *mib << 10));
        let inspector = Inspector { kernel, ..Inspector::new() };
        let ledger = Ledger::new(Interrupt::default());
        inspector.judge_kernel_memory(&ledger);
        ledger.findings().len()
    }

    #[test]
    fn memory_that_goes_back_is_no_leak_and_memory_that_stays_is_one() {
        assert_eq!(findings_of(&[(1, 100), (1, 110), (2, 400), (3, 300), (3, 120)]), 0);
        assert_eq!(findings_of(&[(1, 100), (1, 120), (2, 140), (3, 160), (3, 170)]), 1);
        assert_eq!(findings_of(&[]), 0);
    }
}
