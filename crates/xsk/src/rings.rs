//! The four rings as the rest of the program sees them: frames in, frames out.
#![allow(unsafe_code, reason = "makes frames of what the kernel returns")]

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use forebay_pool::{Arena, Burst, Frame, Ledger, Segment};

use crate::queue_id::{Closed, QueueId};
use crate::ring::{Consumer, Producer};
use crate::sys;

/// `XDP_PKT_CONTD`, include/uapi/linux/if_xdp.h: the packet goes on in the next descriptor.
pub(crate) const CONTINUED: u32 = 1;

/// Free frames for the kernel to receive into. One for each (netdev, queue); one thread posts.
pub struct FillRing {
    ring: Producer<u64>,
    arena: Arc<Arena>,
    queue: QueueId,
    ledger: Option<Ledger>,
}

impl FillRing {
    pub(crate) fn new(ring: Producer<u64>, arena: Arc<Arena>, queue: QueueId) -> Self {
        Self { ring, arena, queue, ledger: None }
    }

    /// Keeps account of the kernel's frames from now on, so that [`FillRing::reclaim`] can tell them. For a queue with one
    /// socket.
    pub fn keep_ledger(&mut self) {
        self.ledger = Some(Ledger::new(&self.arena));
    }

    /// Packets of these frames came back through the queue's RX ring; packet path.
    #[inline]
    pub fn received(&mut self, burst: &Burst) {
        if let Some(ledger) = &mut self.ledger {
            burst.frames().for_each(|frame| ledger.returned(frame));
        }
    }

    /// The frames that the kernel had when the queue's socket was closed; none without a ledger.
    ///
    /// # Panics
    /// When another queue's socket was closed.
    pub fn reclaim(self, closed: Closed) -> impl Iterator<Item = Frame> {
        assert_eq!(closed.queue(), self.queue, "the socket of another queue");
        // SAFETY: the queue's only socket is closed, as `closed` shows, and closing waits until the kernel delivers
        // nothing to it any more (xsk_release, net/xdp/xsk.c, Linux 6.12); its RX ring has been emptied or is gone.
        self.ledger.into_iter().flat_map(|ledger| unsafe { ledger.reclaim() })
    }

    /// Frames that can be posted now; packet path.
    #[inline]
    pub fn free_slots(&mut self) -> u32 {
        self.ring.free(u32::MAX)
    }

    /// Posts a frame; the kernel sees it after [`FillRing::publish`]. Packet path.
    ///
    /// # Errors
    /// The ring is full and the frame comes back.
    #[inline]
    pub fn post(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.ring.free(1) == 0 {
            return Err(frame);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.lend(&frame);
        }
        let posted = self.ring.push(frame.into_address(self.arena.frame_size().bytes()));
        debug_assert!(posted, "a slot was free");
        Ok(())
    }

    /// Shows the kernel what was posted.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Whether the driver sleeps until it is called (zero-copy drivers only).
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// Frames posted that the kernel has not taken yet.
    pub fn occupancy(&self) -> u32 {
        self.ring.occupancy()
    }
}

/// Packets that the kernel received for one socket.
pub struct RxRing {
    ring: Consumer<libc::xdp_desc>,
    arena: Arc<Arena>,
    /// What is read of a packet, as far as is known before.
    reads: Reads,
    /// Descriptors from the next on whose bytes were asked for.
    fetched: u32,
    bad_descriptors: u64,
}

/// Bytes that will be read of packets: below, and from their beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// In front of the packet.
    pub below: u16,
    /// Of the packet.
    pub bytes: u16,
}

impl RxRing {
    pub(crate) fn new(ring: Consumer<libc::xdp_desc>, arena: Arc<Arena>) -> Self {
        Self { ring, arena, reads: Reads::default(), fetched: 0, bad_descriptors: 0 }
    }

