//! The kernel programs' part: following flows.
//!
//! The stand-in reads a packet's key, looks into the same table, and asks the same generations, as bpf/flow.h says. That
//! the real programs do the same is the equivalence suite's to show.

use forebay_control::PortId;
use forebay_kernel::{FlowAction, FlowCount, FlowKey, FlowNumber, FlowTag, FlowVerdict};
use forebay_wire::TagKinds;
use forebay_wire::vlan::TAG_LEN;

use super::MemorySwitch;
use super::ports::FIRST_IFINDEX;
use crate::worker::deeper_fields;

const ADDRESSES: usize = 12;

impl MemorySwitch {
    /// Whether a flow carried the packet, or dropped it.
    pub(super) fn follow(&mut self, input: PortId, bytes: &[u8]) -> bool {
        if self.shared.generations.of_switch() & 1 == 0 {
            return false;
        }
        let Some((number, verdict)) = self.find(input, bytes) else { return false };
        if bytes.len() > usize::from(verdict.max_length) {
            return false;
        }
        let fresh = FlowCount { packets: 1, bytes: bytes.len() as u64 };
        match verdict.action {
            FlowAction::Drop { .. } => self.book.table().carry(number, fresh),
            FlowAction::Output { ifindex, tag, .. } => {
                self.book.table().carry(number, fresh);
                let output = PortId((ifindex.0 - FIRST_IFINDEX) as u16);
                // A netdev that is gone takes nothing.
                if let Some(port) = self.ports.get_mut(&output) {
                    port.carried.push_back(retagged(bytes, tag));
                }
            }
            FlowAction::Tell { .. } | FlowAction::Steer { .. } | FlowAction::Deeper { .. } => return false,
        }
        true
    }

    fn find(&self, input: PortId, bytes: &[u8]) -> Option<(FlowNumber, FlowVerdict)> {
        let frame = forebay_wire::frame(bytes).ok()?;
        let is_stacked = !TagKinds::announced_by(frame.ethertype).is_empty();
        let tag = frame.tag.map(|tag| tag.vid);
        let outer = FlowKey::new(input.0, tag, frame.src, frame.dst).stacked(is_stacked);
        let found = self.find_key(outer)?;
        if !matches!(found.1.action, FlowAction::Deeper { .. }) {
            return Some(found);
        }
        let fields = deeper_fields(input, &frame, bytes)?;
        self.find_key(outer.deeper(self.publication.rules().classes().of(&fields)))
    }

    fn find_key(&self, key: FlowKey) -> Option<(FlowNumber, FlowVerdict)> {
        let (number, verdict) = self.book.table().look_up(key)?;
        verdict.holds(key, &self.shared.generations).then_some((number, verdict))
    }
}

fn retagged(bytes: &[u8], tag: FlowTag) -> Vec<u8> {
    let is_tagged = bytes[ADDRESSES..].starts_with(&[0x81, 0x00]);
    let (addresses, rest) = bytes.split_at(ADDRESSES);
    let untagged = if is_tagged { &rest[TAG_LEN..] } else { rest };
    match tag {
        FlowTag::Keep => bytes.to_vec(),
        FlowTag::Remove => [addresses, untagged].concat(),
        FlowTag::Set(vid) => {
            let priority = if is_tagged { rest[2] & 0xf0 } else { 0 };
            let tci = [priority | (vid >> 8) as u8, vid as u8];
            [addresses, &[0x81, 0x00], &tci, untagged].concat()
        }
    }
}
