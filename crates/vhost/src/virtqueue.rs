//! One virtqueue of a guest: packets in, packets out, and the bells at both ends.
//!
//! A guest's transmit queue is emptied by [`Virtqueue::offered`] and then [`Virtqueue::take`], [`Virtqueue::lend`] or
//! [`Virtqueue::discard`]. Its receive queue is filled by [`Virtqueue::put`]. After a turn, [`Virtqueue::publish`]
//! shows the guest what was done and says whether it wants a call.

mod cursor;
mod lend;
mod put;
mod ready;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cursor::Cursor;
use forebay_wire::net_header::{MAX_HEADER_BYTES, NetHeader};
use ready::Ready;

use crate::error::{RingError, VhostError};
use crate::features::Features;
use crate::inflight::Inflight;
use crate::memory::{GuestMemory, Piece, Purpose};
use crate::ring::{Direction, Fetched, MAX_RING, PackedRing, Pieces, Ring, SplitRing, packed, split};

/// Bytes of the header of a modern device without hashes.
const USUAL_HEADER: u32 = 12;

/// Entries of the ring behind those that were read ahead, which are on their way into the cache.
const AHEAD: u16 = 16;
/// Bytes of a buffer that are brought into the cache ahead of its turn: the header, and what most small packets have.
const AHEAD_BYTES: u32 = 76;

/// Where a ring lies and where it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPlace {
    /// Index of the queue in its device: receive queue 2n, transmit queue 2n + 1.
    pub index: usize,
    /// Number of entries.
    pub size: u16,
    /// Front end's address of the descriptors.
    pub descriptors: u64,
    /// Front end's address of the driver's part: the available ring, or its event structure.
    pub driver: u64,
    /// Front end's address of the device's part: the used ring, or its event structure.
    pub device: u64,
    /// Where the ring goes on, as in `VHOST_USER_SET_VRING_BASE`. A split ring goes on where its used ring ends.
    pub base: u32,
}

/// File descriptors that wake the two ends. Those of a [`crate::Backend`] never block.
#[derive(Debug, Default)]
pub struct Bells {
    /// Readable when the guest has new buffers. `None`: the guest does not kick, and its queue is to be polled.
    pub kick: Option<Arc<OwnedFd>>,
    /// Written when the guest is to look at its used buffers. `None`: the guest polls.
    pub call: Option<Arc<OwnedFd>>,
}

/// A packet at the front of a transmit queue, before it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The sender left nothing undone. If it did, [`Virtqueue::header`] says what.
    pub is_plain: bool,
    /// Bytes of the packet; at most [`crate::MAX_PACKET_BYTES`], and maybe zero.
    pub len: u32,
}

/// The packet at the front of a transmit queue.
#[derive(Clone, Copy, Debug)]
struct Front {
    offer: Offer,
    /// Its buffer, whose pieces were listed. `None`: it is the first of those that are ready.
    chain: Option<Fetched>,
}

/// What became of a packet for a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The packet lies in the guest's buffers.
    Done,
    /// The guest has too few buffers now, and the ring is as it was.
    Full,
    /// No buffer that the guest offers takes a packet of this length, and the ring is as it was.
    TooLong,
}

/// A ring that has started.
#[derive(Debug)]
pub struct Virtqueue {
    index: usize,
    memory: Arc<GuestMemory>,
    ring: Ring,
    pieces: Pieces,
    /// Buffers of the packet that is being written.
    chains: Vec<Fetched>,
    /// While a packet is offered.
    front: Option<Front>,
    /// Header of the packet that was offered last, as the guest wrote it.
    header: [u8; MAX_HEADER_BYTES],
    ready: Ready,
    /// Places of the ring that were completed since [`Virtqueue::take_places`] was asked last.
    places: u32,
    header_bytes: u32,
    is_mergeable: bool,
    bells: Bells,
    /// Where is noted what the next back end is to know.
    notes: Option<Arc<GuestMemory>>,
}

