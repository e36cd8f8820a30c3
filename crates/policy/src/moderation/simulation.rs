//! A receive queue in virtual time, for tests: loads, a worker, the moderation under test, and a guest.
//!
//! The guest has one processor and works as NAPI does: a call costs it time, then it takes packets until none is left,
//! and wants no call meanwhile. All costs are stated below and not measured, so what comes out is called simulated.

mod load;
mod tests;

use std::collections::VecDeque;

use self::load::{Load, Random, Source};
use super::*;
use crate::Nanos;

/// Entries of the ring.
const ENTRIES: u16 = 1024;
/// A turn of the worker, and what each packet adds.
const TURN_NS: u64 = 1_000;
const COPY_NS: u64 = 100;
const TURN: usize = 128;
/// What a call costs the guest, and each packet.
const CALL_NS: u64 = 4_000;
const PACKET_NS: u64 = 500;
/// Packets that the guest takes before it looks again.
const BUDGET: usize = 64;

/// A packet in the ring.
#[derive(Clone, Copy, Debug)]
struct Packet {
    came: u64,
    source: usize,
    message: Message,
}

/// What a source sends.
#[derive(Clone, Copy, Debug)]
struct Message {
    bytes: u32,
    is_ack: bool,
    /// The guest answers it with data.
    is_answered: bool,
}

/// What came out of a stretch of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    seconds: f64,
    pub(super) calls: u64,
    batches: u64,
    /// Packets that the guest took, by source.
    pub(super) taken: Vec<u64>,
    /// Nanoseconds from a packet's arrival until the guest had it, by source.
    latencies: Vec<Vec<u32>>,
    lost: u64,
    guest_ns: u64,
    /// When the settings changed, and to what.
    pub(super) moves: Vec<(u64, Settings)>,
}

impl Outcome {
    pub(super) fn calls_a_second(&self) -> f64 {
        self.calls as f64 / self.seconds
    }

    pub(super) fn taken_a_second(&self, source: usize) -> f64 {
        self.taken[source] as f64 / self.seconds
    }

    /// In microseconds; `hundredths` of packets were faster.
    pub(super) fn latency_us(&self, source: usize, hundredths: f64) -> f64 {
        let mut latencies = self.latencies[source].clone();
        if latencies.is_empty() {
            return 0.0;
        }
        latencies.sort_unstable();
        let rank = (latencies.len() - 1) as f64 * hundredths / 100.0;
        f64::from(latencies[rank as usize]) / 1000.0
    }
}

/// What the guest is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guest {
    /// It wants a call.
    Sleeps,
    /// It takes so many packets at this time, and wants no call.
    Takes(u64, usize),
}

/// Everything, at one point in time.
pub(super) struct Simulation {
    now: u64,
    policy: Policy,
    /// Time between two observations at least, and when the last one was.
    period: u64,
    observed: u64,
    moderators: Moderators,
    sources: Vec<Source>,
    arrived: VecDeque<Packet>,
    /// When the worker's turn is over.
    worker: u64,
    ring: VecDeque<Packet>,
    guest: Guest,
    random: Random,
    out: Outcome,
}

impl Simulation {
    pub(super) fn new(policy: Policy) -> Self {
        let mut moderators = Moderators::new(1);
        moderators.start(0, ENTRIES);
        moderators.set(0, policy.settings(), Nanos(0), || false);
        Self {
            now: 1_000_000_000,
            policy,
            period: 0,
            observed: 0,
            moderators,
            sources: Vec::new(),
            arrived: VecDeque::new(),
            worker: 0,
            ring: VecDeque::new(),
            guest: Guest::Sleeps,
            random: Random(0x9e37_79b9_7f4a_7c15),
            out: Outcome::default(),
        }
    }

    /// The same, observed only every so many milliseconds.
    pub(super) fn observed_every(policy: Policy, millis: u64) -> Self {
        Self { period: millis * 1_000_000, ..Self::new(policy) }
    }

    /// Begins another load. Packets of the last one that are under way are lost and not followed.
    pub(super) fn load(&mut self, loads: &[Load]) {
        self.arrived.clear();
        self.ring.clear();
        self.sources = loads.iter().map(|load| Source::new(*load, self.now)).collect();
    }

