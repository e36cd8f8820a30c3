//! The device's end of a queue against a driver that keeps the rules, and against one that does not.

use forebay_wire::net_header::gso;

use super::*;
use crate::driver::{Driver, DriverOptions, Part};

const BASIC: Features = Features(Features::VERSION_1.0 | Features::INDIRECT_DESC.0);

/// Rings of both kinds, with and without events.
fn kinds() -> [Features; 4] {
    let packed = BASIC.with(Features::RING_PACKED);
    [BASIC, BASIC.with(Features::EVENT_IDX), packed, packed.with(Features::EVENT_IDX)]
}

fn driver(features: Features, size: u16) -> Driver {
    Driver::new(DriverOptions::new(features, size, 4096)).expect("a possible ring")
}

/// The packet at the front, copied into frames of `frame` bytes.
fn take_all(queue: &mut Virtqueue, frame: usize) -> Option<(NetHeader, Vec<u8>)> {
    let Offer { len, .. } = queue.offered().expect("the driver keeps the rules")?;
    let header = queue.header();
    let mut packet = vec![0; len as usize];
    assert_eq!(queue.take(packet.chunks_mut(frame)), len);
    Some((header, packet))
}

fn put(queue: &mut Virtqueue, packet: &[u8]) -> Put {
    let result = queue.put(NetHeader::default(), packet.chunks(100), packet.len() as u32);
    result.expect("the driver keeps the rules")
}

/// Makes receive buffers of 100 bytes available.
fn offer(driver: &mut Driver, buffers: usize) {
    for _ in 0..buffers {
        driver.offer(&[100]).expect("the ring has room");
    }
}

#[test]
fn a_packet_and_its_header_come_out_as_they_went_in() {
    for features in kinds() {
        let mut driver = driver(features, 8);
        let mut queue = driver.device(1).expect("the driver's ring");
        let header = NetHeader {
            flags: 1,
            gso_type: gso::TCPV6,
            hdr_len: 54,
            gso_size: 1440,
            csum_start: 34,
            csum_offset: 16,
        };
        driver.send(header, &[b"for", b"e", b"bay"]).expect("the ring is empty");
        assert_eq!(queue.offered(), Ok(None), "the driver has not shown it yet");
        driver.publish();
        let offer = Offer { is_plain: false, len: 7 };
        assert_eq!([queue.offered(), queue.offered()], [Ok(Some(offer)); 2]);
        assert_eq!(queue.header(), header);
        assert_eq!(take_all(&mut queue, 2), Some((header, b"forebay".to_vec())));
        assert_eq!(queue.offered(), Ok(None));
        assert!(driver.used().is_none(), "it was not published yet");
        let _ = queue.publish();
        assert!(driver.used().expect("the buffer came back").written.is_empty());
    }
}

#[test]
fn a_queue_says_how_many_places_wait_and_a_packet_takes() {
    for features in kinds().map(|features| features.with(Features::MRG_RXBUF)) {
        let mut driver = driver(features, 8);
        let mut queue = driver.device(0).expect("the driver's ring");
        for round in 0..20 {
            assert_eq!((queue.waiting(), queue.places_for(10)), (0, 1), "nothing was shown");
            offer(&mut driver, 5);
            driver.publish();
            assert_eq!((queue.waiting(), queue.places()), (5, 0), "round {round}");
            // A header of 12 bytes, and buffers of 100.
            assert_eq!([88, 89, 188, 189].map(|len| queue.places_for(len)), [1, 2, 2, 3]);
            assert_eq!(put(&mut queue, &[1; 189]), Put::Done);
            assert_eq!((queue.waiting(), queue.places()), (2, 3));
            assert_eq!(put(&mut queue, &[1; 88]), Put::Done);
            assert_eq!((queue.waiting(), queue.places()), (1, 4));
            assert_eq!(put(&mut queue, &[]), Put::Done);
            assert_eq!(queue.take_places(), 5);
            let _ = queue.publish();
            while driver.used().is_some() {}
        }
        offer(&mut driver, 8);
        driver.publish();
        assert_eq!(queue.waiting(), 8, "a full ring");
    }
}

#[test]
fn a_header_may_lie_in_a_descriptor_of_its_own_or_in_several() {
    for features in kinds() {
        for indirect in [false, true] {
            let mut driver = driver(features, 8);
            let mut queue = driver.device(1).expect("the driver's ring");
            let parts = [&[1u8, 0][..], &[0; 10], b"pay", b"load"].map(Part::Bytes);
            driver.add(&parts, indirect).expect("the ring is empty");
            driver.publish();
            let header = NetHeader { flags: 1, ..NetHeader::default() };
            assert_eq!(take_all(&mut queue, 64), Some((header, b"payload".to_vec())));
        }
    }
}

