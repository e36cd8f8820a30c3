//! Front ends that send what they should not.

use proptest::prelude::*;

use super::*;
use crate::message::{HEADER_BYTES, VERSION};

/// What the back end says to what `send` sends, after a proper start.
fn error_of(send: impl FnOnce(&mut Front)) -> String {
    let (mut front, mut backend, mut held, _driver) = running(FEATURES);
    send(&mut front);
    let error = backend.handle(&mut held).expect_err("it is refused").to_string();
    assert_eq!(held.stopped, 1, "the queue was asked back");
    error
}

fn header(request: u32, flags: u32, len: u32) -> Vec<u8> {
    [request, flags, len].map(u32::to_ne_bytes).concat()
}

#[test]
fn half_a_message_holds_nobody_up_and_is_followed_when_it_is_whole() {
    let (mut front, mut backend, mut held) = Front::connect();
    let whole = [header(request::SET_FEATURES, VERSION, 8), FEATURES.0.to_ne_bytes().to_vec()].concat();
    for byte in whole {
        assert_eq!(backend.features(), Features::default());
        front.send_raw(&[byte]);
        assert_eq!(backend.handle(&mut held).expect("so far it is fine"), Progress::Waiting);
    }
    assert_eq!(backend.features(), FEATURES);
}

#[test]
fn a_front_end_that_reads_no_replies_is_given_up() {
    let (mut front, mut backend, mut held) = Front::connect();
    let error = loop {
        front.send(request::GET_FEATURES, &[]);
        if let Err(error) = backend.handle(&mut held) {
            break error;
        }
    };
    assert!(matches!(error, VhostError::RepliesUnread), "{error}");
}

#[test]
fn headers_that_are_none_are_refused() {
    for bytes in [header(1, 0, 0), header(1, 2, 0), header(1, 5, 0), header(1, 0x11, 0), header(1, 1, 4097)] {
        let error = error_of(|front| front.send_raw(&bytes));
        assert!(error.contains("not vhost-user, or over 4096 bytes"), "{error}");
    }
}

#[test]
fn requests_that_are_unknown_or_not_agreed_on_are_refused() {
    for number in [0, 22, 33, 35, 45, u32::MAX] {
        let error = error_of(|front| front.send(number, &[]));
        assert_eq!(error, format!("request {number} is unknown or was not negotiated"));
    }
    let (mut front, mut backend, mut held) = Front::connect();
    front.set_u64(request::SET_STATUS, 1);
    assert!(backend.handle(&mut held).is_err(), "without its protocol feature");
}

#[test]
fn bodies_of_a_wrong_length_are_refused() {
    let requests = [
        (request::SET_FEATURES, 8u8),
        (request::SET_VRING_NUM, 8),
        (request::SET_VRING_BASE, 8),
        (request::SET_VRING_ADDR, 40),
        (request::SET_VRING_ENABLE, 8),
        (request::SET_VRING_KICK, 8),
        (request::GET_VRING_BASE, 8),
        (request::GET_FEATURES, 0),
        (request::NET_SET_MTU, 8),
    ];
    for (number, len) in requests.map(|(number, len)| (number, usize::from(len))) {
        for wrong in [len + 1, len.saturating_sub(1)] {
            if wrong != len {
                let error = error_of(|front| front.send(number, &vec![0; wrong]));
                assert_eq!(error, format!("request {number} has {wrong} bytes, which it cannot have"));
            }
        }
    }
}

#[test]
fn queues_that_do_not_exist_are_refused() {
    for number in
        [request::SET_VRING_NUM, request::SET_VRING_BASE, request::SET_VRING_ENABLE, request::GET_VRING_BASE]
    {
        let error = error_of(|front| front.send_u32s(number, &[5, 1]));
        assert_eq!(error, "queue 5 does not exist; the device has 5");
    }
    let error = error_of(|front| front.set_u64(request::SET_VRING_KICK, 0x1ff));
    assert_eq!(error, "queue 255 does not exist; the device has 5");
}

#[test]
fn rings_that_are_impossible_are_refused() {
    for size in [0, 32_769, u32::MAX] {
        let error = error_of(|front| front.send_u32s(request::SET_VRING_NUM, &[1, size]));
        assert!(error.starts_with(&format!("a ring of {size} entries")), "{error}");
    }
    let error = error_of(|front| front.send_u64s(request::SET_VRING_ADDR, &[1, 0, 0, 0, 0], &[]));
    assert!(error.contains("the descriptors of queue 1 at 0x0"), "{error}");
    let error = error_of(|front| front.set_u64(request::SET_FEATURES, 1 << 63));
    assert!(error.contains("were not offered"), "{error}");
    let error = error_of(|front| front.set_u64(request::SET_PROTOCOL_FEATURES, 1 << 14));
    assert!(error.contains("were not offered"), "{error}");
}

