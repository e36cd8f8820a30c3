//! Packets of a transmit queue of which only the beginning is copied.

use super::cursor::Cursor;
use super::{Front, Virtqueue};
use crate::memory::{Lent, LentPieces};

impl Virtqueue {
    /// Fills `front` with the beginning of the offered packet, and lends the bytes behind it: at most `limit` pieces. The guest
    /// has its buffers back with the next [`Virtqueue::show`], so what is lent is to be sent on before. Packet path.
    ///
    /// `None`: nothing is behind it, there are more pieces, or `lent` has no room. Then the packet is still offered.
    pub fn lend(&mut self, front: &mut [u8], lent: &mut Lent, limit: usize) -> Option<LentPieces> {
        let Front { offer, chain } = self.front?;
        if front.len() >= offer.len as usize {
            return None;
        }
        let ready = self.ready.first();
        let (pieces, fetched) = match (chain, &ready) {
            (Some(fetched), _) => (self.pieces.all(), fetched),
            (None, Some(buffer)) => (std::slice::from_ref(&buffer.piece), buffer.fetched()),
            (None, None) => return None,
        };
        let mut reader = Cursor::new(pieces, self.header_bytes);
        reader.copy_from(&self.memory, front);
        let behind = lent.add(&self.memory, reader.rest(), limit)?;
        self.front = None;
        self.complete(&fetched, 0);
        Some(behind)
    }
}
