//! What a sender left undone, compared with the packet once it was copied: other receivers will believe it.

use arrayvec::ArrayVec;
use forebay_pool::{Arena, Frame, MAX_SEGMENTS_PER_PACKET};
use forebay_wire::chain::Front;
use forebay_wire::cut::{Cut, Uncuttable, finish_checksum};
use forebay_wire::net_header::{NEEDS_CSUM, NetHeader};

use super::parcel::HEADROOM;

/// Addresses, a tag, and the type of what follows it.
const MAX_TAGGED: u32 = 18;

/// What is left to do to a packet of `len` bytes, with nothing in it that is not so. Headers are read from `front`, the packet's
/// first bytes.
///
/// # Errors
/// The packet is not what its header says, or stands for too many.
pub(super) fn compare(header: NetHeader, front: &[u8], len: u32) -> Result<NetHeader, Uncuttable> {
    if !header.is_long() {
        let NetHeader { csum_start, csum_offset, .. } = header;
        return Ok(NetHeader { flags: NEEDS_CSUM, csum_start, csum_offset, ..NetHeader::default() });
    }
    let packet = Front { bytes: front, len: len as usize };
    Ok(Cut::of_front(&header, packet)?.net_header(header))
}

/// Finishes the checksum of a packet with a service tag, maybe behind another tag. The packet sockets that tell the kernel what is
/// undone allow room for a tag beyond the MTU only where that is 802.1Q's (`packet_extra_vlan_len_allowed` in
/// net/packet/af_packet.c, Linux 6.18). Says whether nothing is left undone.
pub(super) fn finish_if_service_tagged(
    arena: &Arena,
    undone: &NetHeader,
    frames: &mut [Frame],
    len: u32,
) -> bool {
    if undone.is_long() || undone.is_plain() || !is_service_tagged(arena, frames, len) {
        return false;
    }
    let payload = arena.frame_size().payload();
    let mut fragments: ArrayVec<&mut [u8], MAX_SEGMENTS_PER_PACKET> = (0..)
        .zip(frames)
        .map(|(index, frame)| arena.bytes_mut(frame, HEADROOM, (len - index * payload).min(payload) as u16))
        .collect();
    finish_checksum(undone, &mut fragments);
    true
}

fn is_service_tagged(arena: &Arena, frames: &[Frame], len: u32) -> bool {
    let Some(first) = frames.first() else { return false };
    let head = arena.bytes(first, HEADROOM, len.min(MAX_TAGGED) as u16);
    match head.get(12..).unwrap_or_default() {
        [0x88, 0xa8, ..] => true,
        [0x81, 0, _, _, inner @ ..] => inner.starts_with(&[0x88, 0xa8]),
        _ => false,
    }
}
