//! Second verb: what each packet is, and which VLAN it is in.

use std::ops::Range;

use forebay_control::{DropReason, PortId};
use forebay_pool::{Arena, MAX_SEGMENTS_PER_PACKET, Segment};
use forebay_wire::{Completion, Tag};

use super::Worker;
use super::receive::Stretch;
use crate::topology::{PortEntry, Topology};

/// What the later verbs need of a packet, or why it goes no further.
pub(super) type Classified = Result<Headers, DropReason>;

/// Addresses and VLAN of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    pub(super) input: PortId,
    pub(super) dst: u64,
    pub(super) src: u64,
    pub(super) vid: u16,
    pub(super) tag: Option<Tag>,
}

impl Worker {
    /// Reads the headers of the whole burst; completes L4 checksums where a port may have left them unfinished.
    pub(super) fn classify(&mut self, arena: &Arena, topology: &Topology) {
        self.classified.clear();
        for index in 0..self.stretches.len() {
            let Stretch { port, packets } = self.stretches[index].clone();
            let port = port.and_then(|id| topology.port(id));
            for index in packets.clone() {
                let classified = match port {
                    Some(port) => headers(arena, self.burst.packet(index), port),
                    None => Err(DropReason::PortDown),
                };
                self.classified.push(classified);
            }
            if let Some(port) = port.filter(|port| port.completes_checksums) {
                self.complete_checksums(arena, port, packets);
            }
        }
    }

    fn complete_checksums(&mut self, arena: &Arena, port: &PortEntry, packets: Range<usize>) {
        let mut completed = 0;
        for index in packets {
            if self.classified[index].is_ok() {
                let done = complete_checksum(arena, self.burst.packet_mut(index));
                completed += u64::from(matches!(done, Completion::Completed(_)));
            }
        }
        port.cells.of(self.index).completed_checksums.add(completed);
    }
}

#[inline]
fn headers(arena: &Arena, packet: &[Segment], port: &PortEntry) -> Classified {
    let first = &packet[0];
    let bytes = arena.bytes(&first.frame, first.offset, first.len);
    let frame = forebay_wire::frame(bytes).map_err(|_| DropReason::BadFrame)?;
    let vid = port.vlans.ingress(frame.tag).ok_or(DropReason::VlanNotAllowed)?;
    Ok(Headers { input: port.id, dst: frame.dst, src: frame.src, vid, tag: frame.tag })
}

fn complete_checksum(arena: &Arena, packet: &mut [Segment]) -> Completion {
    let mut fragments: [&mut [u8]; MAX_SEGMENTS_PER_PACKET] = std::array::from_fn(|_| &mut [][..]);
    let used = packet.len().min(MAX_SEGMENTS_PER_PACKET);
    for (fragment, segment) in fragments.iter_mut().zip(packet) {
        *fragment = arena.bytes_mut(&mut segment.frame, segment.offset, segment.len);
    }
    forebay_wire::complete_checksum(&mut fragments[..used])
}
