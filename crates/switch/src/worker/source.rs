//! What a worker serves: rings, the ports whose packets come out of them, and what supplies them with frames.

use std::sync::Arc;

use forebay_control::PortId;
use forebay_kernel::RingAccount;
use forebay_policy::{Refill, Turn};
use forebay_pool::Magazine;
use forebay_xsk::{FillRing, PortSocket, RxRing};

use super::reclaim::Drain;
use crate::capture::Tap;
use crate::counters::{Counter, PortCells, RingGauge};
use crate::flood::FloodBucket;

/// Collectors that may stand at once.
pub(crate) const COLLECTORS: usize = forebay_kernel::COLLECTORS as usize;

/// Names one ring of one worker while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Whose packets a ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// One port's.
    Port(PortId),
    /// Any port's: each packet is marked with its source.
    Shared,
}

/// Free frames for the rings of one (netdev, queue).
pub(crate) struct Supply {
    pub(crate) fill: FillRing,
    pub(crate) magazine: Magazine,
    pub(crate) refill: Refill,
    /// Packets that came through it since the last look at who is ready.
    pub(crate) polled: u32,
    /// Frames posted, when the worker last looked.
    pub(crate) posted: Arc<Counter>,
    /// How posted frames are taken back, where that is possible.
    pub(crate) drain: Option<Drain>,
}

/// What supplies a ring.
pub(crate) enum SuppliedBy {
    /// The worker's queue of one of the collectors, with all other rings there.
    Collector(u8),
    /// A fill ring of its own.
    Own(Box<Supply>),
}

/// A ring that one worker serves.
pub(crate) struct ServedSource {
    pub(crate) feed: Feed,
    pub(crate) supply: SuppliedBy,
    pub(crate) ring: RxRing,
    pub(crate) socket: Arc<PortSocket>,
    pub(crate) gauge: Arc<RingGauge>,
    /// `None` once another ring has taken its place.
    pub(crate) account: Option<RingAccount>,
    pub(crate) turn: Turn,
    /// It is in others' way when it has many packets.
    pub(crate) is_calm: bool,
    /// A program has always written what lies below its packets.
    pub(crate) is_marked: bool,
    /// Headers of its last packets were read.
    pub(crate) reads_headers: bool,
}

impl ServedSource {
    /// What the ring does not hold any more may be taken again.
    pub(super) fn settle(&self) {
        if let Some(account) = &self.account {
            account.settle(|| u64::from(self.ring.occupancy()));
        }
    }
}

/// A port as one worker counts and limits it, whichever ring its packets come through.
pub(crate) struct Member {
    pub(crate) cells: Arc<PortCells>,
    pub(crate) flood: FloodBucket,
    /// Where its packets are copied to while somebody captures them.
    pub(crate) tap: Option<Box<Tap>>,
}
