//! Bodies of the fuzz targets `vring` and `vhost_message`: what must hold for any ring and any stream.
//!
//! Plain tests replay the corpora.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::driver::{Driver, DriverOptions, GUEST_START, Part};
use crate::{
    Backend, DeviceOptions, Event, Features, NetConfig, NetHeader, Owner, Put, RegionPlace, Virtqueue,
};

/// Takes numbers from an input; when it is used up, zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks one input of `vring`.
///
/// # Panics
/// If a promise of this crate does not hold.
pub fn ring(input: &[u8]) {
    let mut input = Input(input);
    let kind = input.byte();
    let mut features = Features::VERSION_1;
    let choices = [Features::RING_PACKED, Features::EVENT_IDX, Features::INDIRECT_DESC, Features::MRG_RXBUF];
    for (bit, feature) in choices.into_iter().enumerate() {
        if kind & 1 << bit != 0 {
            features = features.with(feature);
        }
    }
    let size = 8;
    let mut options = DriverOptions::new(features, size, 512);
    let start = input.u16();
    options.base = match features.has(Features::RING_PACKED) {
        true => u32::from(start & 0x8007) << 16 | u32::from(start & 0x8007),
        false => start.into(),
    };
    let mut driver = Driver::new(options).expect("the base is in the ring");
    let mut transmit = driver.device(1).expect("the driver's ring");
    let mut receive = driver.device(0).expect("the driver's ring");
    while !input.is_empty() {
        step(&mut input, &mut driver, &mut transmit, &mut receive);
    }
}

fn step(input: &mut Input<'_>, driver: &mut Driver, transmit: &mut Virtqueue, receive: &mut Virtqueue) {
    match input.byte() % 10 {
        0 => {
            // Anything, anywhere in the ring.
            let offset = u64::from(input.u16()) % 1024;
            let len = usize::from(input.byte()) % 32;
            driver.memory().write(GUEST_START + offset, input.bytes(len));
        }
        1 => {
            let packet = [0; 64];
            driver.add(&[Part::Bytes(&packet[..input.byte() as usize % 65])], input.byte() & 1 != 0);
        }
        2 => drop_id(driver.add(&[Part::Room(input.byte().into()), Part::Room(20)], input.byte() & 1 != 0)),
        3 => drop_flag(driver.publish()),
        4 | 5 => {
            if let Ok(Some(offer)) = transmit.offered() {
                assert!(offer.len <= crate::MAX_PACKET_BYTES);
                let mut packet = vec![0; offer.len as usize];
                let frame = usize::from(input.byte()).max(1);
                assert_eq!(transmit.take(packet.chunks_mut(frame)), offer.len, "all of it can be taken");
            }
        }
        6 => transmit.discard(),
        7 => {
            let packet = [0x5a; 255];
            let len = input.byte();
            let room = receive.base();
            let result = receive.put(NetHeader::default(), [&packet[..usize::from(len)]], len.into());
            assert!(result == Ok(Put::Done) || receive.base() == room, "nothing is consumed");
        }
        8 => {
            drop_flag(transmit.publish() | receive.publish());
            let _ = (transmit.waiting(), receive.waiting());
        }
        _ => {
            receive.suppress_kicks();
            drop_flag(transmit.allow_kicks());
        }
    }
}

/// What a step returns does not matter here.
fn drop_flag(_: bool) {}

fn drop_id(_: Option<u16>) {}

/// An owner that uses what it is given.
#[derive(Default)]
struct User {
    queues: Vec<Virtqueue>,
}

impl Owner for User {
    fn queue_started(&mut self, queue: Virtqueue) {
        assert!(self.queues.iter().all(|other| other.index() != queue.index()), "started twice");
        self.queues.push(queue);
    }

    fn queue_stopped(&mut self, index: usize) -> Option<Virtqueue> {
        let at = self.queues.iter().position(|queue| queue.index() == index)?;
        Some(self.queues.swap_remove(at))
    }

    fn event(&mut self, _event: Event) {}
}

impl User {
    /// Serves each queue a little, and drops those that broke.
    fn serve(&mut self) {
        self.queues.retain_mut(|queue| {
            let is_fine = match queue.index() % 2 {
                0 => queue.put(NetHeader::default(), [&[1; 60][..]], 60).is_ok(),
                _ => queue.offered().map(|_| queue.discard()).is_ok(),
            };
            drop_flag(queue.publish());
            let _ = queue.call();
            queue.hear_kicks().expect("the eventfd lives");
            is_fine
        });
    }
}

