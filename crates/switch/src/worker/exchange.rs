//! Packets handed to the worker that owns their output.
//!
//! A netdev takes packets from any worker; a queue with one producer takes them from its owner only. So each worker has a
//! bounded ring to each other worker. It copies the packet into frames of the pool and rings the owner's bell, once a turn;
//! the owner queues the frames as they are. Nobody waits: a packet that finds the ring full is dropped at its output.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use forebay_pool::{Arena, Magazine, Pool};
use rtrb::{Consumer, Producer, RingBuffer};

use super::parcel::{self, Leaving, Parcel, Pieces, Undeliverable};
use crate::SwitchError;
use crate::attention::Attention;

/// Frames under way between two workers, in each direction.
const EXCHANGE_FRAMES: usize = 512;

/// One worker's ends of all rings.
pub(crate) struct Exchange {
    arena: Arc<Arena>,
    magazine: Magazine,
    /// By worker; to itself there is none.
    to: Vec<Option<Towards>>,
    from: Vec<Consumer<Parcel>>,
    bell: Arc<Attention>,
}

struct Towards {
    parcels: Producer<Parcel>,
    bell: Arc<Attention>,
    /// Something was handed over since the bell was rung.
    is_owed: bool,
}

impl Exchange {
    /// Rings between each two of `workers`, for packets in frames of `pool`.
    ///
    /// # Errors
    /// The kernel gives no more descriptors.
    pub(crate) fn connect(
        workers: usize,
        arena: &Arc<Arena>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Self>, SwitchError> {
        let mut ends = Vec::new();
        for _ in 0..workers {
            ends.push(Self {
                arena: Arc::clone(arena),
                magazine: Magazine::new(Arc::clone(pool)),
                to: Vec::new(),
                from: Vec::new(),
                bell: Arc::new(Attention::new()?),
            });
        }
        for from in 0..workers {
            for to in 0..workers {
                let towards = (from != to).then(|| {
                    let (parcels, received) = RingBuffer::new(EXCHANGE_FRAMES);
                    ends[to].from.push(received);
                    Towards { parcels, bell: Arc::clone(&ends[to].bell), is_owed: false }
                });
                ends[from].to.push(towards);
            }
        }
        Ok(ends)
    }

    /// Copies a packet for a port that `owner` has the output of; packet path.
    ///
    /// # Errors
    /// [`Undeliverable`]
    pub(super) fn hand(
        &mut self,
        owner: usize,
        pieces: &Pieces<'_>,
        leaving: Leaving,
    ) -> Result<(), Undeliverable> {
        let towards = self.to.get_mut(owner).and_then(Option::as_mut).ok_or(Undeliverable::Full)?;
        parcel::push(&mut towards.parcels, pieces, leaving, (&self.arena, &mut self.magazine))?;
        towards.is_owed = true;
        Ok(())
    }

    /// Rings the bells of those that were handed something; packet path, once a turn.
    pub(super) fn ring_bells(&mut self) {
        for towards in self.to.iter_mut().flatten() {
            if std::mem::take(&mut towards.is_owed) {
                towards.bell.call();
            }
        }
    }

    /// Whether another worker has handed something over.
    #[inline]
    pub(super) fn has_handed(&self) -> bool {
        self.from.iter().any(|parcels| !parcels.is_empty())
    }

    /// The bell was heard, and the next one is to be.
    pub(super) fn hear(&self) {
        self.bell.hear();
        self.bell.listen();
    }

    /// The frames of the next packet that was handed over, into `packet`, which is empty. Whether there was one.
    pub(super) fn take(&mut self, packet: &mut Vec<Parcel>) -> bool {
        for parcels in &mut self.from {
            while let Ok(parcel) = parcels.pop() {
                let is_last = parcel.is_last;
                packet.push(parcel);
                if is_last {
                    return true;
                }
            }
        }
        false
    }

    /// Frames that were handed over and not yet taken.
    pub(super) fn waiting_frames(&self) -> u32 {
        self.from.iter().map(|parcels| parcels.slots() as u32).sum()
    }

    /// A view of how many free frames it keeps.
    pub(crate) fn level(&self) -> Arc<AtomicU32> {
        self.magazine.level()
    }

    /// Where packets lie that were handed over.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Frees the frames of a packet that goes nowhere.
    pub(super) fn free(&mut self, packet: &mut Vec<Parcel>) {
        packet.drain(..).for_each(|parcel| self.magazine.put(parcel.segment.frame));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let magazine = &mut self.magazine;
        let left = self.from.iter_mut().flat_map(|parcels| std::iter::from_fn(|| parcels.pop().ok()));
        left.for_each(|parcel| magazine.put(parcel.segment.frame));
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
