//! One ring over memory that two parties share: cursors, entries, and the order in which they are written.
//!
//! The memory may be the kernel's or a test's: nothing here knows. Producer and consumer cursors are free-running
//! `u32`s (include/uapi/linux/if_xdp.h and net/xdp/xsk_queue.h, Linux 6.12): the entry of cursor `c` is `c & mask`,
//! the producer publishes with a release store, the consumer reads with an acquire load.
#![allow(unsafe_code, reason = "reads and writes rings that the kernel shares")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `XDP_RING_NEED_WAKEUP`, include/uapi/linux/if_xdp.h.
const NEED_WAKEUP: u32 = 1;

/// Addresses of one ring, and whatever keeps its memory alive.
pub(crate) struct RingMemory<T> {
    pub(crate) producer: NonNull<AtomicU32>,
    pub(crate) consumer: NonNull<AtomicU32>,
    pub(crate) flags: NonNull<AtomicU32>,
    pub(crate) entries: NonNull<T>,
    pub(crate) size: u32,
    pub(crate) _owner: Box<dyn Send>,
}

// SAFETY: the pointers lead into memory that `_owner` keeps alive and that is `Send`; `T` is a plain copied value.
unsafe impl<T: Copy + Send> Send for RingMemory<T> {}

impl<T: Copy> RingMemory<T> {
    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: points at an aligned cursor inside memory that `_owner` keeps alive.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    #[inline]
    fn slot(&self, cursor: u32) -> *mut T {
        // SAFETY: the index is below `size`, the number of entries behind the pointer.
        unsafe { self.entries.as_ptr().add((cursor & (self.size - 1)) as usize) }
    }

    /// Entries between the two cursors. A cursor that ran further than the ring is long is somebody's error;
    /// then no more than one ring's worth is believed.
    fn distance(&self, producer: u32, consumer: u32) -> u32 {
        producer.wrapping_sub(consumer).min(self.size)
    }
}

/// Our end of a ring that we write.
pub(crate) struct Producer<T> {
    memory: RingMemory<T>,
    next: u32,
    seen_consumer: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn new(memory: RingMemory<T>) -> Self {
        let next = memory.producer().load(Ordering::Relaxed);
        let seen_consumer = memory.consumer().load(Ordering::Acquire);
        Self { memory, next, seen_consumer }
    }

    /// Free entries; looks at the other side's cursor only when fewer than `enough` are known to be free.
    #[inline]
    pub(crate) fn free(&mut self, enough: u32) -> u32 {
        let size = self.memory.size;
        let known = size - self.memory.distance(self.next, self.seen_consumer);
        if known >= enough {
            return known;
        }
        self.seen_consumer = self.memory.consumer().load(Ordering::Acquire);
        size - self.memory.distance(self.next, self.seen_consumer)
    }

    /// Writes one entry, which the other side sees after [`Producer::publish`]. `false`: the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        // SAFETY: the entry lies between our cursor and the consumer's, so the other side does not read it.
        unsafe { self.memory.slot(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
        true
    }

    #[inline]
    pub(crate) fn publish(&mut self) {
        self.memory.producer().store(self.next, Ordering::Release);
    }

    pub(crate) fn needs_wakeup(&self) -> bool {
        self.memory.needs_wakeup()
    }

    /// Entries written and not yet consumed, now.
    pub(crate) fn occupancy(&self) -> u32 {
        self.memory.distance(self.next, self.memory.consumer().load(Ordering::Acquire))
    }
}

/// Our end of a ring that we read.
pub(crate) struct Consumer<T> {
    memory: RingMemory<T>,
    next: u32,
    seen_producer: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn new(memory: RingMemory<T>) -> Self {
        let next = memory.consumer().load(Ordering::Relaxed);
        let seen_producer = memory.producer().load(Ordering::Acquire);
        Self { memory, next, seen_producer }
    }

    /// Takes the next entry; the producer may reuse it after [`Consumer::release`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.seen_producer == self.next {
            self.seen_producer = self.memory.producer().load(Ordering::Acquire);
            if self.seen_producer == self.next {
                return None;
            }
        }
        // SAFETY: the entry lies between our cursor and the producer's, so the other side does not write it; it is
        // copied out, and any bit pattern is a valid `T` (an integer or a C struct of integers).
        let value = unsafe { self.memory.slot(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(value)
    }

    /// The entry `ahead` of the next, which [`Consumer::pop`] takes later; `None` when there are not so many.
    #[inline]
    pub(crate) fn peek(&mut self, ahead: u32) -> Option<T> {
        if self.memory.distance(self.seen_producer, self.next) <= ahead {
            self.seen_producer = self.memory.producer().load(Ordering::Acquire);
            if self.memory.distance(self.seen_producer, self.next) <= ahead {
                return None;
            }
        }
        // SAFETY: as in `pop`; `ahead` is less than what lies between the cursors.
        Some(unsafe { self.memory.slot(self.next.wrapping_add(ahead)).read() })
    }

    #[inline]
    pub(crate) fn release(&mut self) {
        self.memory.consumer().store(self.next, Ordering::Release);
    }

    /// Entries that wait to be taken, now.
    pub(crate) fn occupancy(&self) -> u32 {
        self.memory.distance(self.memory.producer().load(Ordering::Acquire), self.next)
    }
}

#[cfg(test)]
pub(crate) mod tests;