/// DPDK's virtio driver leaves the header's entry in each table of a packed ring marked so.
#[test]
fn a_header_in_a_table_may_be_marked_as_one_to_be_written() {
    for features in kinds().into_iter().filter(|features| features.has(Features::RING_PACKED)) {
        let mut driver = driver(features, 8);
        let mut queue = driver.device(1).expect("the driver's ring");
        let parts = [Part::Room(12), Part::Bytes(b"payload")];
        driver.add(&parts, true).expect("the ring is empty");
        driver.publish();
        assert_eq!(take_all(&mut queue, 64), Some((NetHeader::default(), b"payload".to_vec())));
    }
}

#[test]
fn a_packet_that_is_discarded_gives_its_buffer_back() {
    for features in kinds() {
        let mut driver = driver(features, 4);
        let mut queue = driver.device(1).expect("the driver's ring");
        let id = driver.send(NetHeader::default(), &[b"no"]);
        driver.publish();
        assert!(queue.offered().expect("it is well-formed").is_some());
        queue.discard();
        let _ = queue.publish();
        assert_eq!(driver.used().map(|used| used.id), id);
        assert_eq!(queue.offered(), Ok(None));
    }
}

#[test]
fn a_packet_for_the_guest_lies_behind_its_header() {
    for features in kinds() {
        let mut driver = driver(features, 4);
        let mut queue = driver.device(0).expect("the driver's ring");
        driver.offer(&[5, 100]).expect("the ring is empty");
        driver.publish();
        let header = NetHeader { gso_type: gso::UDP_L4, ..NetHeader::default() };
        assert_eq!(queue.put(header, [&b"fore"[..], b"bay"], 7), Ok(Put::Done));
        let _ = queue.publish();
        let used = driver.used().expect("the buffer was used");
        assert_eq!(used.written[..12], header.to_bytes(1)[..12]);
        assert_eq!(&used.written[12..], b"forebay");
    }
}

#[test]
fn a_header_that_is_there_from_before_is_not_taken_for_the_next() {
    for features in kinds() {
        let mut driver = driver(features, 4);
        let mut queue = driver.device(0).expect("the driver's ring");
        let long = NetHeader { gso_type: gso::UDP_L4, gso_size: 3, ..NetHeader::default() };
        // The same buffers come back each lap.
        for header in [long, NetHeader::default(), NetHeader::default(), long].repeat(4) {
            driver.offer(&[100]).expect("the ring is empty");
            driver.publish();
            assert_eq!(queue.put(header, [&b"forebay"[..]], 7), Ok(Put::Done));
            let _ = queue.publish();
            let used = driver.used().expect("the buffer was used");
            assert_eq!(used.written[..12], header.to_bytes(1)[..12]);
        }
    }
}

#[test]
fn without_enough_buffers_nothing_is_consumed() {
    for features in kinds().map(|features| features.with(Features::MRG_RXBUF)) {
        let mut driver = driver(features, 8);
        let mut queue = driver.device(0).expect("the driver's ring");
        offer(&mut driver, 3);
        driver.publish();
        assert_eq!(put(&mut queue, &[7; 289]), Put::Full);
        assert!(!queue.publish() && driver.used().is_none());
        assert_eq!(put(&mut queue, &[7; 288]), Put::Done);
        let _ = queue.publish();
        let parts: Vec<_> = std::iter::from_fn(|| driver.used()).map(|used| used.written).collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [100; 3]);
        assert_eq!(parts[0][10..12], 3u16.to_le_bytes(), "the number of buffers");
        assert_eq!(parts.concat()[12..], [7; 288]);
    }
}

#[test]
fn a_packet_that_no_buffer_can_hold_is_too_long_and_not_waited_for() {
    for features in kinds() {
        let mut driver = driver(features, 8);
        let mut queue = driver.device(0).expect("the driver's ring");
        offer(&mut driver, 4);
        driver.publish();
        assert_eq!(put(&mut queue, &[7; 89]), Put::TooLong, "buffers are not mergeable");
        assert_eq!(put(&mut queue, &[7; 88]), Put::Done);
    }
    let mut driver = driver(BASIC.with(Features::MRG_RXBUF), 2);
    let mut queue = driver.device(0).expect("the driver's ring");
    offer(&mut driver, 2);
    driver.publish();
    assert_eq!(put(&mut queue, &[7; 189]), Put::TooLong, "the whole ring is too short");
}

