//! The packed ring (virtio 1.3, 2.8): one ring of descriptors that both ends write, and what each end says of
//! notifications.
//!
//! A lap of the ring is told from the next by a *wrap counter* of one bit at each end.

use std::sync::atomic::Ordering;

use super::chain::{Direction, Fetched, INDIRECT, NEXT, Pieces, ReadyBuffer, WRITE, Walk, usual};
use super::packed_notes::PackedNotes;
use super::position::{AVAIL, FLAGS, ID, LEN, Position, USED};
use super::whereabouts;
use crate::error::{RingError, VhostError};
use crate::memory::{Area, GuestMemory, Purpose, RawDescriptor, store_load_fence};

/// Flags of the event suppression structures: `RING_EVENT_FLAGS_ENABLE`, `_DISABLE`, `_DESC`.
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const AT_POSITION: u16 = 2;

/// Bytes of the three parts of a ring of `size` entries.
pub(crate) fn part_bytes(size: u16) -> [usize; 3] {
    [16 * usize::from(size), 4, 4]
}

/// Alignments of the three parts.
pub(crate) const ALIGN: [u64; 3] = [16, 4, 4];

/// Both cursors at the start with wrap counters of 1, which is where a new ring begins.
pub(crate) const FRESH: u32 = 0x8000_8000;

/// Whether a cursor that went from `old` to `new` passed `event`. The guest may have written any event.
fn has_passed(event: Position, old: Position, new: Position, size: u16) -> bool {
    let laps = 2 * u32::from(size);
    let distance =
        |from: Position, to: Position| (to.in_two_laps(size) + laps - from.in_two_laps(size) % laps) % laps;
    let from_event = distance(event, new);
    from_event != 0 && from_event <= distance(old, new)
}

#[derive(Debug)]
pub(crate) struct PackedRing {
    ring: Area,
    driver: Area,
    device: Area,
    size: u16,
    /// Next descriptor to take.
    next: Position,
    /// Next used descriptor to write.
    completed: Position,
    /// Where the first used descriptor is that the guest was not shown, and its flags.
    hidden: Option<(u16, u16)>,
    /// `completed` when the guest was last shown it.
    shown: Position,
    /// `shown` when it was last decided about a call.
    judged: Position,
    has_events: bool,
    has_indirect: bool,
    /// What the next back end is to know, if the front end keeps it.
    notes: Option<Box<PackedNotes>>,
}

impl PackedRing {
    /// A ring whose parts are as long as [`part_bytes`] says. It goes on at the base unless what lies in it contradicts that.
    /// `None`: the base is not in the ring.
    pub(crate) fn new([ring, driver, device]: [Area; 3], size: u16, base: u32) -> Option<Self> {
        let (said, completed) = (Position::from_bits(base as u16), Position::from_bits((base >> 16) as u16));
        if said.index() >= size || completed.index() >= size {
            return None;
        }
        let next = whereabouts::position(&ring, size, said);
        let completed = if next == said { completed } else { next };
        Some(Self {
            ring,
            driver,
            device,
            size,
            next,
            completed,
            hidden: None,
            shown: completed,
            judged: completed,
            has_events: false,
            has_indirect: false,
            notes: None,
        })
    }

    pub(crate) fn with_features(mut self, has_events: bool, has_indirect: bool) -> Self {
        (self.has_events, self.has_indirect) = (has_events, has_indirect);
        self
    }

    /// Notes from now on what a back end after a crash is to know, and goes on where the last one noted.
    pub(crate) fn note_in(&mut self, region: Area, entries: u16) -> Result<(), VhostError> {
        let (notes, at) = PackedNotes::open(region, entries, &self.ring, self.size, self.next)?;
        (self.next, self.completed, self.shown, self.judged) = (at, at, at, at);
        self.notes = Some(Box::new(notes));
        Ok(())
    }

    #[inline]
    fn is_available(&self, at: Position) -> bool {
        let flags = self.ring.load_u16(usize::from(at.index()) * 16 + FLAGS, Ordering::Acquire);
        let (avail, used) = (flags & AVAIL != 0, flags & USED != 0);
        avail == at.wrap() && used != at.wrap()
    }

    #[inline]
    pub(super) fn fetch(
        &mut self,
        memory: &GuestMemory,
        ahead: u16,
        direction: Direction,
        pieces: &mut Pieces,
    ) -> Result<Option<Fetched>, RingError> {
        if ahead >= self.size {
            return Ok(None);
        }
        let at = self.next.after(ahead, self.size);
        if !self.is_available(at) {
            return Ok(None);
        }
        let walk = Walk::new(memory, pieces, direction, u32::from(self.size));
        self.walk(walk, at.index()).map(Some)
    }

    #[inline]
    pub(super) fn look(&self, memory: &GuestMemory, ahead: u16, direction: Direction) -> Option<ReadyBuffer> {
        let at = self.next.after(ahead, self.size);
        let is_available = ahead < self.size && self.is_available(at);
        let descriptor = is_available.then(|| self.ring.descriptor(at.index()))?;
        let piece = usual(memory, descriptor, descriptor.fourth, direction)?;
        Some(ReadyBuffer { piece, id: descriptor.third })
    }

