//! The back end against a front end that writes raw messages.

mod front;
mod hostile;

use forebay_wire::net_header::NetHeader;
use front::{Front, Held, QUEUE_SIZE};

use super::rings::NO_DESCRIPTOR;
use super::*;
use crate::driver::{Driver, DriverOptions};
use crate::virtqueue::Put;

/// Features of a modest guest.
const FEATURES: Features = Features(
    Features::VERSION_1.0
        | Features::PROTOCOL_FEATURES.0
        | Features::EVENT_IDX.0
        | Features::CTRL_VQ.0
        | Features::MQ.0
        | Features::GUEST_ANNOUNCE.0
        | Features::CTRL_MAC_ADDR.0,
);

fn driver_of(front: &Front, features: Features) -> Driver {
    let options = DriverOptions::new(features, QUEUE_SIZE, 4096);
    Driver::in_memory(options, Arc::clone(&front.memory)).expect("the front end's memory is long enough")
}

/// A front end whose transmit queue runs.
fn running(features: Features) -> (Front, Backend, Held, Driver) {
    let (mut front, mut backend, mut held) = Front::connect();
    front.negotiate(features);
    front.share_memory();
    let driver = driver_of(&front, features);
    front.start_queue(&driver, 1);
    assert_eq!(backend.handle(&mut held).expect("a proper front end"), Progress::Waiting);
    assert_eq!(front.take_calls(1), 1, "the last back end may have died before its call");
    (front, backend, held, driver)
}

#[test]
fn what_the_device_offers_is_what_it_says() {
    let (mut front, mut backend, mut held) = Front::connect();
    front.send(request::GET_FEATURES, &[]);
    front.send(request::GET_PROTOCOL_FEATURES, &[]);
    front.set_u64(request::SET_PROTOCOL_FEATURES, protocol::ALL);
    front.send(request::GET_QUEUE_NUM, &[]);
    front.send(request::GET_MAX_MEM_SLOTS, &[]);
    front.set_u64(request::SET_STATUS, 7);
    front.send(request::GET_STATUS, &[]);
    backend.handle(&mut held).expect("a proper front end");
    let answers = [Features::ALL.0, protocol::ALL, 2, MAX_REGIONS as u64, 7];
    for answer in answers {
        assert_eq!(front.reply_u64(), answer);
    }
}

#[test]
fn a_queue_starts_carries_packets_and_is_given_back_where_it_was() {
    for features in [FEATURES, FEATURES.with(Features::RING_PACKED)] {
        let (mut front, mut backend, mut held, mut driver) = running(features);
        let queue = held.queues[1].as_mut().expect("it was started");
        driver.send(NetHeader::default(), &[b"forebay"]);
        driver.publish();
        let mut packet = [0; 7];
        assert_eq!(queue.offered().map(|offer| offer.map(|offer| offer.len)), Ok(Some(7)));
        assert_eq!((queue.take([&mut packet[..]]), &packet), (7, b"forebay"));
        assert!(queue.publish());
        queue.call().expect("the call descriptor is an eventfd");
        assert_eq!(front.take_calls(1), 1);
        assert!(driver.used().is_some());
        front.send_u32s(request::GET_VRING_BASE, &[1, 0]);
        backend.handle(&mut held).expect("a proper front end");
        assert!(held.queues[1].is_none(), "the queue was asked back");
        let base = if features.has(Features::RING_PACKED) { 0x8001_8001 } else { 1 };
        assert_eq!(front.reply_u32s(), [1, base]);
    }
}

#[test]
fn a_device_that_was_reset_says_where_its_queues_were() {
    for features in [FEATURES, FEATURES.with(Features::RING_PACKED)] {
        let (mut front, mut backend, mut held, mut driver) = running(features);
        driver.send(NetHeader::default(), &[b"forebay"]);
        driver.publish();
        held.take_packet(1);
        front.set_u64(request::SET_STATUS, 0);
        front.send_u32s(request::GET_VRING_BASE, &[1, 0]);
        backend.handle(&mut held).expect("QEMU 7.2 asks in this order");
        assert!(driver.used().is_some(), "what was used does not stay hidden");
        let base = if features.has(Features::RING_PACKED) { 0x8001_8001 } else { 1 };
        assert_eq!(front.reply_u32s(), [1, base]);
        let driver = driver_of(&front, features);
        front.start_queue(&driver, 1);
        backend.handle(&mut held).expect("a proper front end");
        let fresh = if features.has(Features::RING_PACKED) { 0x8000_8000 } else { 0 };
        assert_eq!(held.queues[1].as_ref().map(Virtqueue::base), Some(fresh), "a new ring begins anew");
    }
}

