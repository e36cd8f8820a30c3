//! Receive queues of one guest in virtual time: loads, a worker, the moderation under test, and the guest.
//!
//! The guest has one processor and works as NAPI does: a call costs it time, then it takes packets until none is left,
//! and wants no call meanwhile. All costs are stated ([`Costs`]) and not measured, so what comes out is called simulated.
//! The policies' tests and the lab's experiments run here; the product does not.
//!
//! ```text
//!  sources ──► arrived ──► worker's turn ──► rings ──► guest
//!     ▲                        │ Moderators: call?      │
//!     └───── a loop's time after the guest had it ──────┘
//! ```

mod guest;
mod load;
mod outcome;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use self::guest::Costs;
use self::guest::Guest;
pub use self::load::Load;
use self::load::{Message, Random, Source};
pub use self::outcome::Outcome;
use super::moderators::Moderators;
use super::policy::Policy;
use super::shown::Shown;
use crate::Nanos;

/// Entries of each ring.
pub const ENTRIES: u16 = 1024;
/// Most packets of a worker's turn.
const TURN: usize = 128;

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Packet {
    came: u64,
    source: usize,
    message: Message,
}

/// A queue of the guest.
struct Queue {
    policy: Policy,
    observed: u64,
    ring: VecDeque<Packet>,
    /// What was shown in this turn.
    shown: Shown,
}

/// Everything, at one point in time.
pub struct Simulation {
    now: u64,
    costs: Costs,
    /// Time between two observations at least.
    period: u64,
    moderators: Moderators,
    queues: Vec<Queue>,
    /// Each with the number of its queue.
    sources: Vec<(usize, Source)>,
    arrived: VecDeque<Packet>,
    /// When the worker's turn is over.
    worker: u64,
    guest: Guest,
    random: Random,
    out: Outcome,
}

impl Simulation {
    /// A guest with one queue, whose policy looks after each turn.
    pub fn new(policy: Policy) -> Self {
        Self::with(vec![policy], Costs::default(), 0)
    }

    /// A guest with as many queues as there are policies, which look only every `period_ms` milliseconds if that is not 0.
    pub fn with(policies: Vec<Policy>, costs: Costs, period_ms: u64) -> Self {
        let mut moderators = Moderators::new(policies.len());
        for (number, policy) in policies.iter().enumerate() {
            moderators.start(number, ENTRIES);
            moderators.set(number, policy.settings(), Nanos(0), || false);
        }
        let queue = |policy| Queue { policy, observed: 0, ring: VecDeque::new(), shown: Shown::default() };
        Self {
            now: 1_000_000_000,
            costs,
            period: period_ms * 1_000_000,
            moderators,
            guest: Guest::new(policies.len(), costs),
            queues: policies.into_iter().map(queue).collect(),
            sources: Vec::new(),
            arrived: VecDeque::new(),
            worker: 0,
            random: Random(0x9e37_79b9_7f4a_7c15),
            out: Outcome::default(),
        }
    }

    /// Begins another load on the first queue. Packets of the last one that are under way are lost and not followed.
    pub fn load(&mut self, loads: &[Load]) {
        let loads: Vec<_> = loads.iter().map(|load| (0, *load)).collect();
        self.load_queues(&loads);
    }

    /// The same with the number of each load's queue.
    pub fn load_queues(&mut self, loads: &[(usize, Load)]) {
        self.arrived.clear();
        self.queues.iter_mut().for_each(|queue| queue.ring.clear());
        self.sources = loads.iter().map(|(queue, load)| (*queue, Source::new(*load, self.now))).collect();
    }

    /// Goes on for so long.
    pub fn run(&mut self, micros: u64) -> Outcome {
        let (began, end) = (self.now, self.now + micros * 1000);
        self.out = Outcome::of(micros, self.sources.len());
        while self.step(end) {}
        self.now = end;
        for (at, _) in &mut self.out.moves {
            *at -= began;
        }
        std::mem::take(&mut self.out)
    }

