use proptest::prelude::*;

use super::*;
use crate::moderation::limits::Limits;

/// Entries of a ring that is longer than what waits.
const ENTRIES: u16 = 1024;
const PACKET: Shown = Shown { packets: 1, places: 1, bytes: 1500, acks: 0, short: 0 };
const SHORT: Shown = Shown { packets: 1, places: 1, bytes: 60, acks: 0, short: 1 };

fn settings(usecs: u32, packets: u32) -> Settings {
    Settings::of(Limits { usecs, packets })
}

fn us(usecs: u64) -> Nanos {
    Nanos(usecs * 1000)
}

/// One queue whose guest wants calls, unless told otherwise.
struct One {
    moderators: Moderators,
    calls: u64,
    wants: bool,
}

impl One {
    fn new(settings: Settings) -> Self {
        let mut one = Self { moderators: Moderators::new(1), calls: 0, wants: true };
        one.moderators.start(0, ENTRIES);
        one.moderators.set(0, settings, Nanos(0), || unreachable!("nothing waits"));
        one
    }

    /// How many calls a step makes.
    fn calls_of(&mut self, step: impl FnOnce(&mut Moderators, &mut dyn FnMut() -> bool)) -> u64 {
        let (before, calls, wants) = (self.calls, &mut self.calls, self.wants);
        let mut call = || {
            *calls += u64::from(wants);
            wants
        };
        step(&mut self.moderators, &mut call);
        self.calls - before
    }

    fn show(&mut self, shown: Shown, now: Nanos) -> u64 {
        self.calls_of(|moderators, call| moderators.show(0, &shown, now, call))
    }

    fn expire(&mut self, now: Nanos) -> u64 {
        self.calls_of(|moderators, call| {
            while let Some(queue) = moderators.take_due(now) {
                moderators.expire(queue, &mut *call);
            }
        })
    }

    fn set(&mut self, settings: Settings, now: Nanos) -> u64 {
        self.calls_of(|moderators, call| moderators.set(0, settings, now, call))
    }

    /// Calls, suppressed, saved.
    fn counted(&self) -> [u64; 3] {
        let counts = self.moderators.counts(0);
        [counts.calls, counts.suppressed, counts.saved]
    }
}

#[test]
fn with_either_limit_at_zero_a_call_is_due_after_every_packet() {
    for settings in [settings(0, 0), settings(0, 8), settings(50, 0)] {
        let mut one = One::new(settings);
        assert_eq!([1, 2, 3].map(|now| one.show(PACKET, us(now))), [1, 1, 1], "{settings:?}");
        assert_eq!((one.moderators.next(), one.counted()), (None, [3, 0, 0]));
    }
}

#[test]
fn time_counts_from_the_first_packet_that_no_call_was_due_for() {
    let mut one = One::new(settings(10, 15));
    assert_eq!([100, 104, 109].map(|now| one.show(PACKET, us(now))), [0, 0, 0]);
    assert_eq!(one.moderators.next(), Some(us(110)), "later packets do not move it");
    assert_eq!(one.expire(Nanos(109_999)), 0);
    assert_eq!(one.expire(us(110)), 1);
    assert_eq!((one.moderators.next(), one.expire(us(500))), (None, 0), "it waits for the next packet");
    assert_eq!((one.show(PACKET, us(600)), one.moderators.next()), (0, Some(us(610))));
    assert_eq!(one.counted(), [1, 0, 2]);
}

#[test]
fn the_packet_that_reaches_the_limit_is_called_for_at_once() {
    let mut one = One::new(settings(1000, 3));
    assert_eq!([1, 2, 3, 4].map(|now| one.show(PACKET, us(now))), [0, 0, 1, 0]);
    let many = Shown { packets: 128, ..PACKET };
    assert_eq!((one.show(many, us(5)), one.moderators.next()), (1, None), "many at once have one call");
    assert_eq!(one.counted(), [2, 0, 3]);
}

#[test]
fn changed_limits_are_obeyed_at_once_for_packets_that_wait() {
    let wait = || {
        let mut one = One::new(settings(1000, 100));
        (0..10).for_each(|now| assert_eq!(one.show(PACKET, us(now)), 0));
        one
    };
    assert_eq!(wait().set(settings(1000, 8), us(20)), 1, "ten packets wait");
    assert_eq!(wait().set(settings(15, 100), us(20)), 1, "the first has waited for 20 µs");
    assert_eq!(wait().set(settings(0, 100), us(20)), 1);
    let mut one = wait();
    assert_eq!((one.set(settings(50, 100), us(20)), one.moderators.next()), (0, Some(us(50))));
    assert_eq!((one.set(settings(2000, 100), us(30)), one.moderators.next()), (0, Some(us(2000))));
    assert_eq!(one.counted(), [0, 0, 0]);
}