/// Checks one input of `vhost_message`: messages with a byte for the request, one for flags and descriptors, one for the
/// length; or raw bytes.
///
/// # Panics
/// If a promise of this crate does not hold.
pub fn messages(input: &[u8]) {
    let mut input = Input(input);
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a socket");
    let config =
        NetConfig { mac: [2, 0, 0, 0, 0, 1], is_up: true, is_to_announce: false, pairs: 1, mtu: 1500 };
    let mut backend = Backend::new(theirs, DeviceOptions { features: Features::ALL, config });
    let memory = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&memory, 1 << 20).expect("memory");
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let mut user = User::default();
    while !input.is_empty() {
        if send(&mut input, &mut ours, &memory, &bell).is_none() {
            return;
        }
        if backend.handle(&mut user).is_err() {
            assert!(user.queues.is_empty(), "all queues are asked back");
            return;
        }
        user.serve();
        let mut replies = [0; 4096];
        while matches!(rustix::io::read(&ours, &mut replies), Ok(1..)) {}
    }
}

/// Sends what the input says. `None`: the socket is full.
fn send(input: &mut Input<'_>, ours: &mut UnixStream, memory: &OwnedFd, bell: &OwnedFd) -> Option<()> {
    let (request, shape) = (input.byte(), input.byte());
    let len = usize::from(input.byte());
    let body = body(input, request, shape, len);
    if shape & 0x80 != 0 {
        // Raw bytes, which need not be a message.
        return ours.write_all(&body).ok();
    }
    let flags = 1 | u32::from(shape & 0x40) >> 3;
    let header = [u32::from(request), flags, body.len() as u32].map(u32::to_ne_bytes).concat();
    let files: Vec<BorrowedFd<'_>> = match shape & 7 {
        0 => Vec::new(),
        count @ 1..=3 => vec![memory.as_fd(); count.into()],
        _ => vec![bell.as_fd()],
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    }
    sendmsg(&*ours, &[IoSlice::new(&header), IoSlice::new(&body)], &mut ancillary, SendFlags::empty())
        .ok()?;
    Some(())
}

/// A body; with one bit of the shape, one that is proper for its request, so that inputs get far.
fn body(input: &mut Input<'_>, request: u8, shape: u8, len: usize) -> Vec<u8> {
    if shape & 8 == 0 {
        return input.bytes(len).to_vec();
    }
    let place = RegionPlace { guest: 0, user: 1 << 32, len: 1 << 20, offset: 0 };
    let index = u64::from(input.byte() % 3);
    let ring = place.user + 0x1000 * index;
    let numbers: Vec<u64> = match request {
        2 => vec![Features::ALL.0 & !(u64::from(input.byte()) << 28)],
        5 => vec![1, place.guest, place.len, place.user, place.offset],
        8 => vec![index | 8 << 32],
        9 => vec![index, ring, ring + 0x400, ring + 0x200, 0],
        10 | 11 => vec![index | u64::from(input.byte()) << 32],
        12..=14 => vec![index],
        16 => vec![crate::message::protocol::ALL],
        18 => vec![index | 1 << 32],
        31 => vec![0, 0, 3 | 8 << 16],
        32 => vec![4096, u64::from(input.byte()) << 6, 3 | 8 << 16],
        37 | 38 => vec![0, 1 << 40, 1 << 20, 1 << 41, 0],
        _ => vec![input.byte().into()],
    };
    numbers.into_iter().flat_map(u64::to_ne_bytes).collect()
}

#[cfg(all(test, not(miri)))]
mod tests {
    use proptest::prelude::*;

    fn replay(target: &str, check: fn(&[u8])) {
        let corpus = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let mut replayed = 0;
        for file in std::fs::read_dir(&corpus).expect("the corpus is part of the source") {
            check(&std::fs::read(file.expect("a file").path()).expect("it can be read"));
            replayed += 1;
        }
        assert!(replayed > 10, "only {replayed} inputs in {corpus}");
    }

    #[test]
    fn the_corpus_of_rings_is_served() {
        replay("vring", super::ring);
    }

    #[test]
    fn the_corpus_of_messages_is_followed() {
        replay("vhost_message", super::messages);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_ring_is_served(input in proptest::collection::vec(any::<u8>(), 0..400)) {
            super::ring(&input);
        }

        #[test]
        fn any_stream_is_followed(input in proptest::collection::vec(any::<u8>(), 0..400)) {
            super::messages(&input);
        }
    }
}
