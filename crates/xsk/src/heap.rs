//! Rings over ordinary memory, with the kernel's part left to the caller. One of the files of this crate's unsafe code.
//!
//! The rings are the real ones: a worker cannot tell them from a socket's. What the kernel would do happens when
//! [`HeapQueue::deliver`] is called: take a posted frame, write the packet into it, hand it to a socket's RX ring. So a
//! whole data plane runs in a plain test, one step at a time, and can be given what a broken kernel might give it.
#![allow(unsafe_code, reason = "plays the kernel on rings over ordinary memory")]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use forebay_pool::{Arena, Frame};

use crate::queue_id::QueueId;
use crate::ring::{Consumer, Producer, RingMemory};
use crate::rings::CONTINUED;
use crate::{FillRing, RxRing};

/// Bytes in front of a packet, as the kernel leaves them (`XDP_PACKET_HEADROOM`, include/uapi/linux/bpf.h).
const HEADROOM: u16 = 256;

/// Frames that one packet takes at most (`MAX_SKB_FRAGS` + 1).
const MAX_PIECES: usize = 18;

/// What the kernel would map, on the heap.
pub(crate) struct HeapRing<T> {
    pub(crate) producer: AtomicU32,
    pub(crate) consumer: AtomicU32,
    flags: AtomicU32,
    entries: Box<[UnsafeCell<T>]>,
}

// SAFETY: the two ends keep apart by the ring's own protocol, which the tests of `ring` check.
unsafe impl<T: Send> Sync for HeapRing<T> {}

impl<T: Copy + Send + 'static> HeapRing<T> {
    /// A ring of `size` entries, a power of two, whose cursors begin at `start`.
    pub(crate) fn new(size: u32, start: u32, fresh: T) -> Arc<Self> {
        Arc::new(Self {
            producer: start.into(),
            consumer: start.into(),
            flags: 0.into(),
            entries: (0..size).map(|_| UnsafeCell::new(fresh)).collect(),
        })
    }

    pub(crate) fn memory(self: &Arc<Self>) -> RingMemory<T> {
        let entries = self.entries.as_ptr().cast::<T>().cast_mut();
        RingMemory {
            producer: NonNull::from(&self.producer),
            consumer: NonNull::from(&self.consumer),
            flags: NonNull::from(&self.flags),
            entries: NonNull::new(entries).expect("a box is not null"),
            size: self.entries.len() as u32,
            _owner: Box::new(Arc::clone(self)),
        }
    }

    pub(crate) fn ends(self: &Arc<Self>) -> (Producer<T>, Consumer<T>) {
        (Producer::new(self.memory()), Consumer::new(self.memory()))
    }
}

/// Why a packet was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// No frame was posted for it.
    NoFrame,
    /// The socket's RX ring is full. A frame that the packet took is used by the next packet.
    RingFull,
    /// The packet takes more frames than a packet may have.
    TooLong,
}

/// The kernel's end of the fill ring of one queue.
pub struct HeapQueue {
    posted: Consumer<u64>,
    /// Frames taken off the fill ring that no packet has used.
    spare: Vec<u64>,
    arena: Arc<Arena>,
}

/// The kernel's end of one socket's RX ring.
pub struct HeapSocket {
    received: Producer<libc::xdp_desc>,
}

impl HeapQueue {
    /// A fill ring of `entries` (a power of two) for frames of `arena`, and its kernel's end. Cursors begin at `start`.
    pub fn new(arena: Arc<Arena>, entries: u32, start: u32) -> (FillRing, Self) {
        let (ours, posted) = HeapRing::new(entries, start, 0).ends();
        let fill = FillRing::new(ours, Arc::clone(&arena), QueueId::next());
        (fill, Self { posted, spare: Vec::new(), arena })
    }

    /// An RX ring of `entries` (a power of two) for a socket on this queue, and its kernel's end.
    pub fn socket(&self, entries: u32, start: u32) -> (RxRing, HeapSocket) {
        let nothing = libc::xdp_desc { addr: 0, len: 0, options: 0 };
        let (received, ours) = HeapRing::new(entries, start, nothing).ends();
        (RxRing::new(ours, Arc::clone(&self.arena)), HeapSocket { received })
    }

    /// Frames that were posted and that no packet has used yet.
    pub fn holds(&self) -> usize {
        self.posted.occupancy() as usize + self.spare.len()
    }

    /// Writes a packet with what lies `below` it into posted frames and hands it to `socket`, as the kernel does in copy
    /// mode: a packet in several frames is in several descriptors.
    ///
    /// # Errors
    /// [`Undelivered`]; nothing of the packet was handed over.
    pub fn deliver(
        &mut self,
        socket: &mut HeapSocket,
        below: &[u8],
        packet: &[u8],
    ) -> Result<(), Undelivered> {
        let room = usize::from(self.arena.frame_size().payload() as u16);
        let pieces: Vec<&[u8]> = packet.chunks(room).collect();
        if pieces.len() > MAX_PIECES {
            return Err(Undelivered::TooLong);
        }
        self.take(pieces.len())?;
        if (socket.received.free(pieces.len() as u32) as usize) < pieces.len() {
            return Err(Undelivered::RingFull);
        }
        let last = pieces.len().saturating_sub(1);
        for (index, piece) in pieces.into_iter().enumerate() {
            let address = self.spare.pop().expect("as many were taken");
            let below = if index == 0 { below } else { &[] };
            let addr = self.write(address, below, piece);
            let options = if index == last { 0 } else { CONTINUED };
            let pushed = socket.received.push(libc::xdp_desc { addr, len: piece.len() as u32, options });
            debug_assert!(pushed, "there was room");
        }
        socket.received.publish();
        Ok(())
    }

