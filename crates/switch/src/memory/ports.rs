//! Ports of a switch in memory.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};

use forebay_control::vlan::VlanMode;
use forebay_control::{IfIndex, PortCounters, PortId};
use forebay_policy::Turn;
use forebay_xsk::HeapSocket;

use super::MemorySwitch;
use crate::counters::{PortCells, RingGauge};
use crate::fdb::Flush;
use crate::flood::PortFlood;
use crate::output::Output;
use crate::pool_instance::Stock;
use crate::topology::PortEntry;
use crate::worker::{
    Command, Emptied, Feed, Member, MemoryOutput, MemoryReceiver, MemorySender, MemorySource, Outlet,
    QUANTUM_BYTES, ServedSource, Slot, Source, SuppliedBy, XskSource,
};

/// Interface index of a port's queue: its id and this.
pub(super) const FIRST_IFINDEX: u32 = 1000;
/// Frames that wait in a port's output.
const OUTPUT_FRAMES: usize = 4096;
/// Longest packet of a port, without the Ethernet header.
const MTU: u32 = 1500;

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

/// A port's ends outside of the workers.
pub(super) struct Port {
    pub(super) options: MemoryPort,
    pub(super) is_up: bool,
    pub(super) cells: Arc<PortCells>,
    pub(super) slot: Slot,
    pub(super) sender: Sender,
    pub(super) receiver: MemoryReceiver,
    /// What flows brought.
    pub(super) carried: VecDeque<Vec<u8>>,
}

pub(super) enum Sender {
    Ring(HeapSocket),
    Queue(MemorySender),
}

impl MemorySwitch {
    /// Adds a port; `None` when there are as many as may be.
    pub fn add_port(&mut self, options: MemoryPort) -> Option<PortId> {
        let ids = 0..self.options.max_ports;
        let id = ids.map(|offset| PortId((self.next_port + offset) % self.options.max_ports));
        let id = id.into_iter().find(|id| !self.ports.contains_key(id))?;
        self.next_port = (id.0 + 1) % self.options.max_ports;
        let cells = Arc::new(PortCells::new(self.options.workers));
        for seat in &self.seats {
            let (flood, moves) = (PortFlood::new(&self.shared.flood), self.shared.moves.bucket());
            let member = Member { cells: Arc::clone(&cells), flood, moves, tap: None, underway: None };
            seat.commander.send(Command::AddMember(id, Box::new(member)));
        }
        let (arena, pool) = (Arc::clone(&self.stock.arena), &self.stock.pool);
        let (output, receiver) = MemoryOutput::new(OUTPUT_FRAMES, arena, pool);
        self.levels.add(output.level());
        self.seats[options.owner].commander.send(Command::AddOutlet(id, Box::new(Outlet::Memory(output))));
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
                let source = XskSource { ring, socket: None, supply, has_origin: false, reads_headers: true };
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
}

impl Port {
    pub(super) fn entry(&self, id: PortId) -> PortEntry {
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
