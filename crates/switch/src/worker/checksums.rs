//! Between the third verb and the fourth: L4 checksums that senders left to their device are completed in packets that
//! leave, where a port may have let such packets in.

use std::ops::Range;

use arrayvec::ArrayVec;
use forebay_pool::{Arena, MAX_SEGMENTS_PER_PACKET, Segment};
use forebay_wire::Completion;

use super::stretch::Stretch;
use super::{TURN, Worker};
use crate::topology::{PortEntry, Topology};

/// Packets of a burst, a bit each.
type Packets = u128;

const _: () = assert!(TURN <= Packets::BITS as usize);

impl Worker {
    pub(super) fn complete_checksums(&mut self, arena: &Arena, topology: &Topology) {
        let leaving = self.leaving();
        for index in 0..self.stretches.len() {
            let Stretch { port, packets, .. } = self.stretches[index].clone();
            let port = port.and_then(|id| topology.port(id));
            if let Some(port) = port.filter(|port| port.completes_checksums) {
                self.complete_those_of(arena, port, packets, leaving);
            }
        }
    }

    /// Those that go anywhere.
    fn leaving(&self) -> Packets {
        let records = self.records[..self.burst.len()].iter().enumerate();
        let leaving = records.filter(|(_, record)| record.verdict.leaves());
        let extras = self.extras.iter().map(|(index, _)| *index);
        leaving.map(|(index, _)| index).chain(extras).fold(0, |leaving, index| leaving | 1 << index)
    }

    fn complete_those_of(
        &mut self,
        arena: &Arena,
        port: &PortEntry,
        packets: Range<usize>,
        leaving: Packets,
    ) {
        let mut completed = 0;
        for index in packets.filter(|index| leaving >> index & 1 == 1) {
            let done = complete_checksum(arena, self.burst.packet_mut(index));
            completed += u64::from(matches!(done, Completion::Completed(_)));
        }
        port.cells.of(self.index).completed_checksums.add(completed);
    }
}

fn complete_checksum(arena: &Arena, packet: &mut [Segment]) -> Completion {
    if let [only] = packet {
        return forebay_wire::complete_checksum(&mut [arena.bytes_mut(
            &mut only.frame,
            only.offset,
            only.len,
        )]);
    }
    let mut fragments: ArrayVec<&mut [u8], MAX_SEGMENTS_PER_PACKET> = packet
        .iter_mut()
        .map(|segment| arena.bytes_mut(&mut segment.frame, segment.offset, segment.len))
        .collect();
    forebay_wire::complete_checksum(&mut fragments)
}
