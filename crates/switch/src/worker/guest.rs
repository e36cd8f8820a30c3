//! A virtual machine's queues, as the worker that owns them serves them.
//!
//! Packets stay in the guest's memory until their turn comes, so the switch holds none of them between turns. A packet is
//! copied once: into frames of the pool when it comes from the guest, into the guest's buffers when it goes there.
//!
//! The rule they keep: whatever a guest writes breaks its own port alone. A queue that breaks is served no more, and the
//! control side is told why.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use forebay_policy::Piece;
use forebay_pool::{Arena, Burst, MAX_SEGMENTS_PER_PACKET, Magazine, PacketSegments, Segment};
use forebay_vhost::{NetHeader, Put, RingError, Virtqueue};
use forebay_xsk::TagEdit;

use super::facts::Facts;
use super::parcel::{self, HEADROOM, Parcel, Pieces, Undeliverable};
use super::record::Record;
use crate::attention::Attention;
use crate::counters::Counter;

/// What a worker tells the control side of a guest's queue.
pub(crate) struct GuestCells {
    /// Packets that the worker took from the guest's memory, whatever became of them.
    pub(crate) taken_packets: Counter,
    fault: OnceLock<RingError>,
    bell: Arc<Attention>,
}

impl GuestCells {
    /// Nothing was taken. `bell` rings when the queue breaks.
    pub(crate) fn new(bell: Arc<Attention>) -> Self {
        Self { taken_packets: Counter::default(), fault: OnceLock::new(), bell }
    }

    /// Why the queue is served no more.
    pub(crate) fn fault(&self) -> Option<RingError> {
        self.fault.get().copied()
    }

    #[cold]
    fn breaks(&self, error: RingError) {
        // The first reason counts.
        let _ = self.fault.set(error);
        self.bell.call();
    }
}

/// Packets of a turn that have no place in the burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// There was no free frame.
    pub(super) no_frame: u64,
    /// They take more frames than a packet may have.
    pub(super) too_big: u64,
    /// They have no bytes.
    pub(super) empty: u64,
}

/// A guest's transmit queue.
pub(crate) struct GuestSource {
    queue: Virtqueue,
    cells: Arc<GuestCells>,
    arena: Arc<Arena>,
    /// The collector whose supply has free frames of the arena.
    supply: u8,
    /// The guest kicks when it has packets.
    is_armed: bool,
    is_broken: bool,
}

impl GuestSource {
    /// A queue whose packets are copied into frames of `arena`, from the supply of this number.
    pub(crate) fn new(queue: Virtqueue, cells: Arc<GuestCells>, (supply, arena): (u8, Arc<Arena>)) -> Self {
        Self { queue, cells, arena, supply, is_armed: true, is_broken: false }
    }

    /// Takes frames of another pool from now on.
    pub(super) fn move_to(&mut self, supply: u8, arena: Arc<Arena>) {
        (self.supply, self.arena) = (supply, arena);
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(super) fn supply(&self) -> usize {
        self.supply.into()
    }

    pub(super) fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.queue.kick()
    }

    pub(super) fn into_queue(self) -> Virtqueue {
        self.queue
    }

    /// Copies the next packets into frames, and gives their buffers back to the guest.
    pub(super) fn receive(
        &mut self,
        burst: &mut Burst,
        records: &mut [Record],
        piece: Piece,
        magazine: &mut Magazine,
    ) -> Lost {
        let mut lost = Lost::default();
        if self.is_broken {
            return lost;
        }
        let heard = if std::mem::take(&mut self.is_armed) {
            self.queue.suppress_kicks();
            self.queue.hear_kicks()
        } else {
            Ok(())
        };
        let taken = heard.and_then(|()| self.take(burst, records, piece, magazine, &mut lost));
        let fault = self.queue.is_broken().then_some(RingError::MemoryFault);
        if let Some(error) = taken.err().or(fault) {
            self.is_broken = true;
            self.cells.breaks(error);
        }
        if self.queue.publish() {
            // Fails only when the guest has closed it, which its socket tells too.
            let _ = self.queue.call();
        }
        lost
    }

