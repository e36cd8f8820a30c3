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
//!                                                  └─ proposals ─► keep (FlowBook) ─► table ─► programs
//! ```
//!
//! The same steps with the same seed give the same result.

mod balance;
mod ports;
mod programs;
mod rules;
mod steps;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use forebay_control::{PortCounters, PortId};
use forebay_kernel::{FlowTable, Generations, StationMemory, SteeredStations};
use forebay_policy::{Nanos, Refill, RefillRule};
use forebay_pool::{FrameSize, Pool};
use forebay_xsk::HeapQueue;
use rtrb::{Consumer, RingBuffer};

use crate::SwitchError;
use crate::attention::Attention;
use crate::counters::WorkerCell;
use crate::fdb::{Fdb, Flush, Limits};
use crate::flows::{FlowBook, FlowLimits};
use crate::news::News;
use crate::pool_instance::Stock;
use crate::publication::Publication;
use crate::rate::Rate;
use crate::shared::Shared;
use crate::worker::{
    Command, Commander, Exchange, Moment, PROPOSALS, Proposal, Proposals, RulingCache, Slot, Worker,
};

pub use balance::Balance;
pub use ports::{MemoryPort, WayIn};
pub use steps::Sent;

use ports::Port;

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

/// A worker, and its ends outside.
struct Seat {
    worker: Worker,
    commander: Commander,
    queue: HeapQueue,
    proposals: Consumer<Proposal>,
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
            steered: SteeredStations::detached()?,
            flood: Rate::new(0, 0),
            moves: Rate::new(0, 0),
            workers: (0..options.workers).map(|_| WorkerCell::default()).collect(),
            worker_nodes: vec![None; options.workers].into_boxed_slice(),
            news: News::of_workers(options.workers, 0),
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
        let ports = options.max_ports.into();
        let exchanges = Exchange::connect(options.workers, ports, &switch.stock.arena, &switch.stock.pool)?;
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
        let (producer, proposals) = RingBuffer::new(PROPOSALS);
        let offers_end = Proposals::new(producer, Arc::new(Attention::new()?));
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
        Ok(Seat { worker, commander, queue, proposals, next_slot: 0, free_slots: Vec::new() })
    }

    /// One of its workers, without the others.
    #[cfg(test)]
    pub(crate) fn into_worker(mut self, index: usize) -> Worker {
        self.seats.swap_remove(index).worker
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
        self.publication.publish(ports, || self.book.last_flow_id());
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

#[cfg(test)]
mod tests {
    use forebay_control::vlan::VlanMode;
    use forebay_kernel::FlowCount;

    use super::*;

    #[test]
    fn what_a_flow_carries_before_it_is_in_the_book_is_counted() {
        let mut switch = MemorySwitch::new(MemoryOptions::default()).expect("there is memory");
        let [here, there] = [0, 0].map(|worker| {
            let (vlan, isolated, way_in, owner) = (VlanMode::All, false, WayIn::Queue, 0);
            switch.add_port(MemoryPort { vlan, isolated, way_in, worker, owner }).expect("room for a port")
        });
        let packet = |from, to| -> Arc<[u8]> {
            [&[2, 0, 0, 0, 0, to][..], &[2, 0, 0, 0, 0, from], &[7; 48]].concat().into()
        };
        let carry = |switch: &mut MemorySwitch, from: u8, to: u8, port| {
            assert_ne!(switch.send(port, &packet(from, to)), Sent::NoPort);
            assert!(switch.settle(100));
            switch.keep();
        };
        carry(&mut switch, 2, 1, there);
        carry(&mut switch, 1, 2, here);
        let [number] = switch.book.numbers()[..] else { panic!("not one flow: {}", switch.flows()) };
        switch.book.flush();
        switch.sweep();
        let early = FlowCount { packets: 3, bytes: 300 };
        switch.book.table().carry(number, early);
        // Until then the worker does not propose it again.
        switch.advance(Nanos::from_secs(2));
        carry(&mut switch, 1, 2, here);
        assert_eq!(switch.book.numbers(), [number], "it has the same place again");
        let counters = switch.counters(here).expect("the port is there");
        assert_eq!((counters.rx_packets, counters.rx_bytes), (2 + early.packets, 2 * 60 + early.bytes));
    }
}
