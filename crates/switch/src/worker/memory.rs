//! Sources and outputs in this process's memory.
//!
//! A source is a bounded queue of packets that somebody else's memory holds, as a guest's transmit queue is: the worker
//! copies each packet once, into a frame of the pool, when its turn comes. An output is a bounded queue that the worker
//! copies packets into. Neither end waits for the other.
//!
//! They are what tests and simulations connect ports with, and no mock: the same worker serves them by the same verbs.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use forebay_policy::Piece;
use forebay_pool::{Arena, Burst, MAX_SEGMENTS_PER_PACKET, Magazine, Pool};
use forebay_wire::net_header::NetHeader;
use rtrb::{Consumer, Producer, RingBuffer};

use super::facts::Facts;
use super::parcel::{self, Leaving, Parcel, Pieces, Undeliverable};
use super::record::Record;

/// A packet that waits in a source, with what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryPacket {
    /// The sender keeps a reference of its own, so that nothing is freed on the packet path.
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) facts: Facts,
    /// What the sender left to others.
    pub(crate) undone: NetHeader,
}

/// Why a source takes a packet no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untaken {
    /// As many packets wait as may.
    Full,
    /// The packet takes more frames than a packet may have.
    TooLong,
}

/// The sender's end of a source.
pub(crate) struct MemorySender {
    packets: Producer<MemoryPacket>,
    longest: usize,
}

impl MemorySender {
    /// Has the packet wait for the worker.
    ///
    /// # Errors
    /// [`Untaken`]; the source is as it was.
    pub(crate) fn send(&mut self, packet: MemoryPacket) -> Result<(), Untaken> {
        if packet.bytes.len() > self.longest {
            return Err(Untaken::TooLong);
        }
        self.packets.push(packet).map_err(|_| Untaken::Full)
    }
}

/// The worker's end of a source.
pub(crate) struct MemorySource {
    packets: Consumer<MemoryPacket>,
    arena: Arc<Arena>,
    magazine: Magazine,
    /// Packets that found no free frame, since somebody last asked.
    no_frame: u64,
}

impl MemorySource {
    /// A source for at most `packets` that wait, whose packets are copied into frames of `pool`; and the sender's end.
    pub(crate) fn new(packets: usize, arena: Arc<Arena>, pool: &Arc<Pool>) -> (Self, MemorySender) {
        let (sender, packets) = RingBuffer::new(packets);
        let longest = MAX_SEGMENTS_PER_PACKET * arena.frame_size().payload() as usize;
        let source = Self { packets, arena, magazine: Magazine::new(Arc::clone(pool)), no_frame: 0 };
        (source, MemorySender { packets: sender, longest })
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(super) fn occupancy(&self) -> u32 {
        self.packets.slots() as u32
    }

    /// Copies the next packets into frames. A packet that finds no frame is lost, and counted.
    pub(super) fn receive(
        &mut self,
        burst: &mut Burst,
        records: &mut [Record],
        undone: &mut [NetHeader],
        piece: Piece,
    ) {
        let mut received = 0;
        while !burst.is_full() && burst.len() < piece.packets as usize && received < piece.bytes {
            let Ok(packet) = self.packets.pop() else { break };
            let pieces = Pieces::whole(&packet.bytes);
            match pieces.copy(&self.arena, &mut self.magazine) {
                Ok(segments) => {
                    let is_undone = !packet.undone.is_plain();
                    records[burst.len()].facts = Facts { is_undone, ..packet.facts };
                    undone[burst.len()] = packet.undone;
                    segments.for_each(|(segment, is_last)| burst.push(segment, is_last));
                    received += packet.bytes.len() as u64;
                }
                Err(_) => self.no_frame += 1,
            }
        }
    }

    /// Frees the burst's frames.
    pub(super) fn put_back(&mut self, burst: &mut Burst) {
        burst.drain().for_each(|frame| self.magazine.put(frame));
    }

    /// A view of how many free frames it keeps.
    pub(crate) fn level(&self) -> Arc<AtomicU32> {
        self.magazine.level()
    }

    /// Packets that found no free frame, since the last call.
    pub(super) fn take_no_frame(&mut self) -> u64 {
        std::mem::take(&mut self.no_frame)
    }
}

/// The worker's end of an output.
pub(crate) struct MemoryOutput {
    parcels: Producer<Parcel>,
    arena: Arc<Arena>,
    magazine: Magazine,
}

/// The receiver's end of an output. It frees the frames, also of packets that it did not receive when it is dropped; by
/// then the worker must have forgotten its end.
pub(crate) struct MemoryReceiver {
    parcels: Consumer<Parcel>,
    arena: Arc<Arena>,
    pool: Arc<Pool>,
}

/// What a receiver got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryReceived {
    pub(crate) bytes: Vec<u8>,
    /// The packet's mark (`SO_MARK`).
    pub(crate) mark: u32,
}

impl MemoryOutput {
    /// An output for packets in at most `frames` frames of `pool`; and the receiver's end.
    pub(crate) fn new(frames: usize, arena: Arc<Arena>, pool: &Arc<Pool>) -> (Self, MemoryReceiver) {
        let (parcels, received) = RingBuffer::new(frames);
        let magazine = Magazine::new(Arc::clone(pool));
        let receiver =
            MemoryReceiver { parcels: received, arena: Arc::clone(&arena), pool: Arc::clone(pool) };
        (Self { parcels, arena, magazine }, receiver)
    }

    /// Copies a packet into the queue.
    pub(super) fn send(&mut self, pieces: &Pieces<'_>, leaving: Leaving) -> Result<(), Undeliverable> {
        parcel::push(&mut self.parcels, pieces, leaving, (&self.arena, &mut self.magazine))
    }

    /// Queues a packet that another worker copied into frames of this pool.
    ///
    /// # Errors
    /// The queue is full, and the frames are free again.
    pub(super) fn pass(&mut self, packet: &mut Vec<Parcel>) -> Result<(), Undeliverable> {
        match self.parcels.write_chunk_uninit(packet.len()) {
            Ok(places) => {
                places.fill_from_iter(packet.drain(..));
                Ok(())
            }
            Err(_) => {
                packet.drain(..).for_each(|parcel| self.magazine.put(parcel.segment.frame));
                Err(Undeliverable::Full)
            }
        }
    }

    /// A view of how many free frames it keeps.
    pub(crate) fn level(&self) -> Arc<AtomicU32> {
        self.magazine.level()
    }
}

impl MemoryReceiver {
    /// The next packet, if there is one.
    pub(crate) fn receive(&mut self) -> Option<MemoryReceived> {
        let mut received: Option<MemoryReceived> = None;
        while let Ok(Parcel { leaving: Leaving { mark, .. }, segment, is_last }) = self.parcels.pop() {
            let bytes = self.arena.bytes(&segment.frame, segment.offset, segment.len);
            received.get_or_insert(MemoryReceived { bytes: Vec::new(), mark }).bytes.extend_from_slice(bytes);
            self.pool.put(segment.frame);
            if is_last {
                break;
            }
        }
        received
    }

    /// Frames that wait to be received.
    pub(crate) fn frames(&self) -> usize {
        self.parcels.slots()
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        while let Ok(parcel) = self.parcels.pop() {
            self.pool.put(parcel.segment.frame);
        }
    }
}