    /// Does what comes next; says whether that was before `end`.
    fn step(&mut self, end: u64) -> bool {
        let arrives = self.sources.iter().filter_map(|(_, source)| source.next()).min();
        let serves = (!self.arrived.is_empty()).then_some(self.worker.max(self.now));
        let due = self.moderators.next().map(|next| next.0.max(self.worker).max(self.now));
        let times = [arrives, self.guest.until(), due, serves];
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
        for (index, (_, source)) in self.sources.iter_mut().enumerate() {
            while source.next().is_some_and(|next| next <= self.now) {
                let message = source.send(self.now, &mut self.random);
                let packet = message.map(|message| Packet { came: self.now, source: index, message });
                self.arrived.extend(packet);
            }
        }
    }

    /// One turn of the worker, after which the guest sees what came.
    fn serve(&mut self) {
        let mut packets = 0;
        for _ in 0..TURN {
            let Some(packet) = self.arrived.pop_front() else { break };
            let (number, source) = &mut self.sources[packet.source];
            let queue = &mut self.queues[*number];
            if queue.ring.len() == usize::from(ENTRIES) {
                self.out.lost += 1;
                source.is_lost(self.now, &mut self.random);
                continue;
            }
            queue.shown.add(packet.message.bytes, 1, packet.message.is_ack);
            queue.ring.push_back(packet);
            packets += 1;
        }
        self.worker = self.now + self.costs.turn_ns + self.costs.copy_ns * packets;
        for number in 0..self.queues.len() {
            self.show(number);
        }
    }

    fn show(&mut self, number: usize) {
        let Self { now, moderators, queues, guest, out, .. } = self;
        let shown = std::mem::take(&mut queues[number].shown);
        if shown.packets == 0 {
            return;
        }
        out.batches += 1;
        moderators.show(number, &shown, Nanos(*now), || call(guest, number, &queues[number].ring, *now, out));
        self.decide(number);
    }

    fn expire(&mut self) {
        let Self { now, moderators, queues, guest, out, .. } = self;
        while let Some(number) = moderators.take_due(Nanos(*now)) {
            moderators.expire(number, || call(guest, number, &queues[number].ring, *now, out));
        }
    }

    fn decide(&mut self, number: usize) {
        let Self { now, moderators, queues, guest, out, period, .. } = self;
        let queue = &mut queues[number];
        if *now < queue.observed + *period {
            return;
        }
        queue.observed = *now;
        let settings = queue.policy.observe(moderators.counts(number), Nanos(*now));
        if settings != moderators.settings(number) {
            out.moves.push((*now, settings));
            moderators.set(number, settings, Nanos(*now), || call(guest, number, &queue.ring, *now, out));
        }
    }

    /// The guest has had a packet, and looks for more.
    fn take(&mut self) {
        let Some(number) = self.guest.done() else { return };
        if let Some(packet) = self.queues[number].ring.pop_front() {
            self.out.had(packet.source, packet.message.bytes, self.now - packet.came);
            self.sources[packet.source].1.is_done(self.now, &mut self.random);
            self.moderators.answered(number, u32::from(packet.message.is_answered));
        }
        let bytes = |number: usize| self.queues[number].ring.front().map(|packet| packet.message.bytes);
        self.out.guest_ns += self.guest.goes_on(number, self.now, bytes);
    }
}

/// Calls the guest if it wants that. It takes what is there when the call has come.
fn call(guest: &mut Guest, number: usize, ring: &VecDeque<Packet>, now: u64, out: &mut Outcome) -> bool {
    let bytes = ring.front().map_or(0, |packet| packet.message.bytes);
    let cost = guest.call(number, now, bytes);
    out.calls += u64::from(cost.is_some());
    out.guest_ns += cost.unwrap_or(0);
    cost.is_some()
}