#[test]
fn a_packed_ring_that_begins_at_0_begins_with_wrap_counters_of_1() {
    let features = FEATURES.with(Features::RING_PACKED);
    for (base, start) in [(0, 0x8000_8000), (0x8003, 0x8003_8003), (0x8002_8001, 0x8002_8001)] {
        let (mut front, mut backend, mut held, driver) = running(features);
        front.send_u32s(request::GET_VRING_BASE, &[1, 0]);
        front.send_u32s(request::SET_VRING_BASE, &[1, base]);
        front.kick_on(&driver, 1);
        backend.handle(&mut held).expect("a proper front end");
        assert_eq!(held.queues[1].as_ref().map(Virtqueue::base), Some(start), "{base:#x}");
    }
}

#[test]
fn kicks_wake_the_owner_until_they_are_heard() {
    let (front, _backend, held, _driver) = running(FEATURES);
    let queue = held.queues[1].as_ref().expect("it was started");
    let is_readable = || front::is_readable(queue.kick().expect("the front end passed one"));
    assert!(!is_readable());
    front.kick(1);
    assert!(is_readable());
    queue.hear_kicks().expect("an eventfd");
    assert!(!is_readable());
    queue.hear_kicks().expect("an eventfd, though nothing is to be heard");
}

#[test]
fn a_kick_descriptor_that_is_closed_at_its_other_end_breaks_its_port() {
    let (mut front, mut backend, mut held, _driver) = running(FEATURES);
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    front.send_u64s(request::SET_VRING_KICK, &[1], &[read.as_fd()]);
    backend.handle(&mut held).expect("a pipe is fine");
    let queue = held.queues[1].as_ref().expect("it was started again");
    queue.hear_kicks().expect("nothing is to be heard");
    drop(write);
    assert_eq!(queue.hear_kicks(), Err(crate::RingError::KickGone));
}

/// Queues and back ends move between threads.
const fn is_send<T: Send>() {}
const _: () = {
    is_send::<Virtqueue>();
    is_send::<Backend>();
};

#[test]
fn a_queue_that_is_disabled_is_asked_back_and_goes_on_later() {
    let (mut front, mut backend, mut held, mut driver) = running(FEATURES);
    driver.send(NetHeader::default(), &[b"one"]);
    driver.publish();
    held.take_packet(1);
    front.send_u32s(request::SET_VRING_ENABLE, &[1, 0]);
    backend.handle(&mut held).expect("a proper front end");
    assert!(held.queues[1].is_none());
    assert!(driver.used().is_some(), "what was used does not stay hidden");
    front.send_u32s(request::SET_VRING_ENABLE, &[1, 1]);
    backend.handle(&mut held).expect("a proper front end");
    driver.send(NetHeader::default(), &[b"two"]);
    driver.publish();
    assert_eq!(held.take_packet(1), b"two");
}

#[test]
fn memory_that_changes_below_a_running_queue_stops_it_for_a_moment() {
    let (mut front, mut backend, mut held, mut driver) = running(FEATURES);
    let regions = backend.memory().regions();
    front.add_region(true);
    backend.handle(&mut held).expect("a proper front end");
    assert_eq!((backend.memory().regions(), held.started, held.stopped), (regions + 1, 2, 1));
    driver.send(NetHeader::default(), &[b"still here"]);
    driver.publish();
    assert_eq!(held.take_packet(1), b"still here");
    front.add_region(false);
    backend.handle(&mut held).expect("a proper front end");
    assert_eq!((backend.memory().regions(), held.started, held.stopped), (regions, 3, 2));
}

#[test]
fn a_region_may_be_added_and_removed_once_for_each_pair_of_queues() {
    let (mut front, mut backend, mut held, _driver) = running(FEATURES);
    let regions = backend.memory().regions();
    for (add, expected) in [(true, regions + 1), (false, regions)] {
        let before = held.started;
        for _ in 0..2 {
            front.add_region(add);
            backend.handle(&mut held).expect("QEMU 7.2 does so");
            assert_eq!(backend.memory().regions(), expected);
        }
        assert_eq!(held.started, before + 1, "what changes nothing stops no queue");
    }
}

#[test]
fn a_table_may_have_room_for_more_regions_than_it_counts() {
    let (mut front, mut backend, mut held) = Front::connect();
    front.share_memory_with_room();
    backend.handle(&mut held).expect("Linux in user mode does so");
    assert_eq!(backend.memory().regions(), 1);
}

