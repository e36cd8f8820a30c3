//! What a worker serves: sources, the ports whose packets come out of them, and what supplies them with frames.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use forebay_control::PortId;
use forebay_kernel::RingAccount;
use forebay_policy::{Refill, Turn};
use forebay_pool::{Arena, Magazine};
use forebay_xsk::{FillRing, PortSocket, RxRing};

use super::drain::Drain;
use super::guest::GuestSource;
use super::long::LongSource;
use super::memory::MemorySource;
use super::underway::UnderwayAccount;
use crate::capture::Tap;
use crate::counters::{Counter, PortCells, RingGauge};
use crate::flood::PortFlood;
use crate::rate::RatedBucket;

/// Collectors that may stand at once.
pub(crate) const COLLECTORS: usize = forebay_kernel::COLLECTORS as usize;

/// Whose packets a source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// One port's.
    Port(PortId),
    /// Any port's: each packet has its origin below it.
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

/// Where a worker takes packets from in one turn. Matched once a turn, never for each packet.
pub(crate) enum Source {
    /// An AF_XDP ring.
    Xsk(XskSource),
    /// A queue in this process's memory.
    Memory(MemorySource),
    /// A virtual machine's transmit queue.
    Guest(Box<GuestSource>),
    /// The worker's long queue.
    Long(Box<LongSource>),
}

/// An AF_XDP ring, whose frames the kernel fills.
pub(crate) struct XskSource {
    pub(crate) ring: RxRing,
    /// `None` where nobody has to be told of packets: the ring lies in ordinary memory.
    pub(crate) socket: Option<Arc<PortSocket>>,
    pub(crate) supply: SuppliedBy,
    /// A program has always written what lies below its packets.
    pub(crate) has_origin: bool,
    /// Headers of its last packets were read.
    pub(crate) reads_headers: bool,
}

/// A source that one worker serves, and what the worker keeps beside it.
pub(crate) struct ServedSource {
    pub(crate) feed: Feed,
    pub(crate) source: Source,
    pub(crate) gauge: Arc<RingGauge>,
    /// `None` once another ring has taken its place.
    pub(crate) account: Option<RingAccount>,
    pub(crate) turn: Turn,
    /// The ring is on the calm collector: a flood here delays other ports.
    pub(crate) is_calm: bool,
}

impl Source {
    /// Where the frames of its packets lie.
    #[inline]
    pub(super) fn arena(&self) -> &Arc<Arena> {
        match self {
            Source::Xsk(xsk) => xsk.ring.arena(),
            Source::Memory(memory) => memory.arena(),
            Source::Guest(guest) => guest.arena(),
            Source::Long(long) => long.arena(),
        }
    }

    /// Frames or packets of this process that wait in it. Those in a guest's memory or the kernel's are none of its frames.
    #[inline]
    pub(super) fn occupancy(&self) -> u32 {
        match self {
            Source::Xsk(xsk) => xsk.ring.occupancy(),
            Source::Memory(memory) => memory.occupancy(),
            Source::Guest(_) | Source::Long(_) => 0,
        }
    }

    /// Whether more packets wait. If none does, the sender wakes the worker with its next packet; a guest must be asked for
    /// that.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        match self {
            Source::Guest(guest) => guest.has_waiting(),
            Source::Long(long) => !long.is_drained(),
            Source::Xsk(_) | Source::Memory(_) => self.occupancy() > 0,
        }
    }

    /// What becomes readable when packets come, if anything does.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Source::Xsk(xsk) => xsk.socket.as_deref().map(AsFd::as_fd),
            Source::Memory(_) => None,
            Source::Guest(guest) => guest.kick(),
            Source::Long(long) => Some(long.tap()),
        }
    }

    /// Its own supply of frames from the kernel's side, if it has one.
    pub(super) fn own_supply(&mut self) -> Option<&mut Supply> {
        match self {
            Source::Xsk(XskSource { supply: SuppliedBy::Own(supply), .. }) => Some(supply),
            Source::Xsk(_) | Source::Memory(_) | Source::Guest(_) | Source::Long(_) => None,
        }
    }

    /// Whether headers of its last packets were read: those of the next will be, too.
    #[inline]
    pub(super) fn set_reads_headers(&mut self, reads: bool) {
        if let Source::Xsk(xsk) = self {
            xsk.reads_headers = reads;
        }
    }
}

impl ServedSource {
    /// Sets the account right: frames that the source does not hold any more may be taken again.
    pub(super) fn settle(&self) {
        if let Some(account) = &self.account {
            account.settle(|| u64::from(self.source.occupancy()));
        }
    }
}

/// A port as one worker counts and limits it, whichever ring its packets come through.
pub(crate) struct Member {
    pub(crate) cells: Arc<PortCells>,
    pub(crate) flood: PortFlood,
    /// Of stations that move to it.
    pub(crate) moves: RatedBucket,
    /// Where its packets are copied to while somebody captures them.
    pub(crate) tap: Option<Box<Tap>>,
    /// Only of a virtual machine's port, at the worker that serves it.
    pub(crate) underway: Option<UnderwayAccount>,
}

/// The account of a port's frames that are on their way to other workers. Only virtual machines' ports have one.
#[inline]
pub(super) fn underway_of(members: &[Option<Box<Member>>], port: PortId) -> Option<&UnderwayAccount> {
    members[usize::from(port.0)].as_deref()?.underway.as_ref()
}
