//! From copied descriptors to pieces of guest memory, with all checks that do not depend on the kind of ring.

use super::{MAX_CHAIN, MAX_PACKET_BYTES, MAX_PIECES};
use crate::error::RingError;
use crate::memory::{GuestMemory, Piece, RawDescriptor};

/// Flags of a descriptor (`VRING_DESC_F_…`, virtio 1.3, 2.7.5).
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u32 = 16;

/// Which way the buffers of a chain may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// We read them.
    FromGuest,
    /// We write them.
    ToGuest,
    /// First some that we read, then some that we write: a command and room for its answer.
    Both,
}

/// A buffer that was copied and checked, and is still in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    /// What the guest calls it.
    pub(crate) id: u16,
    /// Entries of the ring that it takes.
    pub(crate) slots: u16,
    /// Bytes of all its pieces.
    pub(crate) len: u32,
}

/// A buffer of one descriptor that lies in one region, which is the usual kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadyBuffer {
    pub(crate) piece: Piece,
    /// What the guest calls it.
    pub(crate) id: u16,
}

impl ReadyBuffer {
    /// The buffer as one that was fetched.
    #[inline]
    pub(crate) fn fetched(&self) -> Fetched {
        Fetched { id: self.id, slots: 1, len: self.piece.len() }
    }
}

/// The buffer of a descriptor without others, in the usual case: it goes the right way, has a length that it may have, and
/// lies in one region. `None` in all others; these are [`Walk`]'s.
#[inline]
pub(super) fn usual(
    memory: &GuestMemory,
    descriptor: RawDescriptor,
    flags: u16,
    direction: Direction,
) -> Option<Piece> {
    let is_usual = match direction {
        Direction::FromGuest => flags & WRITE == 0 && descriptor.len <= MAX_PACKET_BYTES,
        Direction::ToGuest => flags & WRITE != 0,
        Direction::Both => false,
    };
    if !is_usual || descriptor.len == 0 || flags & (NEXT | INDIRECT) != 0 {
        return None;
    }
    memory.piece(descriptor.address, descriptor.len).filter(|piece| piece.len() == descriptor.len)
}

/// Pieces of the buffers of one packet. Its memory is allocated once.
#[derive(Debug)]
pub(crate) struct Pieces {
    all: Vec<Piece>,
    /// How many of them come before the first that we write.
    readable: usize,
}

impl Pieces {
    pub(crate) fn new() -> Self {
        Self { all: Vec::with_capacity(MAX_PIECES), readable: 0 }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.readable = 0;
    }

    #[inline]
    pub(crate) fn all(&self) -> &[Piece] {
        &self.all
    }

    /// Pieces that we read, and those that we write.
    pub(crate) fn split(&self) -> (&[Piece], &[Piece]) {
        self.all.split_at(self.readable)
    }

    /// Adds one buffer, which may lie in several regions.
    #[inline]
    fn push(&mut self, memory: &GuestMemory, address: u64, len: u32) -> Result<(), RingError> {
        let (mut at, mut left) = (address, len);
        while left > 0 {
            let piece = memory.piece(at, left).ok_or(RingError::Unmapped { address, len })?;
            if self.all.len() == MAX_PIECES {
                return Err(RingError::ChainTooLong { limit: MAX_PIECES as u32 });
            }
            self.all.push(piece);
            left -= piece.len();
            at = at.wrapping_add(u64::from(piece.len()));
        }
        Ok(())
    }
}

/// Checks the descriptors of one chain as they come.
pub(crate) struct Walk<'a> {
    memory: &'a GuestMemory,
    pieces: &'a mut Pieces,
    direction: Direction,
    seen: u32,
    limit: u32,
    len: u32,
    has_written: bool,
}

impl<'a> Walk<'a> {
    /// `size` is the number of entries of the ring or table.
    #[inline]
    pub(crate) fn new(
        memory: &'a GuestMemory,
        pieces: &'a mut Pieces,
        direction: Direction,
        size: u32,
    ) -> Self {
        let limit = size.min(MAX_CHAIN);
        Self { memory, pieces, direction, seen: 0, limit, len: 0, has_written: false }
    }

    /// Whether all of it is what the guest sends.
    #[inline]
    pub(crate) fn only_reads(&self) -> bool {
        self.direction == Direction::FromGuest
    }

    /// Adds the buffer of one descriptor, which is not an indirect one.
    #[inline]
    pub(crate) fn add(&mut self, descriptor: RawDescriptor, flags: u16) -> Result<(), RingError> {
        self.seen += 1;
        if self.seen > self.limit {
            return Err(RingError::ChainTooLong { limit: self.limit });
        }
        let writable = flags & WRITE != 0;
        let is_wrong = match self.direction {
            Direction::FromGuest => writable,
            Direction::ToGuest => !writable,
            Direction::Both => self.has_written && !writable,
        };
        if is_wrong {
            return Err(RingError::WrongDirection { writable });
        }
        self.count(descriptor.len)?;
        self.pieces.push(self.memory, descriptor.address, descriptor.len)?;
        self.has_written |= writable;
        if !writable {
            self.pieces.readable = self.pieces.all.len();
        }
        Ok(())
    }

    /// What we are to read has a limit. What we may write has none, but we need not know all of it.
    #[inline]
    fn count(&mut self, len: u32) -> Result<(), RingError> {
        self.len = self.len.saturating_add(len);
        if self.direction != Direction::ToGuest && self.len > MAX_PACKET_BYTES {
            return Err(RingError::TooLong { limit: MAX_PACKET_BYTES });
        }
        Ok(())
    }

    /// Adds all buffers of an indirect table. `next` tells which flags and which next entry a descriptor has.
    #[inline]
    pub(crate) fn add_table(
        &mut self,
        table: RawDescriptor,
        is_negotiated: bool,
        next: impl Fn(RawDescriptor, u16) -> (u16, Option<u16>),
    ) -> Result<(), RingError> {
        if !is_negotiated || self.seen > 0 {
            return Err(RingError::IndirectNotAllowed);
        }
        let entries = table.len / DESCRIPTOR_BYTES;
        if entries == 0 || !table.len.is_multiple_of(DESCRIPTOR_BYTES) {
            return Err(RingError::IndirectLength { len: table.len });
        }
        self.limit = entries.min(MAX_CHAIN);
        let mut index = 0;
        loop {
            let descriptor = self.table_entry(table, index, entries)?;
            let (flags, following) = next(descriptor, index);
            if flags & INDIRECT != 0 {
                return Err(RingError::IndirectNotAllowed);
            }
            self.add(descriptor, flags)?;
            match following {
                Some(following) => index = following,
                None => return Ok(()),
            }
        }
    }

    /// Copies one descriptor of an indirect table.
    #[inline]
    fn table_entry(
        &self,
        table: RawDescriptor,
        index: u16,
        entries: u32,
    ) -> Result<RawDescriptor, RingError> {
        if u32::from(index) >= entries {
            return Err(RingError::DescriptorOutside { index, size: entries });
        }
        let unmapped = RingError::Unmapped { address: table.address, len: table.len };
        let at = table.address.checked_add(u64::from(index) * 16).ok_or(unmapped)?;
        let mut bytes = [0; 16];
        if !self.memory.read(at, &mut bytes) {
            return Err(unmapped);
        }
        Ok(RawDescriptor::from_bytes(bytes))
    }

    /// The chain has ended.
    #[inline]
    pub(crate) fn end(self, id: u16, slots: u16) -> Fetched {
        Fetched { id, slots, len: self.len }
    }
}
