//! The two kinds of ring, from the device's side.
//!
//! A buffer is *fetched*: its descriptors are copied, checked, and become [`Piece`]s of guest memory. Then it is
//! *completed*: a used entry is written. Used entries become visible to the guest all at once, when they are *shown*.
//! Whether the guest wants a call is asked then or later. Nothing else moves a cursor, so a caller may fetch several buffers and
//! leave them where they are.

mod chain;
pub(crate) mod packed;
mod packed_notes;
mod position;
pub(crate) mod split;
mod split_notes;
mod whereabouts;

pub(crate) use chain::{Direction, Fetched, Pieces, ReadyBuffer};
pub(crate) use packed::PackedRing;
pub(crate) use split::SplitRing;

use crate::error::{RingError, VhostError};
use crate::memory::{Area, GuestMemory};

/// Descriptors that one chain may have, and pieces that all chains of one packet may have.
pub const MAX_CHAIN: u32 = 256;
pub(crate) const MAX_PIECES: usize = 512;

/// The largest ring (virtio 1.3, 2.7 and 2.8).
pub const MAX_RING: u32 = 32_768;

/// Bytes that a packet to be sent may have with its header: 64 KiB of payload, and room for headers in front.
pub const MAX_PACKET_BYTES: u32 = 65_536 + 256;

/// A ring of either kind. Matched once for each verb below.
#[derive(Debug)]
pub(crate) enum Ring {
    Split(SplitRing),
    Packed(PackedRing),
}

macro_rules! either {
    ($self:ident, $ring:ident => $verb:expr) => {
        match $self {
            Ring::Split($ring) => $verb,
            Ring::Packed($ring) => $verb,
        }
    };
}

impl Ring {
    /// Copies and checks the buffer that is `ahead` entries behind the next one, and adds its pieces to `pieces`.
    #[inline]
    pub(crate) fn fetch(
        &mut self,
        memory: &GuestMemory,
        ahead: u16,
        direction: Direction,
        pieces: &mut Pieces,
    ) -> Result<Option<Fetched>, RingError> {
        either!(self, ring => ring.fetch(memory, ahead, direction, pieces))
    }

    /// Copies and checks the buffer that is `ahead` entries behind the next one, if the guest has shown it and it is of the
    /// usual kind: one descriptor, in one region.
    #[inline]
    pub(crate) fn look(
        &mut self,
        memory: &GuestMemory,
        ahead: u16,
        direction: Direction,
    ) -> Option<ReadyBuffer> {
        either!(self, ring => ring.look(memory, ahead, direction))
    }

    /// Begins to bring the entry that is `ahead` entries behind the next one into the processor's cache.
    #[inline]
    pub(crate) fn fetch_entry(&self, ahead: u16) {
        either!(self, ring => ring.fetch_entry(ahead));
    }

    /// Takes the next buffer and writes its used entry. `written` is the number of bytes that we wrote into it.
    #[inline]
    pub(crate) fn complete(&mut self, fetched: &Fetched, written: u32) {
        either!(self, ring => ring.complete(fetched, written));
    }

    /// Shows the guest what was completed. Says whether there was anything.
    #[inline]
    pub(crate) fn show(&mut self) -> bool {
        either!(self, ring => ring.show())
    }

    /// Whether the guest wants a call for what was shown since this was asked last.
    #[inline]
    pub(crate) fn wants_call(&mut self) -> bool {
        either!(self, ring => ring.wants_call())
    }

    pub(crate) fn suppress_kicks(&mut self) {
        either!(self, ring => ring.suppress_kicks());
    }

    /// Asks for a kick when the next buffer comes. `true`: one came meanwhile, and there may be no kick for it.
    pub(crate) fn allow_kicks(&mut self) -> bool {
        either!(self, ring => ring.allow_kicks())
    }

    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        either!(self, ring => ring.has_waiting())
    }

    /// Number of places of the ring that wait; see [`crate::Virtqueue::waiting`].
    pub(crate) fn waiting(&self) -> u16 {
        either!(self, ring => ring.waiting())
    }

    /// Notes from now on in `region`, with so many entries, what the next back end is to know after a crash of this one.
    pub(crate) fn note_in(&mut self, region: Area, entries: u16) -> Result<(), VhostError> {
        if self.size() > entries {
            return Err(VhostError::BadNotes { what: "fewer entries than the ring has" });
        }
        either!(self, ring => ring.note_in(region, entries))
    }

    /// Where the ring goes on, as the protocol says it (`VHOST_USER_GET_VRING_BASE`).
    pub(crate) fn base(&self) -> u32 {
        either!(self, ring => ring.base())
    }

    pub(crate) fn size(&self) -> u16 {
        either!(self, ring => ring.size())
    }
}
