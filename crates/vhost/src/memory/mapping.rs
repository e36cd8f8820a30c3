//! One mapping of a front end's file, or ordinary memory that stands for one.
#![allow(unsafe_code, reason = "maps memory that a guest shares, and copies from and to it")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{fstat, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::RegionPlace;
use super::fault::Watch;
use crate::error::VhostError;

/// File systems whose pages nobody can hold back (include/uapi/linux/magic.h, Linux 6.12): `TMPFS_MAGIC`, which memfds
/// have too, and `HUGETLBFS_MAGIC`. A fault on a FUSE or network file lasts as long as its server likes.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// Bytes of a cache line on the processors that this is for.
const LINE: usize = 64;

/// What bytes are wanted for. To write them, a processor needs them for itself alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// A stretch of memory that a guest may write at any time.
#[derive(Debug)]
pub(super) struct Mapping {
    /// First byte of the region; may lie behind the start of what is mapped.
    base: NonNull<u8>,
    len: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// What the kernel mapped, and the slot of the fault handler that watches it.
    File {
        start: NonNull<u8>,
        mapped: usize,
        watch: Watch,
    },
    Heap(Layout),
}

// SAFETY: the memory is owned by the mapping, freed once on drop, and reached only by copies and atomic accesses, which
// any thread may make. The only references to it that are handed out are to atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the region, which the caller has checked for overflow.
    pub(super) fn of_file(place: RegionPlace, file: &OwnedFd) -> Result<Self, VhostError> {
        let block = block_bytes(file)?;
        let len_of_file = fstat(file).map_err(|error| failed(0, error))?.st_size as u64;
        let needed = place.offset + place.len;
        if needed > len_of_file {
            return Err(VhostError::FileTooShort { needed, len: len_of_file });
        }
        Self::map(place, file, block)
    }

    /// Maps a region that the kernel lends, which the caller has checked for overflow. Its file has neither a length nor a
    /// file system.
    pub(super) fn of_kernel(place: RegionPlace, file: &OwnedFd) -> Result<Self, VhostError> {
        Self::map(place, file, rustix::param::page_size() as u64)
    }

    fn map(place: RegionPlace, file: &OwnedFd, block: u64) -> Result<Self, VhostError> {
        let offset = place.offset - place.offset % block;
        let inset = (place.offset - offset) as usize;
        let mapped = (inset + place.len as usize).next_multiple_of(block as usize);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                mapped,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                offset,
            )
        };
        let start = start.map_err(|error| failed(mapped, error))?;
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns the null page unasked");
        let Some(watch) = Watch::new(start, mapped) else {
            // SAFETY: the mapping was just made and nobody knows of it.
            let _ = unsafe { munmap(start.as_ptr().cast(), mapped) };
            return Err(VhostError::TooManyMappings { limit: super::fault::MAX_MAPPINGS });
        };
        // SAFETY: `inset` is less than `mapped`.
        let base = unsafe { start.add(inset) };
        Ok(Self { base, len: place.len as usize, kind: Kind::File { start, mapped, watch } })
    }

    /// Zeroed memory of this process; `len` is not zero.
    pub(super) fn of_heap(len: usize) -> Self {
        let layout = Layout::from_size_align(len, 4096).expect("a region is shorter than the address space");
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Self { base, len, kind: Kind::Heap(layout) }
    }

    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        matches!(&self.kind, Kind::File { watch, .. } if watch.is_broken())
    }

    /// Address of a byte of the region.
    ///
    /// # Panics
    /// When `len` bytes from `offset` leave the region: a bug of the caller.
    #[inline]
    pub(super) fn locate(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "access outside of a region");
        // SAFETY: `offset` is at most `len`, and `len` bytes from `base` are ours.
        unsafe { self.base.add(offset) }
    }

    /// Sets bits of one byte.
    ///
    /// # Panics
    /// When the byte is outside of the region: a bug of the caller.
    #[inline]
    pub(super) fn set_bits(&self, offset: usize, bits: u8) {
        // SAFETY: `locate` checked the bounds, and a byte is always aligned.
        unsafe { AtomicU8::from_ptr(self.locate(offset, 1).as_ptr()) }.fetch_or(bits, Ordering::Relaxed);
    }

    /// Begins to bring bytes of the region into the processor's cache, and does not wait for them.
    ///
    /// # Panics
    /// When the range leaves the region: a bug of the caller.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize, len: usize, purpose: Purpose) {
        let first = self.locate(offset, len).as_ptr();
        for at in (0..len).step_by(LINE) {
            prefetch(first.wrapping_add(at), purpose);
        }
    }

    #[inline]
    pub(super) fn copy_from(&self, offset: usize, to: &mut [u8]) {
        let from = self.locate(offset, to.len());
        // SAFETY: the source has that many bytes (`locate`), the destination is a slice of ours. The guest may write
        // meanwhile: bytes are copied in any mixture of old and new, and the caller validates the copy.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    #[inline]
    pub(super) fn copy_to(&self, offset: usize, from: &[u8]) {
        let to = self.locate(offset, from.len());
        // SAFETY: as above, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
    }

    /// Bytes of the region, which its guest may change at any time.
    ///
    /// # Panics
    /// When the range leaves the region: a bug of the caller.
    #[inline]
    pub(super) fn shared(&self, offset: usize, len: usize) -> &[AtomicU8] {
        let start = self.locate(offset, len);
        // SAFETY: so many bytes are ours for as long as `self` lives (`locate`). A guest that truncates its file changes what
        // they are, not that they are there. Atomics may be written by others.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), len) }
    }

    #[inline]
    pub(super) fn copy_shared_to(&self, offset: usize, from: &[AtomicU8]) {
        let to = self.locate(offset, from.len());
        // SAFETY: both have that many bytes. They may be the same ones, and guests may write meanwhile: bytes are copied in any
        // mixture of old and new.
        unsafe { std::ptr::copy(from.as_ptr().cast(), to.as_ptr(), from.len()) };
    }
}

/// Begins to bring the cache line of an address into the cache, where the processor can be told. Packet path.
#[inline]
pub(super) fn prefetch(address: *const u8, purpose: Purpose) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: neither instruction reads anything that a program could see, or faults, whatever the address. Processors
    // without the second take it for one that does nothing.
    unsafe {
        use std::arch::asm;
        match purpose {
            Purpose::Read => {
                asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
            }
            Purpose::Write => {
                asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (address, purpose);
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::File { start, mapped, watch } => {
                watch.end();
                // SAFETY: the mapping was made by `of_file` with this length, and is unmapped only here.
                let _ = unsafe { munmap(start.as_ptr().cast(), *mapped) };
            }
            // SAFETY: allocated by `of_heap` with this layout, and freed only here.
            Kind::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), *layout) },
        }
    }
}

/// Returns the unit in which the file is mapped: a page, or a huge page.
fn block_bytes(file: &OwnedFd) -> Result<u64, VhostError> {
    let status = fstatfs(file).map_err(|error| failed(0, error))?;
    match status.f_type as u64 {
        TMPFS => Ok(rustix::param::page_size() as u64),
        HUGETLBFS => Ok(status.f_bsize as u64),
        kind => Err(VhostError::BadFileSystem { kind }),
    }
}

fn failed(len: usize, source: rustix::io::Errno) -> VhostError {
    VhostError::Map { len, source: io::Error::from(source) }
}
