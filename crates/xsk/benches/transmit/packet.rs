//! Candidate (a): a packet socket and `sendmmsg`, as the switch sends now.

use std::num::NonZeroU32;

use forebay_pool::{Arena, Burst, FrameSize, Segment};
use forebay_wire::net_header::NetHeader;
use forebay_xsk::{Destination, TagEdit, Transmitter};

use crate::Sender;
use crate::measure::Tally;

/// Frames that one turn of the switch works on.
const BURST: usize = 64;

pub(crate) struct PacketSender {
    transmitter: Transmitter,
    arena: Arena,
    burst: Burst,
    ports: Vec<u32>,
    /// Copies of each frame; 1 unless flooding.
    copies: usize,
}

impl PacketSender {
    pub(crate) fn new(ports: &[u32], frame_bytes: u16, copies: usize) -> PacketSender {
        let frames = NonZeroU32::new(BURST as u32).expect("a burst has frames");
        let (arena, frames) = Arena::new(frames, FrameSize::B2048).expect("128 KiB of memory");
        let mut burst = Burst::new(BURST);
        for mut frame in frames {
            arena.bytes_mut(&mut frame, 256, frame_bytes).copy_from_slice(&crate::frame(frame_bytes));
            burst.push(Segment { frame, offset: 256, len: frame_bytes }, true);
        }
        let transmitter = Transmitter::open(None).expect("root may open a packet socket");
        PacketSender { transmitter, arena, burst, ports: ports.to_vec(), copies }
    }
}

impl Sender for PacketSender {
    fn send(&mut self, packets: u64, batch: u32) -> Tally {
        let mut tally = Tally { offered: packets, ..Tally::default() };
        let mut sent = 0;
        while sent < packets {
            let count = (packets - sent).min(u64::from(batch));
            let mut queued = self.transmitter.batch(&self.arena, false);
            for number in sent..sent + count {
                let frame = (number as usize / self.copies) % BURST;
                let ifindex = self.ports[number as usize % self.ports.len()];
                let to = Destination { ifindex, mark: 0, token: 0 };
                queued.push(self.burst.packet(frame), TagEdit::Keep, NetHeader::default(), to);
            }
            let mut refused = 0;
            queued.flush(|outcome| refused += u64::from(outcome.result.is_err()));
            // Each refusal ends one call and begins another.
            tally.syscalls += 1 + refused;
            tally.refused += refused;
            sent += count;
        }
        tally
    }
}
