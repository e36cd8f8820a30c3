//! A walk over the pieces of a buffer.

use std::sync::atomic::AtomicU8;

use crate::memory::{GuestMemory, Piece};

/// A place in a list of pieces.
pub(super) struct Cursor<'a> {
    pieces: &'a [Piece],
    at: u32,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn new(pieces: &'a [Piece], skip: u32) -> Self {
        let mut cursor = Self { pieces, at: 0 };
        cursor.walk(skip, |_, _, _, _| {});
        cursor
    }

    #[inline]
    pub(super) fn copy_from(&mut self, memory: &GuestMemory, to: &mut [u8]) {
        self.walk(to.len() as u32, |piece, at, done, len| {
            memory.copy_from(piece, at, &mut to[done as usize..(done + len) as usize]);
        });
    }

    /// Copies what others may change meanwhile.
    #[inline]
    pub(super) fn copy_shared_to(&mut self, memory: &GuestMemory, from: &[AtomicU8]) {
        self.walk(from.len() as u32, |piece, at, done, len| {
            memory.copy_shared_to(piece, at, &from[done as usize..(done + len) as usize]);
        });
    }

    /// What was not passed.
    pub(super) fn rest(self) -> impl Iterator<Item = Piece> + use<'a> {
        let (first, others) = self.pieces.split_at(self.pieces.len().min(1));
        let first = first.iter().map(move |piece| piece.behind(self.at));
        first.chain(others.iter().copied())
    }

    #[inline]
    pub(super) fn copy_to(&mut self, memory: &GuestMemory, from: &[u8]) {
        self.walk(from.len() as u32, |piece, at, done, len| {
            memory.copy_to(piece, at, &from[done as usize..(done + len) as usize]);
        });
    }

    /// Goes on by `len` bytes. Calls `each` with a piece, a place in it, the bytes passed before, and the bytes here.
    #[inline]
    fn walk(&mut self, len: u32, mut each: impl FnMut(&Piece, u32, u32, u32)) {
        let mut done = 0;
        while done < len {
            let Some(piece) = self.pieces.first() else { return };
            let here = (piece.len() - self.at).min(len - done);
            each(piece, self.at, done, here);
            self.at += here;
            done += here;
            if self.at == piece.len() {
                self.pieces = &self.pieces[1..];
                self.at = 0;
            }
        }
    }
}
