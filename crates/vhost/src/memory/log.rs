//! Which pages of a guest's memory we wrote, for a front end that moves its guest to another machine.
//!
//! The front end shares a bitmap, one bit for each page of 4 KiB in the guest, and clears bits as it copies pages.

use rustix::fd::OwnedFd;

use super::RegionPlace;
use super::mapping::Mapping;
use crate::error::VhostError;

/// Bytes of a page in the bitmap, whatever the machine's pages are (`VHOST_LOG_PAGE`).
const PAGE_BYTES: u64 = 4096;

/// A bitmap that the front end shares.
#[derive(Debug)]
pub(crate) struct DirtyLog {
    bits: Mapping,
    len: usize,
}

impl DirtyLog {
    /// Maps `len` bytes of a bitmap.
    ///
    /// # Errors
    /// As for a region of memory.
    pub(crate) fn new(len: u64, offset: u64, file: &OwnedFd) -> Result<Self, VhostError> {
        let is_fine = len > 0 && offset.checked_add(len).is_some() && usize::try_from(len).is_ok();
        if !is_fine {
            return Err(VhostError::BadRegion { address: 0, len, offset });
        }
        let bits = Mapping::of_file(RegionPlace { guest: 0, user: 0, len, offset }, file)?;
        Ok(Self { bits, len: len as usize })
    }

    /// Marks the pages of `len` bytes at an address of the guest. Pages beyond the bitmap are nobody's.
    #[inline]
    pub(crate) fn mark(&self, guest: u64, len: usize) {
        let last = guest.saturating_add((len as u64).saturating_sub(1)) / PAGE_BYTES;
        for page in guest / PAGE_BYTES..=last {
            let Some(byte) = usize::try_from(page / 8).ok().filter(|byte| *byte < self.len) else { return };
            self.bits.set_bits(byte, 1 << (page % 8));
        }
    }
}
