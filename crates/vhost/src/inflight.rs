//! Memory that outlives a back end, in which it notes how far it got with each ring (`VHOST_USER_GET_INFLIGHT_FD` and
//! `VHOST_USER_SET_INFLIGHT_FD`; QEMU's docs/interop/vhost-user.rst, version 9.1, "Inflight I/O tracking").
//!
//! The front end keeps the file and gives it to the next back end. A region for each queue lies in it, one behind the
//! other, at multiples of 64 bytes. A region that is all zeros was never used.

use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::error::VhostError;
use crate::memory::{Area, GuestMemory, RegionPlace};

/// Bytes of a region's header and of an entry, with split and with packed rings.
const SPLIT_BYTES: [u64; 2] = [16, 16];
const PACKED_BYTES: [u64; 2] = [32, 32];
/// Entries of the largest ring (virtio 1.3, 2.7 and 2.8).
const MAX_ENTRIES: u16 = 32_768;
/// Where the next region may begin.
const ALIGN: u64 = 64;
/// Offset of the layout's version in a region, and the version. Zero: the region was never used.
pub(crate) const VERSION: usize = 8;
pub(crate) const THIS_VERSION: u16 = 1;
/// Offset of the number of entries.
pub(crate) const ENTRIES: usize = 10;

/// What a front end says of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) len: u64,
    pub(crate) offset: u64,
    pub(crate) queues: u16,
    /// Entries of the longest ring.
    pub(crate) size: u16,
}

impl Shape {
    /// Bytes of one queue's region.
    fn region_bytes(self, is_packed: bool) -> u64 {
        let [header, entry] = if is_packed { PACKED_BYTES } else { SPLIT_BYTES };
        (header + entry * u64::from(self.size)).next_multiple_of(ALIGN)
    }

    fn check(self, most_queues: usize) -> Result<(), VhostError> {
        let Shape { queues, size, .. } = self;
        if usize::from(queues) > most_queues || size == 0 || size > MAX_ENTRIES {
            return Err(VhostError::BadInflight { queues, size, limit: most_queues });
        }
        Ok(())
    }
}

/// Makes a file for this many queues. Nothing is written to it.
pub(crate) fn make(
    asked: Shape,
    is_packed: bool,
    most_queues: usize,
) -> Result<(Shape, OwnedFd), VhostError> {
    asked.check(most_queues)?;
    let len = asked.region_bytes(is_packed) * u64::from(asked.queues);
    let failed = |error: rustix::io::Errno| VhostError::Map { len: len as usize, source: error.into() };
    let file = memfd_create("forebay-inflight", MemfdFlags::CLOEXEC).map_err(failed)?;
    ftruncate(&file, len).map_err(failed)?;
    Ok((Shape { len, offset: 0, ..asked }, file))
}

/// The file, mapped.
#[derive(Clone, Debug)]
pub(crate) struct Inflight {
    shape: Shape,
    memory: Arc<GuestMemory>,
}

impl Inflight {
    /// Maps a front end's file.
    pub(crate) fn open(shape: Shape, file: &OwnedFd, most_queues: usize) -> Result<Self, VhostError> {
        shape.check(most_queues)?;
        let mut memory = GuestMemory::default();
        memory.add(RegionPlace { guest: 0, user: 0, len: shape.len, offset: shape.offset }, file)?;
        Ok(Self { shape, memory: Arc::new(memory) })
    }

    /// Memory of all regions.
    pub(crate) fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Number of entries of each region.
    pub(crate) fn entries(&self) -> u16 {
        self.shape.size
    }

    /// One queue's region; `None` if the file has none for it.
    pub(crate) fn region(&self, index: usize, is_packed: bool) -> Result<Option<Area>, VhostError> {
        let bytes = self.shape.region_bytes(is_packed);
        if index >= usize::from(self.shape.queues) {
            return Ok(None);
        }
        let address = index as u64 * bytes;
        let area = self.memory.area(address, bytes as usize, ALIGN);
        let missing =
            VhostError::BadRingAddress { index, part: "region of its notes", address, align: ALIGN };
        area.map(Some).ok_or(missing)
    }

    /// The front end knows where a queue is, and may begin it anew: what was noted counts no more.
    pub(crate) fn forget(&self, index: usize, is_packed: bool) {
        if let Ok(Some(area)) = self.region(index, is_packed) {
            area.store_u16(VERSION, 0, std::sync::atomic::Ordering::Release);
        }
    }
}
