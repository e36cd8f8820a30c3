//! The guest's side of a packed ring.

use std::sync::atomic::Ordering;

use super::DriverOptions;
use super::descriptor::{Descriptor, descriptor_bytes};
use crate::features::Features;
use crate::memory::{Area, GuestMemory, store_load_fence};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

#[derive(Debug)]
pub(super) struct PackedDriver {
    ring: Area,
    driver: Area,
    device: Area,
    size: u16,
    /// Next descriptor to write, next used one to read; each with its wrap counter.
    next: (u16, bool),
    seen: (u16, bool),
    /// `next` when the device was last shown something.
    published: (u16, bool),
    free: u16,
    /// The first descriptor that the device does not see yet, and its flags.
    hidden: Option<(u16, u16)>,
    has_events: bool,
    /// Descriptors of each buffer, by id.
    slots: Vec<u16>,
}

impl PackedDriver {
    pub(super) fn new(areas: [Area; 3], options: &DriverOptions) -> Self {
        let DriverOptions { size, base, features, .. } = *options;
        let has_events = features.has(Features::EVENT_IDX);
        let [ring, driver, device] = areas;
        let position = |bits: u32| ((bits & 0x7fff) as u16, bits & 0x8000 != 0);
        let (next, seen) = (position(base), position(base >> 16));
        // Before the start nothing is available: the last lap looks used.
        for index in 0..size {
            let wrap = if index >= next.0 { !next.1 } else { next.1 };
            let flags = if wrap { AVAIL | USED } else { 0 };
            ring.store_u16(usize::from(index) * 16 + 14, flags, Ordering::Relaxed);
        }
        let slots = vec![0; usize::from(size)];
        let free = size;
        Self {
            ring,
            driver,
            device,
            size,
            next,
            seen,
            published: next,
            free,
            hidden: None,
            has_events,
            slots,
        }
    }

    pub(super) fn free(&self) -> u16 {
        self.free
    }

    pub(super) fn add(
        &mut self,
        memory: &GuestMemory,
        id: u16,
        descriptors: &[Descriptor],
        table: Option<u64>,
    ) {
        if let Some(table) = table {
            for (at, descriptor) in descriptors.iter().enumerate() {
                let flags = if descriptor.writable { WRITE } else { 0 };
                let bytes = descriptor_bytes(descriptor.address, descriptor.len, 0, flags);
                assert!(memory.write(table + 16 * at as u64, &bytes));
            }
            self.push(id, (table, 16 * descriptors.len() as u32), INDIRECT);
            self.slots[usize::from(id)] = 1;
            return;
        }
        for (at, descriptor) in descriptors.iter().enumerate() {
            let more = if at + 1 < descriptors.len() { NEXT } else { 0 };
            let flags = more | if descriptor.writable { WRITE } else { 0 };
            self.push(id, (descriptor.address, descriptor.len), flags);
        }
        self.slots[usize::from(id)] = descriptors.len() as u16;
    }

    /// Writes one descriptor. The first since the last publishing keeps its old flags.
    fn push(&mut self, id: u16, (address, len): (u64, u32), flags: u16) {
        let (index, wrap) = self.next;
        let flags = flags | if wrap { AVAIL } else { USED };
        let at = usize::from(index) * 16;
        let old = self.ring.load_u16(at + 14, Ordering::Relaxed);
        let is_hidden = self.hidden.is_none();
        let shown = if is_hidden { old } else { flags };
        let rest = u64::from(len) | u64::from(id) << 32 | u64::from(shown) << 48;
        self.ring.store_u64(at, address, Ordering::Relaxed);
        self.ring.store_u64(at + 8, rest, Ordering::Relaxed);
        if is_hidden {
            self.hidden = Some((index, flags));
        }
        self.next = self.after(self.next, 1);
        self.free -= 1;
    }

    fn after(&self, (index, wrap): (u16, bool), slots: u16) -> (u16, bool) {
        let index = index + slots;
        if index >= self.size { (index - self.size, !wrap) } else { (index, wrap) }
    }

    pub(super) fn publish(&mut self) -> bool {
        let Some((index, flags)) = self.hidden.take() else { return false };
        self.ring.store_u16(usize::from(index) * 16 + 14, flags, Ordering::Release);
        store_load_fence();
        let old = std::mem::replace(&mut self.published, self.next);
        let wants = self.device.load_u32(0, Ordering::Relaxed);
        let event = ((wants & 0x7fff) as u16, wants & 0x8000 != 0);
        match wants >> 16 {
            2 => self.walked_over(event, old),
            flags => flags != 1,
        }
    }

    /// Whether a step from `old` to `next` passed the event; walks there, so that it shares nothing with the device.
    fn walked_over(&self, event: (u16, bool), old: (u16, bool)) -> bool {
        let mut at = old;
        while at != self.next {
            if at == event {
                return true;
            }
            at = self.after(at, 1);
        }
        false
    }

    pub(super) fn used(&mut self, held: &[Option<Vec<Descriptor>>]) -> Option<(u16, u32)> {
        let (index, wrap) = self.seen;
        let at = usize::from(index) * 16;
        let flags = self.ring.load_u16(at + 14, Ordering::Acquire);
        if (flags & AVAIL != 0) != wrap || (flags & USED != 0) != wrap {
            return None;
        }
        let id = self.ring.load_u16(at + 12, Ordering::Relaxed);
        // The length is valid only where the device says that it wrote.
        let len = if flags & WRITE != 0 { self.ring.load_u32(at + 8, Ordering::Relaxed) } else { 0 };
        assert!(held[usize::from(id)].is_some(), "the device used what it did not have");
        let slots = self.slots[usize::from(id)];
        self.seen = self.after(self.seen, slots);
        self.free += slots;
        Some((id, len))
    }

    pub(super) fn want_calls(&mut self, wanted: bool) -> bool {
        let (index, wrap) = self.seen;
        let position = u32::from(index) | if wrap { 0x8000 } else { 0 };
        let flags = match (wanted, self.has_events) {
            (false, _) => 1,
            (true, false) => 0,
            (true, true) => 2,
        };
        self.driver.store_u32(0, position | flags << 16, Ordering::Relaxed);
        store_load_fence();
        let flags = self.ring.load_u16(usize::from(index) * 16 + 14, Ordering::Acquire);
        (flags & AVAIL != 0) == wrap && (flags & USED != 0) == wrap
    }
}