#[test]
fn a_guest_that_wants_calls_is_called_once_until_it_wants_more() {
    for features in kinds() {
        let has_events = features.has(Features::EVENT_IDX);
        let mut driver = driver(features, 8);
        let mut queue = driver.device(0).expect("the driver's ring");
        offer(&mut driver, 6);
        driver.publish();
        let publish = |queue: &mut Virtqueue| {
            assert_eq!(put(queue, b"x"), Put::Done);
            queue.publish()
        };
        assert!(!driver.want_calls(true));
        assert!(publish(&mut queue), "{features:?}");
        assert_eq!(publish(&mut queue), !has_events, "the event has passed");
        assert!(driver.want_calls(false));
        assert!(!publish(&mut queue), "calls are not wanted");
        while driver.used().is_some() {}
        assert!(!driver.want_calls(true));
        assert!(publish(&mut queue), "wanted again");
        assert!(!queue.publish(), "nothing new");
    }
}

#[test]
fn a_guest_may_be_asked_later_whether_it_wants_a_call() {
    for features in kinds() {
        let mut driver = driver(features, 8);
        let mut queue = driver.device(0).expect("the driver's ring");
        offer(&mut driver, 6);
        driver.publish();
        assert!(!driver.want_calls(true));
        for _ in 0..2 {
            assert_eq!(put(&mut queue, b"x"), Put::Done);
            assert!(queue.show(), "{features:?}");
        }
        assert!(!queue.show(), "nothing new");
        assert_eq!([queue.take_places(), queue.take_places()], [2, 0], "{features:?}");
        assert!(queue.wants_call(), "the event lies before the first of two packets");
        while driver.used().is_some() {}
        assert!(!driver.want_calls(true));
        assert_eq!(put(&mut queue, b"x"), Put::Done);
        assert!(queue.show());
        assert!(driver.want_calls(false), "it polls, and there is a packet");
        while driver.used().is_some() {}
        assert!(!queue.wants_call(), "{features:?}: it has seen the packet meanwhile");
    }
}

#[test]
fn a_guest_kicks_only_when_it_is_asked_to() {
    for features in kinds() {
        let mut driver = driver(features, 8);
        let mut queue = driver.device(1).expect("the driver's ring");
        let send = |driver: &mut Driver| {
            driver.send(NetHeader::default(), &[b"x"]).expect("there is room");
            driver.publish()
        };
        assert!(!queue.allow_kicks());
        assert!(send(&mut driver), "{features:?}");
        queue.suppress_kicks();
        assert!(!send(&mut driver), "{features:?}");
        assert!(queue.allow_kicks(), "two packets came meanwhile");
        while take_all(&mut queue, 64).is_some() {}
        assert!(!queue.allow_kicks());
        assert!(send(&mut driver), "{features:?}");
    }
}

#[test]
fn a_queue_goes_on_where_another_ended() {
    for features in kinds() {
        let mut driver = driver(features, 4);
        let mut queue = driver.device(1).expect("the driver's ring");
        for round in 0u8..23 {
            driver.send(NetHeader::default(), &[&[round]]).expect("the last one was used");
            driver.publish();
            assert_eq!(take_all(&mut queue, 64).map(|(_, packet)| packet), Some(vec![round]));
            let _ = queue.publish();
            assert!(driver.used().is_some());
            let place = RingPlace { base: queue.base(), ..driver.place(1) };
            queue = Virtqueue::new(Arc::clone(driver.memory()), features, place, Bells::default())
                .expect("the same ring");
        }
    }
}

#[test]
fn a_command_is_read_and_answered_in_one_chain() {
    for features in kinds() {
        let mut driver = driver(features, 8);
        let mut queue = driver.device(2).expect("the driver's ring");
        driver.add(&[Part::Bytes(b"cl"), Part::Bytes(b"ass"), Part::Room(1)], false).expect("room");
        driver.publish();
        let mut command = [0; 64];
        assert_eq!(queue.command(&mut command), Ok(Some(5)));
        assert_eq!(&command[..5], b"class");
        queue.answer(&[1, 2, 3]);
        assert!(queue.publish());
        assert_eq!(driver.used().expect("an answer").written, [1]);
        assert_eq!(queue.command(&mut command), Ok(None));
    }
}

#[cfg(not(miri))]
mod crashes;
mod hostile;
mod lent;
mod random;
