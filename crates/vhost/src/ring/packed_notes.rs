//! Notes of a packed ring's buffers that were taken and not yet shown as used (vhost-user, `QueueRegionPacked`).
//!
//! Used descriptors overwrite available ones. So before that happens, a copy is noted; a back end that comes after a crash
//! puts the copies back, and the ring is as if nobody had taken them. Each step below is one store, or can be made again.
//!
//! The region is memory of the front end. It is read once, at the start; afterwards it is only written.

use std::sync::atomic::{Ordering, compiler_fence};

use super::position::{AVAIL, FLAGS, ID, LEN, Position, USED};
use crate::error::VhostError;
use crate::inflight::{ENTRIES, THIS_VERSION, VERSION};
use crate::memory::{Area, RawDescriptor};

/// Offsets in a region: heads of the list of free entries (now, and at the last publishing), positions (the same).
const HEADS: usize = 12;
const POSITIONS: usize = 16;
const FIRST: usize = 32;
/// Bytes of an entry, and offsets in it.
const ENTRY: usize = 32;
const IN_FLIGHT: usize = 0;
const NEXT: usize = 2;
const LAST: usize = 4;
const NUM: usize = 6;
const COUNTER: usize = 8;
const DESCRIPTOR_ID: usize = 16;
const DESCRIPTOR_FLAGS: usize = 18;
const DESCRIPTOR_LEN: usize = 20;
const ADDRESS: usize = 24;

/// What is noted of one ring.
#[derive(Debug)]
pub(crate) struct PackedNotes {
    area: Area,
    /// The list of free entries: which one follows each. A number that is no entry ends it.
    next: Box<[u16]>,
    free: u16,
    /// Entries in the list.
    left: u16,
    /// Head of the list, and position in the ring, when the guest was last shown something.
    settled_free: u16,
    settled: Position,
    counter: u64,
    /// First and last entry of each buffer that was taken since.
    batch: Vec<[u16; 2]>,
}

/// What a region says.
struct Read {
    free: [u16; 2],
    /// `None`: no ring has so many entries.
    positions: [Option<Position>; 2],
}

impl PackedNotes {
    /// Goes on with the notes of an earlier back end, or begins new ones at `start`. Returns where the ring goes on.
    ///
    /// # Errors
    /// The notes contradict themselves.
    pub(super) fn open(
        area: Area,
        entries: u16,
        ring: &Area,
        size: u16,
        start: Position,
    ) -> Result<(Self, Position), VhostError> {
        let is_used = area.load_u16(VERSION, Ordering::Acquire) == THIS_VERSION;
        let at = match is_used && area.load_u16(ENTRIES, Ordering::Relaxed) == entries {
            true => recover(&area, entries, ring, size)?,
            false => start,
        };
        let notes = Self {
            area,
            next: (1..=entries).collect(),
            free: 0,
            left: entries,
            settled_free: 0,
            settled: at,
            counter: 0,
            batch: Vec::with_capacity(entries.into()),
        };
        // While one is marked, the list says whether it is free. So marks go before the list changes.
        for entry in 0..entries {
            notes.store_u16(entry, IN_FLIGHT, 0);
        }
        for entry in 0..entries {
            notes.store_u16(entry, NEXT, notes.next[usize::from(entry)]);
        }
        notes.store_heads();
        notes.store_positions(at);
        notes.area.store_u16(ENTRIES, entries, Ordering::Release);
        notes.area.store_u16(VERSION, THIS_VERSION, Ordering::Release);
        Ok((notes, at))
    }

    fn store_u16(&self, entry: u16, offset: usize, value: u16) {
        self.area.store_u16(FIRST + ENTRY * usize::from(entry) + offset, value, Ordering::Release);
    }

    /// Both heads by one store.
    fn store_heads(&self) {
        let heads = u32::from(self.free) | u32::from(self.settled_free) << 16;
        self.area.store_u32(HEADS, heads, Ordering::Release);
    }

    /// Both positions by one store.
    fn store_positions(&self, now: Position) {
        let indexes = u64::from(now.index()) | u64::from(self.settled.index()) << 16;
        let wraps = u64::from(now.wrap()) << 32 | u64::from(self.settled.wrap()) << 40;
        self.area.store_u64(POSITIONS, indexes | wraps, Ordering::Release);
    }

    /// Notes a buffer of `slots` descriptors at `at`, before they are overwritten.
    pub(super) fn take(&mut self, ring: &Area, at: Position, slots: u16, size: u16) {
        if slots == 0 || slots > self.left {
            // Only a guest that makes buffers available twice gets here, and loses what it breaks.
            return;
        }
        self.left -= slots;
        let (head, mut entry, mut last) = (self.free, self.free, self.free);
        for slot in 0..slots {
            let descriptor = ring.descriptor(at.after(slot, size).index());
            self.store_descriptor(entry, descriptor);
            last = entry;
            entry = self.next[usize::from(entry)];
        }
        self.store_u16(head, LAST, last);
        self.store_u16(head, NUM, slots);
        self.area.store_u64(FIRST + ENTRY * usize::from(head) + COUNTER, self.counter, Ordering::Release);
        self.counter = self.counter.wrapping_add(1);
        self.store_u16(head, IN_FLIGHT, 1);
        (self.free, self.settled_free) = (entry, entry);
        // From here on the buffer counts as taken.
        self.store_heads();
        self.batch.push([head, last]);
        compiler_fence(Ordering::SeqCst);
    }

