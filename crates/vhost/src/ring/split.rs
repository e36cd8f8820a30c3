//! The split ring (virtio 1.3, 2.7): a table of descriptors, a ring of available heads, a ring of used ones.

use std::sync::atomic::Ordering;

use super::chain::{Direction, Fetched, INDIRECT, NEXT, Pieces, ReadyBuffer, Walk, usual};
use super::split_notes;
use crate::error::{RingError, VhostError};
use crate::memory::{Area, GuestMemory, Purpose, RawDescriptor, store_load_fence};

/// `VRING_USED_F_NO_NOTIFY` and `VRING_AVAIL_F_NO_INTERRUPT`: both ends use the same bit for "do not disturb".
const DO_NOT_DISTURB: u16 = 1;
/// Offsets in both rings: flags, index, entries.
const FLAGS: usize = 0;
const INDEX: usize = 2;
const ENTRIES: usize = 4;
/// Used entries of a cache line.
const USED_A_LINE: usize = 8;

/// Bytes of the three parts of a ring of `size` entries, the event fields included.
pub(crate) fn part_bytes(size: u16) -> [usize; 3] {
    let size = usize::from(size);
    [16 * size, 6 + 2 * size, 6 + 8 * size]
}

/// Alignments of the three parts.
pub(crate) const ALIGN: [u64; 3] = [16, 2, 4];

#[derive(Debug)]
pub(crate) struct SplitRing {
    descriptors: Area,
    available: Area,
    used: Area,
    size: u16,
    /// Next available entry to take.
    next: Index,
    /// The guest's index of available entries, when it was last read.
    seen: Index,
    /// Next used entry to write.
    completed: Index,
    /// Used entries that the guest was shown.
    published: Index,
    /// Used entries when it was last decided about a call.
    judged: Index,
    has_events: bool,
    has_indirect: bool,
    /// What the next back end is to know, if the front end keeps it.
    notes: Option<Box<Area>>,
}

/// A free-running number of 16 bits, kept in 32. Compilers read two bytes four bytes wide where they may, and a processor that
/// reads four bytes of which it just wrote two waits until all its writes so far are done, also those into guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Index(u32);

impl Index {
    #[inline]
    fn new(number: u16) -> Self {
        Self(number.into())
    }

