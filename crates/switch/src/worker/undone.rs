//! What a sender left undone, compared with the packet once it was copied: other receivers will believe it.

use arrayvec::ArrayVec;
use forebay_pool::{Arena, Frame, MAX_SEGMENTS_PER_PACKET};
use forebay_wire::chain::Front;
use forebay_wire::cut::{Cut, Uncuttable};
use forebay_wire::net_header::{NEEDS_CSUM, NetHeader};

use super::parcel::HEADROOM;

/// What is left to do to a packet of `len` bytes in `frames`, with nothing in it that is not so.
///
/// # Errors
/// The packet is not what its header says, or stands for too many.
pub(super) fn compare(
    arena: &Arena,
    header: NetHeader,
    frames: &[Frame],
    len: u32,
) -> Result<NetHeader, Uncuttable> {
    if !header.is_long() {
        let NetHeader { csum_start, csum_offset, .. } = header;
        return Ok(NetHeader { flags: NEEDS_CSUM, csum_start, csum_offset, ..NetHeader::default() });
    }
    let payload = arena.frame_size().payload();
    let fragments: ArrayVec<&[u8], MAX_SEGMENTS_PER_PACKET> = (0..)
        .zip(frames)
        .map(|(index, frame)| arena.bytes(frame, HEADROOM, (len - index * payload).min(payload) as u16))
        .collect();
    Ok(Cut::new(&header, &fragments)?.net_header(header))
}

/// The same for a long packet of which only the beginning was copied.
///
/// # Errors
/// As [`compare`].
pub(super) fn compare_front(header: NetHeader, front: &[u8], len: u32) -> Result<NetHeader, Uncuttable> {
    let packet = Front { bytes: front, len: len as usize };
    Ok(Cut::of_front(&header, packet)?.net_header(header))
}
