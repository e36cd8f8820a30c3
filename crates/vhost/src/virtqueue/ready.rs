//! Buffers whose turn comes next, read before it comes: they are on their way into the cache while the ones before are
//! copied, and their descriptors are read once.

use crate::ring::ReadyBuffer;

/// Buffers that are read ahead, at most; a power of two.
const ROOM: usize = 32;
/// So few are left when more are read.
const LOW: usize = ROOM / 2;

/// The next buffers of a ring, in their order and without a gap.
#[derive(Debug, Default)]
pub(super) struct Ready {
    buffers: [ReadyBuffer; ROOM],
    /// Free-running numbers of the first buffer, and of the one behind the last.
    first: usize,
    end: usize,
}

impl Ready {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.end.wrapping_sub(self.first)
    }

    /// Whether more are to be read.
    #[inline]
    pub(super) fn is_low(&self) -> bool {
        self.len() <= LOW
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len() == ROOM
    }

    /// The buffer whose turn is next.
    #[inline]
    pub(super) fn first(&self) -> Option<ReadyBuffer> {
        (self.first != self.end).then(|| self.buffers[self.first % ROOM])
    }

    /// Adds the buffer behind the last; there is room for it.
    #[inline]
    pub(super) fn push(&mut self, buffer: ReadyBuffer) {
        self.buffers[self.end % ROOM] = buffer;
        self.end = self.end.wrapping_add(1);
    }

    /// So many entries of the ring were completed.
    #[inline]
    pub(super) fn pass(&mut self, slots: u16) {
        self.first = self.first.wrapping_add(usize::from(slots).min(self.len()));
    }
}