#[test]
fn a_guest_that_wants_no_call_gets_none_and_nothing_is_owed_to_it() {
    let mut one = One::new(settings(10, 2));
    one.wants = false;
    assert_eq!([one.show(PACKET, us(1)), one.show(PACKET, us(2))], [0, 0]);
    assert_eq!((one.moderators.next(), one.counted()), (None, [0, 1, 1]));
    one.show(PACKET, us(3));
    one.wants = true;
    assert_eq!(one.expire(us(13)), 1, "it is asked when the call is due, not when the packet comes");
}

#[test]
fn a_short_message_takes_what_waits_with_it_if_that_is_set() {
    let spares = Settings { spares_short: true, ..settings(100, 100) };
    let mut one = One::new(spares);
    assert_eq!([one.show(PACKET, us(1)), one.show(SHORT, us(2)), one.show(PACKET, us(3))], [0, 1, 0]);
    let mut one = One::new(settings(100, 100));
    assert_eq!(one.show(SHORT, us(2)), 0);
}

#[test]
fn a_queue_that_is_stopped_owes_nothing_and_begins_anew() {
    let mut one = One::new(settings(100, 100));
    one.show(PACKET, us(1));
    assert_eq!(one.calls_of(|moderators, call| moderators.stop(0, call)), 1);
    assert_eq!((one.moderators.next(), one.counted()), (None, [0, 0, 0]));
    one.moderators.start(0, ENTRIES);
    assert_eq!(one.show(PACKET, us(2)), 1, "its limits are gone");
}

#[test]
fn a_guest_without_buffers_is_called_at_once_and_one_for_whom_nothing_waits_is_not() {
    let mut one = One::new(settings(100, 100));
    one.show(PACKET, us(1));
    let flush = |moderators: &mut Moderators, call: &mut dyn FnMut() -> bool| moderators.flush(0, call);
    assert_eq!([one.calls_of(flush), one.calls_of(flush)], [1, 0]);
    assert_eq!((one.moderators.next(), one.moderators.settings(0)), (None, settings(100, 100)));
}

#[test]
fn half_a_ring_is_called_for_whatever_the_limits_are() {
    let mut one = One::new(settings(1000, 10_000));
    let large = Shown { places: 200, ..PACKET };
    assert_eq!([1, 2, 3].map(|now| one.show(large, us(now))), [0, 0, 1]);
    let half = Shown { packets: 512, places: 512, ..PACKET };
    assert_eq!(one.show(half, us(4)), 1);
}

#[test]
#[should_panic(expected = "was not flushed")]
fn a_queue_in_which_packets_wait_is_not_replaced() {
    let mut one = One::new(settings(1000, 10));
    one.show(PACKET, us(1));
    one.moderators.start(0, ENTRIES);
}

#[test]
fn what_waited_when_the_clock_went_back_is_due() {
    let waits = || {
        let mut one = One::new(settings(100, 100));
        one.show(PACKET, us(1000));
        one.expire(us(1050));
        one
    };
    assert_eq!(waits().expire(us(1020)), 1);
    assert_eq!(waits().show(PACKET, us(1020)), 1);
    assert_eq!(waits().set(settings(200, 200), us(1020)), 1);
    let mut one = waits();
    assert_eq!(one.moderators.next(), Some(us(1100)));
    one.expire(us(0));
    assert_eq!((one.show(PACKET, us(1)), one.moderators.next()), (0, Some(us(101))));
}

#[test]
fn an_hour_that_a_guest_asks_for_is_cut() {
    let mut one = One::new(settings(u32::MAX, u32::MAX));
    one.show(PACKET, us(0));
    assert_eq!(one.moderators.next(), Some(us(65_535)));
}

#[test]
fn a_larger_number_of_queues_goes_on_with_those_before() {
    let mut before = Moderators::new(2);
    let no = || unreachable!("no call is due");
    for queue in 0..2 {
        before.start(queue, ENTRIES);
        before.set(queue, settings(100, 9), us(0), no);
    }
    before.show(1, &PACKET, us(5), no);
    let mut moderators = Moderators::new(4);
    moderators.adopt(before);
    assert_eq!((moderators.next(), moderators.settings(0)), (Some(us(105)), settings(100, 9)));
    assert_eq!((moderators.counts(1).packets, moderators.settings(3)), (1, Settings::default()));
    assert_eq!([us(104), us(105), us(105)].map(|now| moderators.take_due(now)), [None, Some(1), None]);
}

