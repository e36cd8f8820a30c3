//! Which frames the kernel has. The other file of this crate's unsafe code, besides the arena.
#![allow(unsafe_code, reason = "takes frames back that the kernel held")]

use crate::{Arena, Frame};

/// Frames of one arena that were given to the kernel through one fill ring and have not come back: a bit each.
///
/// A frame that is posted cannot be taken back while its socket lives, and the kernel may keep one it took off the ring
/// and found no use for. Once the socket is closed, all that is lent is ours again.
#[derive(Debug)]
pub struct Ledger {
    words: Vec<u64>,
    arena: u32,
}

impl Ledger {
    /// An empty one.
    pub fn new(arena: &Arena) -> Self {
        Self { words: vec![0; arena.frames().div_ceil(64) as usize], arena: arena.id() }
    }

    /// `frame` is about to be given; packet path.
    #[inline]
    pub fn lend(&mut self, frame: &Frame) {
        debug_assert_eq!(frame.arena(), self.arena, "frame of another arena");
        self.words[frame.index() as usize / 64] |= 1 << (frame.index() % 64);
    }

    /// `frame` has come back; packet path.
    #[inline]
    pub fn returned(&mut self, frame: &Frame) {
        debug_assert_eq!(frame.arena(), self.arena, "frame of another arena");
        self.words[frame.index() as usize / 64] &= !(1 << (frame.index() % 64));
    }

    /// All that is lent, as frames of ours.
    ///
    /// # Safety
    /// The kernel must have given them up: the socket that they were given to is closed, and no ring of it is read any
    /// more.
    pub unsafe fn reclaim(self) -> impl Iterator<Item = Frame> {
        let arena = self.arena;
        self.words.into_iter().enumerate().flat_map(move |(at, word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| Frame::new(arena, at as u32 * 64 + bit))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::FrameSize;

    #[test]
    fn what_was_lent_and_did_not_come_back_is_reclaimed() {
        let frames = NonZeroU32::new(130).expect("not zero");
        let (arena, mut frames) = Arena::new(frames, FrameSize::B2048).expect("some memory");
        let mut ledger = Ledger::new(&arena);
        let lent: Vec<Frame> = [129, 64, 63, 0].map(|index| frames.swap_remove(index)).into();
        lent.iter().for_each(|frame| ledger.lend(frame));
        let back = &lent[0];
        ledger.returned(back);
        let expected: Vec<u32> = {
            let mut left: Vec<u32> = lent.iter().filter(|frame| *frame != back).map(Frame::index).collect();
            left.sort_unstable();
            left
        };
        drop(lent);
        // SAFETY: there is no kernel in this test, and the lent frames were dropped.
        let reclaimed: Vec<u32> = unsafe { ledger.reclaim() }.map(|frame| frame.index()).collect();
        assert_eq!(reclaimed, expected);
    }
}
