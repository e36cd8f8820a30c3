//! Packets into a guest's receive queue.

use forebay_wire::net_header::NetHeader;

use super::cursor::Cursor;
use super::{Put, USUAL_HEADER, Virtqueue};
use crate::error::RingError;
use crate::memory::{LentBytes, Piece, Purpose};
use crate::ring::Direction;

impl Virtqueue {
    /// Writes a packet of `len` bytes into buffers of a receive queue: all of it or nothing. Packet path.
    ///
    /// # Errors
    /// The ring is malformed, and the port is to be broken.
    #[inline]
    pub fn put<'a>(
        &mut self,
        header: NetHeader,
        packet: impl IntoIterator<Item = &'a [u8]>,
        len: u32,
    ) -> Result<Put, RingError> {
        self.put_lent(header, packet, LentBytes::default(), len)
    }

    /// The same for a packet whose last bytes lie in a guest's memory. `len` counts them.
    ///
    /// # Errors
    /// As [`Virtqueue::put`].
    #[inline]
    pub fn put_lent<'a>(
        &mut self,
        header: NetHeader,
        packet: impl IntoIterator<Item = &'a [u8]>,
        behind: LentBytes<'_>,
        len: u32,
    ) -> Result<Put, RingError> {
        let needed = len.saturating_add(self.header_bytes);
        self.look_ahead(Direction::ToGuest, Purpose::Write);
        match self.ready.first() {
            Some(buffer) if self.header_bytes == USUAL_HEADER && buffer.piece.len() >= needed => {
                self.put_header(&buffer.piece, header);
                let mut left = len;
                for part in packet {
                    let part = &part[..part.len().min(left as usize)];
                    self.memory.copy_to(&buffer.piece, needed - left, part);
                    left -= part.len() as u32;
                }
                for part in behind.in_order() {
                    let part = &part[..part.len().min(left as usize)];
                    self.memory.copy_shared_to(&buffer.piece, needed - left, part);
                    left -= part.len() as u32;
                }
                debug_assert_eq!(left, 0, "a packet is as long as its caller says");
                self.complete(&buffer.fetched(), needed - left);
                Ok(Put::Done)
            }
            _ => self.put_any(header, packet, behind, len),
        }
    }

    /// Returns how many places a packet of `len` bytes takes of a receive queue if all buffers are as long as the next one. One
    /// if that is of several pieces. Packet path.
    pub fn places_for(&mut self, len: u32) -> u32 {
        self.look_ahead(Direction::ToGuest, Purpose::Write);
        let needed = len.saturating_add(self.header_bytes);
        let first = self.ready.first().filter(|_| self.is_mergeable);
        first.map_or(1, |buffer| needed.div_ceil(buffer.piece.len().max(1)))
    }

    /// The same for a packet that takes several buffers, or one of another kind.
    fn put_any<'a>(
        &mut self,
        header: NetHeader,
        packet: impl IntoIterator<Item = &'a [u8]>,
        behind: LentBytes<'_>,
        len: u32,
    ) -> Result<Put, RingError> {
        let needed = len.saturating_add(self.header_bytes);
        match self.gather(needed)? {
            Put::Done => {}
            other => return Ok(other),
        }
        let bytes = header.to_bytes(self.chains.len() as u16);
        let pieces = self.pieces.all();
        Cursor::new(pieces, 0).copy_to(&self.memory, &bytes[..self.header_bytes as usize]);
        let mut writer = Cursor::new(pieces, self.header_bytes);
        let mut left = len;
        for part in packet {
            let part = &part[..part.len().min(left as usize)];
            writer.copy_to(&self.memory, part);
            left -= part.len() as u32;
        }
        for part in behind.in_order() {
            let part = &part[..part.len().min(left as usize)];
            writer.copy_shared_to(&self.memory, part);
            left -= part.len() as u32;
        }
        debug_assert_eq!(left, 0, "a packet is as long as its caller says");
        self.finish(needed - left);
        Ok(Put::Done)
    }

    /// Fetches as many buffers as `needed` bytes take.
    #[inline]
    fn gather(&mut self, needed: u32) -> Result<Put, RingError> {
        self.pieces.clear();
        self.chains.clear();
        let (mut room, mut slots) = (0u32, 0u16);
        while room < needed {
            if !self.chains.is_empty() && !self.is_mergeable {
                return Ok(Put::TooLong);
            }
            if slots >= self.ring.size() || self.chains.len() == self.chains.capacity() {
                return Ok(Put::TooLong);
            }
            let fetched = self.ring.fetch(&self.memory, slots, Direction::ToGuest, &mut self.pieces);
            let Some(fetched) = fetched.map_err(|error| self.cause(error))? else { return Ok(Put::Full) };
            if self.chains.is_empty() && fetched.len < self.header_bytes {
                return Err(self.cause(RingError::TooShort { len: fetched.len, needed: self.header_bytes }));
            }
            room = room.saturating_add(fetched.len);
            slots = slots.saturating_add(fetched.slots);
            self.chains.push(fetched);
        }
        Ok(Put::Done)
    }

    /// Writes the used entries of the packet's buffers.
    #[inline]
    fn finish(&mut self, written: u32) {
        let mut left = written;
        for index in 0..self.chains.len() {
            let fetched = self.chains[index];
            let part = left.min(fetched.len);
            self.complete(&fetched, part);
            left -= part;
        }
    }

    /// Writes the header of a packet, unless it is there already. Most headers are alike, and one that is only read stays in
    /// the caches of both processors. They are compared as numbers: a processor that reads bytes together which were just
    /// written one by one waits until all its writes so far are done.
    #[inline]
    fn put_header(&self, only: &Piece, header: NetHeader) {
        let (mut low, mut high) = ([0; 8], [0; 4]);
        self.memory.copy_from(only, 0, &mut low);
        self.memory.copy_from(only, 8, &mut high);
        if (u64::from_le_bytes(low), u32::from_le_bytes(high)) != header.to_numbers(1) {
            self.memory.copy_to(only, 0, &header.to_bytes(1)[..USUAL_HEADER as usize]);
        }
    }
}
