//! 802.1Q tags: reading, and putting them on and off a frame in place.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethernet::{HEADER_LEN, ethertype};

/// Bytes that one tag adds to a frame.
pub const TAG_LEN: usize = 4;

/// Bytes of the two addresses in front of a tag.
const ADDRESSES_LEN: usize = 12;

/// What follows the EtherType 0x8100: tag control information, then the EtherType of what is tagged.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VlanHeader {
    /// Priority, drop-eligible bit and VLAN id.
    pub tci: U16,
    /// EtherType of the tagged payload.
    pub ethertype: U16,
}

/// The fields of a tag's control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN id, 0 to 4095; 0 means "priority only, no VLAN", 4095 is reserved.
    pub vid: u16,
}

impl Tag {
    /// Splits tag control information into its fields; every value is possible.
    pub const fn from_tci(tci: u16) -> Self {
        Tag { pcp: (tci >> 13) as u8, dei: tci & 0x1000 != 0, vid: tci & 0x0fff }
    }

    /// Joins the fields; bits of `pcp` and `vid` that do not fit are cut off.
    pub const fn tci(self) -> u16 {
        (self.pcp as u16 & 7) << 13 | (self.dei as u16) << 12 | (self.vid & 0x0fff)
    }
}

/// Puts an 802.1Q tag on a frame, into the four free bytes that `room` begins with: before, the frame is
/// `room[4..]`, afterwards it is all of `room`. False, and nothing changed, if the frame is a runt.
#[must_use]
pub fn push(room: &mut [u8], tag: Tag) -> bool {
    if room.len() < TAG_LEN + HEADER_LEN {
        return false;
    }
    room.copy_within(TAG_LEN..TAG_LEN + ADDRESSES_LEN, 0);
    room[ADDRESSES_LEN..ADDRESSES_LEN + 2].copy_from_slice(&ethertype::VLAN.to_be_bytes());
    room[ADDRESSES_LEN + 2..ADDRESSES_LEN + 4].copy_from_slice(&tag.tci().to_be_bytes());
    true
}

/// Takes the outer 802.1Q tag off a frame: afterwards the frame is `frame[4..]`, and the first four bytes are
/// free. False, and nothing changed, if there is no complete 802.1Q tag.
#[must_use]
pub fn pop(frame: &mut [u8]) -> bool {
    let tagged = frame.get(ADDRESSES_LEN..ADDRESSES_LEN + 2) == Some(&ethertype::VLAN.to_be_bytes());
    if !tagged || frame.len() < HEADER_LEN + TAG_LEN {
        return false;
    }
    frame.copy_within(..ADDRESSES_LEN, TAG_LEN);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const TAG: Tag = Tag { pcp: 5, dei: true, vid: 0xabc };

    fn untagged() -> Vec<u8> {
        let mut frame: Vec<u8> = (2..16).collect();
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame.extend([0xaa; 50]);
        frame
    }

    #[test]
    fn every_control_information_survives_splitting_and_joining() {
        assert!((0..=u16::MAX).all(|tci| Tag::from_tci(tci).tci() == tci));
    }

    #[test]
    fn a_pushed_tag_is_what_the_parser_sees_and_pop_restores_the_frame() {
        let before = untagged();
        let mut room = [vec![0; TAG_LEN], before.clone()].concat();
        assert!(push(&mut room, TAG));
        let info = parse::frame(&room).unwrap();
        assert_eq!((info.tag, info.ethertype), (Some(TAG), ethertype::IPV4));
        assert!(pop(&mut room));
        assert_eq!(room[TAG_LEN..], before);
    }

    #[test]
    fn a_frame_of_a_header_alone_takes_a_tag() {
        let mut room = [vec![0; TAG_LEN], untagged()[..HEADER_LEN].to_vec()].concat();
        assert!(push(&mut room, TAG) && pop(&mut room));
        assert_eq!(room[TAG_LEN..], untagged()[..HEADER_LEN]);
    }

    #[test]
    fn a_runt_is_neither_tagged_nor_untagged() {
        let mut runt = [0x81; TAG_LEN + HEADER_LEN - 1];
        assert!(!push(&mut runt, TAG));
        runt[12..14].copy_from_slice(&[0x81, 0x00]);
        assert!(!pop(&mut runt));
        assert!(!pop(&mut untagged()), "a frame without a tag has none to take off");
    }

    #[test]
    fn a_service_tag_is_not_taken_off() {
        let mut frame = untagged();
        frame[12..14].copy_from_slice(&ethertype::SERVICE_VLAN.to_be_bytes());
        assert!(!pop(&mut frame));
    }
}