impl Virtqueue {
    /// Finds the parts of a ring in a guest's memory.
    ///
    /// # Errors
    /// The size, the base, or the place of a part.
    pub fn new(
        memory: Arc<GuestMemory>,
        features: Features,
        place: RingPlace,
        bells: Bells,
    ) -> Result<Self, VhostError> {
        let ring = open(&memory, features, place)?;
        Ok(Self {
            index: place.index,
            memory,
            ring,
            pieces: Pieces::new(),
            chains: Vec::with_capacity(usize::from(place.size).min(crate::ring::MAX_PIECES)),
            front: None,
            header: [0; MAX_HEADER_BYTES],
            ready: Ready::default(),
            places: 0,
            header_bytes: features.header_bytes(),
            is_mergeable: features.has(Features::MRG_RXBUF),
            bells,
            notes: None,
        })
    }

    /// Notes from now on what a back end after a crash of this one is to know, and goes on where an earlier one stopped.
    ///
    /// # Errors
    /// The notes are malformed or too short.
    pub(crate) fn noting_in(mut self, inflight: &Inflight) -> Result<Self, VhostError> {
        let is_packed = matches!(self.ring, Ring::Packed(_));
        if let Some(region) = inflight.region(self.index, is_packed)? {
            self.ring.note_in(region, inflight.entries())?;
            self.notes = Some(Arc::clone(inflight.memory()));
        }
        Ok(self)
    }

    /// Returns the queue's index in its device.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the ring's number of entries.
    pub fn size(&self) -> u16 {
        self.ring.size()
    }

    /// Returns where the ring goes on, in the form of [`RingPlace::base`].
    pub fn base(&self) -> u32 {
        self.ring.base()
    }

