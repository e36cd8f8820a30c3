//! Fourth verb: send each packet to where it was decided to go, many a system call.

use forebay_control::PortId;
use forebay_policy::Nanos;
use forebay_pool::Arena;
use forebay_vhost::LentBytes;
use forebay_wire::net_header::NetHeader;

use super::Worker;
use super::dispatch::{Dispatch, Packet, count_sent, show_owed};
use super::parcel::{Leaving, Sent, Undeliverable};
use super::record::Record;
use super::source::underway_of;
use super::verdict::Verdict;
use crate::topology::Topology;

impl Worker {
    /// Sends the burst. A flooded packet is one frame, however many ports it goes to.
    pub(super) fn transmit(&mut self, arena: &Arena, topology: &Topology, now: Nanos) {
        self.join(arena, topology);
        let with_joints = !self.runs.is_empty() || self.has_undone;
        let (lent_of, room) = self.loans.split();
        let mut dispatch = Dispatch {
            batch: self.transmitter.as_mut().map(|transmitter| transmitter.batch(arena, with_joints)),
            exchange: self.exchange.as_mut(),
            members: &self.members,
            outlets: &mut self.outlets,
            owing: &mut self.owing,
            moderation: &mut self.moderation,
            now,
            room,
            arena,
            topology,
            worker: self.index,
            copies: 0,
            departed: 0,
        };
        let (burst, records, undone) = (&self.burst, &self.records, &self.undone);
        let packet = |index: usize| Packet {
            segments: burst.packet(index),
            lent: if records[index].facts.is_lent { lent_of(index) } else { LentBytes::default() },
            undone: if records[index].facts.is_undone { undone[index] } else { NetHeader::default() },
        };
        let mut runs = self.runs.iter().peekable();
        let mut index = 0;
        while index < self.burst.len() {
            let joint = runs.next_if(|joint| joint.first == index);
            if let Ok(headers) = self.records[index].classified {
                match (self.records[index].verdict, joint) {
                    (Verdict::Forward(port), Some(joint)) => {
                        dispatch.send_joint(port, &self.burst, joint, headers)
                    }
                    (Verdict::Forward(port), None) => {
                        let end = runs.peek().map_or(burst.len(), |run| run.first);
                        index += dispatch
                            .send_alike(port, headers, index, &packet, || alike(&records[index..end]));
                        continue;
                    }
                    (Verdict::Flood, _) => dispatch.flood(packet(index), headers),
                    (Verdict::Drop(_) | Verdict::Refused(..), _) => {}
                }
            }
            index += joint.map_or(1, |joint| joint.run.segments() as usize);
        }
        for (index, port) in &self.extras {
            if let Ok(headers) = self.records[*index].classified {
                dispatch.send_to(*port, packet(*index), headers);
            }
        }
        dispatch.flush();
        let (copies, departed) = (dispatch.copies, dispatch.departed);
        let cell = self.shared.worker_cell(self.index);
        cell.copies.add(copies);
        cell.departed.add(departed);
    }

    /// Queues packets that other workers handed over for this worker's outputs, at most `most`. Says how many it took.
    pub(super) fn deliver_handed(&mut self, now: Nanos, most: usize) -> usize {
        let Some(exchange) = &mut self.exchange else { return 0 };
        exchange.hear();
        let topology = self.topology.load();
        let mut passed = 0;
        while passed < most && exchange.take(&mut self.handed) {
            passed += 1;
            let Leaving { port, packets, .. } = self.handed[0].leaving;
            let sent = match &mut self.outlets[usize::from(port.0)] {
                Some(outlet) => {
                    let was_owed = outlet.is_owed();
                    let sent = outlet.pass(&mut self.handed, exchange);
                    if !was_owed && outlet.is_owed() {
                        self.owing.push(port);
                    }
                    sent
                }
                None => {
                    exchange.free(&mut self.handed);
                    Sent::whole(Err(Undeliverable::Down), packets, 0)
                }
            };
            if let Some(port) = topology.port(port) {
                let cell = port.cells.of(self.index);
                // The other worker has counted the packet as it handed it over, and not its parts.
                let more = u64::from(sent.copies().saturating_sub(packets));
                cell.tx_copies.add(more);
                self.shared.worker_cell(self.index).copies.add(more);
                count_sent(cell, sent);
            }
        }
        show_owed(&mut self.outlets, &mut self.owing, (&mut self.moderation, now));
        passed
    }

    /// Sets the accounts right of ports whose packets were handed over.
    pub(super) fn settle_underway(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        exchange.look_at_owing(|port, held| {
            if let Some(underway) = underway_of(&self.members, port) {
                underway.settle(held);
            }
        });
    }

    /// The port takes no more. What of it is on its way counts in nobody's account.
    pub(super) fn forget_underway(&self, port: PortId) {
        if let Some(underway) = underway_of(&self.members, port) {
            underway.settle(0);
        }
    }
}

/// How many packets, from the first on, have the same headers and go the same way.
fn alike(records: &[Record]) -> usize {
    let Some((first, others)) = records.split_first() else { return 0 };
    let Ok(headers) = &first.classified else { return 1 };
    let is_like = |other: &&Record| {
        other.verdict == first.verdict && other.classified.as_ref().is_ok_and(|others| others == headers)
    };
    1 + others.iter().take_while(is_like).count()
}