#[test]
fn descriptors_that_are_missing_or_too_many_are_refused() {
    let count = |request, body: &[u8], files: usize| {
        error_of(|front| {
            let file = rustix::pipe::pipe().expect("a pipe").0;
            front.send_with(request, body, &vec![file.as_fd(); files]);
        })
    };
    let cases = [
        (request::SET_MEM_TABLE, 0, "came with 0 descriptors and takes 32"),
        (request::SET_VRING_KICK, 0, "came with 0 descriptors and takes 1"),
        (request::SET_VRING_KICK, 2, "came with 2 descriptors and takes 1"),
        (request::SET_FEATURES, 1, "came with 1 descriptors and takes 0"),
        (request::SET_BACKEND_REQ_FD, 0, "came with 0 descriptors and takes 1"),
    ];
    for (request, files, wanted) in cases {
        let error = count(request, &1u64.to_ne_bytes(), files);
        assert!(error.contains(wanted), "{error}");
    }
    let error = error_of(|front| {
        let file = rustix::pipe::pipe().expect("a pipe").0;
        front.send_u64s(request::SET_MEM_TABLE, &[2, 0, 4096, 0, 0], &[file.as_fd()]);
    });
    assert_eq!(error, "request 5 came with 1 descriptors and takes 2");
}

#[test]
fn descriptors_that_could_block_us_are_refused() {
    let file = std::fs::File::open("/proc/self/maps").expect("procfs");
    let null = std::fs::File::open("/dev/null").expect("a device");
    for file in [&file, &null] {
        for number in [request::SET_VRING_KICK, request::SET_VRING_CALL] {
            let error = error_of(|front| front.send_u64s(number, &[1], &[file.as_fd()]));
            assert!(error.contains("may block: kicks, calls"), "{error}");
        }
        let error = error_of(|front| front.send_with(request::SET_BACKEND_REQ_FD, &[], &[file.as_fd()]));
        assert!(error.contains("may block: kicks, calls"), "{error}");
    }
}

#[test]
fn a_pipe_that_is_full_does_not_block_a_call() {
    let (mut front, mut backend, mut held, _driver) = running(FEATURES);
    let (_read, write) = rustix::pipe::pipe().expect("a pipe");
    front.send_u64s(request::SET_VRING_CALL, &[1], &[write.as_fd()]);
    backend.handle(&mut held).expect("a proper front end");
    let queue = held.queues[1].as_ref().expect("it was started again");
    (0..20_000).for_each(|_| queue.call().expect("a full pipe is no error"));
}

#[test]
fn a_malformed_control_queue_closes_the_port() {
    let (mut front, mut backend, mut held) = Front::connect();
    front.negotiate(FEATURES);
    front.share_memory();
    let mut driver = driver_of(&front, FEATURES);
    front.start_queue(&driver, 4);
    backend.handle(&mut held).expect("a proper front end");
    driver.add(&[crate::driver::Part::Room(1), crate::driver::Part::Bytes(&[3, 0])], false);
    driver.publish();
    let error = backend.handle(&mut held).expect_err("the answer comes last").to_string();
    assert!(error.starts_with("the control queue: "), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Proper headers around anything: no panic, and the queue is asked back with the first error.
    #[test]
    fn any_bodies_are_followed_or_refused(
        messages in proptest::collection::vec(
            (0u32..48, proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..48), 0usize..3), 1..20
        ),
    ) {
        let (mut front, mut backend, mut held, _driver) = running(FEATURES);
        for (number, body, files) in messages {
            let call = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
            front.send_with(number, &body, &vec![call.as_fd(); files]);
            if backend.handle(&mut held).is_err() {
                prop_assert!(held.queues.iter().all(Option::is_none));
                return Ok(());
            }
        }
    }

    #[test]
    fn any_bytes_are_followed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        let (mut front, mut backend, mut held, _driver) = running(FEATURES);
        front.send_raw(&bytes);
        let is_error = backend.handle(&mut held).is_err();
        prop_assert!(is_error || bytes.len() < HEADER_BYTES || bytes[4] & 3 == 1);
    }
}
