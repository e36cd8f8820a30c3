//! What the switch needs to know of every packet.
//!
//! Deliberately little: addresses, the outer 802.1Q tag, the EtherType behind it. Further tags choose no VLAN, and
//! neither does an outer 802.1ad tag: such a frame counts as untagged. Rules look behind them, see [`crate::stack`].

use crate::ethernet::{HEADER_LEN, ethertype};
use crate::mac;
use crate::vlan::{TAG_LEN, Tag};

/// The answer of [`frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInfo {
    /// Destination address, see [`mac`].
    pub dst: u64,
    /// Source address: never multicast, never zero.
    pub src: u64,
    /// The outer 802.1Q tag, if there is one. Its VLAN id may be 0 (priority only) or 4095 (reserved).
    pub tag: Option<Tag>,
    /// EtherType after that tag, which may announce a further tag; below 0x600 it is an 802.3 length.
    pub ethertype: u16,
    /// Bytes given to [`frame`]; of a packet in several fragments, that is the first one's length.
    pub len: usize,
}

/// Why a frame cannot be switched. Each is a reason to drop and to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BadFrame {
    /// Shorter than an Ethernet header.
    Runt,
    /// Announces an 802.1Q tag and ends within it.
    TruncatedTag,
    /// Claims to come from a group address.
    MulticastSource,
    /// Claims to come from 00:00:00:00:00:00.
    ZeroSource,
}

/// Reads what the switch needs from the start of a packet; of a packet in several fragments, give the first one.
/// Bounded, never allocates, may be called on the packet path.
#[inline]
pub fn frame(bytes: &[u8]) -> Result<FrameInfo, BadFrame> {
    // Two overlapping 8-byte loads cover the header: destination and 2 bytes of source, source and EtherType.
    let (Some(dst_word), Some(src_word)) = (word(bytes, 0), word(bytes, 6)) else {
        return Err(BadFrame::Runt);
    };
    let src = src_word >> 16;
    if mac::is_multicast(src) {
        return Err(BadFrame::MulticastSource);
    }
    if src == 0 {
        return Err(BadFrame::ZeroSource);
    }
    let (tag, ethertype) = outer_tag(bytes, src_word as u16)?;
    Ok(FrameInfo { dst: dst_word >> 16, src, tag, ethertype, len: bytes.len() })
}

#[inline]
fn outer_tag(bytes: &[u8], outer: u16) -> Result<(Option<Tag>, u16), BadFrame> {
    if outer != ethertype::VLAN {
        return Ok((None, outer));
    }
    let Some([t0, t1, e0, e1]) = bytes.get(HEADER_LEN..HEADER_LEN + TAG_LEN) else {
        return Err(BadFrame::TruncatedTag);
    };
    Ok((Some(Tag::from_tci(u16::from_be_bytes([*t0, *t1]))), u16::from_be_bytes([*e0, *e1])))
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_be_bytes(*b))
}

#[cfg(test)]
mod tests;