#[test]
fn a_queue_that_starts_again_obeys_the_same_and_counts_on() {
    let mut one = One::new(settings(100, 100));
    one.show(PACKET, us(1));
    assert_eq!(one.calls_of(|moderators, call| moderators.flush(0, call)), 1);
    one.moderators.start(0, 2);
    assert_eq!((one.moderators.settings(0), one.counted()), (settings(100, 100), [1, 0, 0]));
    assert_eq!(one.show(PACKET, us(2)), 1, "half of the new ring");
}

#[test]
fn idle_holds_are_those_whose_second_half_brought_nothing() {
    let mut one = One::new(settings(100, 4));
    let mut hold = |start: u64, others: &[u64]| {
        one.show(PACKET, us(start));
        others.iter().for_each(|at| _ = one.show(PACKET, us(start + at)));
        one.expire(us(start + 100));
        let counts = one.moderators.counts(0);
        [counts.holds, counts.idle_holds, counts.idle_last_ns]
    };
    assert_eq!(hold(1000, &[]), [1, 1, 0]);
    assert_eq!(hold(2000, &[49]), [2, 2, 49_000]);
    assert_eq!(hold(3000, &[10, 50]), [3, 2, 49_000]);
    assert_eq!(hold(4000, &[1, 2, 3]), [4, 2, 49_000], "there were enough packets");
    // A worker that is late takes the hold for idle all the same, and the next packet for part of it.
    assert_eq!(hold(5000, &[20, 130]), [5, 3, 69_000]);
    assert_eq!(one.moderators.counts(0).active_ns, 4_130_000);
}

#[test]
fn a_worker_that_looks_more_than_50_us_after_a_deadline_is_late() {
    let mut one = One::new(settings(100, 4));
    let mut late = |start: u64, looks: u64| {
        one.show(PACKET, us(start));
        one.expire(us(start + looks));
        let counts = one.moderators.counts(0);
        [counts.timed, counts.late]
    };
    assert_eq!([late(1000, 100), late(2000, 150), late(3000, 151)], [[1, 0], [2, 0], [3, 1]]);
    // The next packet may come before the look.
    [4000, 4151].into_iter().for_each(|now| _ = one.show(PACKET, us(now)));
    assert_eq!([one.moderators.counts(0).timed, one.moderators.counts(0).late], [4, 2]);
    let mut one = One::new(settings(100, 2));
    [1000, 1001].into_iter().for_each(|now| _ = one.show(PACKET, us(now)));
    one.show(PACKET, us(2000));
    one.calls_of(|moderators, call| moderators.flush(0, call));
    assert_eq!([one.moderators.counts(0).calls, one.moderators.counts(0).timed], [2, 0]);
}

#[test]
fn gaps_of_two_milliseconds_are_lulls() {
    let mut one = One::new(settings(0, 0));
    [0, 1999, 3999, 4000].into_iter().for_each(|now| _ = one.show(PACKET, us(now)));
    assert_eq!(one.moderators.counts(0).active_ns, 2_000_000);
}

#[test]
fn lulls_are_longer_by_a_hold() {
    let mut one = One::new(settings(1500, 64));
    [0, 3499, 6999].into_iter().for_each(|now| _ = one.show(PACKET, us(now)));
    assert_eq!(one.moderators.counts(0).active_ns, 3_499_000);
}

/// Entries of a ring that is shorter.
const SMALL: u16 = 60;

/// The definition, taken literally: every packet that waits is kept, with the time it really came.
#[derive(Default)]
struct Oracle {
    limits: Limits,
    spares: bool,
    /// Real time and the clock's time of each packet that no call was due for.
    waits: Vec<(u64, u64)>,
    is_overdue: bool,
    calls: u64,
    suppressed: u64,
}

impl Oracle {
    fn look(&mut self, clock: u64, wants: bool) {
        let Some((_, first)) = self.waits.first() else { return };
        let Limits { usecs, packets } = self.limits.bounded();
        let is_due = usecs == 0
            || packets == 0
            || self.waits.len() >= packets as usize
            || 2 * self.waits.len() >= usize::from(SMALL)
            || clock >= first.saturating_add(1000 * u64::from(usecs))
            || self.is_overdue;
        if is_due {
            self.end(wants);
        }
    }

