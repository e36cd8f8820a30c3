//! Long packets of a guest that have only their beginning in a frame. The rest stays in the guest's memory until the burst was
//! sent, and most are sent from there: by the kernel, or into another guest's buffers.

use std::ops::Range;

use forebay_vhost::{Lent, LentBytes, LentPieces, MAX_PACKET_BYTES};
use forebay_xsk::MAX_BEHIND;

use super::TURN;

/// Pieces of all packets of a turn. Those for which there is no room are copied.
const PIECES: usize = 1024;

/// What the packets of a burst have outside of their frames.
pub(super) struct Loans {
    pub(super) lent: Lent,
    /// By packet of the burst. What is said of one that has all of it in frames is of bursts before.
    of: Box<[LentPieces]>,
    /// For the rest of one packet, while it is copied for somebody who has to read it.
    pub(super) room: Box<[u8]>,
}

impl Loans {
    /// Pieces that one packet may have.
    pub(super) const MOST: usize = MAX_BEHIND;

    pub(super) fn new() -> Self {
        Self {
            lent: Lent::with_room(PIECES),
            of: vec![Range::default(); TURN].into_boxed_slice(),
            room: vec![0; MAX_PACKET_BYTES as usize].into_boxed_slice(),
        }
    }

    /// Notes what a packet of the burst has outside of its frame.
    pub(super) fn note(&mut self, index: usize, pieces: LentPieces) {
        self.of[index] = pieces;
    }

    /// The rests, and room for one of them.
    pub(super) fn split<'l>(&'l mut self) -> (impl Fn(usize) -> LentBytes<'l> + Copy, &'l mut Box<[u8]>) {
        let Self { lent, of, room } = self;
        let (lent, of) = (&*lent, &*of);
        (move |index: usize| lent.bytes(of[index].clone()), room)
    }
}
