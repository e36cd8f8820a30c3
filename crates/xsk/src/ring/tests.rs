//! Rings over ordinary memory against a queue as oracle, with cursors that start just before they wrap.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use crate::heap::HeapRing;

fn start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(u32::MAX), (u32::MAX - 20)..u32::MAX, any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }) })]

    #[test]
    fn a_ring_is_a_bounded_queue_wherever_its_cursors_start(
        start in start(),
        order in 1..7u32,
        steps in prop::collection::vec((0..5u8, 1..40u32), 1..60),
    ) {
        let size = 1 << order;
        let ring = HeapRing::<u64>::new(size, start, 0);
        let (mut producer, mut consumer) = ring.ends();
        let (mut written, mut visible, mut unreleased) = (VecDeque::new(), VecDeque::new(), 0u32);
        let mut value = 0u64;
        for (what, count) in steps {
            match what {
                0 => for _ in 0..count {
                    let room = (written.len() + visible.len()) as u32 + unreleased < size;
                    prop_assert_eq!(producer.push(value), room);
                    if room { written.push_back(value) }
                    value += 1;
                },
                1 => { producer.publish(); visible.append(&mut written) }
                2 => for _ in 0..count {
                    let got = consumer.pop();
                    prop_assert_eq!(got, visible.pop_front());
                    unreleased += u32::from(got.is_some());
                },
                3 => { consumer.release(); unreleased = 0 }
                _ => for ahead in 0..count {
                    prop_assert_eq!(consumer.peek(ahead), visible.get(ahead as usize).copied());
                },
            }
            prop_assert_eq!(consumer.occupancy(), visible.len() as u32);
            prop_assert_eq!(producer.occupancy(), (written.len() + visible.len()) as u32 + unreleased);
        }
    }
}

#[test]
fn two_threads_pass_every_value_once_and_in_order() {
    let count: u64 = if cfg!(miri) { 300 } else { 100_000 };
    let (mut producer, mut consumer) = HeapRing::<u64>::new(8, u32::MAX - 5, 0).ends();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for value in 0..count {
                while !producer.push(value) {
                    std::thread::yield_now();
                }
                producer.publish();
            }
        });
        for expected in 0..count {
            let value = loop {
                if let Some(value) = consumer.pop() {
                    break value;
                }
                std::thread::yield_now();
            };
            consumer.release();
            assert_eq!(value, expected);
        }
    });
}

#[test]
fn a_cursor_that_ran_away_is_believed_for_one_ring_only() {
    let ring = HeapRing::<u64>::new(8, 0, 0);
    let (producer, consumer) = ring.ends();
    ring.producer.store(1000, Ordering::Release);
    assert_eq!(consumer.occupancy(), 8);
    ring.consumer.store(1000, Ordering::Release);
    assert_eq!(producer.occupancy(), 8);
}
