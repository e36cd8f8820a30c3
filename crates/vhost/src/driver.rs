//! A guest's side of one virtqueue, in this process: for tests and benchmarks of whatever serves virtqueues.
//!
//! It keeps the rules of the specification and checks that the device keeps them, too: what the device says it used
//! must have been available. It can also write anything anywhere, as a hostile guest can
//! ([`Driver::memory`], [`GuestMemory::write`]).
//!
//! ```text
//!   0x1_0000  descriptors   driver's part   device's part   indirect tables   buffers
//! ```
//! A [`FrontEnd`] has two such queues and connects them to a back end in another process.

mod descriptor;
mod front_end;
mod packed;
mod split;

use std::collections::VecDeque;
use std::sync::Arc;

use descriptor::Descriptor;
use forebay_wire::net_header::{MAX_HEADER_BYTES, NetHeader};
pub use front_end::{FrontEnd, FrontEndError, FrontEndOptions};
use packed::PackedDriver;
use split::SplitDriver;

use crate::error::VhostError;
use crate::features::Features;
use crate::memory::{Area, GuestMemory, RegionPlace};
use crate::ring::packed::FRESH;
use crate::virtqueue::{Bells, RingPlace, Virtqueue};

/// Where the driver's memory begins in the guest.
pub const GUEST_START: u64 = 0x1_0000;
/// What is added to an address of the guest for the same address in the front end.
pub const USER_OFFSET: u64 = 0x7f00_0000_0000;

/// Descriptors that a buffer of this driver may have.
pub const MAX_PARTS: usize = 16;

/// How a driver sets its queue up.
#[derive(Clone, Copy, Debug)]
pub struct DriverOptions {
    /// Features that both ends agreed on.
    pub features: Features,
    /// Entries of the ring.
    pub size: u16,
    /// Where the ring begins: an index (split), or both positions with their wrap counters (packed).
    pub base: u32,
    /// Bytes of memory for each buffer.
    pub buffer_bytes: u32,
    /// Where the queue's memory begins in the guest; a multiple of 4096.
    pub start: u64,
}

impl DriverOptions {
    /// A fresh ring.
    pub fn new(features: Features, size: u16, buffer_bytes: u32) -> Self {
        let base = if features.has(Features::RING_PACKED) { FRESH } else { 0 };
        Self { features, size, base, buffer_bytes, start: GUEST_START }
    }

    /// Bytes of guest memory that this takes.
    pub fn memory_bytes(&self) -> u64 {
        self.layout().end - self.start
    }

    fn layout(&self) -> Layout {
        let size = u64::from(self.size);
        let driver = self.start + 16 * size;
        let device = (driver + 6 + 2 * size).next_multiple_of(64);
        let tables = (device + 6 + 8 * size).next_multiple_of(64);
        let buffers = (tables + 16 * MAX_PARTS as u64 * size).next_multiple_of(4096);
        Layout { driver, device, tables, buffers, end: buffers + size * u64::from(self.buffer_bytes) }
    }
}

/// Addresses in the guest.
#[derive(Clone, Copy, Debug)]
struct Layout {
    driver: u64,
    device: u64,
    tables: u64,
    buffers: u64,
    end: u64,
}

/// One descriptor of a buffer: bytes for the device to read, or room for it to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// For the device to read.
    Bytes(&'a [u8]),
    /// For the device to write.
    Room(u32),
}

impl Part<'_> {
    fn len(&self) -> u32 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u32,
            Part::Room(len) => *len,
        }
    }
}

/// A buffer that the device used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// What [`Driver::add`] called it.
    pub id: u16,
    /// What the device wrote into it.
    pub written: Vec<u8>,
}

#[derive(Debug)]
enum Ring {
    Split(SplitDriver),
    Packed(PackedDriver),
}

/// What a guest has of one virtqueue.
#[derive(Debug)]
pub struct Driver {
    memory: Arc<GuestMemory>,
    options: DriverOptions,
    layout: Layout,
    ring: Ring,
    /// Ids that no buffer has; the one that was free for the longest time comes first.
    free: VecDeque<u16>,
    /// Descriptors of each buffer that the device has, by id.
    held: Vec<Option<Vec<Descriptor>>>,
}

