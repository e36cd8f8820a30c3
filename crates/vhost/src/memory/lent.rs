//! Payloads that stay in their guest's memory until they were sent on: nobody copies them who need not read them.
//!
//! The guest may change them meanwhile, and whoever gets them then gets something else of the same length: so what was checked
//! of a packet, its headers, must not lie here.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use super::{GuestMemory, Piece};

/// Payloads of one guest's packets. It allocates only when it is made, and keeps the guest's memory alive until it is emptied.
#[derive(Debug)]
pub struct Lent {
    memory: Option<Arc<GuestMemory>>,
    pieces: Vec<Piece>,
}

/// The pieces of one payload, as [`crate::Virtqueue::lend`] numbers them.
pub type LentPieces = Range<u32>;

/// One payload, where it lies.
#[derive(Clone, Copy, Debug, Default)]
pub struct LentBytes<'a> {
    /// `None`: there are no pieces.
    memory: Option<&'a GuestMemory>,
    pieces: &'a [Piece],
}

impl Lent {
    /// Room for payloads of so many pieces together.
    pub fn with_room(pieces: usize) -> Self {
        Self { memory: None, pieces: Vec::with_capacity(pieces) }
    }

    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Forgets all payloads, of which the guest may then be told that it has them back.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.memory = None;
    }

    /// Adds a payload of at most `limit` pieces. `None`: it has more, or there is no room.
    ///
    /// # Panics
    /// When there are payloads of another guest, or of memory that it had before: a bug of the caller.
    pub(crate) fn add(
        &mut self,
        memory: &Arc<GuestMemory>,
        pieces: impl Iterator<Item = Piece>,
        limit: usize,
    ) -> Option<LentPieces> {
        let first = self.pieces.len();
        for piece in pieces {
            let taken = self.pieces.len();
            if taken == self.pieces.capacity() || taken - first == limit {
                self.pieces.truncate(first);
                return None;
            }
            self.pieces.push(piece);
        }
        let known = self.memory.get_or_insert_with(|| Arc::clone(memory));
        assert!(Arc::ptr_eq(known, memory), "payloads of two memories");
        Some(first as u32..self.pieces.len() as u32)
    }

    /// Returns a payload.
    ///
    /// # Panics
    /// When it was forgotten: a bug of the caller.
    #[inline]
    pub fn bytes(&self, pieces: LentPieces) -> LentBytes<'_> {
        let pieces = &self.pieces[pieces.start as usize..pieces.end as usize];
        LentBytes { memory: self.memory.as_deref(), pieces }
    }
}

impl<'a> LentBytes<'a> {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Number of pieces.
    #[inline]
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// How many bytes they are.
    #[inline]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len() as usize).sum()
    }

    /// The bytes in order, which their guest may change at any time.
    #[inline]
    pub fn in_order(self) -> impl Iterator<Item = &'a [AtomicU8]> + Clone {
        let memory = self.memory;
        self.pieces.iter().filter_map(move |piece| Some(memory?.shared(piece)))
    }

    /// Copies all of them to the beginning of `to`, and returns them.
    ///
    /// # Panics
    /// When they are more than there is room for.
    pub fn copy_to<'t>(&self, to: &'t mut [u8]) -> &'t [u8] {
        let mut done = 0;
        for piece in self.pieces {
            let Some(memory) = self.memory else { break };
            let len = piece.len() as usize;
            memory.copy_from(piece, 0, &mut to[done..done + len]);
            done += len;
        }
        &to[..done]
    }
}