    /// Goes on for so long.
    pub(super) fn run(&mut self, micros: u64) -> Outcome {
        let (began, end) = (self.now, self.now + micros * 1000);
        self.out = Outcome {
            seconds: micros as f64 / 1e6,
            taken: vec![0; self.sources.len()],
            latencies: vec![Vec::new(); self.sources.len()],
            ..Outcome::default()
        };
        while self.step(end) {}
        self.now = end;
        for (at, _) in &mut self.out.moves {
            *at -= began;
        }
        std::mem::take(&mut self.out)
    }

    /// Does what comes next; says whether that was before `end`.
    fn step(&mut self, end: u64) -> bool {
        let arrives = self.sources.iter().filter_map(Source::next).min();
        let serves = (!self.arrived.is_empty()).then_some(self.worker.max(self.now));
        let due = self.moderators.next().map(|next| next.0.max(self.worker).max(self.now));
        let takes = match self.guest {
            Guest::Sleeps => None,
            Guest::Takes(at, _) => Some(at),
        };
        let times = [arrives, takes, due, serves];
        let Some(next) = times.iter().flatten().min().copied().filter(|next| *next < end) else {
            return false;
        };
        self.now = self.now.max(next);
        match times.iter().position(|time| *time == Some(next)) {
            Some(0) => self.arrive(),
            Some(1) => self.take(),
            Some(2) => self.expire(),
            _ => self.serve(),
        }
        true
    }

    fn arrive(&mut self) {
        for (index, source) in self.sources.iter_mut().enumerate() {
            while source.next().is_some_and(|next| next <= self.now) {
                let message = source.send(&mut self.random);
                self.arrived.push_back(Packet { came: self.now, source: index, message });
            }
        }
    }

    /// One turn of the worker, after which the guest sees what came.
    fn serve(&mut self) {
        let mut shown = Shown::default();
        for _ in 0..TURN {
            let Some(packet) = self.arrived.pop_front() else { break };
            if self.ring.len() == usize::from(ENTRIES) {
                self.out.lost += 1;
                self.sources[packet.source].is_done(self.now, &mut self.random);
                continue;
            }
            shown.add(packet.message.bytes, 1, packet.message.is_ack);
            self.ring.push_back(packet);
        }
        self.worker = self.now + TURN_NS + COPY_NS * u64::from(shown.packets);
        self.out.batches += 1;
        let (guest, now) = (&mut self.guest, self.now);
        let out = &mut self.out;
        self.moderators.show(0, &shown, Nanos(now), || call(guest, now, out));
        self.decide();
    }

    fn expire(&mut self) {
        let (guest, now) = (&mut self.guest, self.now);
        let out = &mut self.out;
        while let Some(queue) = self.moderators.take_due(Nanos(now)) {
            self.moderators.expire(queue, || call(guest, now, out));
        }
    }

    fn decide(&mut self) {
        if self.now < self.observed + self.period {
            return;
        }
        self.observed = self.now;
        let settings = self.policy.observe(self.moderators.counts(0), Nanos(self.now));
        if settings == self.moderators.settings(0) {
            return;
        }
        self.out.moves.push((self.now, settings));
        let (guest, now) = (&mut self.guest, self.now);
        let out = &mut self.out;
        self.moderators.set(0, settings, Nanos(now), || call(guest, now, out));
    }

    /// The guest has had the packets that it took, and looks for more.
    fn take(&mut self) {
        let Guest::Takes(_, packets) = self.guest else { return };
        for packet in self.ring.drain(..packets.min(self.ring.len())) {
            self.out.taken[packet.source] += 1;
            self.out.latencies[packet.source].push((self.now - packet.came) as u32);
            self.sources[packet.source].is_done(self.now, &mut self.random);
            self.moderators.answered(0, u32::from(packet.message.is_answered));
        }
        let next = self.ring.len().min(BUDGET);
        self.guest = match next {
            0 => Guest::Sleeps,
            _ => Guest::Takes(self.now + PACKET_NS * next as u64, next),
        };
        self.out.guest_ns += PACKET_NS * packets as u64;
    }
}

/// Calls the guest if it sleeps. It takes what is there when the call has come; the first packet is the one that woke it.
fn call(guest: &mut Guest, now: u64, out: &mut Outcome) -> bool {
    let sleeps = *guest == Guest::Sleeps;
    if sleeps {
        *guest = Guest::Takes(now + CALL_NS + PACKET_NS, 1);
        out.calls += 1;
        out.guest_ns += CALL_NS;
    }
    sleeps
}
