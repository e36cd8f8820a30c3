//! Packets copied into frames of their own: on their way to another worker, or into a queue in memory.

use arrayvec::ArrayVec;
use forebay_control::PortId;
use forebay_policy::Sender;
use forebay_pool::{Arena, Frame, MAX_SEGMENTS_PER_PACKET, Magazine, PacketSegments, Segment};
use forebay_wire::net_header::NetHeader;
use forebay_xsk::TagEdit;
use rtrb::Producer;

/// Bytes in front of a packet in its frame, as AF_XDP has them.
pub(super) const HEADROOM: u16 = 256;
/// Bytes of a packet's two addresses.
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
/// A packet on its way out of a port, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) port: PortId,
    /// The port that the packet came in by.
    pub(super) input: PortId,
    /// The packet's mark (`SO_MARK`).
    pub(super) mark: u32,
    /// It is one of the copies of a flooded packet.
    pub(super) is_flooded: bool,
    /// Packets that it stands for where packets are counted.
    pub(super) packets: u32,
    /// What its sender left to others, of the packet as it leaves.
    pub(super) undone: NetHeader,
}

impl Leaving {
    /// Who shares a queue with others by this packet.
    #[inline]
    pub(super) fn sender(&self) -> Sender {
        Sender { port: self.input.0, is_flooded: self.is_flooded }
    }
}

/// One frame of a packet for a port. Frames of one packet follow each other.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) leaving: Leaving,
    pub(super) segment: Segment,
    /// The packet ends here.
    pub(super) is_last: bool,
}

/// Why a packet could not be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undeliverable {
    /// There is no room in the queue, or no free frame.
    Full,
    /// There is room in the queue, and the port that the packet came in by has its share of it.
    OverShare,
    /// The packet takes more frames than a packet may have.
    TooLong,
    /// The queue is not there.
    Down,
}

/// What became of a packet that was given to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Packets that the receiver gets: one, or those that it stands for, or parts that it was cut into.
    pub(super) packets: u32,
    pub(super) bytes: u64,
    /// Packets that it does not get, and why.
    pub(super) lost: Option<(u32, Undeliverable)>,
}

impl Sent {
    /// A packet of `len` bytes that is counted as `packets` was sent, or was not.
    #[inline]
    pub(super) fn whole(result: Result<(), Undeliverable>, packets: u32, len: usize) -> Self {
        match result {
            Ok(()) => Self { packets, bytes: len as u64, lost: None },
            Err(error) => Self { packets: 0, bytes: 0, lost: Some((packets, error)) },
        }
    }

    /// Copies that it made: each was sent or lost.
    #[inline]
    pub(super) fn copies(&self) -> u32 {
        self.packets + self.lost.map_or(0, |(packets, _)| packets)
    }
}

/// The bytes of one packet as it leaves, in order. Found from its frames as they are copied: most packets lie in one frame
/// and keep their tag.
pub(super) struct Pieces<'a> {
    /// In front of a new tag.
    addresses: &'a [u8],
    tag: Option<[u8; TAG]>,
    /// Behind it.
    head: &'a [u8],
    rest: Rest<'a>,
}

/// What lies behind the first piece.
#[derive(Clone, Copy)]
enum Rest<'a> {
    /// In frames of a burst.
    Segments(&'a Arena, &'a [Segment]),
    /// In frames that another worker handed over.
    Parcels(&'a Arena, &'a [Parcel]),
    /// Anywhere.
    Bytes(&'a [&'a [u8]]),
}

impl<'a> Rest<'a> {
    #[inline]
    fn in_order(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let (arena, segments, parcels, bytes) = match self {
            Rest::Segments(arena, segments) => (Some(arena), segments, &[][..], &[][..]),
            Rest::Parcels(arena, parcels) => (Some(arena), &[][..], parcels, &[][..]),
            Rest::Bytes(bytes) => (None, &[][..], &[][..], bytes),
        };
        let segments = segments.iter().chain(parcels.iter().map(|parcel| &parcel.segment));
        let of = move |segment: &'a Segment| arena.map(|arena| bytes_of(arena, segment));
        segments.filter_map(of).chain(bytes.iter().copied())
    }
}

fn bytes_of<'a>(arena: &'a Arena, segment: &'a Segment) -> &'a [u8] {
    arena.bytes(&segment.frame, segment.offset, segment.len)
}

