//! Packets of which only the beginning is copied.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::memory::{Lent, LentBytes};

const LIMIT: usize = 8;
/// More than any packet here has.
const ROOM: usize = 64;

fn bytes_of(lent: LentBytes<'_>) -> Vec<u8> {
    let all = lent.in_order().flatten();
    all.map(|byte| byte.load(std::sync::atomic::Ordering::Relaxed)).collect()
}

/// A queue with one packet of 1,000 bytes behind a header of 12, in this many descriptors, or in an indirect table of them.
fn with_packet(features: Features, parts: usize, indirect: bool) -> (Driver, Virtqueue, Vec<u8>) {
    let mut driver = driver(features, 16);
    let mut queue = driver.device(1).expect("the driver's ring");
    let packet: Vec<u8> = (0..1000).map(|at| at as u8).collect();
    let all = [&[0; 12], &packet[..]].concat();
    let parts: Vec<Part<'_>> = all.chunks(all.len().div_ceil(parts)).map(Part::Bytes).collect();
    driver.add(&parts, indirect).expect("the ring is empty");
    driver.publish();
    assert!(queue.offered().expect("it is well-formed").is_some());
    (driver, queue, packet)
}

#[test]
fn a_packet_is_its_beginning_and_what_was_lent() {
    for features in kinds() {
        for (parts, indirect) in [(1, false), (2, false), (7, false), (1, true), (7, true)] {
            let (mut driver, mut queue, packet) = with_packet(features, parts, indirect);
            let mut lent = Lent::with_room(ROOM);
            let mut front = [0; 300];
            let pieces = queue.lend(&mut front, &mut lent, LIMIT).expect("there is room");
            assert_eq!([&front, &bytes_of(lent.bytes(pieces.clone()))[..]].concat(), packet);
            assert_eq!(queue.offered(), Ok(None), "it was taken");
            assert!(driver.used().is_none(), "the guest has not got it back");
            let mut room = [0; 2000];
            assert_eq!(lent.bytes(pieces).copy_to(&mut room), &packet[300..]);
            let _ = queue.publish();
            assert!(driver.used().is_some());
        }
    }
}

#[test]
fn a_packet_that_cannot_be_lent_is_still_offered() {
    for features in kinds() {
        let (_driver, mut queue, _) = with_packet(features, 7, false);
        let mut front = [0; 300];
        for (room, limit, front_bytes) in [(ROOM, 4, 300), (4, LIMIT, 300), (ROOM, LIMIT, 1000)] {
            let mut lent = Lent::with_room(room);
            let mut longer = [0; 1000];
            let front = if front_bytes == 300 { &mut front[..] } else { &mut longer[..] };
            assert_eq!(queue.lend(front, &mut lent, limit), None, "{room} {limit} {front_bytes}");
            assert!(lent.is_empty());
        }
        assert!(queue.lend(&mut front, &mut Lent::with_room(5), 5).is_some(), "five pieces are left");
    }
}

#[test]
fn what_one_guest_lends_goes_into_the_buffers_of_another() {
    for features in kinds().map(|features| features.with(Features::MRG_RXBUF)) {
        for (parts, buffers, room) in [(1, 1, 2000), (7, 1, 2000), (7, 12, 100), (1, 12, 100)] {
            let (_sender, mut from, packet) = with_packet(features, parts, false);
            let mut receiver = driver(features, 16);
            let mut to = receiver.device(0).expect("the driver's ring");
            for _ in 0..buffers {
                receiver.offer(&[room]).expect("the ring has room");
            }
            receiver.publish();
            let mut lent = Lent::with_room(ROOM);
            let mut front = [0; 300];
            let pieces = from.lend(&mut front, &mut lent, LIMIT).expect("there is room");
            let header = NetHeader { flags: 1, csum_start: 34, csum_offset: 16, ..NetHeader::default() };
            let (begin, end) = front.split_at(20);
            let put = to.put_lent(header, [begin, end], lent.bytes(pieces), packet.len() as u32);
            assert_eq!(put, Ok(Put::Done));
            let _ = to.publish();
            let used = std::iter::from_fn(|| receiver.used());
            let written: Vec<u8> = used.flat_map(|used| used.written).collect();
            assert_eq!(written[12..], packet);
            let mut told = [0; MAX_HEADER_BYTES];
            told[..12].copy_from_slice(&written[..12]);
            assert_eq!(NetHeader::from_bytes(&told), header);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs a file")]
fn what_was_lent_of_a_file_that_is_truncated_is_zeros_elsewhere() {
    let features = BASIC;
    let options = DriverOptions::new(features, 16, 8192);
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
    let region = Driver::region(&options);
    ftruncate(&file, region.len).expect("memory for a guest");
    let mut memory = GuestMemory::default();
    memory.add(region, &file).expect("a region");
    let mut sender = Driver::in_memory(options, Arc::new(memory)).expect("a possible ring");
    let mut from = sender.device(1).expect("the driver's ring");
    let packet = [7; 5000];
    sender.send(NetHeader::default(), &[&packet]).expect("the ring is empty");
    sender.publish();
    from.offered().expect("it is well-formed").expect("a packet");
    let mut lent = Lent::with_room(ROOM);
    let mut front = [0; 1000];
    let pieces = from.lend(&mut front, &mut lent, LIMIT).expect("there is room");
    ftruncate(&file, 0).expect("the file is ours");

    let mut receiver = Driver::new(DriverOptions::new(features, 16, 8192)).expect("a possible ring");
    let mut to = receiver.device(0).expect("the driver's ring");
    receiver.offer(&[6000]).expect("the ring is empty");
    receiver.publish();
    let put = to.put_lent(NetHeader::default(), [&front[..]], lent.bytes(pieces), 5000);
    assert_eq!(put, Ok(Put::Done));
    let _ = to.publish();
    let written = receiver.used().expect("the packet").written;
    assert_eq!((&written[12..1012], &written[1012..]), (&[7; 1000][..], &[0; 4000][..]));
    assert!(from.is_broken() && !to.is_broken());
}
