//! A switch in this process's memory: whole workers, snapshots and flow keeper, without a kernel and without threads.
//!
//! [`MemorySwitch`] gives its caller the steps that threads and kernel take otherwise, one at a time and in any order: a
//! packet comes in, a worker has a turn, the keeper installs flows, a port changes, time passes. What runs in each step is
//! the product's own code. Only the kernel programs have a stand-in, [`programs`], which follows flows from the same table
//! by the same rules.
//!
//! ```text
//!   send ─► programs ─┬─ flow that holds ───────────────────────────────► receive
//!                     └─ else: ring or queue ─► turn (Worker) ─► output ─► receive
//!                                                  └─ offers ─► keep (FlowBook) ─► table ─► programs
//! ```
//!
//! The same steps with the same seed give the same result.

mod balance;
mod programs;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use arc_swap::ArcSwap;
use forebay_control::rule::{RuleAction, RuleAdd};
use forebay_control::vlan::VlanMode;
use forebay_control::{IfIndex, PortCounters, PortId};
use forebay_kernel::{FlowTable, Generations, StationMemory};
use forebay_policy::{Nanos, Refill, RefillRule, Turn};
use forebay_pool::{FrameSize, Pool};
use forebay_xsk::{HeapQueue, HeapSocket};
use rtrb::{Consumer, RingBuffer};

use crate::SwitchError;
use crate::attention::Attention;
use crate::counters::{PortCells, RingGauge, WorkerCell};
use crate::fdb::{Fdb, Flush, Limits};
use crate::flood::PortFlood;
use crate::flows::{FlowBook, FlowLimits};
use crate::generation::Stock;
use crate::output::Output;
use crate::publication::Publication;
use crate::rate::Rate;
use crate::rules::{ActiveRule, Doing, RuleCells, RuleSet};
use crate::shared::Shared;
use crate::topology::PortEntry;
use crate::worker::{
    Command, Commander, Emptied, Exchange, Feed, Member, MemoryOutput, MemoryPacket, MemoryReceiver,
    MemorySender, MemorySource, Moment, OFFERS, Offer, Offers, QUANTUM_BYTES, RulingCache, ServedSource,
    Slot, Source, SuppliedBy, Untaken, Worker, XskSource,
};

pub use balance::Balance;

/// Interface index of a port's queue: its id and this.
const FIRST_IFINDEX: u32 = 1000;
/// Frames that wait in a port's output.
const OUTPUT_FRAMES: usize = 4096;
/// Longest packet of a port, without the Ethernet header.
const MTU: u32 = 1500;

/// What a switch in memory is made of.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOptions {
    /// Workers, which the caller gives turns.
    pub workers: usize,
    /// Ports that there may be at once.
    pub max_ports: u16,
    /// Frames of the pool.
    pub frames: u32,
    /// Packets that wait in a port's ring or queue; a power of two.
    pub ring_entries: u32,
    /// Flows in the table.
    pub max_flows: u32,
    /// Stations that the forwarding table takes.
    pub max_stations: u32,
    /// Decides where stations and flows lie in their tables.
    pub seed: u64,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            workers: 2,
            max_ports: 16,
            frames: 2048,
            ring_entries: 256,
            max_flows: 4096,
            max_stations: 4096,
            seed: 1,
        }
    }
}

/// How packets of a port come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayIn {
    /// Through an AF_XDP ring on its worker's fill ring.
    Ring,
    /// Through a queue that the worker copies from.
    Queue,
}

/// A port to be.
#[derive(Clone, Debug)]
pub struct MemoryPort {
    /// Its VLANs.
    pub vlan: VlanMode,
    /// It reaches only ports that are not isolated.
    pub isolated: bool,
    /// How its packets come in.
    pub way_in: WayIn,
    /// The worker that serves what comes in.
    pub worker: usize,
    /// The worker that owns its output.
    pub owner: usize,
}

/// What became of a packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A flow carried it, or dropped it.
    Followed,
    /// It waits for a worker.
    Waits,
    /// There was no room, or no frame.
    Refused,
    /// There is no such port, or it is down.
    NoPort,
}

/// A port's ends outside of the workers.
struct Port {
    options: MemoryPort,
    is_up: bool,
    cells: Arc<PortCells>,
    slot: Slot,
    sender: Sender,
    receiver: MemoryReceiver,
    /// What flows brought.
    carried: VecDeque<Vec<u8>>,
}

enum Sender {
    Ring(HeapSocket),
    Queue(MemorySender),
}

/// A worker, and its ends outside.
struct Seat {
    worker: Worker,
    commander: Commander,
    queue: HeapQueue,
    offers: Consumer<Offer>,
    next_slot: u32,
    free_slots: Vec<Slot>,
}

