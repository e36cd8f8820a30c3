//! The guest's side of a split ring.

use std::sync::atomic::Ordering;

use super::DriverOptions;
use super::descriptor::{Descriptor, descriptor_bytes};
use crate::features::Features;
use crate::memory::{Area, GuestMemory, store_load_fence};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

#[derive(Debug)]
pub(super) struct SplitDriver {
    /// Where the descriptors begin in the guest.
    start: u64,
    available: Area,
    used: Area,
    size: u16,
    /// Next available entry to write, and what the device was shown.
    next: u16,
    published: u16,
    /// Next used entry to read.
    seen: u16,
    has_events: bool,
    free: Vec<u16>,
    /// Head and descriptors of each buffer, by id.
    chains: Vec<Vec<u16>>,
    /// Which buffer a head belongs to.
    id_of: Vec<u16>,
}

impl SplitDriver {
    pub(super) fn new(areas: [Area; 3], options: &DriverOptions) -> Self {
        let (size, base) = (options.size, options.base as u16);
        let has_events = options.features.has(Features::EVENT_IDX);
        let [_, available, used] = areas;
        available.store_u16(2, base, Ordering::Relaxed);
        used.store_u16(2, base, Ordering::Relaxed);
        Self {
            start: options.start,
            available,
            used,
            size,
            next: base,
            published: base,
            seen: base,
            has_events,
            free: (0..size).rev().collect(),
            chains: vec![Vec::new(); usize::from(size)],
            id_of: vec![0; usize::from(size)],
        }
    }

    pub(super) fn free(&self) -> u16 {
        self.free.len() as u16
    }

    pub(super) fn add(
        &mut self,
        memory: &GuestMemory,
        id: u16,
        descriptors: &[Descriptor],
        table: Option<u64>,
    ) {
        let count = if table.is_some() { 1 } else { descriptors.len() };
        let chain = self.free.split_off(self.free.len() - count);
        let (start, indexes): (u64, Vec<u16>) = match table {
            Some(table) => (table, (0..descriptors.len() as u16).collect()),
            None => (self.start, chain.clone()),
        };
        for (at, descriptor) in descriptors.iter().enumerate() {
            let next = indexes.get(at + 1);
            let flags = if descriptor.writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            let bytes =
                descriptor_bytes(descriptor.address, descriptor.len, flags, next.copied().unwrap_or(0));
            assert!(memory.write(start + 16 * u64::from(indexes[at]), &bytes));
        }
        if let Some(table) = table {
            let bytes = descriptor_bytes(table, 16 * descriptors.len() as u32, INDIRECT, 0);
            assert!(memory.write(self.start + 16 * u64::from(chain[0]), &bytes));
        }
        let entry = 4 + 2 * usize::from(self.next & (self.size - 1));
        self.available.store_u16(entry, chain[0], Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
        self.id_of[usize::from(chain[0])] = id;
        self.chains[usize::from(id)] = chain;
    }

    pub(super) fn publish(&mut self) -> bool {
        let old = std::mem::replace(&mut self.published, self.next);
        if old == self.next {
            return false;
        }
        self.available.store_u16(2, self.next, Ordering::Release);
        store_load_fence();
        if !self.has_events {
            return self.used.load_u16(0, Ordering::Relaxed) & 1 == 0;
        }
        let event = self.used.load_u16(4 + 8 * usize::from(self.size), Ordering::Relaxed);
        self.next.wrapping_sub(event).wrapping_sub(1) < self.next.wrapping_sub(old)
    }

    pub(super) fn used(&mut self) -> Option<(u16, u32)> {
        if self.used.load_u16(2, Ordering::Acquire) == self.seen {
            return None;
        }
        let entry = 4 + 8 * usize::from(self.seen & (self.size - 1));
        let head = self.used.load_u32(entry, Ordering::Relaxed);
        let len = self.used.load_u32(entry + 4, Ordering::Relaxed);
        self.seen = self.seen.wrapping_add(1);
        Some((self.id_of[head as usize], len))
    }

    pub(super) fn release(&mut self, id: u16) {
        self.free.append(&mut self.chains[usize::from(id)]);
    }

    pub(super) fn want_calls(&mut self, wanted: bool) -> bool {
        if self.has_events {
            // Without a wish the event stays where it is, behind what comes.
            let event = if wanted { self.seen } else { self.seen.wrapping_sub(1) };
            self.available.store_u16(4 + 2 * usize::from(self.size), event, Ordering::Relaxed);
        } else {
            self.available.store_u16(0, u16::from(!wanted), Ordering::Relaxed);
        }
        store_load_fence();
        self.used.load_u16(2, Ordering::Acquire) != self.seen
    }
}