    #[inline]
    fn get(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    fn plus(self, entries: u16) -> Self {
        Self::new(self.get().wrapping_add(entries))
    }

    /// Entries from `other` up to this.
    #[inline]
    fn since(self, other: Self) -> u16 {
        self.get().wrapping_sub(other.get())
    }
}

/// Cursors are free-running 16-bit numbers: an event between two of them was passed.
#[inline]
fn has_passed(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

impl SplitRing {
    /// A ring whose parts are as long as [`part_bytes`] says; `size` is a power of two.
    ///
    /// It goes on behind the last buffer that the guest was shown as used. Buffers are used in order, so that is where the
    /// last back end stopped, also one that was killed. What front ends say instead differs: DPDK says 0 whenever it
    /// connects again.
    pub(crate) fn new([descriptors, available, used]: [Area; 3], size: u16) -> Self {
        let completed = Index::new(used.load_u16(INDEX, Ordering::Relaxed));
        Self {
            descriptors,
            available,
            used,
            size,
            next: completed,
            seen: completed,
            completed,
            published: completed,
            judged: completed,
            has_events: false,
            has_indirect: false,
            notes: None,
        }
    }

    pub(crate) fn with_features(mut self, has_events: bool, has_indirect: bool) -> Self {
        (self.has_events, self.has_indirect) = (has_events, has_indirect);
        self
    }

    /// Notes from now on what a back end after a crash is to know.
    ///
    /// A buffer is taken by the same store that shows it as used, so none is ever in flight, and the used index says all.
    /// Another kind of back end may have left some: that is fine if they are the next available ones in their order.
    pub(crate) fn note_in(&mut self, region: Area, entries: u16) -> Result<(), VhostError> {
        let next = self.next.get();
        split_notes::check(&region, entries, next, |position| self.head(Index::new(position)))?;
        split_notes::begin(&region, entries, next);
        self.notes = Some(Box::new(region));
        Ok(())
    }

    #[inline]
    fn slot(&self, index: Index) -> usize {
        usize::from(index.get() & (self.size - 1))
    }

    /// Whether there is an entry at `position`. Reads the guest's index only when the last one is used up.
    #[inline]
    fn is_available(&mut self, position: Index) -> Result<bool, RingError> {
        if self.seen != position {
            return Ok(true);
        }
        self.seen = Index::new(self.available.load_u16(INDEX, Ordering::Acquire));
        let ahead = self.seen.since(self.next);
        if ahead > self.size {
            self.seen = position;
            return Err(RingError::TooManyAvailable { ahead, size: self.size });
        }
        Ok(self.seen != position)
    }

    #[inline]
    pub(super) fn fetch(
        &mut self,
        memory: &GuestMemory,
        ahead: u16,
        direction: Direction,
        pieces: &mut Pieces,
    ) -> Result<Option<Fetched>, RingError> {
        let position = self.next.plus(ahead);
        if !self.is_available(position)? {
            return Ok(None);
        }
        let head = self.head(position);
        let walk = Walk::new(memory, pieces, direction, u32::from(self.size));
        self.walk(walk, head).map(Some)
    }

    /// The head at a position that the guest has shown, as the guest wrote it.
    #[inline]
    fn head(&self, position: Index) -> u16 {
        self.available.load_u16(ENTRIES + 2 * self.slot(position), Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn look(
        &mut self,
        memory: &GuestMemory,
        ahead: u16,
        direction: Direction,
    ) -> Option<ReadyBuffer> {
        let position = self.next.plus(ahead);
        // What is wrong with the index is told when the buffer is fetched.
        let is_available = self.is_available(position).unwrap_or(false);
        let id = is_available.then(|| self.head(position)).filter(|head| *head < self.size)?;
        let descriptor = self.descriptors.descriptor(id);
        let piece = usual(memory, descriptor, descriptor.third, direction)?;
        Some(ReadyBuffer { piece, id })
    }

    /// Begins to bring the descriptor that is `ahead` entries behind the next one into the cache, and the used entry.
    #[inline]
    pub(super) fn fetch_entry(&self, ahead: u16) {
        let head = self.head(self.next.plus(ahead));
        if head < self.size {
            self.descriptors.prefetch(16 * usize::from(head), Purpose::Read);
        }
        let used = self.slot(self.completed.plus(ahead));
        if used.is_multiple_of(USED_A_LINE) {
            self.used.prefetch(ENTRIES + 8 * used, Purpose::Write);
        }
    }

    /// Follows the chain from its head.
    #[inline(never)]
    fn walk(&self, mut walk: Walk<'_>, head: u16) -> Result<Fetched, RingError> {
        let mut index = head;
        loop {
            if index >= self.size {
                return Err(RingError::DescriptorOutside { index, size: u32::from(self.size) });
            }
            let descriptor = self.descriptors.descriptor(index);
            let RawDescriptor { third: flags, fourth: next, .. } = descriptor;
            if flags & INDIRECT != 0 {
                if flags & NEXT != 0 {
                    return Err(RingError::IndirectNotAllowed);
                }
                walk.add_table(descriptor, self.has_indirect, |entry, _| {
                    (entry.third, (entry.third & NEXT != 0).then_some(entry.fourth))
                })?;
                return Ok(walk.end(head, 1));
            }
            walk.add(descriptor, flags)?;
            if flags & NEXT == 0 {
                return Ok(walk.end(head, 1));
            }
            index = next;
        }
    }

    #[inline]
    pub(super) fn complete(&mut self, fetched: &Fetched, written: u32) {
        let entry = ENTRIES + 8 * self.slot(self.completed);
        self.used.store_u32(entry, u32::from(fetched.id), Ordering::Relaxed);
        self.used.store_u32(entry + 4, written, Ordering::Relaxed);
        self.completed = self.completed.plus(1);
        self.next = self.next.plus(1);
    }

    #[inline]
    pub(super) fn show(&mut self) -> bool {
        let is_new = self.published != self.completed;
        if is_new {
            self.published = self.completed;
            self.used.store_u16(INDEX, self.published.get(), Ordering::Release);
            if let Some(notes) = &self.notes {
                split_notes::settle(notes, self.published.get());
            }
        }
        is_new
    }

    #[inline]
    pub(super) fn wants_call(&mut self) -> bool {
        // The guest writes what it wants, then looks at our index. We write our index, then look at what it wants.
        store_load_fence();
        if !self.has_events {
            return self.available.load_u16(FLAGS, Ordering::Relaxed) & DO_NOT_DISTURB == 0;
        }
        let event = self.available.load_u16(ENTRIES + 2 * usize::from(self.size), Ordering::Relaxed);
        let old = std::mem::replace(&mut self.judged, self.published);
        has_passed(event, old.get(), self.published.get())
    }

    /// With events there is nothing to do: an event that lies behind is not passed again for 65,536 buffers.
    pub(super) fn suppress_kicks(&mut self) {
        if !self.has_events {
            self.used.store_u16(FLAGS, DO_NOT_DISTURB, Ordering::Relaxed);
        }
    }

    pub(super) fn allow_kicks(&mut self) -> bool {
        if self.has_events {
            self.used.store_u16(ENTRIES + 8 * usize::from(self.size), self.next.get(), Ordering::Relaxed);
        } else {
            self.used.store_u16(FLAGS, 0, Ordering::Relaxed);
        }
        // We write what we want, then look at the guest's index; the guest does the reverse.
        store_load_fence();
        self.available.load_u16(INDEX, Ordering::Acquire) != self.next.get()
    }

    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.available.load_u16(INDEX, Ordering::Relaxed) != self.next.get()
    }

    pub(super) fn waiting(&self) -> u16 {
        Index::new(self.available.load_u16(INDEX, Ordering::Relaxed)).since(self.next).min(self.size)
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.next.get())
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }
}
