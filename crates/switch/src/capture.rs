//! Captures: each worker copies a port's packets into rings of its own, and whoever captures reads them.
//!
//! The rings are bounded; what does not fit is missed and counted, and the port's packets go on undisturbed.

use std::sync::{Arc, Weak};

use forebay_control::capture::{Capture, Captured};
use forebay_hints::{Hint, Values};
use forebay_pool::{Arena, Segment};
use rtrb::{Consumer, Producer, RingBuffer};

/// Packets that wait for the reader, of each worker.
const PACKETS: usize = 1 << 14;
/// Bytes of packets that wait.
const BYTES: usize = 1 << 22;

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Note {
    at_ns: u64,
    len_bytes: u32,
    kept_bytes: u32,
    missed: u64,
    hints: Values,
}

/// A worker's end.
#[derive(Debug)]
pub(crate) struct Tap {
    notes: Producer<Note>,
    bytes: Producer<u8>,
    snaplen: usize,
    missed: u64,
}

/// The reader's end: that of one worker after the other.
pub(crate) struct Reader {
    ends: Vec<(Consumer<Note>, Consumer<u8>)>,
    next: usize,
    /// As long as this is held, somebody captures.
    _token: Arc<()>,
}

/// Both ends, for so many workers, and what tells whether the reader is still there.
pub(crate) fn open(workers: usize, snaplen: u32) -> (Vec<Tap>, Reader, Weak<()>) {
    let (mut taps, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..workers {
        let (notes, noted) = RingBuffer::new(PACKETS);
        let (bytes, kept) = RingBuffer::new(BYTES);
        taps.push(Tap { notes, bytes, snaplen: snaplen as usize, missed: 0 });
        ends.push((noted, kept));
    }
    let token = Arc::new(());
    let reader_is_there = Arc::downgrade(&token);
    (taps, Reader { ends, next: 0, _token: token }, reader_is_there)
}

impl Tap {
    /// Copies a packet, if there is room; packet path while a capture runs.
    pub(crate) fn take(&mut self, arena: &Arena, packet: &[Segment], hints: Values, at_ns: u64) {
        let len: usize = packet.iter().map(|segment| usize::from(segment.len)).sum();
        let kept = len.min(self.snaplen);
        if self.notes.is_full() {
            self.missed += 1;
            return;
        }
        let Ok(mut room) = self.bytes.write_chunk(kept) else {
            self.missed += 1;
            return;
        };
        let (mut first, mut second) = room.as_mut_slices();
        for segment in packet {
            let bytes = arena.bytes(&segment.frame, segment.offset, segment.len);
            let rest = fill(&mut first, bytes);
            fill(&mut second, rest);
        }
        room.commit_all();
        let note = Note { at_ns, len_bytes: len as u32, kept_bytes: kept as u32, missed: self.missed, hints };
        self.missed = 0;
        let _ = self.notes.push(note);
    }

    /// Whether the reader is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.notes.is_abandoned()
    }
}

/// Copies what fits, moves `room` on, and returns what did not fit.
fn fill<'b>(room: &mut &mut [u8], bytes: &'b [u8]) -> &'b [u8] {
    let n = bytes.len().min(room.len());
    let (now, later) = std::mem::take(room).split_at_mut(n);
    now.copy_from_slice(&bytes[..n]);
    *room = later;
    &bytes[n..]
}

impl Capture for Reader {
    fn next(&mut self) -> Option<Captured> {
        for _ in 0..self.ends.len() {
            let (notes, bytes) = &mut self.ends[self.next];
            if let Ok(note) = notes.pop() {
                return Some(captured(note, bytes));
            }
            self.next = (self.next + 1) % self.ends.len();
        }
        None
    }

    fn is_over(&self) -> bool {
        self.ends.iter().all(|(notes, _)| notes.is_abandoned() && notes.is_empty())
    }
}

fn captured(note: Note, bytes: &mut Consumer<u8>) -> Captured {
    let Note { at_ns, len_bytes, kept_bytes, missed, hints } = note;
    let chunk = bytes.read_chunk(kept_bytes as usize).expect("a packet's bytes are written before its note");
    let (first, second) = chunk.as_slices();
    let bytes = [first, second].concat();
    chunk.commit_all();
    Captured { at_ns, len_bytes, missed, bytes, hints: named(&hints) }
}

fn named(hints: &Values) -> Vec<(&'static str, u64)> {
    let value = |hint| match hint {
        Hint::RxHash => hints.rx_hash.into(),
        Hint::RxHashType => hints.rx_hash_type.into(),
        Hint::RxVlanTci => hints.rx_vlan_tci.into(),
        Hint::RxVlanProto => hints.rx_vlan_proto.into(),
        Hint::RxTimestamp => hints.rx_timestamp,
        Hint::FlowId => hints.flow_id.into(),
        Hint::RxPort => hints.rx_port.into(),
    };
    Hint::ALL.into_iter().filter(|hint| hints.has(*hint)).map(|hint| (hint.name(), value(hint))).collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use forebay_pool::FrameSize;

    use super::*;

    /// Takes packets of so many bytes, the n-th full of n.
    fn take(tap: &mut Tap, lengths: &[u16]) {
        let (arena, mut free) = Arena::new(NonZeroU32::MIN, FrameSize::B2048).expect("memory for a frame");
        let mut frame = free.pop().expect("the only frame");
        for (index, len) in lengths.iter().enumerate() {
            arena.bytes_mut(&mut frame, 0, *len).fill(index as u8);
            let segment = Segment { frame, offset: 0, len: *len };
            let hints = Values { present: Hint::RxHash.bit(), rx_hash: 7, ..Values::default() };
            tap.take(&arena, std::slice::from_ref(&segment), hints, index as u64);
            frame = segment.frame;
        }
    }

    #[test]
    fn packets_come_out_as_they_went_in_and_cut_where_it_was_asked() {
        let (mut taps, mut reader, _) = open(2, 100);
        take(&mut taps[1], &[60, 1000]);
        let first = reader.next().expect("a packet");
        assert_eq!((first.bytes, first.len_bytes, first.at_ns), (vec![0; 60], 60, 0));
        assert_eq!(first.hints, [("rx_hash", 7)]);
        let second = reader.next().expect("a packet");
        assert_eq!((second.bytes, second.len_bytes), (vec![1; 100], 1000));
        assert!(reader.next().is_none() && !reader.is_over());
        taps.clear();
        assert!(reader.is_over());
    }

    #[test]
    fn what_finds_no_room_is_missed_and_told_with_the_next() {
        let (mut taps, mut reader, _) = open(1, 2000);
        let many = vec![2000; BYTES / 2000 + 3];
        take(&mut taps[0], &many);
        while reader.next().is_some_and(|packet| packet.missed == 0) {}
        take(&mut taps[0], &[60]);
        assert_eq!(reader.next().map(|packet| (packet.len_bytes, packet.missed)), Some((60, 3)));
    }
}
