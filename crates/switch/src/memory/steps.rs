//! The steps that threads and kernel take otherwise.

use std::sync::Arc;

use forebay_control::PortId;
use forebay_policy::Nanos;

use super::MemorySwitch;
use super::ports::Sender;
use crate::worker::{MemoryPacket, Untaken};

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

impl MemorySwitch {
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
                let packet = MemoryPacket {
                    bytes: Arc::clone(bytes),
                    facts: Default::default(),
                    undone: Default::default(),
                };
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

    /// The keeper installs what workers have proposed.
    pub fn keep(&mut self) {
        for seat in &mut self.seats {
            while let Ok(proposal) = seat.proposals.pop() {
                self.book.take(proposal, self.moment.now);
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
}