#[test]
fn pages_that_are_written_are_noted_and_no_others() {
    for features in [FEATURES, FEATURES.with(Features::RING_PACKED)] {
        let (mut front, mut backend, mut held, _) = running(features);
        front.send_u32s(request::GET_VRING_BASE, &[1, 0]);
        let mut driver = driver_of(&front, features);
        front.start_queue(&driver, 0);
        let log = front.share_log();
        front.set_u64(request::SET_FEATURES, features.with(Features::LOG_ALL).0);
        backend.handle(&mut held).expect("a proper front end");
        let first = driver.offer(&[3000]).expect("the ring is empty");
        driver.offer(&[3000]).expect("the ring has room");
        driver.publish();
        let queue = held.queues[0].as_mut().expect("it was started");
        assert_eq!(front::marked(&log), [0; 0], "nothing was written yet");
        assert_eq!(queue.put(NetHeader::default(), [&[7; 2000][..]], 2000), Ok(Put::Done));
        let _ = queue.publish();
        let ring = crate::driver::GUEST_START / 4096;
        assert_eq!(front::marked(&log), [ring, driver.buffer_of(first) / 4096]);
    }
}

#[test]
fn features_may_be_set_twice() {
    let (mut front, mut backend, mut held, mut driver) = running(FEATURES);
    front.set_u64(request::SET_FEATURES, FEATURES.0);
    backend.handle(&mut held).expect("a proper front end");
    driver.send(NetHeader::default(), &[b"again"]);
    driver.publish();
    assert_eq!(held.take_packet(1), b"again");
}

#[test]
fn without_protocol_features_queues_need_no_enabling() {
    let features = FEATURES.without(Features::PROTOCOL_FEATURES);
    let (mut front, mut backend, mut held) = Front::connect();
    front.set_u64(request::SET_FEATURES, features.0);
    front.share_memory();
    let driver = driver_of(&front, features);
    front.set_up_queue(&driver, 0);
    front.kick_on(&driver, 0);
    backend.handle(&mut held).expect("a proper front end");
    let queue = held.queues[0].as_mut().expect("it was started");
    assert_eq!(queue.put(NetHeader::default(), [&b"x"[..]], 1), Ok(Put::Full));
}

#[test]
fn a_queue_without_a_kick_descriptor_is_polled() {
    let (mut front, mut backend, mut held, _driver) = running(FEATURES);
    front.set_u64(request::SET_VRING_KICK, 1 | NO_DESCRIPTOR);
    front.set_u64(request::SET_VRING_CALL, 1 | NO_DESCRIPTOR);
    backend.handle(&mut held).expect("a proper front end");
    let queue = held.queues[1].as_ref().expect("it was started again");
    assert!(queue.kick().is_none());
    queue.call().expect("nobody is called");
}

#[test]
fn a_queue_that_broke_stays_stopped_until_it_is_set_up_again() {
    let (mut front, mut backend, mut held, driver) = running(FEATURES);
    held.queues[1] = None;
    front.add_region(true);
    backend.handle(&mut held).expect("a proper front end");
    assert!(held.queues[1].is_none(), "new memory does not mend a ring");
    front.set_up_queue(&driver, 1);
    front.kick_on(&driver, 1);
    backend.handle(&mut held).expect("a proper front end");
    assert!(held.queues[1].is_some());
}

#[test]
fn a_reset_and_a_front_end_that_goes_stop_all_queues() {
    for message in [request::RESET_DEVICE, request::RESET_OWNER] {
        let (mut front, mut backend, mut held, _driver) = running(FEATURES);
        front.send(message, &[]);
        assert_eq!(backend.handle(&mut held).expect("a proper front end"), Progress::Waiting);
        assert_eq!(held.stopped, 1);
    }
    let (mut front, mut backend, mut held, _driver) = running(FEATURES);
    front.set_u64(request::SET_STATUS, 0);
    backend.handle(&mut held).expect("a proper front end");
    assert_eq!(held.stopped, 1);
    let (front, mut backend, mut held, _driver) = running(FEATURES);
    drop(front);
    assert_eq!(backend.handle(&mut held).expect("it may go"), Progress::Closed);
    assert_eq!(held.stopped, 1);
}