impl Driver {
    /// A driver in ordinary memory of its own.
    ///
    /// # Errors
    /// The options ask for an impossible ring.
    pub fn new(options: DriverOptions) -> Result<Self, VhostError> {
        let mut memory = GuestMemory::default();
        memory.add_heap(Self::region(&options))?;
        Self::in_memory(options, Arc::new(memory))
    }

    /// Where the driver expects its memory.
    pub fn region(options: &DriverOptions) -> RegionPlace {
        let len = options.memory_bytes().next_multiple_of(4096);
        RegionPlace { guest: options.start, user: options.start + USER_OFFSET, len, offset: 0 }
    }

    /// A driver in memory that has the region of [`Driver::region`]; the front end's file for example.
    ///
    /// # Errors
    /// The ring does not lie in that memory.
    pub fn in_memory(options: DriverOptions, memory: Arc<GuestMemory>) -> Result<Self, VhostError> {
        let layout = options.layout();
        let is_packed = options.features.has(Features::RING_PACKED);
        let bytes = match is_packed {
            true => crate::ring::packed::part_bytes(options.size),
            false => crate::ring::split::part_bytes(options.size),
        };
        let area = |address: u64, bytes: usize| -> Result<Area, VhostError> {
            let address = address + USER_OFFSET;
            let missing =
                VhostError::BadRingAddress { index: 0, part: "part of the driver", address, align: 4 };
            memory.area(address, bytes, 4).ok_or(missing)
        };
        let areas =
            [area(options.start, bytes[0])?, area(layout.driver, bytes[1])?, area(layout.device, bytes[2])?];
        let ring = match is_packed {
            true => Ring::Packed(PackedDriver::new(areas, &options)),
            false => Ring::Split(SplitDriver::new(areas, &options)),
        };
        let (free, held) = ((0..options.size).collect(), vec![None; usize::from(options.size)]);
        Ok(Self { memory, options, layout, ring, free, held })
    }

    /// Where the ring is, for whoever serves it.
    pub fn place(&self, index: usize) -> RingPlace {
        RingPlace {
            index,
            size: self.options.size,
            descriptors: self.options.start + USER_OFFSET,
            driver: self.layout.driver + USER_OFFSET,
            device: self.layout.device + USER_OFFSET,
            base: self.options.base,
        }
    }

    /// The device's end of this queue.
    ///
    /// # Errors
    /// As [`Virtqueue::new`].
    pub fn device(&self, index: usize) -> Result<Virtqueue, VhostError> {
        let memory = Arc::clone(&self.memory);
        Virtqueue::new(memory, self.options.features, self.place(index), Bells::default())
    }

    /// The guest's memory, to write what no driver should.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Makes a packet to send available, its header in a descriptor with the first part, the other parts in one each.
    /// Returns `None` if the ring has no room.
    pub fn send(&mut self, header: NetHeader, parts: &[&[u8]]) -> Option<u16> {
        let bytes = header.to_bytes(0);
        let header_bytes = self.options.features.header_bytes() as usize;
        let (first, rest) = parts.split_first().map_or((&[][..], &[][..]), |(first, rest)| (*first, rest));
        let first = [&bytes[..header_bytes.min(MAX_HEADER_BYTES)], first].concat();
        let all: Vec<Part<'_>> =
            std::iter::once(&first[..]).chain(rest.iter().copied()).map(Part::Bytes).collect();
        self.add(&all, false)
    }

    /// Makes a buffer for a received packet available. Returns `None` if the ring has no room.
    pub fn offer(&mut self, room: &[u32]) -> Option<u16> {
        let parts: Vec<Part<'_>> = room.iter().map(|len| Part::Room(*len)).collect();
        self.add(&parts, false)
    }

