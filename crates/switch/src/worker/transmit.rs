//! Fourth verb: send each packet to where it was decided to go, many a system call.

use forebay_control::{DropReason, PortId};
use forebay_pool::{Arena, Burst, PacketSegments};
use forebay_xsk::{Destination, Outcome, TxBatch, TxError};

use super::Worker;
use super::classify::Headers;
use super::decide::Verdict;
use super::join::{self, JointRun};
use crate::counters::PortCell;
use crate::topology::{PortEntry, Topology};

impl Worker {
    /// Sends the burst. A flooded packet is one frame, however many ports it goes to.
    pub(super) fn transmit(&mut self, arena: &Arena, topology: &Topology) {
        self.join(arena, topology);
        let mut out = Out {
            batch: self.transmitter.batch(arena, !self.runs.is_empty()),
            arena,
            topology,
            worker: self.index,
            copies: 0,
            departed: 0,
        };
        let mut runs = self.runs.iter().peekable();
        let mut index = 0;
        while index < self.burst.len() {
            let joint = runs.next_if(|joint| joint.first == index);
            if let Ok(headers) = self.classified[index] {
                match (self.verdicts[index], joint) {
                    (Verdict::Forward(port), Some(joint)) => {
                        out.send_joint(port, &self.burst, joint, headers)
                    }
                    (Verdict::Forward(port), None) => out.send_to(port, self.burst.packet(index), headers),
                    (Verdict::Flood, _) => out.flood(self.burst.packet(index), headers),
                    (Verdict::Drop(_) | Verdict::Refused(..), _) => {}
                }
            }
            index += joint.map_or(1, |joint| joint.run.segments() as usize);
        }
        for (index, port) in &self.extras {
            if let Ok(headers) = self.classified[*index] {
                out.send_to(*port, self.burst.packet(*index), headers);
            }
        }
        out.flush();
        let (copies, departed) = (out.copies, out.departed);
        let cell = self.shared.worker_cell(self.index);
        cell.copies.add(copies);
        cell.departed.add(departed);
    }
}

/// Packets on their way out, and who counts them.
struct Out<'a> {
    batch: TxBatch<'a>,
    arena: &'a Arena,
    topology: &'a Topology,
    worker: usize,
    copies: u64,
    departed: u64,
}

impl<'a> Out<'a> {
    fn flood(&mut self, packet: PacketSegments<'a>, headers: Headers) {
        let topology = self.topology;
        let input = headers.input;
        let input_is_isolated = topology.port(input).is_some_and(|port| port.isolated);
        for port in topology.members(headers.vid).iter().filter_map(|id| topology.port(*id)) {
            if port.id != input && !(port.isolated && input_is_isolated) {
                self.send(port, packet, headers);
            }
        }
    }

    fn send_to(&mut self, port: PortId, packet: PacketSegments<'a>, headers: Headers) {
        if let Some(port) = self.topology.port(port) {
            self.send(port, packet, headers);
        }
    }

    fn send(&mut self, port: &PortEntry, packet: PacketSegments<'a>, headers: Headers) {
        if let Some(to) = self.offer(port, 1, headers.mark) {
            self.batch.push(packet, headers.egress(&port.vlans), to);
        }
    }

    fn send_joint(&mut self, port: PortId, burst: &'a Burst, joint: &JointRun, headers: Headers) {
        let Some(port) = self.topology.port(port) else { return };
        let packets = joint.run.segments();
        if let Some(to) = self.offer(port, packets, headers.mark) {
            join::push(&mut self.batch, self.arena, burst, joint, headers.egress(&port.vlans), to);
        }
    }

    /// Makes room for one more message to `port`, if there is a netdev to send it to.
    fn offer(&mut self, port: &PortEntry, packets: u32, mark: u32) -> Option<Destination> {
        let cell = port.cells.of(self.worker);
        cell.tx_offered.add(u64::from(packets));
        self.copies += u64::from(packets);
        if port.ifindex.is_none() {
            cell.drop(DropReason::TxPortDown, u64::from(packets));
        } else if self.batch.is_full() {
            self.flush();
        }
        port.ifindex.map(|ifindex| Destination { ifindex, mark, token: token(port, packets) })
    }

    fn flush(&mut self) {
        let (topology, worker) = (self.topology, self.worker);
        let departed = self.batch.flush(|outcome| {
            let (port, packets) = (outcome.token as u16, outcome.token >> 16);
            if let Some(port) = topology.port(PortId(port)) {
                count(port.cells.of(worker), outcome, u64::from(packets));
            }
        });
        self.departed += u64::from(departed);
    }
}

/// Output port and number of packets of one message.
fn token(port: &PortEntry, packets: u32) -> u32 {
    packets << 16 | u32::from(port.id.0)
}

fn count(cell: &PortCell, outcome: Outcome, packets: u64) {
    match outcome.result {
        Ok(()) => {
            cell.tx_packets.add(packets);
            cell.tx_bytes.add(u64::from(outcome.len_bytes));
        }
        Err(TxError::Full) => cell.drop(DropReason::TxFull, packets),
        Err(TxError::TooBig) => cell.drop(DropReason::TxTooBig, packets),
        Err(TxError::PortDown) => cell.drop(DropReason::TxPortDown, packets),
        Err(TxError::Other) => cell.drop(DropReason::TxError, packets),
    }
}
