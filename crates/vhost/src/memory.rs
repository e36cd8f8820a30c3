//! A guest's memory: regions that are mapped from the front end's files.
//!
//! Another party writes this memory at any time. So bytes are copied out, then validated, or copied in; what nobody needs to
//! read stays where it is ([`Lent`]), and the only references to it are to atomics. Every copy is checked against the bounds of
//! one region. If the front end truncates the file, the copy goes on with zeros, and [`GuestMemory::is_broken`] says so from
//! then on.
//!
//! ```text
//!   address of the guest ──► Piece (region, offset, length) ──► copy_from, copy_to        packets
//!   address of the front end ──► Area (part of one region) ──► atomic loads and stores    rings
//! ```

mod area;
mod fault;
mod lent;
mod log;
mod mapping;
#[cfg(test)]
pub(crate) mod race;

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

#[cfg(test)]
pub(crate) use area::crash;
pub(crate) use area::{Area, RawDescriptor, store_load_fence};
pub use lent::{Lent, LentBytes, LentPieces};
pub(crate) use log::DirtyLog;
use mapping::Mapping;
pub(crate) use mapping::Purpose;
use rustix::fd::OwnedFd;

use crate::error::VhostError;

/// Regions that a guest may have; what a message can carry descriptors for.
pub const MAX_REGIONS: usize = 32;

/// Where a region lies, as the front end describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionPlace {
    /// Address in the guest.
    pub guest: u64,
    /// Address in the front end's process.
    pub user: u64,
    /// Bytes.
    pub len: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// One region, mapped.
#[derive(Clone, Debug)]
struct Region {
    place: RegionPlace,
    mapping: Arc<Mapping>,
}

/// All regions of a guest. A change makes a new value; rings of the old one keep its mappings until they are dropped.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    /// Sorted by the guest's address.
    regions: Vec<Region>,
    /// Where is noted which pages we write.
    log: Option<Arc<DirtyLog>>,
}

/// A part of a buffer that lies in one region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    region: u32,
    len: u32,
    offset: u64,
}

impl Piece {
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// What lies behind its first bytes.
    ///
    /// # Panics
    /// When the piece is shorter than that: a bug of the caller.
    #[inline]
    pub(crate) fn behind(self, bytes: u32) -> Self {
        assert!(bytes <= self.len, "the rest of a piece begins behind its end");
        Self { len: self.len - bytes, offset: self.offset + u64::from(bytes), ..self }
    }
}

impl GuestMemory {
    /// Maps a region of `file` and adds it.
    ///
    /// # Errors
    /// The region is empty, wraps around, overlaps another, leaves its file, or the file may stall its readers.
    pub fn add(&mut self, place: RegionPlace, file: &OwnedFd) -> Result<(), VhostError> {
        self.check(place)?;
        let mapping = Mapping::of_file(place, file)?;
        self.insert(Region { place, mapping: Arc::new(mapping) });
        Ok(())
    }

    /// Maps a region that the kernel lends to a device in user space, and adds it. `file` comes from the kernel itself
    /// (`VDUSE_IOTLB_GET_FD`), so it is not asked for its length or its file system.
    ///
    /// # Errors
    /// The region is empty, wraps around, overlaps another, or cannot be mapped.
    pub fn add_lent(&mut self, place: RegionPlace, file: &OwnedFd) -> Result<(), VhostError> {
        self.check(place)?;
        let mapping = Mapping::of_kernel(place, file)?;
        self.insert(Region { place, mapping: Arc::new(mapping) });
        Ok(())
    }

    /// Adds a region of zeroed ordinary memory, for drivers in this process.
    ///
    /// # Errors
    /// As [`GuestMemory::add`].
    pub fn add_heap(&mut self, place: RegionPlace) -> Result<(), VhostError> {
        self.check(place)?;
        let mapping = Mapping::of_heap(place.len as usize);
        self.insert(Region { place, mapping: Arc::new(mapping) });
        Ok(())
    }

    /// Whether a region has this place.
    pub fn has(&self, place: RegionPlace) -> bool {
        self.regions.iter().any(|region| region.place == place)
    }

    /// Removes the region that has this place, wherever it begins in its file. `false`: it is not there.
    pub fn remove(&mut self, place: RegionPlace) -> bool {
        let is_it = |region: &Region| RegionPlace { offset: place.offset, ..region.place } == place;
        let found = self.regions.iter().position(is_it);
        found.map(|at| self.regions.remove(at)).is_some()
    }