    /// Whether a buffer waits. Packet path.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.ring.has_waiting()
    }

    /// Number of places of the ring whose buffers wait: entries of a split ring, descriptors of a packed one. A packed ring
    /// is searched, at one read for each doubling of its size: prefer [`Virtqueue::has_waiting`].
    #[inline]
    pub fn waiting(&self) -> u16 {
        self.ring.waiting()
    }

    /// Whether a fault hit the guest's memory. Ask once a turn; a broken guest's port is to be broken.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.memory.is_broken() || self.notes.as_ref().is_some_and(|notes| notes.is_broken())
    }

    /// What is to be told of a malformed ring: memory that a fault replaced by zeros looks like one.
    #[cold]
    fn cause(&self, error: RingError) -> RingError {
        if self.memory.is_broken() { RingError::MemoryFault } else { error }
    }

    /// Returns the packet at the front of a transmit queue, before its payload is copied. Asked again, it says the same until
    /// the packet is taken or discarded. Packet path.
    ///
    /// # Errors
    /// The ring is malformed, and the port is to be broken.
    #[inline]
    pub fn offered(&mut self) -> Result<Option<Offer>, RingError> {
        if let Some(front) = &self.front {
            return Ok(Some(front.offer));
        }
        self.look_ahead(Direction::FromGuest, Purpose::Read);
        let ready = self.ready.first();
        let (len, chain) = match &ready {
            Some(buffer) => (buffer.piece.len(), None),
            None => match self.fetch_front()? {
                Some(fetched) => (fetched.len, Some(fetched)),
                None => return Ok(None),
            },
        };
        let needed = self.header_bytes;
        let Some(payload) = len.checked_sub(needed) else {
            return Err(self.cause(RingError::TooShort { len, needed }));
        };
        let header = &mut self.header[..needed as usize];
        match &ready {
            // The usual case, with a length that the compiler knows.
            Some(buffer) if needed == USUAL_HEADER => {
                self.memory.copy_from(&buffer.piece, 0, &mut header[..USUAL_HEADER as usize]);
            }
            Some(buffer) => self.memory.copy_from(&buffer.piece, 0, header),
            None => Cursor::new(self.pieces.all(), 0).copy_from(&self.memory, header),
        }
        let offer = Offer { is_plain: self.header().is_plain(), len: payload };
        self.front = Some(Front { offer, chain });
        Ok(Some(offer))
    }

    /// Returns the header of the packet that was offered last, as the guest wrote it.
    #[inline]
    pub fn header(&self) -> NetHeader {
        NetHeader::from_bytes(&self.header)
    }

    /// Fetches the next buffer of a transmit queue, whatever it is made of.
    #[inline(never)]
    fn fetch_front(&mut self) -> Result<Option<Fetched>, RingError> {
        self.pieces.clear();
        let fetched = self.ring.fetch(&self.memory, 0, Direction::FromGuest, &mut self.pieces);
        fetched.map_err(|error| self.cause(error))
    }

    /// Reads the next descriptors and begins to bring their buffers into the cache, so that their copies need not wait one
    /// after the other. Headers are only read, as a rule ([`Virtqueue::put_header`]).
    #[inline]
    fn look_ahead(&mut self, direction: Direction, purpose: Purpose) {
        if !self.ready.is_low() {
            return;
        }
        while !self.ready.is_full() {
            let ahead = self.ready.len() as u16;
            let Some(buffer) = self.ring.look(&self.memory, ahead, direction) else { break };
            self.memory.prefetch(&buffer.piece, AHEAD_BYTES, self.header_bytes, purpose);
            self.ring.fetch_entry(ahead + AHEAD);
            self.ready.push(buffer);
        }
    }

    /// Takes the next buffer, and writes its used entry.
    #[inline]
    fn complete(&mut self, fetched: &Fetched, written: u32) {
        self.ring.complete(fetched, written);
        self.ready.pass(fetched.slots);
        self.places = self.places.saturating_add(u32::from(fetched.slots));
    }

    /// Copies the offered packet into `frames`, each as far as it goes, and gives its buffers back to the guest.
    /// Returns the number of bytes copied: less than the packet has only if the frames are too few. Packet path.
    #[inline]
    pub fn take<'a>(&mut self, frames: impl IntoIterator<Item = &'a mut [u8]>) -> u32 {
        let Some(Front { offer, chain }) = &self.front else { return 0 };
        let mut copied = 0;
        let fetched = match (chain, self.ready.first()) {
            (None, Some(buffer)) => {
                for frame in frames {
                    let len = (frame.len() as u32).min(offer.len - copied);
                    let at = self.header_bytes + copied;
                    self.memory.copy_from(&buffer.piece, at, &mut frame[..len as usize]);
                    copied += len;
                }
                buffer.fetched()
            }
            (Some(fetched), _) => {
                let mut reader = Cursor::new(self.pieces.all(), self.header_bytes);
                for frame in frames {
                    let len = (frame.len() as u32).min(offer.len - copied);
                    reader.copy_from(&self.memory, &mut frame[..len as usize]);
                    copied += len;
                }
                *fetched
            }
            (None, None) => return 0,
        };
        self.front = None;
        self.complete(&fetched, 0);
        copied
    }

    /// Gives the buffers of the offered packet back to the guest without a copy. Packet path.
    #[inline]
    pub fn discard(&mut self) {
        let Some(Front { chain, .. }) = self.front.take() else { return };
        if let Some(fetched) = chain.or_else(|| self.ready.first().map(|buffer| buffer.fetched())) {
            self.complete(&fetched, 0);
        }
    }

    /// Shows the guest all buffers that were used since the last call of this function, by one store.
    /// Returns whether the guest wants a call for them ([`Virtqueue::call`]), which may be made later. Packet path, once a
    /// turn.
    #[inline]
    #[must_use = "a guest that is not called may sleep for ever"]
    pub fn publish(&mut self) -> bool {
        self.show() && self.wants_call()
    }

    /// Shows the guest all buffers that were used since the last time, by one store. Returns whether there were any.
    /// [`Virtqueue::wants_call`] is to be asked for them, at once or later. Packet path, once a turn.
    #[inline]
    #[must_use = "a guest that is not called may sleep for ever"]
    pub fn show(&mut self) -> bool {
        self.ring.show()
    }

    /// Returns how many places of the ring were completed since [`Virtqueue::take_places`] was called.
    #[inline]
    pub fn places(&self) -> u32 {
        self.places
    }

    /// Returns how many places of the ring were completed since this was asked last: used entries of a split ring,
    /// descriptors of a packed one.
    #[inline]
    pub fn take_places(&mut self) -> u32 {
        std::mem::take(&mut self.places)
    }

    /// Returns whether the guest wants a call for the buffers that were shown since this was asked last. Ask at the latest
    /// when as many places of the ring were shown as it has: after two rounds the answer is a wrong one.
    #[inline]
    #[must_use = "a guest that is not called may sleep for ever"]
    pub fn wants_call(&mut self) -> bool {
        self.ring.wants_call()
    }

    /// Asks the guest for no kicks; for as long as the queue is polled.
    #[inline]
    pub fn suppress_kicks(&mut self) {
        self.ring.suppress_kicks();
    }

    /// Asks the guest for a kick with its next buffer. Returns `true` if a buffer came meanwhile: then the queue is to
    /// be served once more, since there may be no kick for it.
    #[inline]
    #[must_use = "a buffer that came meanwhile may have no kick"]
    pub fn allow_kicks(&mut self) -> bool {
        self.ring.allow_kicks()
    }

    /// Calls the guest: one system call, which does not block. A pipe that is full already wakes its reader.
    ///
    /// # Errors
    /// What the kernel says: the descriptor's other end is closed, and the port is to be broken.
    pub fn call(&self) -> io::Result<()> {
        let Some(call) = &self.bells.call else { return Ok(()) };
        match rustix::io::write(call, &1u64.to_ne_bytes()) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns what becomes readable when the guest kicks. `None`: the guest does not kick; poll the queue.
    pub fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.bells.kick.as_ref().map(|kick| kick.as_fd())
    }

    /// Takes note of all kicks so far, so that the descriptor is readable only after the next. Does not block.
    ///
    /// # Errors
    /// The descriptor would stay readable for ever, since its other end is closed: the port is to be broken.
    pub fn hear_kicks(&self) -> Result<(), RingError> {
        let Some(kick) = &self.bells.kick else { return Ok(()) };
        // An eventfd gives one number, a pipe one of eight bytes for each kick. If more is left, it is heard later.
        match rustix::io::read(kick, &mut [0; 512]) {
            Ok(1..) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Ok(0) | Err(_) => Err(RingError::KickGone),
        }
    }

    /// Copies the next command of a control queue into `command`, at most as much as fits. Returns how much that is.
    ///
    /// # Errors
    /// The ring is malformed, and the device is to be broken.
    pub fn command(&mut self, command: &mut [u8]) -> Result<Option<usize>, RingError> {
        self.pieces.clear();
        let fetched = self.ring.fetch(&self.memory, 0, Direction::Both, &mut self.pieces)?;
        let Some(fetched) = fetched else { return Ok(None) };
        let (readable, _) = self.pieces.split();
        let total: u32 = readable.iter().map(Piece::len).sum();
        let len = command.len().min(total as usize);
        Cursor::new(readable, 0).copy_from(&self.memory, &mut command[..len]);
        let offer = Offer { is_plain: true, len: len as u32 };
        self.front = Some(Front { offer, chain: Some(fetched) });
        Ok(Some(len))
    }

    /// Answers the command that was copied last, as far as the guest left room.
    pub fn answer(&mut self, answer: &[u8]) {
        let Some(Front { chain: Some(fetched), .. }) = self.front.take() else { return };
        let (_, writable) = self.pieces.split();
        let room: u32 = writable.iter().map(Piece::len).fold(0, u32::saturating_add);
        let len = (answer.len() as u32).min(room);
        Cursor::new(writable, 0).copy_to(&self.memory, &answer[..len as usize]);
        self.ring.complete(&fetched, len);
    }
}

