//! The stream from A to S, its numbers, and who hears what.
//!
//! A number is taken before its frame is sent. Who reads the next number after a change is complete thus knows that all
//! frames from it on are sent later.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use forebay_testbed::Result;
use forebay_testbed::sys::batch;
use forebay_testbed::sys::packet_socket::{PacketSocket, Tag};

use super::course::place;
use super::judge::Heard;
use super::places::{A, B, C, S, STATION_A, VLAN};
use crate::experiment::listen;
use crate::experiment::numbered::Stamp;

/// Frames sent at once.
const BURST: u64 = 8;
/// What S sends to A is numbered apart.
const FROM_S: u64 = 1 << 62;

/// What the threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    next: AtomicU64,
    /// Changes that have begun.
    begun: AtomicU32,
    /// The last frame from S that A received.
    answered: AtomicU64,
    spoken: AtomicU64,
    over: AtomicBool,
}

impl Shared {
    /// The number that no frame has so far.
    pub(super) fn next(&self) -> u64 {
        self.next.load(SeqCst)
    }

    /// A change begins; the number of the next frame.
    pub(super) fn begin(&self) -> u64 {
        let next = self.next();
        self.begun.fetch_add(1, SeqCst);
        next
    }

    /// Nothing is sent any more, and what arrives is heard to the end.
    pub(super) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Sends until it is over.
    pub(super) fn send(&self, socket: &PacketSocket, rate: u32) -> Result<()> {
        let pause = Duration::from_secs(1) * BURST as u32 / rate;
        let (start, mut bursts) = (Instant::now(), 0);
        while !self.over.load(SeqCst) {
            let first = self.next.fetch_add(BURST, SeqCst);
            let stamp =
                |number| Stamp { number, changes_done: 0, vlan: VLAN, port: 0, from: STATION_A, to: S };
            let frames: Vec<Vec<u8>> = (first..first + BURST).map(|number| stamp(number).frame()).collect();
            // What finds no room in a queue is lost, as on a wire.
            let _ = batch::send(socket, &frames);
            bursts += 1;
            std::thread::sleep((start + pause * bursts).saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    /// Hears all hosts until it is over; what arrived of the stream.
    pub(super) fn hear(&self, sockets: &[PacketSocket]) -> Result<Vec<Heard>> {
        let mut all = Vec::new();
        listen::listen(sockets, &self.over, |host, frame, tag| match Stamp::read(frame) {
            Some(stamp) if stamp.from == STATION_A => {
                let begun = self.begun.load(SeqCst);
                all.push(Heard { number: stamp.number, begun, place: place_of(host, tag) });
            }
            Some(stamp) if stamp.from == S && host == A => {
                self.answered.fetch_max(stamp.number, SeqCst);
            }
            Some(_) | None => {}
        })?;
        Ok(all)
    }

    /// Sends a frame from S to A, from where `socket` is; its number.
    pub(super) fn speak(&self, socket: &PacketSocket, tagged: bool) -> u64 {
        let number = FROM_S + self.spoken.fetch_add(1, SeqCst);
        let frame = Stamp { number, changes_done: 0, vlan: VLAN, port: 0, from: S, to: STATION_A }.frame();
        let tag = [&0x8100u16.to_be_bytes()[..], &VLAN.to_be_bytes()].concat();
        let tag = if tagged { &tag[..] } else { &[] };
        let _ = batch::send(socket, &[[&frame[..12], tag, &frame[12..]].concat()]);
        number
    }

    /// Whether A received this frame from S, or a later one.
    pub(super) fn was_answered(&self, number: u64) -> bool {
        self.answered.load(SeqCst) >= number
    }
}

fn place_of(host: usize, tag: Option<Tag>) -> u8 {
    match (host, tag.map(|(_, control)| control & 0xfff)) {
        (A, None) => place::A,
        (B, None) => place::B,
        (B, Some(VLAN)) => place::B_TAGGED,
        (C, None) => place::C,
        _ => place::ODD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tag_that_a_trunk_asks_for_is_no_odd_one() {
        assert_eq!(place_of(B, Some((0x8100, VLAN))), place::B_TAGGED);
        assert_eq!(place_of(B, None), place::B);
        for (host, vid) in [(B, 20), (C, VLAN), (A, VLAN)] {
            assert_eq!(place_of(host, Some((0x8100, vid))), place::ODD);
        }
    }
}