#[test]
fn what_the_guest_may_read_of_its_device_is_answered() {
    let (mut front, mut backend, mut held) = Front::connect();
    front.set_u64(request::SET_PROTOCOL_FEATURES, protocol::ALL);
    front.get_config(8, 4);
    front.get_config(1000, 4);
    backend.handle(&mut held).expect("a proper front end");
    assert_eq!(
        front.reply(),
        [&[8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0][..], &1500u16.to_le_bytes()].concat()
    );
    assert_eq!(front.reply(), [&1000u32.to_ne_bytes()[..], &[0; 8]].concat(), "an empty reply is a refusal");
}

#[test]
fn a_front_end_that_wants_to_know_is_told_how_it_went() {
    let (mut front, mut backend, mut held) = Front::connect();
    front.set_u64(request::SET_PROTOCOL_FEATURES, protocol::ALL);
    front.needs_replies = true;
    front.set_u64(request::NET_SET_MTU, 9000);
    front.send(request::SET_CONFIG, &[0; 13]);
    front.set_u64(request::SEND_RARP, u64::from_ne_bytes([2, 0, 0, 0, 0, 5, 0, 0]));
    backend.handle(&mut held).expect("a proper front end");
    front.set_u64(request::NET_SET_MTU, 67);
    backend.handle(&mut held).expect("a proper front end");
    let replies = [front.reply_u64(), front.reply_u64(), front.reply_u64(), front.reply_u64()];
    assert_eq!((replies, backend.options.config.mtu), ([0, 1, 0, 1], 9000));
    assert_eq!(held.events, [Event::Mtu(9000), Event::Announce([2, 0, 0, 0, 0, 5])]);
    front.set_u64(request::SET_FEATURES, 1 << 63);
    backend.handle(&mut held).expect_err("it was not offered");
    assert_eq!(front.reply_u64(), 1);
}

#[test]
fn commands_of_the_guest_reach_the_owner() {
    let (mut front, mut backend, mut held) = Front::connect();
    front.negotiate(FEATURES);
    front.share_memory();
    let mut driver = driver_of(&front, FEATURES);
    front.start_queue(&driver, 4);
    backend.handle(&mut held).expect("a proper front end");
    assert_eq!((held.started, backend.descriptors().count()), (0, 2), "it is served by the back end");
    held.events.clear();
    for (command, answer) in [(vec![4, 0, 2, 0], 0), (vec![3, 0], 0), (vec![9, 9], 1)] {
        driver.add(&[crate::driver::Part::Bytes(&command), crate::driver::Part::Room(1)], false);
        assert!(driver.publish(), "the back end wants a kick");
        front.kick(4);
        assert!(backend.descriptors().any(front::is_readable));
        assert_eq!(backend.handle(&mut held).expect("a proper front end"), Progress::Waiting);
        assert_eq!(driver.used().expect("an answer").written, [answer]);
    }
    assert_eq!(held.events, [Event::Pairs(2)]);
}

#[test]
fn a_change_of_the_configuration_is_told() {
    let (mut front, mut backend, mut held) = Front::connect();
    let config = backend.options.config;
    backend.set_config(NetConfig { is_up: false, ..config });
    front.set_u64(request::SET_PROTOCOL_FEATURES, protocol::ALL);
    let told = front.pass_channel();
    backend.handle(&mut held).expect("a pipe is fine");
    backend.set_config(NetConfig { is_to_announce: true, pairs: 7, ..config });
    assert_eq!(front::read_all(&told), [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(backend.options.config.pairs, 2, "the number of pairs stays");
}

#[test]
fn a_guest_that_can_is_asked_to_announce_itself_until_it_says_that_it_has() {
    let (mut front, mut backend, mut held) = Front::connect();
    front.negotiate(FEATURES);
    front.share_memory();
    let mut driver = driver_of(&front, FEATURES);
    front.start_queue(&driver, 4);
    let told = front.pass_channel();
    front.set_u64(request::SEND_RARP, u64::from_ne_bytes([2, 0, 0, 0, 0, 5, 0, 0]));
    backend.handle(&mut held).expect("a proper front end");
    assert_eq!(front::read_all(&told)[..4], [2, 0, 0, 0], "the configuration has changed");
    let status = |backend: &Backend| backend.options.config.to_bytes()[6];
    assert_eq!(status(&backend), 3, "link up, announce");
    driver.add(&[crate::driver::Part::Bytes(&[3, 0]), crate::driver::Part::Room(1)], false);
    driver.publish();
    front.kick(4);
    backend.handle(&mut held).expect("a proper front end");
    assert_eq!((driver.used().expect("an answer").written, status(&backend)), (vec![0], 1));
}
