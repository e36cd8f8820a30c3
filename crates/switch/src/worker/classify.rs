//! Second verb: what each packet is, and which VLAN it is in.

use forebay_control::{DropReason, PortId};
use forebay_pool::{Arena, Segment};
use forebay_wire::ethernet::{self, ethertype};
use forebay_wire::vlan::TAG_LEN;
use forebay_wire::{BadFrame, Tag, TagKinds};
use forebay_xsk::TagEdit;

use super::Worker;
use super::stretch::Stretch;
use super::verdict::Verdict;
use crate::topology::{PortEntry, Topology};
use crate::vlan::{PortVlans, tag_bytes};

/// What the later verbs need of a packet, or why it goes no further.
pub(super) type Classified = Result<Headers, DropReason>;

/// Addresses and VLAN of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) input: PortId,
    pub(super) dst: u64,
    pub(super) src: u64,
    pub(super) vid: u16,
    pub(super) tag: Option<Tag>,
    /// The tag is not in the packet: the device took it off, and a hint tells it.
    pub(super) tag_is_out: bool,
    /// Behind that tag; of a packet with further tags, the first of them's.
    pub(super) ethertype: u16,
    /// What a rule has it leave with.
    pub(super) mark: u32,
}

impl Headers {
    /// Where in the packet the network header begins.
    #[inline]
    pub(super) fn network_at(&self) -> usize {
        let tag_is_in = self.tag.is_some() && !self.tag_is_out;
        ethernet::HEADER_LEN + if tag_is_in { TAG_LEN } else { 0 }
    }

    /// Whether the packet has further tags: behind `tag`, or an outer 802.1ad tag.
    #[inline]
    pub(super) fn is_stacked(&self) -> bool {
        is_tag(self.ethertype)
    }

    /// How the packet leaves through `vlans`.
    #[inline]
    pub(super) fn egress(&self, vlans: &PortVlans) -> TagEdit {
        let edit = self.flow_egress(vlans);
        match self.tag.filter(|_| self.tag_is_out) {
            Some(tag) => edit_outside(edit, tag),
            None => edit,
        }
    }

    /// The same for the packet as programs have it, with its tag.
    #[inline]
    pub(super) fn flow_egress(&self, vlans: &PortVlans) -> TagEdit {
        vlans.egress(self.vid, self.tag, self.is_stacked())
    }
}

#[inline]
fn is_tag(ethertype: u16) -> bool {
    !TagKinds::announced_by(ethertype).is_empty()
}

/// What `edit` means for a tag that is not in the packet.
fn edit_outside(edit: TagEdit, tag: Tag) -> TagEdit {
    match edit {
        TagEdit::Keep => TagEdit::Push(tag_bytes(tag.tci())),
        TagEdit::Replace(bytes) | TagEdit::Push(bytes) => TagEdit::Push(bytes),
        TagEdit::Pop => TagEdit::Keep,
    }
}

impl Worker {
    /// Reads the headers of the whole burst, but of packets that are known to go nowhere. Says whether any were read.
    pub(super) fn classify(&mut self, arena: &Arena, topology: &Topology) -> bool {
        let mut has_read = false;
        for index in 0..self.stretches.len() {
            let Stretch { port, packets, alike } = self.stretches[index].clone();
            let port = port.and_then(|id| topology.port(id));
            let refused = |found| match self.repeats.verdict(found) {
                Verdict::Drop(reason) | Verdict::Refused(reason, _) => Some(reason),
                Verdict::Forward(_) | Verdict::Flood => None,
            };
            let is_blocked = port.is_some_and(|port| port.is_blocked);
            // Nobody asks for their headers.
            if let Some(reason) = alike.and_then(refused).or(is_blocked.then_some(DropReason::Blocked)) {
                self.records[packets].iter_mut().for_each(|record| record.classified = Err(reason));
                continue;
            }
            for index in packets {
                let record = &mut self.records[index];
                record.classified = match (port, record.repeats.and_then(refused)) {
                    (Some(_), Some(reason)) => Err(reason),
                    (Some(port), None) => {
                        has_read = true;
                        headers(arena, self.burst.packet(index), record.facts.tag, port)
                            .map_err(|cause| refuse(cause, port, self.index))
                    }
                    (None, _) => Err(DropReason::PortDown),
                };
            }
        }
        has_read
    }
}

/// Why a packet goes no further.
enum Cause {
    /// It is no frame that a switch may carry.
    Frame(BadFrame),
    /// Its port does not take it into any VLAN.
    Vlan(DropReason),
}

#[inline]
fn headers(
    arena: &Arena,
    packet: &[Segment],
    outside: Option<Tag>,
    port: &PortEntry,
) -> Result<Headers, Cause> {
    let first = &packet[0];
    let bytes = arena.bytes(&first.frame, first.offset, first.len);
    let frame = forebay_wire::frame(bytes).map_err(Cause::Frame)?;
    let tag = outside.or(frame.tag);
    let tag_is_out = outside.is_some();
    // A tag in the packet is what comes behind one that is not.
    let ethertype = if tag_is_out && frame.tag.is_some() { ethertype::VLAN } else { frame.ethertype };
    let vid = port.vlans.ingress(tag, is_tag(ethertype)).map_err(Cause::Vlan)?;
    Ok(Headers { input: port.id, dst: frame.dst, src: frame.src, vid, tag, tag_is_out, ethertype, mark: 0 })
}

/// The reason that is counted; what is wrong with a frame is counted besides.
#[cold]
fn refuse(cause: Cause, port: &PortEntry, worker: usize) -> DropReason {
    match cause {
        Cause::Frame(bad) => {
            port.cells.of(worker).bad_frame(bad);
            DropReason::BadFrame
        }
        Cause::Vlan(reason) => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a packet with `tag` looks like behind its addresses once `edit` is done to it.
    fn edited(tag: Option<[u8; 4]>, edit: TagEdit) -> Vec<[u8; 4]> {
        let mut tags: Vec<[u8; 4]> = tag.into_iter().collect();
        match edit {
            TagEdit::Keep => {}
            TagEdit::Push(bytes) => tags.insert(0, bytes),
            TagEdit::Replace(bytes) => tags[0] = bytes,
            TagEdit::Pop => drop(tags.remove(0)),
        }
        tags
    }

    #[test]
    fn a_tag_that_is_told_leaves_as_one_in_the_packet_does() {
        let modes = [
            "all",
            "access:10,tagged",
            "access:20,tagged",
            "trunk:10,20",
            "trunk:20,native:10",
            "trunk:10,native:1",
        ];
        let vlans: Vec<PortVlans> =
            modes.iter().map(|mode| PortVlans::new(&mode.parse().expect("a VLAN mode"))).collect();
        let mut compared = 0;
        for tci in [0, 10, 20, 0xe00a, 0x6000] {
            let tag = Tag::from_tci(tci);
            for input in &vlans {
                let Ok(vid) = input.ingress(Some(tag), false) else { continue };
                for output in vlans.iter().filter(|output| output.carries(vid)) {
                    let headers = |tag_is_out| Headers {
                        input: PortId(0),
                        dst: 0,
                        src: 0,
                        vid,
                        tag: Some(tag),
                        tag_is_out,
                        ethertype: 0x0800,
                        mark: 0,
                    };
                    let inside = edited(Some(tag_bytes(tag.tci())), headers(false).egress(output));
                    assert_eq!(inside, edited(None, headers(true).egress(output)), "{tci:x}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 20, "{compared}");
    }
}