    /// Begins to bring the entry that is `ahead` entries behind the next one into the cache.
    #[inline]
    pub(super) fn fetch_entry(&self, ahead: u16) {
        let at = self.next.after(ahead.min(self.size - 1), self.size);
        self.ring.prefetch(16 * usize::from(at.index()), Purpose::Write);
    }

    /// Follows the chain, whose descriptors lie next to each other. Its last one has its id.
    #[inline(never)]
    fn walk(&self, mut walk: Walk<'_>, first: u16) -> Result<Fetched, RingError> {
        let (mut index, mut slots) = (first, 1);
        loop {
            let descriptor = self.ring.descriptor(index);
            let RawDescriptor { third: id, fourth: flags, .. } = descriptor;
            if flags & INDIRECT != 0 {
                if flags & NEXT != 0 {
                    return Err(RingError::IndirectNotAllowed);
                }
                // All entries of the table count, in their order, and of their flags only WRITE does. In a table of what a guest
                // sends WRITE does not count either: DPDK's driver sets it at the entry of its header.
                let entries = table_entries(descriptor.len);
                let counts = if walk.only_reads() { INDIRECT } else { WRITE | INDIRECT };
                walk.add_table(descriptor, self.has_indirect, |entry, at| {
                    let following = at.checked_add(1).filter(|next| u32::from(*next) < entries);
                    (entry.fourth & counts, following)
                })?;
                return Ok(walk.end(id, 1));
            }
            walk.add(descriptor, flags)?;
            if flags & NEXT == 0 {
                return Ok(walk.end(id, slots));
            }
            slots += 1;
            index = if index + 1 == self.size { 0 } else { index + 1 };
        }
    }

    #[inline]
    pub(super) fn complete(&mut self, fetched: &Fetched, written: u32) {
        let at = self.completed;
        if let Some(notes) = &mut self.notes {
            notes.take(&self.ring, at, fetched.slots, self.size);
        }
        let offset = usize::from(at.index()) * 16;
        self.ring.store_u32(offset + LEN, written, Ordering::Relaxed);
        self.ring.store_u16(offset + ID, fetched.id, Ordering::Relaxed);
        let flags = if at.wrap() { AVAIL | USED } else { 0 } | if written > 0 { WRITE } else { 0 };
        match self.hidden {
            // The guest looks at descriptors in their order, so those behind a hidden one are hidden, too.
            Some(_) => self.ring.store_u16(offset + FLAGS, flags, Ordering::Release),
            None => self.hidden = Some((at.index(), flags)),
        }
        self.completed = at.after(fetched.slots, self.size);
        self.next = self.next.after(fetched.slots, self.size);
    }

    #[inline]
    pub(super) fn show(&mut self) -> bool {
        let Some((index, flags)) = self.hidden.take() else { return false };
        if let Some(notes) = &mut self.notes {
            notes.prepare(self.completed);
        }
        self.ring.store_u16(usize::from(index) * 16 + FLAGS, flags, Ordering::Release);
        self.shown = self.completed;
        if let Some(notes) = &mut self.notes {
            notes.settle(self.completed);
        }
        true
    }

    #[inline]
    pub(super) fn wants_call(&mut self) -> bool {
        // The guest writes what it wants, then looks at the ring. We write the ring, then look at what it wants.
        store_load_fence();
        let wants = self.driver.load_u32(0, Ordering::Relaxed);
        let (event, flags) = (Position::from_bits(wants as u16), (wants >> 16) as u16);
        // What was completed since and is not shown yet is decided about when it is.
        let old = std::mem::replace(&mut self.judged, self.shown);
        match flags {
            AT_POSITION if self.has_events => has_passed(event, old, self.shown, self.size),
            flags => flags != DISABLE,
        }
    }

    pub(super) fn suppress_kicks(&mut self) {
        self.device.store_u32(0, u32::from(DISABLE) << 16, Ordering::Relaxed);
    }

    pub(super) fn allow_kicks(&mut self) -> bool {
        let flags = if self.has_events { AT_POSITION } else { ENABLE };
        let wants = u32::from(self.next.bits()) | u32::from(flags) << 16;
        self.device.store_u32(0, wants, Ordering::Relaxed);
        // We write what we want, then look at the ring; the guest does the reverse.
        store_load_fence();
        self.is_available(self.next)
    }

    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.is_available(self.next)
    }

    /// The guest shows entries in their order, so one that is shown says that all before it are: except for the first of
    /// several, which may be shown last.
    pub(super) fn waiting(&self) -> u16 {
        let (mut shown, mut limit) = (0, if self.has_waiting() { self.size } else { 0 });
        while shown < limit {
            let ahead = shown + (limit - shown) / 2;
            match self.is_available(self.next.after(ahead, self.size)) {
                true => shown = ahead + 1,
                false => limit = ahead,
            }
        }
        shown
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.next.bits()) | u32::from(self.completed.bits()) << 16
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }
}

fn table_entries(len: u32) -> u32 {
    len / 16
}
