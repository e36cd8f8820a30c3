//! A hunt for lost wake-ups: both ends of a ring, the calls that are held back, and the kicks, in many orders.
//!
//! The code is the product's: the rings, the driver, and the moderation. Only the doorbell is a model, with the promise of
//! an eventfd: whoever waits is woken by a ring, also by one that came before. A wake-up that is lost leaves both ends asleep,
//! which the scheduler reports as a deadlock.

use std::sync::Arc;

use forebay_policy::Nanos;
use forebay_policy::moderation::{Limits, Moderators, Settings, Shown};
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::*;
use crate::memory::race::{in_any_order, settle};
use crate::virtqueue::Put;

/// Entries of the ring: few, so that it goes round.
const SIZE: u16 = 8;
const PACKETS: usize = 20;
const BYTES: u32 = 64;
const ORDERS: usize = 1000;
/// Time between two packets is up to this.
const GAP_NS: u64 = 30_000;

/// All rings: split and packed, with and without events.
fn rings() -> [DriverOptions; 4] {
    let of = |features: &[Features]| {
        let features = features.iter().copied().fold(Features::VERSION_1, Features::with);
        DriverOptions::new(features, SIZE, BYTES)
    };
    // Indexes of a split ring are about to wrap.
    let late = |options| DriverOptions { base: u32::from(u16::MAX) - 9, ..options };
    [
        late(of(&[])),
        late(of(&[Features::EVENT_IDX])),
        of(&[Features::RING_PACKED]),
        of(&[Features::RING_PACKED, Features::EVENT_IDX]),
    ]
}

#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn ring(&self) {
        settle();
        *self.has_rung.lock().expect("no test panics while it holds the lock") = true;
        self.rings.notify_one();
    }

    fn wait(&self) {
        settle();
        let has_rung = self.has_rung.lock().expect("no test panics while it holds the lock");
        *self.rings.wait_while(has_rung, |has_rung| !*has_rung).expect("as above") = false;
    }
}

/// The worker's end of a receive queue.
struct Worker {
    queue: Virtqueue,
    moderators: Moderators,
    bell: Arc<Bell>,
    now: Nanos,
    unshown: u32,
}

impl Worker {
    fn call(queue: &mut Virtqueue, bell: &Bell) -> bool {
        let wants = queue.wants_call();
        if wants {
            bell.ring();
        }
        wants
    }

    fn put(&mut self, number: u8) {
        let bytes = [number; 9];
        while self.queue.put(NetHeader::default(), [&bytes[..]], 9).expect("a well-formed ring") != Put::Done
        {
            // As a worker does when its guest has no buffers.
            self.show();
            let Self { queue, moderators, bell, .. } = self;
            moderators.flush(0, || Self::call(queue, bell));
            thread::yield_now();
        }
        self.unshown += 1;
    }

    fn show(&mut self) {
        let Self { queue, moderators, bell, now, unshown } = self;
        if !queue.show() {
            return;
        }
        let packets = std::mem::take(unshown);
        let shown = Shown { packets, places: queue.take_places(), bytes: 0, acks: 0, short: 0 };
        moderators.show(0, &shown, *now, || Self::call(queue, bell));
    }

    fn expire(&mut self) {
        let Self { queue, moderators, bell, now, .. } = self;
        while let Some(number) = moderators.take_due(*now) {
            moderators.expire(number, || Self::call(queue, bell));
        }
    }

    /// Another policy, or the same one a moment later.
    fn set(&mut self) {
        let limits = Limits { usecs: thread_rng().gen_range(0..100), packets: thread_rng().gen_range(0..5) };
        let Self { queue, moderators, bell, now, .. } = self;
        moderators.set(0, Settings::of(limits), *now, || Self::call(queue, bell));
    }

    fn run(mut self) {
        self.moderators.start(0, SIZE);
        for number in 0..PACKETS {
            self.now.0 += thread_rng().gen_range(0..GAP_NS);
            self.expire();
            if thread_rng().gen_range(0..4) == 0 {
                self.set();
            }
            self.put(number as u8);
            // Or in one turn with the next.
            if thread_rng().gen_bool(0.7) {
                self.show();
            }
        }
        self.show();
        // Its timer.
        while let Some(next) = self.moderators.next() {
            self.now = self.now.max(next);
            self.expire();
        }
    }
}

fn receives(options: DriverOptions) {
    let mut driver = Driver::new(options).expect("a driver");
    let offer = |driver: &mut Driver| {
        while driver.offer(&[BYTES]).is_some() {}
        // The worker looks by itself when it has packets.
        let _ = driver.publish();
    };
    offer(&mut driver);
    let bell = Arc::new(Bell::default());
    let worker = Worker {
        queue: driver.device(0).expect("the driver's ring"),
        moderators: Moderators::new(1),
        bell: Arc::clone(&bell),
        now: Nanos(0),
        unshown: 0,
    };
    settle();
    let worker = thread::spawn(move || worker.run());
    let mut received = 0;
    loop {
        while let Some(used) = driver.used() {
            assert_eq!(used.written.last(), Some(&(received as u8)), "packets are whole and in order");
            received += 1;
            if thread_rng().gen_bool(0.5) {
                offer(&mut driver);
            }
        }
        offer(&mut driver);
        if received == PACKETS {
            break;
        }
        if !driver.want_calls(true) {
            bell.wait();
        }
        driver.want_calls(false);
    }
    worker.join().expect("the worker keeps the rules");
}

#[test]
fn no_call_is_lost_that_was_held_back() {
    for options in rings() {
        in_any_order(ORDERS, move || receives(options));
    }
}

fn publish(driver: &mut Driver, kick: &Bell) {
    if driver.publish() {
        kick.ring();
    }
}

fn sends(options: DriverOptions) {
    let mut driver = Driver::new(options).expect("a driver");
    let mut queue = driver.device(0).expect("the driver's ring");
    let bell = Arc::new(Bell::default());
    let kick = Arc::clone(&bell);
    settle();
    let worker = thread::spawn(move || {
        let mut taken = 0;
        loop {
            while queue.offered().expect("a well-formed ring").is_some() {
                let mut packet = [0; 9];
                assert_eq!(queue.take([&mut packet[..]]), 9);
                assert_eq!(packet, [taken as u8; 9]);
                taken += 1;
            }
            // The guest polls.
            let _ = queue.publish();
            if taken == PACKETS {
                break;
            }
            if !queue.allow_kicks() {
                bell.wait();
            }
            queue.suppress_kicks();
        }
    });
    for number in 0..PACKETS {
        while driver.send(NetHeader::default(), &[&[number as u8; 9]]).is_none() {
            publish(&mut driver, &kick);
            if driver.used().is_none() {
                thread::yield_now();
            }
        }
        if thread_rng().gen_bool(0.7) {
            publish(&mut driver, &kick);
        }
    }
    publish(&mut driver, &kick);
    worker.join().expect("the worker keeps the rules");
}

#[test]
fn no_kick_is_lost() {
    for options in rings() {
        in_any_order(ORDERS, move || sends(options));
    }
}
