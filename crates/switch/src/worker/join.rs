//! Segments of one TCP flow that leave through the same port one after the other go to the kernel as one packet.
//!
//! The kernel cut them apart on the way in; a receiver on this machine takes them whole again, which saves it and us
//! most of the work for bulk traffic. Only packets whose checksum is right are joined: a joint packet gets a fresh one.

use std::ops::Range;

use arrayvec::ArrayVec;
use forebay_pool::{Arena, Burst, MAX_SEGMENTS_PER_PACKET, PacketSegments, Segment};
use forebay_wire::run::{MAX_HEADER_BYTES, Run};
use forebay_wire::{Verdict as Checked, verify_l4};
use forebay_xsk::{Joint, TagEdit, TxBatch};

use super::Worker;
use super::record::Record;
use super::verdict::Verdict;
use crate::topology::Topology;

/// Packets shorter than this are not worth a look at their TCP header.
const SHORTEST: u32 = 512;
/// A header and the payloads of a run ([`TxBatch::fits`]).
const MAX_PIECES: usize = 64;
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// An Ethernet header without tag: what an MTU does not count.
const ETHERNET: u32 = 14;

/// Packets of a burst that leave as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct JointRun {
    pub(super) first: usize,
    pub(super) run: Run,
}

impl Worker {
    /// Finds the runs of the burst, in order.
    pub(super) fn join(&mut self, arena: &Arena, topology: &Topology) {
        self.runs.clear();
        if !topology.takes_joints() {
            return;
        }
        let mut index = 0;
        while index + 1 < self.burst.len() {
            let found = run_from(index, arena, &self.burst, &self.records, topology);
            index += found.map_or(1, |found| found.run.segments() as usize);
            self.runs.extend(found);
        }
    }
}

fn run_from(
    first: usize,
    arena: &Arena,
    burst: &Burst,
    records: &[Record],
    topology: &Topology,
) -> Option<JointRun> {
    let Verdict::Forward(port) = records[first].verdict else { return None };
    if records[first].facts.is_undone {
        return None;
    }
    let len_bytes = burst.len_bytes(first);
    let port = topology.port(port)?;
    if len_bytes < SHORTEST || !port.takes_joints || len_bytes > port.mtu + ETHERNET {
        return None;
    }
    let leaves_alike = |index: usize| {
        let record = &records[index];
        record.verdict == records[first].verdict
            && !record.facts.is_undone
            && same_way_in(&records[first], record)
    };
    if !leaves_alike(first + 1) {
        return None;
    }
    let head = first_bytes(arena, burst.packet(first));
    let mut run = Run::start(head, len_bytes)?;
    let mut frames = burst.packet(first).len();
    for index in first + 1..burst.len() {
        let packet = burst.packet(index);
        frames += packet.len();
        let mut longer = run;
        let goes_on = TxBatch::fits(frames)
            && leaves_alike(index)
            && longer.take(head, first_bytes(arena, packet), burst.len_bytes(index))
            && (run.segments() > 1 || is_right(arena, burst.packet(first)))
            && is_right(arena, packet);
        if !goes_on {
            break;
        }
        run = longer;
    }
    (run.segments() > 1).then_some(JointRun { first, run })
}

fn same_way_in(first: &Record, other: &Record) -> bool {
    match (&first.classified, &other.classified) {
        (Ok(a), Ok(b)) => {
            let vlans_are = a.vid == b.vid && a.tag == b.tag && a.tag_is_out == b.tag_is_out;
            vlans_are && a.input == b.input && a.mark == b.mark
        }
        _ => false,
    }
}

fn first_bytes<'a>(arena: &'a Arena, packet: &'a [Segment]) -> &'a [u8] {
    arena.bytes(&packet[0].frame, packet[0].offset, packet[0].len)
}

fn is_right(arena: &Arena, packet: &[Segment]) -> bool {
    let fragments: ArrayVec<&[u8], MAX_SEGMENTS_PER_PACKET> =
        packet.iter().map(|segment| arena.bytes(&segment.frame, segment.offset, segment.len)).collect();
    verify_l4(&fragments) == Checked::Good
}