/// See the module.
pub struct MemorySwitch {
    options: MemoryOptions,
    moment: Moment,
    shared: Arc<Shared>,
    stock: Stock,
    publication: Publication,
    book: FlowBook,
    seats: Vec<Seat>,
    ports: BTreeMap<PortId, Port>,
    next_port: u16,
    levels: balance::Levels,
}

impl MemorySwitch {
    /// A switch without ports. The kernel's part looks flows up and follows them.
    ///
    /// # Errors
    /// [`SwitchError`] for want of memory or descriptors.
    pub fn new(options: MemoryOptions) -> Result<Self, SwitchError> {
        let frames = NonZeroU32::new(options.frames).ok_or(SwitchError::Setting {
            what: "frames",
            value: 0,
            limit: "there must be at least one frame",
        })?;
        let stock = Stock::new(frames, FrameSize::B2048)?;
        let generations = Arc::new(Generations::detached(options.max_ports.into())?);
        let seed = [options.seed, options.seed ^ u64::MAX];
        let limits =
            Limits { total: options.max_stations, per_port: options.max_stations, ageing_s: u32::MAX };
        let stations = StationMemory::own(Fdb::buckets_for(limits))?;
        let shared = Arc::new(Shared {
            topology: Arc::new(ArcSwap::default()),
            layouts: Arc::default(),
            fdb: Fdb::new(stations, limits, seed).telling(Arc::clone(&generations)),
            generations: Arc::clone(&generations),
            flood: Rate::new(0, 0),
            moves: Rate::new(0, 0),
            workers: (0..options.workers).map(|_| WorkerCell::default()).collect(),
            attention: Attention::new()?,
            turns: Default::default(),
            max_ports: options.max_ports.into(),
            join_segments: false,
            linger_ns: 0,
            started: Instant::now(),
        });
        let table = FlowTable::detached(options.max_flows, options.seed)?;
        let flow_limits = FlowLimits {
            max_entries: options.max_flows.into(),
            idle: Nanos::from_secs(10),
            installs_per_second: 0,
        };
        let mut publication = Publication::new(Arc::clone(&shared));
        publication.set_carries_flows(true);
        publication.void_flows(true);
        let mut switch = Self {
            options,
            moment: Moment { now: Nanos::from_secs(1), ..Moment::default() },
            book: FlowBook::new(table, generations, flow_limits),
            seats: Vec::new(),
            ports: BTreeMap::new(),
            next_port: 0,
            levels: balance::Levels::default(),
            shared,
            stock,
            publication,
        };
        let exchanges = Exchange::connect(options.workers, &switch.stock.arena, &switch.stock.pool)?;
        for (index, exchange) in exchanges.into_iter().enumerate() {
            switch.levels.add(exchange.level());
            let seat = switch.seat(index, seed)?;
            seat.commander.send(Command::SetExchange(Box::new(exchange)));
            switch.seats.push(seat);
        }
        switch.publish();
        Ok(switch)
    }

    fn seat(&mut self, index: usize, seed: [u64; 2]) -> Result<Seat, SwitchError> {
        let (producer, offers) = RingBuffer::new(OFFERS);
        let offers_end = Offers::new(producer, Arc::new(Attention::new()?));
        let slots = 2 * (usize::from(self.options.max_ports) + 1);
        let cache = RulingCache::new(seed);
        let (worker, commander) =
            Worker::new(index, Arc::clone(&self.shared), slots, None, cache, offers_end)?;
        let entries = (self.options.frames / 2 / self.options.workers as u32).next_power_of_two();
        let arena = Arc::clone(&self.stock.arena);
        let (fill, queue) = HeapQueue::new(arena, entries, u32::MAX - 7);
        let refill = Refill::new(RefillRule::Static, entries / 2, entries / 2);
        let (supply, gauge) = self.stock.supply(fill, refill);
        self.levels.add(gauge.level());
        commander.send(Command::AddSupply(0, Box::new(supply)));
        Ok(Seat { worker, commander, queue, offers, next_slot: 0, free_slots: Vec::new() })
    }

    /// Adds a port; `None` when there are as many as may be.
    pub fn add_port(&mut self, options: MemoryPort) -> Option<PortId> {
        let ids = 0..self.options.max_ports;
        let id = ids.map(|offset| PortId((self.next_port + offset) % self.options.max_ports));
        let id = id.into_iter().find(|id| !self.ports.contains_key(id))?;
        self.next_port = (id.0 + 1) % self.options.max_ports;
        let cells = Arc::new(PortCells::new(self.options.workers));
        for seat in &self.seats {
            let (flood, moves) = (PortFlood::new(&self.shared.flood), self.shared.moves.bucket());
            let member = Member { cells: Arc::clone(&cells), flood, moves, tap: None };
            seat.commander.send(Command::AddMember(id, Box::new(member)));
        }
        let (arena, pool) = (Arc::clone(&self.stock.arena), &self.stock.pool);
        let (output, receiver) = MemoryOutput::new(OUTPUT_FRAMES, arena, pool);
        self.levels.add(output.level());
        self.seats[options.owner].commander.send(Command::AddOutlet(id, Box::new(output)));
        let (slot, sender) = self.open(id, &options);
        let carried = VecDeque::new();
        self.ports.insert(id, Port { options, is_up: true, cells, slot, sender, receiver, carried });
        self.publish();
        Some(id)
    }