fn open(memory: &GuestMemory, features: Features, place: RingPlace) -> Result<Ring, VhostError> {
    let RingPlace { index, size, descriptors, driver, device, base } = place;
    let is_packed = features.has(Features::RING_PACKED);
    let is_possible = size > 0 && u32::from(size) <= MAX_RING && (is_packed || size.is_power_of_two());
    if !is_possible {
        return Err(VhostError::BadRingSize { size: size.into(), limit: MAX_RING });
    }
    let (bytes, align) = match is_packed {
        true => (packed::part_bytes(size), packed::ALIGN),
        false => (split::part_bytes(size), split::ALIGN),
    };
    let addresses = [descriptors, driver, device];
    let part = |which: usize, part: &'static str| {
        let (address, align) = (addresses[which], align[which]);
        let area = memory.area(address, bytes[which], align);
        area.ok_or(VhostError::BadRingAddress { index, part, address, align })
    };
    let areas = [part(0, "descriptors")?, part(1, "driver's part")?, part(2, "device's part")?];
    let (events, indirect) = (features.has(Features::EVENT_IDX), features.has(Features::INDIRECT_DESC));
    if is_packed {
        let ring = PackedRing::new(areas, size, base).ok_or(VhostError::BadBase { base, size })?;
        return Ok(Ring::Packed(ring.with_features(events, indirect)));
    }
    u16::try_from(base).map_err(|_| VhostError::BadBase { base, size })?;
    Ok(Ring::Split(SplitRing::new(areas, size).with_features(events, indirect)))
}

#[cfg(test)]
mod tests;
