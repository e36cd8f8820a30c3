//! Long packets of a guest that have only their beginning in a frame. The rest stays in the guest's memory until the burst was
//! sent, and most are sent from there: by the kernel, or into another guest's buffers.

use std::ops::Range;

use forebay_vhost::{Lent, LentBytes, LentPieces, MAX_PACKET_BYTES};
use forebay_xsk::MAX_LENT_PIECES;

use super::TURN;

/// Pieces of all packets of a turn. Those for which there is no room are copied.
const PIECES: usize = 1024;

/// What the packets of a burst have outside of their frames.
pub(super) struct Loans {
    pub(super) lent: Lent,
    /// The pieces of each packet of the burst. Those of a packet that is not lent are left from bursts before.
    of: Box<[LentPieces]>,
    /// A buffer for the lent bytes of one packet. An output that cannot take them from the guest's memory gets them from here.
    pub(super) room: Box<[u8]>,
}

impl Loans {
    /// Pieces that one packet may have.
    pub(super) const MOST: usize = MAX_LENT_PIECES;

    pub(super) fn new() -> Self {
        Self {
            lent: Lent::with_room(PIECES),
            of: vec![Range::default(); TURN].into_boxed_slice(),
            room: vec![0; MAX_PACKET_BYTES as usize].into_boxed_slice(),
        }
    }

    /// Notes the pieces of a packet of the burst.
    pub(super) fn note(&mut self, index: usize, pieces: LentPieces) {
        self.of[index] = pieces;
    }

    /// Finds the lent bytes of a packet; and the buffer for those of one packet.
    pub(super) fn split<'l>(&'l mut self) -> (impl Fn(usize) -> LentBytes<'l> + Copy, &'l mut Box<[u8]>) {
        let Self { lent, of, room } = self;
        let (lent, of) = (&*lent, &*of);
        (move |index: usize| lent.bytes(of[index].clone()), room)
    }
}