    /// Hands over a descriptor that names no frame: what only a broken kernel does.
    ///
    /// # Errors
    /// [`Undelivered::RingFull`].
    ///
    /// # Panics
    /// When `addr` lies inside the arena: the frame there belongs to somebody.
    pub fn deliver_rubbish(
        &mut self,
        socket: &mut HeapSocket,
        addr: u64,
        len: u32,
    ) -> Result<(), Undelivered> {
        assert!(addr >= self.arena.len_bytes() as u64, "the frame there belongs to somebody");
        if !socket.received.push(libc::xdp_desc { addr, len, options: 0 }) {
            return Err(Undelivered::RingFull);
        }
        socket.received.publish();
        Ok(())
    }

    /// Takes posted frames until there are `wanted` spare ones.
    fn take(&mut self, wanted: usize) -> Result<(), Undelivered> {
        while self.spare.len() < wanted {
            let Some(address) = self.posted.pop() else { break };
            self.spare.push(address);
        }
        self.posted.release();
        if self.spare.len() < wanted { Err(Undelivered::NoFrame) } else { Ok(()) }
    }

    /// Writes one frame; where the packet begins in it.
    fn write(&self, address: u64, below: &[u8], piece: &[u8]) -> u64 {
        let mut frame = self.frame(address);
        let start = HEADROOM - below.len() as u16;
        let bytes = self.arena.bytes_mut(&mut frame, start, (below.len() + piece.len()) as u16);
        bytes[..below.len()].copy_from_slice(below);
        bytes[below.len()..].copy_from_slice(piece);
        frame.into_address(self.arena.frame_size().bytes()) + u64::from(HEADROOM)
    }

    fn frame(&self, address: u64) -> Frame {
        // SAFETY: the fill ring's owner gave the frame up when it posted this address; it was popped once, and is given
        // up again before this end forgets it.
        let taken = unsafe { self.arena.frame_at(address) };
        taken.expect("only frames of this arena are posted").0
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use forebay_pool::{Burst, FrameSize};

    use super::*;

    const START: u32 = u32::MAX - 1;

    fn queue() -> (FillRing, HeapQueue) {
        let (arena, frames) =
            Arena::new(NonZeroU32::new(4).expect("not zero"), FrameSize::B2048).expect("8 KiB of memory");
        let (mut fill, queue) = HeapQueue::new(Arc::new(arena), 4, START);
        frames.into_iter().for_each(|frame| fill.post(frame).expect("room for four"));
        fill.publish();
        (fill, queue)
    }

    #[test]
    fn a_packet_arrives_with_what_lies_below_it_and_uses_up_its_frames() {
        let (mut fill, mut queue) = queue();
        let (mut rx, mut socket) = queue.socket(8, START);
        queue.deliver(&mut socket, &[7; 8], &[1; 60]).expect("a frame and room");
        queue.deliver(&mut socket, &[], &[2; 1792 + 5]).expect("two frames and room");
        assert_eq!(queue.holds(), 1);
        let mut burst = Burst::new(8);
        assert_eq!(rx.receive(&mut burst, 8, u64::MAX), 2);
        let first = &burst.packet(0)[0];
        assert_eq!(rx.arena().bytes(&first.frame, first.offset - 8, 9), [7, 7, 7, 7, 7, 7, 7, 7, 1]);
        assert_eq!((burst.packet(1).len(), burst.len_bytes(1)), (2, 1797));
        burst.drain().for_each(|frame| fill.post(frame).expect("they were taken"));
        fill.publish();
        assert_eq!(queue.holds(), 4);
    }

    #[test]
    fn a_packet_that_finds_no_frame_or_no_room_takes_nothing() {
        let (_fill, mut queue) = queue();
        let (rx, mut socket) = queue.socket(2, START);
        assert_eq!(queue.deliver(&mut socket, &[], &[0; 5 * 1792]), Err(Undelivered::NoFrame));
        assert_eq!(queue.deliver(&mut socket, &[], &[0; 3 * 1792]), Err(Undelivered::RingFull));
        assert_eq!(queue.deliver(&mut socket, &[], &[0; 19 * 1792]), Err(Undelivered::TooLong));
        assert_eq!((queue.holds(), rx.occupancy()), (4, 0));
    }

    #[test]
    fn rubbish_is_rubbish_to_the_ring_too() {
        let (_fill, mut queue) = queue();
        let (mut rx, mut socket) = queue.socket(2, START);
        queue.deliver_rubbish(&mut socket, 1 << 40, 60).expect("room");
        assert_eq!(rx.receive(&mut Burst::new(8), 8, u64::MAX), 0);
        assert_eq!(rx.take_bad_descriptors(), 1);
    }
}