    /// Makes a buffer available, by an indirect table if wanted. Returns its id, or `None` if the ring has no room.
    ///
    /// # Panics
    /// When the parts are more or longer than the options allow.
    pub fn add(&mut self, parts: &[Part<'_>], indirect: bool) -> Option<u16> {
        assert!(parts.len() <= MAX_PARTS, "too many parts");
        let slots = if indirect { 1 } else { parts.len() as u16 };
        let has_room = match &self.ring {
            Ring::Split(ring) => ring.free() >= slots,
            Ring::Packed(ring) => ring.free() >= slots,
        };
        if !has_room {
            return None;
        }
        let id = self.free.pop_front()?;
        let descriptors = self.write_parts(id, parts);
        let table = indirect.then(|| self.table_of(id));
        match &mut self.ring {
            Ring::Split(ring) => ring.add(&self.memory, id, &descriptors, table),
            Ring::Packed(ring) => ring.add(&self.memory, id, &descriptors, table),
        }
        self.held[usize::from(id)] = Some(descriptors);
        Some(id)
    }

    /// Writes the bytes of a buffer one behind the other.
    fn write_parts(&self, id: u16, parts: &[Part<'_>]) -> Vec<Descriptor> {
        let start = self.buffer_of(id);
        let mut at = start;
        let mut descriptors = Vec::with_capacity(parts.len());
        for part in parts {
            if let Part::Bytes(bytes) = part {
                assert!(self.memory.write(at, bytes), "the buffer is in memory");
            }
            descriptors.push(Descriptor {
                address: at,
                len: part.len(),
                writable: matches!(part, Part::Room(_)),
            });
            at += u64::from(part.len());
        }
        assert!(at - start <= u64::from(self.options.buffer_bytes), "the parts are longer than a buffer");
        descriptors
    }

    /// Address of a buffer's bytes.
    pub fn buffer_of(&self, id: u16) -> u64 {
        self.layout.buffers + u64::from(id) * u64::from(self.options.buffer_bytes)
    }

    /// Address of the driver's part of the ring.
    pub fn layout_of_driver(&self) -> u64 {
        self.layout.driver
    }

    fn table_of(&self, id: u16) -> u64 {
        self.layout.tables + u64::from(id) * 16 * MAX_PARTS as u64
    }

    /// Shows the device all buffers that were added. Returns whether the device wants a kick for them.
    pub fn publish(&mut self) -> bool {
        match &mut self.ring {
            Ring::Split(ring) => ring.publish(),
            Ring::Packed(ring) => ring.publish(),
        }
    }

    /// Takes the next buffer that the device used, with what was written into it.
    ///
    /// # Panics
    /// When the device used a buffer that it did not have, or wrote more than there was room.
    pub fn used(&mut self) -> Option<Used> {
        let (id, len) = match &mut self.ring {
            Ring::Split(ring) => ring.used()?,
            Ring::Packed(ring) => ring.used(&self.held)?,
        };
        let descriptors = self.held[usize::from(id)].take().expect("the device used what it did not have");
        if let Ring::Split(ring) = &mut self.ring {
            ring.release(id);
        }
        self.free.push_back(id);
        let mut written = vec![0; len as usize];
        let mut done = 0;
        for descriptor in descriptors.iter().filter(|descriptor| descriptor.writable) {
            let here = (descriptor.len as usize).min(written.len() - done);
            assert!(self.memory.read(descriptor.address, &mut written[done..done + here]));
            done += here;
        }
        assert_eq!(done, written.len(), "the device wrote more than there was room");
        Some(Used { id, written })
    }

    /// Returns the number of buffers that the device has.
    pub fn held(&self) -> usize {
        self.held.iter().flatten().count()
    }

    /// Asks for calls, or for none. Returns `true` if used buffers wait: there may be no call for them.
    pub fn want_calls(&mut self, wanted: bool) -> bool {
        match &mut self.ring {
            Ring::Split(ring) => ring.want_calls(wanted),
            Ring::Packed(ring) => ring.want_calls(wanted),
        }
    }
}

#[cfg(all(test, not(miri)))]
mod race;
#[cfg(all(test, not(miri)))]
mod tests;
