//! Values of array maps, which the kernel programs and the daemon both have in their memory. Unsafe code.
#![allow(unsafe_code, reason = "maps memory that programs read and write")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::DatapathError;

/// What may lie there: any bytes are a value, and it changes through atomics only.
///
/// # Safety
/// Whoever implements it promises just that, and an alignment of at most 64 bytes, of which `size_of` is a multiple.
pub(crate) unsafe trait Shared: Sync {}

// SAFETY: any bytes are a number.
unsafe impl Shared for AtomicU8 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU16 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU64 {}
// SAFETY: a row of what may be shared.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// A map's values, mapped for reading and writing.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: the mapping is used through atomics only and not tied to a thread.
unsafe impl<T: Shared> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// The first `count` values of `map`.
    pub(crate) fn map(map: BorrowedFd<'_>, count: usize, what: &'static str) -> Result<Self, DatapathError> {
        Self::at(map.as_raw_fd(), libc::MAP_SHARED, count, what)
    }

    /// Memory of nobody else's, all zero: in place of a map's where there is no kernel program.
    pub(crate) fn anonymous(count: usize) -> Result<Self, DatapathError> {
        Self::at(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, count, "map memory")
    }

    fn at(fd: i32, flags: i32, count: usize, what: &'static str) -> Result<Self, DatapathError> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes::<T>(count),
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(DatapathError::System { what, source: std::io::Error::last_os_error() });
        }
        let first = NonNull::new(address.cast()).expect("mmap never returns the null page unasked");
        Ok(Self { first, count })
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &T {
        assert!(index < self.count, "value {index} of {}", self.count);
        // SAFETY: the mapping has `count` values, of which any bytes are one, and begins at a page.
        unsafe { self.first.add(index).as_ref() }
    }

    /// All values.
    #[inline]
    pub(crate) fn all(&self) -> &[T] {
        // SAFETY: the mapping has `count` values, of which any bytes are one, and lives as long as `self`; they change
        // through atomics only.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `at` with this length, unmapped once.
        unsafe { libc::munmap(self.first.as_ptr().cast(), bytes::<T>(self.count)) };
    }
}

/// Values of an array map lie without gaps; the mapping is whole pages.
fn bytes<T>(count: usize) -> usize {
    (count * size_of::<T>()).next_multiple_of(4096)
}