    fn store_descriptor(&self, entry: u16, descriptor: RawDescriptor) {
        let at = FIRST + ENTRY * usize::from(entry);
        self.area.store_u64(at + ADDRESS, descriptor.address, Ordering::Relaxed);
        self.area.store_u32(at + DESCRIPTOR_LEN, descriptor.len, Ordering::Relaxed);
        self.area.store_u16(at + DESCRIPTOR_ID, descriptor.third, Ordering::Relaxed);
        self.area.store_u16(at + DESCRIPTOR_FLAGS, descriptor.fourth, Ordering::Relaxed);
    }

    /// The guest is about to be shown everything up to `now`, by one store.
    pub(super) fn prepare(&mut self, now: Position) {
        compiler_fence(Ordering::SeqCst);
        for &[head, last] in &self.batch {
            self.next[usize::from(last)] = self.free;
            self.store_u16(last, NEXT, self.free);
            self.free = head;
        }
        self.store_heads();
        self.store_positions(now);
        compiler_fence(Ordering::SeqCst);
    }

    /// The guest was shown it.
    pub(super) fn settle(&mut self, now: Position) {
        compiler_fence(Ordering::SeqCst);
        for &[head, _] in &self.batch {
            self.store_u16(head, IN_FLIGHT, 0);
        }
        self.batch.clear();
        self.left = self.next.len() as u16;
        self.settled_free = self.free;
        self.store_heads();
        self.settled = now;
        self.store_positions(now);
    }
}

/// Puts back into the ring what was taken and not shown. Returns where the ring goes on.
fn recover(area: &Area, entries: u16, ring: &Area, size: u16) -> Result<Position, VhostError> {
    let malformed = |what| VhostError::BadNotes { what };
    let Read { free: [free, settled_free], positions } = read(area);
    let [Some(now), Some(settled)] = positions.map(|at| at.filter(|at| at.index() < size)) else {
        return Err(malformed("a position outside of the ring"));
    };
    // The last back end died between noting that the guest is shown something and noting that it was. Meanwhile the guest
    // may have made the descriptor available for the next lap.
    let was_shown = now != settled && !is_available(ring, settled);
    let (free, at) = if was_shown { (free, now) } else { (settled_free, settled) };
    let is_free = free_entries(area, entries, free);
    let mut buffers: Vec<(u64, u16)> = (0..entries)
        .filter(|entry| !is_free[usize::from(*entry)] && load_u16(area, *entry, IN_FLIGHT) & 0xff == 1)
        .map(|entry| (area.load_u64(FIRST + ENTRY * usize::from(entry) + COUNTER), entry))
        .collect();
    buffers.sort_unstable();
    let mut to = at;
    let mut left = size;
    for (_, head) in &buffers {
        let count = load_u16(area, *head, NUM);
        left = left.checked_sub(count).ok_or(malformed("more descriptors than the ring has"))?;
        to = put_back(area, entries, ring, (*head, count), to, size)?;
    }
    // In this order, so that what is left after a crash in here is the beginning of the list again.
    for (_, head) in buffers.iter().rev() {
        area.store_u16(FIRST + ENTRY * usize::from(*head) + IN_FLIGHT, 0, Ordering::Release);
    }
    Ok(at)
}

fn read(area: &Area) -> Read {
    let heads = area.load_u32(HEADS, Ordering::Acquire);
    let bits = area.load_u64(POSITIONS);
    let position =
        |index: u32, wrap: u32| Position::checked((bits >> index) as u16, bits >> wrap & 0xff != 0);
    Read { free: [heads as u16, (heads >> 16) as u16], positions: [position(0, 32), position(16, 40)] }
}

fn load_u16(area: &Area, entry: u16, offset: usize) -> u16 {
    area.load_u16(FIRST + ENTRY * usize::from(entry) + offset, Ordering::Relaxed)
}

/// Whether the descriptor there still waits to be used.
fn is_available(ring: &Area, at: Position) -> bool {
    let flags = ring.load_u16(usize::from(at.index()) * 16 + FLAGS, Ordering::Acquire);
    (flags & AVAIL != 0) == at.wrap() && (flags & USED != 0) != at.wrap()
}

/// Which entries are in the list that begins at `head`; it may be any list.
fn free_entries(area: &Area, entries: u16, head: u16) -> Vec<bool> {
    let mut is_free = vec![false; entries.into()];
    let mut entry = head;
    while entry < entries && !std::mem::replace(&mut is_free[usize::from(entry)], true) {
        entry = load_u16(area, entry, NEXT);
    }
    is_free
}

/// Writes a buffer's descriptors to the ring as the guest had made them available.
fn put_back(
    area: &Area,
    entries: u16,
    ring: &Area,
    (head, count): (u16, u16),
    mut to: Position,
    size: u16,
) -> Result<Position, VhostError> {
    let mut entry = head;
    for _ in 0..count {
        if entry >= entries {
            return Err(VhostError::BadNotes { what: "an entry outside of the region" });
        }
        let from = FIRST + ENTRY * usize::from(entry);
        let offset = usize::from(to.index()) * 16;
        ring.store_u64(offset, area.load_u64(from + ADDRESS), Ordering::Relaxed);
        let len = area.load_u32(from + DESCRIPTOR_LEN, Ordering::Relaxed);
        ring.store_u32(offset + LEN, len, Ordering::Relaxed);
        ring.store_u16(offset + ID, load_u16(area, entry, DESCRIPTOR_ID), Ordering::Relaxed);
        let flags = load_u16(area, entry, DESCRIPTOR_FLAGS) & !(AVAIL | USED);
        let flags = flags | if to.wrap() { AVAIL } else { USED };
        ring.store_u16(offset + FLAGS, flags, Ordering::Release);
        to = to.after(1, size);
        entry = load_u16(area, entry, NEXT);
    }
    Ok(to)
}
