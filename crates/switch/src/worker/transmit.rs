//! Fourth verb: send each packet to where it was decided to go, many a system call.

use forebay_control::{DropReason, PortId};
use forebay_pool::PacketSegments;
use forebay_xsk::{Outcome, TxBatch, TxError};

use super::classify::Headers;
use super::decide::Verdict;
use super::{Channel, Worker};
use crate::counters::PortCell;
use crate::topology::{PortEntry, Topology};

impl Worker {
    /// Sends the burst. A flooded packet is one frame, however many ports it goes to.
    pub(super) fn transmit(&mut self, topology: &Topology, channel: &Channel) {
        let mut out = Out {
            batch: self.transmitter.batch(&self.shared.arena),
            topology,
            worker: self.index,
            copies: 0,
        };
        for (index, verdict) in self.verdicts.iter().enumerate() {
            let Ok(headers) = self.classified[index] else { continue };
            let packet = self.burst.packet(index);
            match *verdict {
                Verdict::Forward(port) => out.send_to(port, packet, headers),
                Verdict::Flood => out.flood(channel.port, packet, headers),
                Verdict::Drop(_) => {}
            }
        }
        out.flush();
        let copies = out.copies;
        self.shared.worker_cell(self.index).copies.add(copies);
    }
}

/// Packets on their way out, and who counts them.
struct Out<'a> {
    batch: TxBatch<'a>,
    topology: &'a Topology,
    worker: usize,
    copies: u64,
}

impl<'a> Out<'a> {
    fn flood(&mut self, input: PortId, packet: PacketSegments<'a>, headers: Headers) {
        let topology = self.topology;
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
        let cell = port.cells.of(self.worker);
        cell.tx_offered.add(1);
        self.copies += 1;
        let Some(ifindex) = port.ifindex else {
            cell.drop(DropReason::TxPortDown, 1);
            return;
        };
        if self.batch.is_full() {
            self.flush();
        }
        self.batch.push(packet, port.vlans.egress(headers.vid, headers.tag), ifindex, u32::from(port.id.0));
    }

    fn flush(&mut self) {
        let (topology, worker) = (self.topology, self.worker);
        self.batch.flush(|outcome| {
            if let Some(port) = topology.port(PortId(outcome.token as u16)) {
                count(port.cells.of(worker), outcome);
            }
        });
    }
}

fn count(cell: &PortCell, outcome: Outcome) {
    match outcome.result {
        Ok(()) => {
            cell.tx_packets.add(1);
            cell.tx_bytes.add(u64::from(outcome.len_bytes));
        }
        Err(TxError::Full) => cell.drop(DropReason::TxFull, 1),
        Err(TxError::TooBig) => cell.drop(DropReason::TxTooBig, 1),
        Err(TxError::PortDown) => cell.drop(DropReason::TxPortDown, 1),
        Err(TxError::Other) => cell.drop(DropReason::TxError, 1),
    }
}