/// Where the header of a joint packet is written.
pub(super) struct Room([u8; TAG + MAX_HEADER_BYTES]);

impl Default for Room {
    fn default() -> Self {
        Self([0; TAG + MAX_HEADER_BYTES])
    }
}

impl JointRun {
    /// The joint packet as it leaves, without its payload.
    pub(super) fn describe<'r>(
        &self,
        arena: &Arena,
        burst: &Burst,
        edit: TagEdit,
        room: &'r mut Room,
    ) -> Joint<'r> {
        let run = self.run;
        let head = first_bytes(arena, burst.packet(self.first));
        let last = first_bytes(arena, burst.packet(self.range().end - 1));
        let bytes = run.write_header(head, last, &mut room.0[TAG..]);
        let header = edit_tag(&mut room.0, bytes, edit);
        let grown = i64::from(edit.growth());
        Joint {
            header,
            tcp_at: (run.tcp_at() as i64 + grown) as usize,
            is_v6: run.is_v6(),
            segment_bytes: run.segment_bytes(),
            wire_bytes: (i64::from(run.wire_bytes()) + grown * i64::from(run.segments())) as u32,
            skip_bytes: run.header_bytes(),
        }
    }

    /// Its packets in order.
    pub(super) fn packets<'a>(&self, burst: &'a Burst) -> impl Iterator<Item = PacketSegments<'a>> + use<'a> {
        self.range().map(|index| burst.packet(index))
    }

    /// The joint packet in pieces.
    pub(super) fn pieces<'a>(
        &self,
        arena: &'a Arena,
        burst: &'a Burst,
        joint: &Joint<'a>,
    ) -> ArrayVec<&'a [u8], MAX_PIECES> {
        let skip = joint.skip_bytes as u16;
        let payloads = self.packets(burst).flat_map(move |packet| {
            packet.iter().enumerate().map(move |(index, segment)| {
                let skip = if index == 0 { skip } else { 0 };
                arena.bytes(&segment.frame, segment.offset + skip, segment.len - skip)
            })
        });
        std::iter::once(joint.header).chain(payloads).collect()
    }

    fn range(&self) -> Range<usize> {
        self.first..self.first + self.run.segments() as usize
    }
}

/// Edits the tag of a header of `bytes` bytes that lies behind room for one tag.
fn edit_tag(room: &mut [u8], bytes: usize, edit: TagEdit) -> &[u8] {
    match edit {
        TagEdit::Keep => &room[TAG..TAG + bytes],
        TagEdit::Replace(tag) => {
            room[TAG + ADDRESSES..][..TAG].copy_from_slice(&tag);
            &room[TAG..TAG + bytes]
        }
        TagEdit::Push(tag) => {
            room.copy_within(TAG..TAG + ADDRESSES, 0);
            room[ADDRESSES..][..TAG].copy_from_slice(&tag);
            &room[..TAG + bytes]
        }
        TagEdit::Pop => {
            room.copy_within(TAG..TAG + ADDRESSES, 2 * TAG);
            &room[2 * TAG..TAG + bytes]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_edited_as_its_packet_would_be() {
        let tagged: Vec<u8> = (0..12).chain([0x81, 0, 0, 5, 8, 0, 0x45]).collect();
        let room = |header: &[u8]| [&[0xaa; TAG], header, &[0; 40]].concat();
        let edited = |header: &[u8], edit| edit_tag(&mut room(header), header.len(), edit).to_vec();
        let untagged = edited(&tagged, TagEdit::Pop);
        assert_eq!(untagged, (0..12).chain([8, 0, 0x45]).collect::<Vec<u8>>());
        assert_eq!(edited(&untagged, TagEdit::Push([0x81, 0, 0, 5])), tagged);
        assert_eq!(edited(&tagged, TagEdit::Replace([0x81, 0, 0, 6]))[12..16], [0x81, 0, 0, 6]);
        assert_eq!(edited(&tagged, TagEdit::Keep), tagged);
    }
}