impl<'a> Pieces<'a> {
    /// A packet in one piece.
    pub(super) fn whole(bytes: &'a [u8]) -> Self {
        Self { addresses: &[], tag: None, head: bytes, rest: Rest::Bytes(&[]) }
    }

    /// A packet in these pieces, at least one.
    pub(super) fn listed(pieces: &'a [&'a [u8]]) -> Self {
        let (head, rest) = pieces.split_first().expect("a packet has a piece");
        Self { addresses: &[], tag: None, head, rest: Rest::Bytes(rest) }
    }

    /// A packet that another worker copied into frames of `arena`.
    pub(super) fn handed(arena: &'a Arena, packet: &'a [Parcel]) -> Self {
        let (first, rest) = packet.split_first().expect("a packet has a frame");
        let head = bytes_of(arena, &first.segment);
        Self { addresses: &[], tag: None, head, rest: Rest::Parcels(arena, rest) }
    }

    /// A packet in frames of `arena`, with its tag as `edit` says. Its first segment holds the Ethernet header.
    #[inline]
    pub(super) fn edited(arena: &'a Arena, packet: PacketSegments<'a>, edit: TagEdit) -> Self {
        let (first, rest) = packet.split_first().expect("a packet has a segment");
        let (whole, rest) = (bytes_of(arena, first), Rest::Segments(arena, rest));
        let (tag, behind) = match edit {
            TagEdit::Keep => return Self { addresses: &[], tag: None, head: whole, rest },
            TagEdit::Push(tag) => (Some(tag), ADDRESSES),
            TagEdit::Replace(tag) => (Some(tag), ADDRESSES + TAG),
            TagEdit::Pop => (None, ADDRESSES + TAG),
        };
        Self { addresses: &whole[..ADDRESSES], tag, head: &whole[behind..], rest }
    }

    /// Puts `rest` behind the packet, which has one segment so far.
    pub(super) fn followed_by(self, rest: &'a [&'a [u8]]) -> Self {
        Self { rest: Rest::Bytes(rest), ..self }
    }

    /// Bytes of the packet as it leaves.
    #[inline]
    pub(super) fn len(&self) -> usize {
        let tag = if self.tag.is_some() { TAG } else { 0 };
        let rest: usize = self.rest.in_order().map(<[u8]>::len).sum();
        self.addresses.len() + tag + self.head.len() + rest
    }

    /// Frames of `arena` that the packet takes.
    pub(super) fn frames(&self, arena: &Arena) -> usize {
        self.len().div_ceil(arena.frame_size().payload() as usize).max(1)
    }

    /// The bytes in order.
    #[inline]
    pub(super) fn in_order(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let tag = self.tag.as_ref().map(|tag| &tag[..]);
        let addresses = (!self.addresses.is_empty()).then_some(self.addresses);
        addresses.into_iter().chain(tag).chain([self.head]).chain(self.rest.in_order())
    }

    /// Copies the packet into frames from `magazine`: one segment after the other, as they are asked for. The flag says
    /// which is the last. All of them must be asked for.
    ///
    /// # Errors
    /// [`Undeliverable`]
    pub(super) fn copy<'p>(
        &'p self,
        arena: &'p Arena,
        magazine: &mut Magazine,
    ) -> Result<impl Iterator<Item = (Segment, bool)> + 'p, Undeliverable> {
        let frames = take_frames(magazine, self.frames(arena))?;
        let payload = arena.frame_size().payload() as usize;
        let (mut left, mut pieces, mut piece) = (self.len(), self.in_order(), &[][..]);
        Ok(frames.into_iter().map(move |mut frame| {
            let len = left.min(payload);
            fill(arena.bytes_mut(&mut frame, HEADROOM, len as u16), &mut piece, &mut pieces);
            left -= len;
            (Segment { frame, offset: HEADROOM, len: len as u16 }, left == 0)
        }))
    }
}

/// Copies what is left of `piece`, and the pieces behind it, until there is no more room.
fn fill<'p>(mut room: &mut [u8], piece: &mut &'p [u8], pieces: &mut impl Iterator<Item = &'p [u8]>) {
    while !room.is_empty() {
        if piece.is_empty() {
            *piece = pieces.next().expect("the pieces are as long as the packet");
        }
        let (now, later) = piece.split_at(room.len().min(piece.len()));
        let (front, back) = room.split_at_mut(now.len());
        front.copy_from_slice(now);
        (room, *piece) = (back, later);
    }
}