    fn take(
        &mut self,
        burst: &mut Burst,
        records: &mut [Record],
        piece: Piece,
        magazine: &mut Magazine,
        lost: &mut Lost,
    ) -> Result<(), RingError> {
        let (mut packets, mut bytes) = (0, 0);
        while packets < piece.packets && bytes < piece.bytes && !burst.is_full() {
            let Some(offer) = self.queue.offered()? else { break };
            packets += 1;
            bytes += u64::from(offer.len);
            self.cells.taken_packets.add(1);
            let payload = self.arena.frame_size().payload();
            let frames = (offer.len as usize).div_ceil(payload as usize);
            let taken = match frames {
                0 => Err(&mut lost.empty),
                1..=MAX_SEGMENTS_PER_PACKET => {
                    parcel::take_frames(magazine, frames).map_err(|_| &mut lost.no_frame)
                }
                _ => Err(&mut lost.too_big),
            };
            let mut taken = match taken {
                Ok(taken) => taken,
                Err(reason) => {
                    *reason += 1;
                    self.queue.discard();
                    continue;
                }
            };
            let room = taken.iter_mut().flatten();
            let room = room.map(|frame| self.arena.bytes_mut(frame, HEADROOM, payload as u16));
            let mut left = self.queue.take(room);
            records[burst.len()].facts = Facts::default();
            for frame in taken.into_iter().flatten() {
                let len = left.min(payload);
                left -= len;
                burst.push(Segment { frame, offset: HEADROOM, len: len as u16 }, left == 0);
            }
        }
        Ok(())
    }

    /// Whether the guest has more. If not, it is to kick when it has.
    pub(super) fn has_more(&mut self) -> bool {
        if self.is_broken {
            return false;
        }
        if self.queue.has_waiting() {
            return true;
        }
        self.is_armed = true;
        self.queue.allow_kicks()
    }
}

/// A guest's receive queues.
pub(crate) struct GuestOutput {
    queues: Vec<Virtqueue>,
    cells: Arc<GuestCells>,
    /// Something was written since the guest was last shown.
    is_owed: bool,
    is_broken: bool,
}

impl GuestOutput {
    /// Queues of one guest, at least one.
    pub(crate) fn new(mut queues: Vec<Virtqueue>, cells: Arc<GuestCells>) -> Self {
        // A worker looks for buffers when it has packets.
        queues.iter_mut().for_each(Virtqueue::suppress_kicks);
        Self { queues, cells, is_owed: false, is_broken: false }
    }

    pub(crate) fn into_queues(self) -> Vec<Virtqueue> {
        self.queues
    }

    /// Copies a packet into the guest's buffers. Says how long it is there.
    pub(super) fn send(
        &mut self,
        arena: &Arena,
        packet: PacketSegments<'_>,
        edit: TagEdit,
    ) -> Result<usize, Undeliverable> {
        let pieces = Pieces::edited(arena, packet, edit);
        self.put(pieces.in_order(), pieces.len()).map(|()| pieces.len())
    }

    /// Copies a packet that another worker handed over.
    pub(super) fn pass(&mut self, arena: &Arena, packet: &[Parcel]) -> Result<(), Undeliverable> {
        let len = packet.iter().map(|parcel| usize::from(parcel.segment.len)).sum();
        let pieces = packet.iter().map(|parcel| {
            let Segment { frame, offset, len } = &parcel.segment;
            arena.bytes(frame, *offset, *len)
        });
        self.put(pieces, len)
    }

    fn put<'p>(
        &mut self,
        pieces: impl Iterator<Item = &'p [u8]> + Clone,
        len: usize,
    ) -> Result<(), Undeliverable> {
        if self.is_broken {
            return Err(Undeliverable::Full);
        }
        let number = queue_of(pieces.clone(), self.queues.len());
        match self.queues[number].put(NetHeader::default(), pieces, len as u32) {
            Ok(Put::Done) => self.is_owed = true,
            Ok(Put::Full) => return Err(Undeliverable::Full),
            Ok(Put::TooLong) => return Err(Undeliverable::TooLong),
            Err(error) => {
                self.breaks(error);
                return Err(Undeliverable::Full);
            }
        }
        Ok(())
    }

    fn breaks(&mut self, error: RingError) {
        self.is_broken = true;
        self.cells.breaks(error);
    }

    /// Whether the guest is to be shown what was written.
    #[inline]
    pub(super) fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Shows the guest what was written, and calls it if it wants that.
    pub(super) fn show(&mut self) {
        self.is_owed = false;
        for queue in &mut self.queues {
            if queue.publish() {
                let _ = queue.call();
            }
        }
        if !self.is_broken && self.queues[0].is_broken() {
            self.breaks(RingError::MemoryFault);
        }
    }
}

/// Packets between two stations go by one queue, in order.
fn queue_of<'p>(mut pieces: impl Iterator<Item = &'p [u8]>, queues: usize) -> usize {
    if queues == 1 {
        return 0;
    }
    let addresses = pieces.next().and_then(|first| first.first_chunk::<12>());
    let Some([dst @ .., a, b, c, d]) = addresses else { return 0 };
    let low = u64::from(u32::from_ne_bytes([*a, *b, *c, *d]));
    let high = u64::from_ne_bytes(*dst);
    let hash = (high ^ low.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * queues as u64) >> 32) as usize
}
