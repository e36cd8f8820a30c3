//! Part of a ring in guest memory: loads and stores at offsets that are checked.
//!
//! The guest writes here at the same time. Each access is atomic or volatile, so it happens once, and what it returned
//! is a copy that cannot change any more.
#![allow(unsafe_code, reason = "reads and writes rings that a guest shares")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::log::DirtyLog;
use super::mapping::{Mapping, Purpose, prefetch};

/// A stretch of one region that holds part of a ring.
#[derive(Debug)]
pub(crate) struct Area {
    base: NonNull<u8>,
    len: usize,
    /// Keeps the memory alive.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests look at it"))]
    mapping: Arc<Mapping>,
    /// Where stores are noted, and the guest's address of the first byte.
    log: Option<(Arc<DirtyLog>, u64)>,
}

// SAFETY: `base` leads into memory that `mapping`, which is `Send` and `Sync`, keeps alive.
unsafe impl Send for Area {}
// SAFETY: as above; each access is atomic.
unsafe impl Sync for Area {}

/// 16 bytes of a descriptor as the guest wrote them. The last two fields differ between the kinds of ring: flags and
/// next index (split), buffer id and flags (packed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawDescriptor {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) third: u16,
    pub(crate) fourth: u16,
}

/// Between stores to a ring and loads from it: the other end sees the stores before the loads are made.
#[inline]
pub(crate) fn store_load_fence() {
    fence(Ordering::SeqCst);
    #[cfg(test)]
    super::race::settle();
}

impl RawDescriptor {
    /// Takes a descriptor apart whose halves were read as little-endian numbers.
    #[inline]
    pub(crate) fn from_halves(low: u64, high: u64) -> Self {
        Self { address: low, len: high as u32, third: (high >> 32) as u16, fourth: (high >> 48) as u16 }
    }

    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        let whole = u128::from_le_bytes(bytes);
        Self::from_halves(whole as u64, (whole >> 64) as u64)
    }
}

impl Area {
    /// `None` when the memory is not aligned to `align` here, though it is in the front end.
    pub(super) fn new(mapping: &Arc<Mapping>, offset: usize, len: usize, align: u64) -> Option<Self> {
        let base = mapping.locate(offset, len);
        let is_aligned = (base.addr().get() as u64).is_multiple_of(align.max(2));
        is_aligned.then(|| Self { base, len, mapping: Arc::clone(mapping), log: None })
    }

    /// Notes all stores in a log.
    pub(super) fn logged(self, log: Option<(Arc<DirtyLog>, u64)>) -> Self {
        Self { log, ..self }
    }

    #[inline]
    fn note(&self, offset: usize, len: usize) {
        if let Some((log, guest)) = &self.log {
            log.mark(guest.wrapping_add(offset as u64), len);
        }
    }

    /// Address of `len` bytes at `offset`, a multiple of `len`.
    #[inline]
    fn at<T>(&self, offset: usize) -> *mut T {
        let len = size_of::<T>();
        assert!(offset.is_multiple_of(len) && offset + len <= self.len, "access outside of a ring");
        // SAFETY: the offset was checked to lie in the area, which lies in one allocation.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }

    /// In tests, a point where the other end of the ring may go first.
    #[inline]
    fn access(&self) {
        #[cfg(test)]
        super::race::let_others_go_first();
    }

    /// What a thread sees of bytes that it has loaded: in tests, its own stores that are held back, too.
    #[inline]
    fn seen<const LEN: usize>(&self, offset: usize, loaded: [u8; LEN]) -> [u8; LEN] {
        #[cfg(test)]
        let loaded = {
            let mut loaded = loaded;
            NonNull::new(self.at::<[u8; LEN]>(offset).cast())
                .into_iter()
                .for_each(|from| super::race::overlay(from, &mut loaded));
            loaded
        };
        let _ = offset;
        loaded
    }

    #[cfg(test)]
    fn holds_back<const LEN: usize>(&self, offset: usize, bytes: [u8; LEN], order: Ordering) -> bool {
        let to = NonNull::new(self.at::<[u8; LEN]>(offset).cast());
        to.is_some_and(|to| super::race::holds_back(&self.mapping, to, &bytes, order))
    }

    #[inline]
    pub(crate) fn load_u16(&self, offset: usize, order: Ordering) -> u16 {
        self.access();
        // SAFETY: `at` checked bounds and alignment; an area begins at a multiple of its parts' size (`Area::new`).
        let loaded = unsafe { AtomicU16::from_ptr(self.at(offset)) }.load(order);
        u16::from_le_bytes(self.seen(offset, loaded.to_ne_bytes()))
    }

    #[inline]
    pub(crate) fn store_u16(&self, offset: usize, value: u16, order: Ordering) {
        self.access();
        #[cfg(test)]
        if crash::is_dead() || self.holds_back(offset, value.to_le_bytes(), order) {
            return;
        }
        // SAFETY: as above.
        unsafe { AtomicU16::from_ptr(self.at(offset)) }.store(value.to_le(), order);
        self.note(offset, 2);
    }

    #[inline]
    pub(crate) fn load_u32(&self, offset: usize, order: Ordering) -> u32 {
        self.access();
        // SAFETY: as above.
        let loaded = unsafe { AtomicU32::from_ptr(self.at(offset)) }.load(order);
        u32::from_le_bytes(self.seen(offset, loaded.to_ne_bytes()))
    }

    #[inline]
    pub(crate) fn store_u32(&self, offset: usize, value: u32, order: Ordering) {
        self.access();
        #[cfg(test)]
        if crash::is_dead() || self.holds_back(offset, value.to_le_bytes(), order) {
            return;
        }
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.at(offset)) }.store(value.to_le(), order);
        self.note(offset, 4);
    }

    #[inline]
    pub(crate) fn load_u64(&self, offset: usize) -> u64 {
        self.access();
        // SAFETY: as above; only areas that begin at a multiple of 16 hold numbers of 8 bytes.
        let loaded = unsafe { AtomicU64::from_ptr(self.at(offset)) }.load(Ordering::Relaxed);
        u64::from_le_bytes(self.seen(offset, loaded.to_ne_bytes()))
    }

    /// Begins to bring the cache line at `offset` into the processor's cache.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize, purpose: Purpose) {
        prefetch(self.at::<u8>(offset), purpose);
    }

    #[inline]
    pub(crate) fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        self.access();
        #[cfg(test)]
        if crash::is_dead() || self.holds_back(offset, value.to_le_bytes(), order) {
            return;
        }
        // SAFETY: as above; only areas that begin at a multiple of 16 hold numbers of 8 bytes.
        unsafe { AtomicU64::from_ptr(self.at(offset)) }.store(value.to_le(), order);
        self.note(offset, 8);
    }

    /// Copies descriptor `index` of a table.
    #[inline]
    pub(crate) fn descriptor(&self, index: u16) -> RawDescriptor {
        let offset = usize::from(index) * 16;
        RawDescriptor::from_halves(self.load_u64(offset), self.load_u64(offset + 8))
    }
}

/// A crash in the middle of whatever this thread does: its stores do nothing from then on.
#[cfg(test)]
pub(crate) mod crash {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    pub(super) fn is_dead() -> bool {
        match LEFT.get() {
            None => false,
            Some(0) => true,
            Some(left) => {
                LEFT.set(Some(left - 1));
                false
            }
        }
    }

    /// Runs `work`, of whose stores only the first so many count. Returns whether it lived to its end.
    pub(crate) fn after(stores: usize, work: impl FnOnce()) -> bool {
        LEFT.set(Some(stores));
        work();
        LEFT.replace(None) != Some(0)
    }
}