    fn open(&mut self, id: PortId, options: &MemoryPort) -> (Slot, Sender) {
        let Stock { arena, pool } = self.stock.clone();
        let entries = self.options.ring_entries;
        let seat = &mut self.seats[options.worker];
        let (source, sender) = match options.way_in {
            WayIn::Ring => {
                let (ring, socket) = seat.queue.socket(entries, u32::MAX - 3);
                let supply = SuppliedBy::Collector(0);
                let source = XskSource { ring, socket: None, supply, is_marked: false, reads_headers: true };
                (Source::Xsk(source), Sender::Ring(socket))
            }
            WayIn::Queue => {
                let (source, sender) = MemorySource::new(entries as usize, arena, &pool);
                self.levels.add(source.level());
                (Source::Memory(source), Sender::Queue(sender))
            }
        };
        let slot = seat.free_slots.pop().unwrap_or_else(|| {
            seat.next_slot += 1;
            Slot(seat.next_slot - 1)
        });
        let served = ServedSource {
            feed: Feed::Port(id),
            source,
            gauge: Arc::new(RingGauge::default()),
            account: None,
            turn: Turn::new(QUANTUM_BYTES),
            is_calm: false,
        };
        seat.commander.send(Command::AddSource(slot, Box::new(served)));
        (slot, sender)
    }

    /// Removes a port, as the control side does: nobody sends to it any more, what waits is served, workers forget it.
    /// Returns what was counted for it.
    pub fn remove_port(&mut self, id: PortId) -> Option<PortCounters> {
        let port = self.ports.remove(&id)?;
        self.publish();
        let (done, emptied) = mpsc::channel::<Emptied>();
        let seat = &mut self.seats[port.options.worker];
        seat.commander.send(Command::Retire(port.slot, false, done));
        seat.free_slots.push(port.slot);
        let (forgotten, all_forgotten) = mpsc::channel();
        for seat in &self.seats {
            seat.commander.send(Command::RemoveMember(id, forgotten.clone()));
        }
        drop(forgotten);
        (0..self.seats.len()).for_each(|worker| self.obey(worker));
        debug_assert!(emptied.recv().is_ok(), "the worker has obeyed");
        debug_assert_eq!(all_forgotten.iter().count(), self.seats.len());
        let (removed, _) = mpsc::channel();
        self.seats[port.options.owner].commander.send(Command::RemoveOutlet(id, removed));
        self.obey(port.options.owner);
        self.book.leave(&[id], self.moment.now);
        self.shared.fdb.flush(Flush { port: Some(id.0), vid: None, with_static: true });
        let mut counters = port.cells.sum();
        counters += self.book.counters(id);
        self.book.retire(id);
        Some(counters)
    }

    /// Changes a port's settings. `false`: there is no such port.
    pub fn set_port(&mut self, id: PortId, vlan: VlanMode, isolated: bool, is_up: bool) -> bool {
        let Some(port) = self.ports.get_mut(&id) else { return false };
        if port.options.vlan != vlan {
            self.shared.fdb.flush(Flush { port: Some(id.0), vid: None, with_static: false });
        }
        port.options.vlan = vlan;
        port.options.isolated = isolated;
        port.is_up = is_up;
        self.publish();
        true
    }

    /// Puts these rules in force, first ones first. Ports are named by their ids.
    ///
    /// # Panics
    /// When a rule names a port in another way.
    pub fn set_rules(&mut self, rules: &[RuleAdd]) {
        let id = |name: &str| PortId(name.parse().expect("rules in memory name ports by their ids"));
        let active = rules.iter().zip(1u64..).map(|(rule, number)| {
            let doing = match &rule.action {
                RuleAction::Drop => Doing::Drop,
                RuleAction::Normal => Doing::Normal,
                RuleAction::Mark(mark) => Doing::Mark(*mark),
                RuleAction::Mirror(port) => Doing::Mirror(id(port)),
                RuleAction::Output(ports) => Doing::Output(ports.iter().map(|port| id(port)).collect()),
            };
            let cells = Arc::new(RuleCells::new(self.options.workers));
            let matching = rule.matching(rule.in_port.as_deref().map(|port| id(port).0.into()));
            (rule.priority.into(), matching, ActiveRule { id: number, doing, cells })
        });
        let set = Arc::new(RuleSet::new(active).expect("few classes"));
        self.publication.suspend_flows();
        let last_mark = self.book.last_mark();
        self.publication.set_rules(set, last_mark, true);
        self.publish();
    }