    fn end(&mut self, wants: bool) {
        if !self.waits.is_empty() {
            self.calls += u64::from(wants);
            self.suppressed += u64::from(!wants);
        }
        self.waits.clear();
        self.is_overdue = false;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Show(u32, bool),
    Set(u32, u32, bool),
    Flush,
    /// The worker sleeps until its timer rings, or somebody else wakes it before.
    Sleep(u64),
    /// The clock jumps by so much.
    Jump(i64),
}

fn step() -> impl Strategy<Value = (usize, bool, Step)> {
    let usecs = prop_oneof![Just(0), 1..100u32, Just(u32::MAX)];
    let packets = prop_oneof![Just(0), 1..20u32, Just(u32::MAX)];
    let step = prop_oneof![
        6 => (0..30u32, any::<bool>()).prop_map(|(packets, short)| Step::Show(packets, short)),
        2 => (usecs, packets, any::<bool>()).prop_map(|(usecs, packets, spares)| Step::Set(usecs, packets, spares)),
        1 => Just(Step::Flush),
        6 => (0..100_000u64).prop_map(Step::Sleep),
        1 => (-200_000..200_000i64).prop_map(Step::Jump),
    ];
    (0..3usize, any::<bool>(), step)
}

proptest! {
    /// Queues do not disturb each other; each does as the definition says; and no packet waits for longer than the limit
    /// in force, by real time, since the worker looks when its timer rings and else at least every 100 µs.
    #[test]
    fn no_packet_waits_for_ever_whatever_limits_guests_and_clocks_do(
        start in prop_oneof![Just(0), Just(1_000_000), Just(u64::MAX - 30_000_000)],
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut moderators = Moderators::new(3);
        (0..3).for_each(|queue| moderators.start(queue, SMALL));
        let mut oracles: [Oracle; 3] = Default::default();
        let (mut real, mut clock) = (1u64 << 40, start);
        for (number, (queue, wants, step)) in steps.into_iter().enumerate() {
            let now = Nanos(clock);
            match step {
                Step::Show(packets, is_short) => {
                    let shown = Shown { packets, places: packets, bytes: 60, acks: 0, short: u32::from(is_short).min(packets) };
                    moderators.show(queue, &shown, now, || wants);
                    let oracle = &mut oracles[queue];
                    oracle.waits.extend((0..packets).map(|_| (real, clock)));
                    if packets > 0 && is_short && oracle.spares {
                        oracle.end(wants);
                    } else if packets > 0 {
                        oracle.look(clock, wants);
                    }
                }
                Step::Set(usecs, packets, spares_short) => {
                    let limits = Limits { usecs, packets };
                    moderators.set(queue, Settings { limits, spares_short }, now, || wants);
                    let oracle = &mut oracles[queue];
                    (oracle.limits, oracle.spares) = (limits, spares_short);
                    oracle.look(clock, wants);
                }
                Step::Flush => {
                    moderators.flush(queue, || wants);
                    oracles[queue].end(wants);
                }
                Step::Sleep(nanos) => {
                    let to_go = moderators.next().map_or(nanos, |next| next.0.saturating_sub(clock).min(nanos));
                    (real, clock) = (real + to_go, clock.saturating_add(to_go));
                    while let Some(queue) = moderators.take_due(Nanos(clock)) {
                        moderators.expire(queue, || wants);
                    }
                    oracles.iter_mut().for_each(|oracle| oracle.look(clock, wants));
                }
                Step::Jump(by) => {
                    let back = by < 0 && clock > 0;
                    clock = clock.saturating_add_signed(by);
                    while let Some(queue) = moderators.take_due(Nanos(clock)) {
                        moderators.expire(queue, || wants);
                    }
                    for oracle in &mut oracles {
                        oracle.is_overdue |= back && !oracle.waits.is_empty();
                        oracle.look(clock, wants);
                    }
                }
            }
            let mut deadlines = Vec::new();
            for (queue, oracle) in oracles.iter().enumerate() {
                let counts = moderators.counts(queue);
                let counted = (counts.calls, counts.suppressed);
                prop_assert_eq!(counted, (oracle.calls, oracle.suppressed), "queue {} at step {}", queue, number);
                prop_assert_eq!(counts.batches - counts.calls - counts.suppressed - counts.saved == 0, oracle.waits.is_empty());
                let Some((came, first)) = oracle.waits.first() else { continue };
                let limit = 1000 * u64::from(oracle.limits.bounded().usecs);
                prop_assert!(real - came <= limit, "a packet has waited for {} ns of {limit}", real - came);
                deadlines.push(Nanos(first.saturating_add(limit)));
            }
            prop_assert_eq!(moderators.next(), deadlines.into_iter().min(), "at step {}", number);
        }
    }
}
