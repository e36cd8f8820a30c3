//! The packets of one turn: what a worker received and has not yet dealt with.

use std::ops::Range;

use crate::Frame;

/// Frames that one packet may span: 64 KB with their Ethernet header, in the smallest frames. Those from AF_XDP have at most
/// 18 (`MAX_SKB_FRAGS` + 1).
pub const MAX_SEGMENTS_PER_PACKET: usize = 40;

/// One frame's worth of a packet.
#[derive(Debug)]
pub struct Segment {
    /// Where the bytes are.
    pub frame: Frame,
    /// Where in the frame they start, in bytes.
    pub offset: u16,
    /// How many they are.
    pub len: u16,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    first: u32,
    segments: u16,
    len_bytes: u32,
}

/// A bounded list of packets, each of one or more [`Segment`]s. Allocates only when it is made.
#[derive(Debug)]
pub struct Burst {
    segments: Vec<Segment>,
    packets: Vec<Extent>,
    /// Segments of whole packets; those behind them are of one that is being put together.
    closed: usize,
    open_bytes: u32,
    /// Of all packets.
    bytes: u64,
    capacity: usize,
}

/// The segments of one packet, first bytes first. Never empty.
pub type PacketSegments<'a> = &'a [Segment];

impl Burst {
    /// An empty burst that takes up to `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self {
            segments: Vec::with_capacity(capacity * MAX_SEGMENTS_PER_PACKET),
            packets: Vec::with_capacity(capacity),
            closed: 0,
            open_bytes: 0,
            bytes: 0,
            capacity,
        }
    }

    /// Packets in the burst.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether it takes no further packet.
    pub fn is_full(&self) -> bool {
        self.packets.len() == self.capacity
    }

    /// Adds a frame to the packet that is being put together; `last` closes the packet.
    ///
    /// A packet that grows beyond [`MAX_SEGMENTS_PER_PACKET`] is closed there; what follows starts another.
    #[inline]
    pub fn push(&mut self, segment: Segment, last: bool) {
        self.open_bytes += u32::from(segment.len);
        self.segments.push(segment);
        let open = self.segments.len() - self.closed;
        if last || open == MAX_SEGMENTS_PER_PACKET {
            let (first, len_bytes) = (self.closed as u32, std::mem::take(&mut self.open_bytes));
            self.packets.push(Extent { first, segments: open as u16, len_bytes });
            self.bytes += u64::from(len_bytes);
            self.closed = self.segments.len();
        }
    }

    /// Adds a packet of which `segment` holds the beginning. The other bytes lie elsewhere, and `beyond` is their number.
    #[inline]
    pub fn push_beginning(&mut self, segment: Segment, beyond: u32) {
        self.open_bytes += beyond;
        self.push(segment, true);
    }

    /// The segments of packet `index`.
    #[inline]
    pub fn packet(&self, index: usize) -> PacketSegments<'_> {
        let extent = self.packets[index];
        let first = extent.first as usize;
        &self.segments[first..first + usize::from(extent.segments)]
    }

    /// The segments of packet `index`, to write.
    pub fn packet_mut(&mut self, index: usize) -> &mut [Segment] {
        let extent = self.packets[index];
        let first = extent.first as usize;
        &mut self.segments[first..first + usize::from(extent.segments)]
    }

    /// Length of packet `index` in bytes.
    #[inline]
    pub fn len_bytes(&self, index: usize) -> u32 {
        self.packets[index].len_bytes
    }

    /// Length of these packets together, which is known if they are all.
    #[inline]
    pub fn bytes_of(&self, packets: Range<usize>) -> u64 {
        if packets.len() == self.len() {
            return self.bytes;
        }
        self.packets[packets].iter().map(|extent| u64::from(extent.len_bytes)).sum()
    }

    /// The frames of all packets.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.segments.iter().map(|segment| &segment.frame)
    }

    /// Empties the burst and yields its frames.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Frame> + '_ {
        self.packets.clear();
        (self.closed, self.open_bytes, self.bytes) = (0, 0, 0);
        self.segments.drain(..).map(|segment| segment.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(index: u32, len: u16) -> Segment {
        Segment { frame: Frame::new(1, index), offset: 256, len }
    }

    #[test]
    fn a_packet_spans_the_frames_up_to_its_last() {
        let mut burst = Burst::new(4);
        burst.push(segment(0, 100), true);
        burst.push(segment(1, 1792), false);
        burst.push(segment(2, 8), true);
        assert_eq!((burst.len(), burst.is_empty()), (2, false));
        assert_eq!((burst.packet(0).len(), burst.len_bytes(0)), (1, 100));
        assert_eq!((burst.packet(1).len(), burst.len_bytes(1)), (2, 1800));
        assert_eq!([0..2, 1..2, 1..1].map(|packets| burst.bytes_of(packets)), [1900, 1800, 0]);
        let frames: Vec<_> = burst.drain().map(|frame| frame.index()).collect();
        assert_eq!(frames, [0, 1, 2]);
        assert!(burst.is_empty());
        burst.push(segment(3, 5), true);
        assert_eq!((burst.len_bytes(0), burst.bytes_of(0..1)), (5, 5), "nothing is left of those before");
    }

    #[test]
    fn bytes_that_lie_elsewhere_count() {
        let mut burst = Burst::new(2);
        burst.push_beginning(segment(0, 100), 60_000);
        burst.push(segment(1, 60), true);
        assert_eq!((burst.packet(0).len(), burst.len_bytes(0), burst.len_bytes(1)), (1, 60_100, 60));
        assert_eq!(burst.bytes_of(0..2), 60_160);
    }

    #[test]
    fn a_burst_is_full_when_its_budget_is_used_up() {
        let mut burst = Burst::new(2);
        let full = [0, 1].map(|index| {
            burst.push(segment(index, 60), true);
            burst.is_full()
        });
        assert_eq!(full, [false, true]);
    }

    #[test]
    fn what_is_changed_of_a_packet_is_changed_in_no_other() {
        let mut burst = Burst::new(3);
        for (index, last) in [(0, true), (1, false), (2, true), (3, true)] {
            burst.push(segment(index, 60), last);
        }
        burst.packet_mut(1).iter_mut().for_each(|segment| segment.offset = 0);
        let offsets: Vec<u16> = burst.segments.iter().map(|segment| segment.offset).collect();
        assert_eq!(offsets, [256, 0, 0, 256]);
        let frames: Vec<u32> = burst.frames().map(Frame::index).collect();
        assert_eq!(frames, [0, 1, 2, 3]);
    }

    #[test]
    fn a_packet_without_end_is_cut() {
        let mut burst = Burst::new(4);
        let frames = MAX_SEGMENTS_PER_PACKET + 2;
        for index in 0..frames {
            burst.push(segment(index as u32, 1), false);
        }
        assert_eq!(burst.len(), 1);
        assert_eq!(burst.packet(0).len(), MAX_SEGMENTS_PER_PACKET);
        assert_eq!(burst.drain().len(), frames, "frames of the open rest are not forgotten");
    }
}