    /// Forgets all stations that were learned.
    pub fn flush_stations(&mut self) {
        self.shared.fdb.flush(Flush::default());
    }

    /// Has the kernel's part follow flows, or not.
    pub fn set_offload(&mut self, carries: bool) {
        self.publication.set_carries_flows(carries);
        self.publication.void_flows(carries);
        self.publish();
        self.book.flush();
    }

    fn publish(&mut self) {
        let ports = self.ports.iter().map(|(id, port)| port.entry(*id));
        self.publication.publish(ports);
    }

    /// A packet comes in at a port: a flow carries it, or it waits for the port's worker.
    pub fn send(&mut self, id: PortId, bytes: &Arc<[u8]>) -> Sent {
        if !self.ports.get(&id).is_some_and(|port| port.is_up) {
            return Sent::NoPort;
        }
        if self.follow(id, bytes) {
            return Sent::Followed;
        }
        let port = self.ports.get_mut(&id).expect("it was there");
        let seat = &mut self.seats[port.options.worker];
        let refused = match &mut port.sender {
            Sender::Ring(socket) => seat.queue.deliver(socket, &[], bytes).is_err(),
            Sender::Queue(sender) => {
                let packet = MemoryPacket { bytes: Arc::clone(bytes), facts: Default::default() };
                matches!(sender.send(packet), Err(Untaken::Full | Untaken::TooLong))
            }
        };
        if refused {
            return Sent::Refused;
        }
        seat.worker.wake(port.slot);
        Sent::Waits
    }

    /// A broken kernel hands over a descriptor that names no frame.
    pub fn send_rubbish(&mut self, id: PortId, address: u64) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        if let Sender::Ring(socket) = &mut port.sender {
            let seat = &mut self.seats[port.options.worker];
            let beyond = self.stock.arena.len_bytes() as u64;
            let _ = seat.queue.deliver_rubbish(socket, beyond.saturating_add(address), 60);
            seat.worker.wake(port.slot);
        }
    }

    /// Gives a worker a turn, if there is something to do; says how many packets it served or passed on.
    pub fn turn(&mut self, worker: usize) -> usize {
        self.seats[worker].worker.step(self.moment)
    }

    /// Has a worker carry out what was asked of it.
    pub fn obey(&mut self, worker: usize) {
        self.seats[worker].worker.obey(self.moment);
    }

    /// The keeper installs what workers have offered.
    pub fn keep(&mut self) {
        for seat in &mut self.seats {
            while let Ok(offer) = seat.offers.pop() {
                self.book.take(offer, self.moment.now);
            }
        }
    }

    /// The keeper looks at all flows, as it does each second, and reclaims places. No program runs meanwhile.
    pub fn sweep(&mut self) {
        self.book.sweep(&self.shared.fdb, self.moment.now);
        let left = self.book.take_left();
        self.book.reclaim(&left, self.moment.now);
    }

    /// Time passes.
    pub fn advance(&mut self, by: Nanos) {
        self.moment.now.0 += by.0;
    }

    /// The next packet that left at a port.
    pub fn receive(&mut self, id: PortId) -> Option<Vec<u8>> {
        let port = self.ports.get_mut(&id)?;
        port.carried.pop_front().or_else(|| port.receiver.receive().map(|received| received.bytes))
    }

    /// Gives turns until no worker has anything to do; `false`: they had not finished after `most` rounds.
    pub fn settle(&mut self, most: usize) -> bool {
        (0..most).any(|_| {
            let turns: usize = (0..self.seats.len()).map(|worker| self.turn(worker)).sum();
            turns == 0 && self.seats.iter().all(|seat| seat.worker.is_idle())
        })
    }

    /// What was counted for a port.
    pub fn counters(&mut self, id: PortId) -> Option<PortCounters> {
        self.book.settle_all(self.moment.now);
        let mut counters = self.ports.get(&id)?.cells.sum();
        counters += self.book.counters(id);
        Some(counters)
    }

    /// Flows in the table.
    pub fn flows(&self) -> u64 {
        self.book.len()
    }

    /// The pool, for who counts its frames.
    fn pool(&self) -> &Pool {
        &self.stock.pool
    }
}

impl Port {
    fn entry(&self, id: PortId) -> PortEntry {
        let ifindex = IfIndex(FIRST_IFINDEX + u32::from(id.0));
        PortEntry {
            output: self.is_up.then_some(Output::Memory { owner: self.options.owner, ifindex }),
            isolated: self.options.isolated,
            mtu: MTU,
            takes_frames: true,
            ..PortEntry::new(id, self.options.vlan.clone(), Arc::clone(&self.cells))
        }
    }
}