pub(super) type Frames = ArrayVec<Frame, MAX_SEGMENTS_PER_PACKET>;

/// As many free frames as were asked for, or none.
pub(super) fn take_frames(magazine: &mut Magazine, count: usize) -> Result<Frames, Undeliverable> {
    let mut frames = Frames::new();
    if count > frames.capacity() {
        return Err(Undeliverable::TooLong);
    }
    while frames.len() < count {
        let Some(frame) = magazine.take() else {
            frames.into_iter().for_each(|frame| magazine.put(frame));
            return Err(Undeliverable::Full);
        };
        frames.push(frame);
    }
    Ok(frames)
}

/// Copies a packet into frames and queues it, all of it at once; packet path.
pub(super) fn push(
    queue: &mut Producer<Parcel>,
    pieces: &Pieces<'_>,
    leaving: Leaving,
    (arena, magazine): (&Arena, &mut Magazine),
) -> Result<(), Undeliverable> {
    let places = queue.write_chunk_uninit(pieces.frames(arena)).map_err(|_| Undeliverable::Full)?;
    let segments = pieces.copy(arena, magazine)?;
    places.fill_from_iter(segments.map(|(segment, is_last)| Parcel { leaving, segment, is_last }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use forebay_pool::{Burst, FrameSize, Pool};
    use proptest::prelude::*;

    use super::*;

    fn memory(frames: u32) -> (Arena, Arc<Pool>, Magazine) {
        let frames = NonZeroU32::new(frames).expect("not zero");
        let (arena, frames) = Arena::new(frames, FrameSize::B2048).expect("some memory");
        let pool = Arc::new(Pool::new(frames));
        let magazine = Magazine::new(Arc::clone(&pool));
        (arena, pool, magazine)
    }

    /// What a burst's packet looks like.
    fn bytes(arena: &Arena, packet: PacketSegments<'_>) -> Vec<u8> {
        let bytes = |segment: &Segment| arena.bytes(&segment.frame, segment.offset, segment.len).to_vec();
        packet.iter().flat_map(bytes).collect()
    }

    fn copied(arena: &Arena, magazine: &mut Magazine, pieces: &Pieces<'_>) -> Burst {
        let mut burst = Burst::new(1);
        let segments = pieces.copy(arena, magazine).expect("frames");
        segments.for_each(|(segment, is_last)| burst.push(segment, is_last));
        burst
    }

    proptest! {
        #[test]
        fn a_copy_is_the_packet_with_its_tag_as_it_leaves(
            len in 16..20_000usize,
            edit in prop::sample::select(vec![
                TagEdit::Keep, TagEdit::Push([0x81, 0, 0, 7]), TagEdit::Replace([0x81, 0, 0, 8]), TagEdit::Pop,
            ]),
        ) {
            let packet: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let wanted = match edit {
                TagEdit::Keep => packet.clone(),
                TagEdit::Push(tag) => [&packet[..12], &tag, &packet[12..]].concat(),
                TagEdit::Replace(tag) => [&packet[..12], &tag, &packet[16..]].concat(),
                TagEdit::Pop => [&packet[..12], &packet[16..]].concat(),
            };
            let (arena, _pool, mut magazine) = memory(40);
            let first = copied(&arena, &mut magazine, &Pieces::whole(&packet));
            let second = {
                let pieces = Pieces::edited(&arena, first.packet(0), edit);
                prop_assert_eq!(pieces.len(), wanted.len());
                copied(&arena, &mut magazine, &pieces)
            };
            prop_assert_eq!(bytes(&arena, second.packet(0)), wanted);
        }
    }

    #[test]
    fn a_packet_that_finds_too_few_frames_takes_none() {
        let (arena, pool, mut magazine) = memory(3);
        let copy = |magazine: &mut Magazine, len| {
            Pieces::whole(&vec![0; len]).copy(&arena, magazine).map(Iterator::count)
        };
        assert_eq!(copy(&mut magazine, 4 * 1792), Err(Undeliverable::Full));
        assert_eq!(copy(&mut magazine, 41 * 1792), Err(Undeliverable::TooLong));
        drop(magazine);
        assert_eq!(pool.free(), 3);
    }
}
