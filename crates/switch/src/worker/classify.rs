//! Second verb: what each packet is, and which VLAN it is in.

use forebay_control::DropReason;
use forebay_pool::{Arena, MAX_SEGMENTS_PER_PACKET, Segment};
use forebay_wire::{Completion, Tag};

use super::{Channel, Tally, Worker};
use crate::topology::{PortEntry, Topology};

/// What the later verbs need of a packet, or why it goes no further.
pub(super) type Classified = Result<Headers, DropReason>;

/// Addresses and VLAN of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    pub(super) dst: u64,
    pub(super) src: u64,
    pub(super) vid: u16,
    pub(super) tag: Option<Tag>,
}

impl Worker {
    /// Reads the headers of the whole burst; completes L4 checksums where the port may have left them unfinished.
    pub(super) fn classify(&mut self, topology: &Topology, channel: &Channel, tally: &mut Tally) {
        self.classified.clear();
        let port = topology.port(channel.port);
        for index in 0..self.burst.len() {
            let classified = match port {
                Some(port) => headers(&self.shared.arena, self.burst.packet(index), port),
                None => Err(DropReason::PortDown),
            };
            self.classified.push(classified);
        }
        if port.is_some_and(|port| port.completes_checksums) {
            self.complete_checksums(tally);
        }
    }

    fn complete_checksums(&mut self, tally: &mut Tally) {
        for index in 0..self.burst.len() {
            if self.classified[index].is_ok() {
                let done = complete_checksum(&self.shared.arena, self.burst.packet_mut(index));
                tally.completed_checksums += u64::from(matches!(done, Completion::Completed(_)));
            }
        }
    }
}

#[inline]
fn headers(arena: &Arena, packet: &[Segment], port: &PortEntry) -> Classified {
    let first = &packet[0];
    let bytes = arena.bytes(&first.frame, first.offset, first.len);
    let frame = forebay_wire::frame(bytes).map_err(|_| DropReason::BadFrame)?;
    let vid = port.vlans.ingress(frame.tag).ok_or(DropReason::VlanNotAllowed)?;
    Ok(Headers { dst: frame.dst, src: frame.src, vid, tag: frame.tag })
}

fn complete_checksum(arena: &Arena, packet: &mut [Segment]) -> Completion {
    let mut fragments: [&mut [u8]; MAX_SEGMENTS_PER_PACKET] = std::array::from_fn(|_| &mut [][..]);
    let used = packet.len().min(MAX_SEGMENTS_PER_PACKET);
    for (fragment, segment) in fragments.iter_mut().zip(packet) {
        *fragment = arena.bytes_mut(&mut segment.frame, segment.offset, segment.len);
    }
    forebay_wire::complete_checksum(&mut fragments[..used])
}