    /// Moves up to `packets` into `burst`, until it is full, the ring empty, or `bytes` are reached, which the last
    /// packet may exceed; packet path. Returns how many packets.
    ///
    /// The processor is told to fetch what will be read of them: another one has written it, and whoever reads it first
    /// would wait for each by itself.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst, packets: usize, bytes: u64) -> usize {
        let before = burst.len();
        let (mut received, mut last) = (0, true);
        // A packet that has begun is received whole.
        while !burst.is_full() && (!last || received < bytes && burst.len() - before < packets) {
            let Some(descriptor) = self.ring.pop() else { break };
            if self.fetched == 0 {
                self.fetch(&descriptor);
            } else {
                self.fetched -= 1;
            }
            last = descriptor.options & CONTINUED == 0;
            received += u64::from(descriptor.len);
            match self.segment(&descriptor) {
                Some(segment) => burst.push(segment, last),
                None => self.bad_descriptors += 1,
            }
        }
        self.ring.release();
        burst.len() - before
    }

    /// What will be read of the packets that come from now on.
    #[inline]
    pub fn set_reads(&mut self, reads: Reads) {
        self.reads = reads;
    }

    /// Has the processor fetch what will be read of the next `descriptors`, unless it was told before; packet path.
    #[inline]
    pub fn fetch_ahead(&mut self, descriptors: u32) {
        while self.fetched < descriptors {
            let Some(descriptor) = self.ring.peek(self.fetched) else { break };
            self.fetch(&descriptor);
            self.fetched += 1;
        }
    }

    #[inline]
    fn fetch(&self, descriptor: &libc::xdp_desc) {
        let bytes = descriptor.len.min(u32::from(self.reads.bytes)) as u16;
        self.arena.prefetch(descriptor.addr, self.reads.below, bytes);
    }

    /// Where the frames of its packets lie.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Descriptors that wait to be received: frames that the ring holds.
    pub fn occupancy(&self) -> u32 {
        self.ring.occupancy()
    }

    /// Descriptors that pointed outside the arena, since this was last asked. Each is a bug of the kernel's and loses
    /// its frame.
    pub fn take_bad_descriptors(&mut self) -> u64 {
        std::mem::take(&mut self.bad_descriptors)
    }

    #[inline]
    fn segment(&self, descriptor: &libc::xdp_desc) -> Option<Segment> {
        let room = self.arena.frame_size().bytes();
        // SAFETY: the kernel puts only frames into an RX ring that it took from the fill ring of the same UMEM
        // (net/xdp/xsk.c, Linux 6.12), each once.
        let (frame, offset) = unsafe { self.arena.frame_at(descriptor.addr) }?;
        let len = descriptor.len.min(room.saturating_sub(u32::from(offset))) as u16;
        Some(Segment { frame, offset, len })
    }
}

/// Frames to be sent by the kernel.
pub struct TxRing {
    ring: Producer<libc::xdp_desc>,
    arena: Arc<Arena>,
}

impl TxRing {
    pub(crate) fn new(ring: Producer<libc::xdp_desc>, arena: Arc<Arena>) -> Self {
        Self { ring, arena }
    }

    /// Queues `segment` as a whole packet; packet path. It goes out after [`TxRing::kick`].
    ///
    /// # Errors
    /// The ring is full and the segment comes back.
    pub fn send(&mut self, segment: Segment) -> Result<(), Segment> {
        if self.ring.free(1) == 0 {
            return Err(segment);
        }
        let Segment { frame, offset, len } = segment;
        let addr = frame.into_address(self.arena.frame_size().bytes()) + u64::from(offset);
        let queued = self.ring.push(libc::xdp_desc { addr, len: u32::from(len), options: 0 });
        debug_assert!(queued, "a slot was free");
        Ok(())
    }

    /// Makes the kernel send what was queued on `socket`; in copy mode at most 32 packets a call.
    pub fn kick(&mut self, socket: BorrowedFd<'_>) {
        self.ring.publish();
        sys::kick(socket);
    }

    /// Packets queued that the kernel has not taken.
    pub fn occupancy(&self) -> u32 {
        self.ring.occupancy()
    }
}

/// Frames that the kernel has sent. One for each (netdev, queue); one thread reclaims.
pub struct CompletionRing {
    ring: Consumer<u64>,
    arena: Arc<Arena>,
}

impl CompletionRing {
    pub(crate) fn new(ring: Consumer<u64>, arena: Arc<Arena>) -> Self {
        Self { ring, arena }
    }

    /// Takes back one sent frame; packet path.
    pub fn reclaim(&mut self) -> Option<Frame> {
        let address = self.ring.pop()?;
        self.ring.release();
        // SAFETY: the kernel completes each address of the TX ring once (net/xdp/xsk.c, Linux 6.12).
        unsafe { self.arena.frame_at(address) }.map(|(frame, _)| frame)
    }
}

#[cfg(test)]
mod tests;