    /// Whether a fault hit any region. The guest's port is then to be broken.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_broken())
    }

    /// The same memory, with another log or none.
    pub(crate) fn with_log(&self, log: Option<Arc<DirtyLog>>) -> Self {
        Self { regions: self.regions.clone(), log }
    }

    /// Number of regions.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Finds part of a ring, which is named by an address of the front end and lies in one region.
    pub(crate) fn area(&self, user: u64, len: usize, align: u64) -> Option<Area> {
        let region = self.regions.iter().find(|region| region.place.user_contains(user))?;
        let offset = user - region.place.user;
        let fits = len as u64 <= region.place.len - offset && user.is_multiple_of(align);
        let area = fits.then(|| Area::new(&region.mapping, offset as usize, len, align)).flatten()?;
        let log = self.log.as_ref().map(|log| (Arc::clone(log), region.place.guest + offset));
        Some(area.logged(log))
    }

    /// Finds the first piece of a buffer in the guest. It may be shorter than the buffer, whose rest then lies in the
    /// next region.
    #[inline]
    pub(crate) fn piece(&self, guest: u64, len: u32) -> Option<Piece> {
        let index = self.regions.iter().position(|region| region.place.guest_contains(guest))?;
        let place = &self.regions[index].place;
        let offset = guest - place.guest;
        let len = u64::from(len).min(place.len - offset) as u32;
        Some(Piece { region: index as u32, len, offset })
    }

    /// Copies from the piece at `at`.
    ///
    /// # Panics
    /// When the range leaves the piece: a bug of the caller.
    #[inline]
    pub(crate) fn copy_from(&self, piece: &Piece, at: u32, to: &mut [u8]) {
        assert!(at as usize + to.len() <= piece.len as usize, "the copy leaves its piece");
        self.regions[piece.region as usize].mapping.copy_from(piece.offset as usize + at as usize, to);
    }

    /// Copies into the piece at `at`.
    ///
    /// # Panics
    /// As [`GuestMemory::copy_from`].
    #[inline]
    pub(crate) fn copy_to(&self, piece: &Piece, at: u32, from: &[u8]) {
        assert!(at as usize + from.len() <= piece.len as usize, "the copy leaves its piece");
        let region = &self.regions[piece.region as usize];
        region.mapping.copy_to(piece.offset as usize + at as usize, from);
        self.note(region, piece, at, from.len());
    }

    /// The piece's bytes, where they lie.
    #[inline]
    fn shared(&self, piece: &Piece) -> &[AtomicU8] {
        self.regions[piece.region as usize].mapping.shared(piece.offset as usize, piece.len as usize)
    }

    /// Copies into the piece at `at` what others may change meanwhile.
    ///
    /// # Panics
    /// As [`GuestMemory::copy_from`].
    #[inline]
    pub(crate) fn copy_shared_to(&self, piece: &Piece, at: u32, from: &[AtomicU8]) {
        assert!(at as usize + from.len() <= piece.len as usize, "the copy leaves its piece");
        let region = &self.regions[piece.region as usize];
        region.mapping.copy_shared_to(piece.offset as usize + at as usize, from);
        self.note(region, piece, at, from.len());
    }

    /// Notes that so many bytes of a piece were written.
    #[inline]
    fn note(&self, region: &Region, piece: &Piece, at: u32, len: usize) {
        if let Some(log) = &self.log {
            log.mark(region.place.guest + piece.offset + u64::from(at), len);
        }
    }

    /// Begins to bring the first `len` bytes of a piece into the processor's cache, if it has so many: the first `header` of
    /// them to be read, the others for a purpose.
    #[inline]
    pub(crate) fn prefetch(&self, piece: &Piece, len: u32, header: u32, purpose: Purpose) {
        let mapping = &self.regions[piece.region as usize].mapping;
        let (offset, len) = (piece.offset as usize, piece.len.min(len) as usize);
        let header = len.min(header as usize);
        mapping.prefetch(offset, header, Purpose::Read);
        mapping.prefetch(offset + header, len - header, purpose);
    }

    /// Reads `to.len()` bytes at an address of the guest. `false`: they are not all in its memory.
    pub fn read(&self, guest: u64, to: &mut [u8]) -> bool {
        self.each_piece(guest, to.len(), |memory, piece, done| {
            memory.copy_from(&piece, 0, &mut to[done..done + piece.len as usize]);
        })
    }

    /// Writes bytes at an address of the guest. `false`: not all of them have a place, and some may be written.
    pub fn write(&self, guest: u64, from: &[u8]) -> bool {
        self.each_piece(guest, from.len(), |memory, piece, done| {
            memory.copy_to(&piece, 0, &from[done..done + piece.len as usize]);
        })
    }

    fn each_piece(&self, guest: u64, len: usize, mut each: impl FnMut(&Self, Piece, usize)) -> bool {
        let mut done = 0;
        while done < len {
            let wanted = u32::try_from(len - done).unwrap_or(u32::MAX);
            let address = guest.checked_add(done as u64);
            let Some(piece) = address.and_then(|address| self.piece(address, wanted)) else { return false };
            each(self, piece, done);
            done += piece.len as usize;
        }
        true
    }

    fn check(&self, place: RegionPlace) -> Result<(), VhostError> {
        let RegionPlace { guest, user, len, offset } = place;
        let ends = [guest, user, offset].map(|start| start.checked_add(len));
        if len == 0 || ends.contains(&None) || usize::try_from(len).is_err() {
            return Err(VhostError::BadRegion { address: guest, len, offset });
        }
        if self.regions.len() == MAX_REGIONS {
            return Err(VhostError::TooManyRegions { limit: MAX_REGIONS });
        }
        match self.regions.iter().find(|region| region.place.overlaps(&place)) {
            Some(other) => Err(VhostError::Overlap { address: guest, other: other.place.guest }),
            None => Ok(()),
        }
    }

    fn insert(&mut self, region: Region) {
        let at = self.regions.partition_point(|other| other.place.guest < region.place.guest);
        self.regions.insert(at, region);
    }
}

impl RegionPlace {
    #[inline]
    fn guest_contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.guest) < self.len
    }

    fn user_contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.user) < self.len
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.guest_contains(other.guest)
            || other.guest_contains(self.guest)
            || self.user_contains(other.user)
            || other.user_contains(self.user)
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
