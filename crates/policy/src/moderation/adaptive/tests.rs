mod bulk;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// A queue whose windows of 2 ms are made up.
struct Made {
    policy: Adaptive,
    counts: Counts,
    now: u64,
    /// Bytes of a packet.
    bytes: u64,
    /// Packets of a batch.
    packets: u64,
}

/// A window: batches, and what became of the calls.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    batches: u64,
    acks: u64,
    short: u64,
    answers: u64,
    calls: u64,
    suppressed: u64,
    holds: u64,
    idle_holds: u64,
    idle_last_ns: u64,
}

/// 100,000 packets a second, each with a call.
const STREAM: Window = Window {
    batches: 200,
    acks: 0,
    short: 0,
    answers: 0,
    calls: 200,
    suppressed: 0,
    holds: 0,
    idle_holds: 0,
    idle_last_ns: 0,
};

impl Made {
    fn new(direction: Direction, entries: u16) -> Self {
        let mut made = Self {
            policy: Adaptive::new(direction, entries),
            counts: Counts::default(),
            now: MS,
            bytes: 1500,
            packets: 1,
        };
        made.policy.observe(&made.counts, Nanos(made.now));
        made
    }

    fn window(&mut self, window: Window) -> Settings {
        self.now += 2 * MS;
        let counts = &mut self.counts;
        counts.packets += window.batches * self.packets;
        counts.batches += window.batches;
        counts.bytes += self.bytes * window.batches * self.packets;
        counts.acks += window.acks;
        counts.short += window.short;
        counts.short_batches += window.short;
        counts.answers += window.answers;
        counts.calls += window.calls;
        counts.suppressed += window.suppressed;
        counts.active_ns += 2 * MS;
        counts.holds += window.holds;
        counts.idle_holds += window.idle_holds;
        counts.idle_last_ns += window.idle_last_ns;
        self.policy.observe(&self.counts, Nanos(self.now));
        self.policy.settings()
    }

    /// Plays `windows` windows. Returns the length of holds after each.
    fn usecs(&mut self, window: Window, windows: usize) -> Vec<u32> {
        (0..windows).map(|_| self.window(window).limits.usecs).collect()
    }
}

#[test]
fn holds_begin_with_three_batches_and_get_four_times_as_long_up_to_the_longest() {
    assert_eq!(Made::new(Direction::Receive, 1024).usecs(STREAM, 5), [30, 120, 256, 256, 256]);
    assert_eq!(Made::new(Direction::Transmit, 1024).usecs(STREAM, 4), [30, 64, 64, 64]);
    let acks = Window { acks: 100, ..STREAM };
    assert_eq!(Made::new(Direction::Receive, 1024).usecs(acks, 3), [30, 64, 64]);
}

#[test]
fn a_quarter_of_the_ring_waits_at_most() {
    let packets = [1, 4, 256, 1024, 32768].map(|entries| {
        let mut made = Made::new(Direction::Receive, entries);
        made.window(STREAM).limits.packets
    });
    assert_eq!(packets, [1, 1, 64, 256, 256]);
}

#[test]
fn fewer_than_three_calls_in_the_longest_hold_are_not_worth_one() {
    let rate = |batches| Window { batches, calls: batches, ..STREAM };
    // 23,000 a second are six in 256 µs.
    let first = |window| Made::new(Direction::Receive, 1024).usecs(Window { batches: 200, ..window }, 2);
    assert_eq!([first(rate(23)), first(rate(24))], [[0, 0], [0, 30]], "calls count, not batches");
    assert_eq!([first(rate(46)), first(rate(47))], [[0, 30], [30, 120]], "at once if it is well worth it");
    let mut made = Made::new(Direction::Receive, 1024);
    made.usecs(STREAM, 3);
    assert_eq!(
        made.usecs(Window { batches: 64, calls: 8, ..STREAM }, 2),
        [256, 256],
        "the threshold to stop is lower"
    );
}

#[test]
fn idle_holds_are_shortened_to_half_of_their_useful_part_and_not_made_longer_again() {
    let mut made = Made::new(Direction::Receive, 1024);
    made.usecs(STREAM, 3);
    let idle = |holds, last_us| Window {
        calls: 8,
        holds,
        idle_holds: holds,
        idle_last_ns: holds * last_us * 1000,
        ..STREAM
    };
    assert_eq!(made.usecs(idle(19, 100), 1), [256]);
    assert_eq!(made.usecs(idle(1, 100), 1), [50]);
    assert_eq!(made.policy.ceiling_usecs(), Some(50));
    assert_eq!(made.usecs(STREAM, 100), [50; 100]);
    let mut made = Made::new(Direction::Receive, 1024);
    made.usecs(STREAM, 3);
    assert_eq!(made.usecs(idle(20, 63), 1), [0], "what is left would not be worth it");
    assert_eq!(made.usecs(STREAM, 100), [0; 100]);
}

#[test]
fn a_sender_that_stalls_in_the_first_holds_is_not_held_any_more() {
    let after = |batches, holds, idle_holds| {
        let mut made = Made::new(Direction::Receive, 1024);
        made.usecs(STREAM, 1);
        let first = Window { batches, calls: 20, holds, idle_holds, ..STREAM };
        (made.usecs(first, 1)[0], made.usecs(STREAM, 2)[1])
    };
    assert_eq!(
        after(133, 20, 15),
        (0, 0),
        "less than two thirds come, in the first half of three of four holds"
    );
    for (batches, holds, idle_holds) in [(134, 20, 20), (133, 20, 14), (133, 3, 3)] {
        assert_eq!(after(batches, holds, idle_holds), (120, 256), "{batches} in {idle_holds} of {holds}");
    }
}

#[test]
fn a_sender_that_becomes_faster_under_shorter_holds_is_not_held() {
    let after = |batches| {
        let mut made = Made::new(Direction::Receive, 1024);
        made.usecs(STREAM, 3);
        let idle = Window { calls: 8, holds: 20, idle_holds: 20, idle_last_ns: 2_000_000, ..STREAM };
        assert_eq!(made.usecs(idle, 1), [50]);
        made.usecs(Window { batches, holds: 10, ..STREAM }, 3)
    };
    assert_eq!(after(220), [50, 50, 50]);
    assert_eq!(after(230), [50, 0, 0], "twenty holds tell");
}

#[test]
fn two_idle_holds_of_five_are_no_reason() {
    let mut made = Made::new(Direction::Receive, 1024);
    made.usecs(STREAM, 3);
    let window = Window { calls: 10, holds: 10, idle_holds: 4, ..STREAM };
    assert_eq!(made.usecs(window, 200), [256; 200]);
}

#[test]
fn a_ceiling_is_lifted_when_the_load_is_another_one_and_after_two_minutes() {
    let stopped = || {
        let mut made = Made::new(Direction::Receive, 1024);
        made.usecs(STREAM, 3);
        made.usecs(Window { calls: 8, holds: 20, idle_holds: 20, ..STREAM }, 1);
        made.usecs(STREAM, 12);
        made
    };
    let rate = |batches| Window { batches, calls: batches, ..STREAM };
    assert_eq!(stopped().usecs(rate(299), 30), [0; 30]);
    assert_eq!(stopped().usecs(rate(300), 4), [0, 0, 20, 80], "three windows together");
    assert_eq!(stopped().usecs(rate(133), 4), [0, 0, 45, 180]);
    let after = stopped().usecs(STREAM, 60_000).iter().position(|usecs| *usecs > 0);
    assert_eq!(after, Some(59_987));
}

#[test]
fn tries_that_fail_soon_make_patient() {
    let mut made = Made::new(Direction::Receive, 1024);
    let (mut lifts, mut windows) = (Vec::new(), 0);
    // A load that is another one all the time, and all of whose holds are idle.
    while lifts.len() < 5 {
        windows += 1;
        let batches = if windows % 20 < 10 { 200 } else { 400 };
        let is_held = made.policy.settings().limits.usecs > 0;
        let holds = if is_held { 7 } else { 0 };
        let before = made.policy.ceiling_usecs();
        made.window(Window { batches, calls: batches, holds, idle_holds: holds, ..STREAM });
        if before.is_some() && made.policy.ceiling_usecs().is_none() {
            lifts.push(2 * windows);
        }
    }
    let apart: Vec<_> = lifts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(apart.is_sorted() && apart[3] > 4 * apart[0], "{lifts:?} ms");
}

#[test]
fn a_guest_that_polls_is_not_held_for() {
    let mut made = Made::new(Direction::Receive, 1024);
    made.usecs(STREAM, 3);
    assert_eq!(made.usecs(Window { calls: 3, suppressed: 17, ..STREAM }, 1), [256]);
    assert_eq!(made.usecs(Window { calls: 2, suppressed: 18, ..STREAM }, 1), [0]);
    let polls = Window { calls: 5, suppressed: 195, ..STREAM };
    assert_eq!(Made::new(Direction::Receive, 1024).usecs(polls, 5), [0; 5]);
}

#[test]
fn acknowledgements_are_most_packets_from_a_half_on_and_until_a_fifth() {
    let mut made = Made::new(Direction::Receive, 1024);
    made.usecs(STREAM, 3);
    let limits = [99, 100, 40, 39].map(|acks| made.window(Window { acks, ..STREAM }).limits.usecs);
    assert_eq!(limits, [256, 64, 64, 256]);
}

#[test]
fn short_messages_are_spared_as_exchanges_or_if_they_are_few() {
    let spares = |short: u64, answers| {
        let mut made = Made::new(Direction::Receive, 1024);
        let window = Window { batches: short.max(64), short, answers, ..STREAM };
        made.window(window);
        made.window(window).spares_short
    };
    assert_eq!([spares(8, 0), spares(9, 0)], [true, false], "4,000 a second");
    assert_eq!([spares(512, 256), spares(512, 255)], [true, false], "every second one is answered");
    assert!(spares(4000, 4000), "however many there are");
    let mut made = Made::new(Direction::Transmit, 1024);
    assert!(!made.window(STREAM).spares_short, "nobody waits for a free buffer");
}

#[test]
fn beside_short_messages_few_packets_wait_until_there_were_none_for_a_while() {
    let mut made = Made::new(Direction::Receive, 1024);
    let beside = Window { batches: 202, short: 2, answers: 2, ..STREAM };
    (0..2).for_each(|_| _ = made.window(beside));
    assert_eq!(made.window(STREAM).limits, Limits { usecs: 256, packets: 256 });
    (0..3).for_each(|_| _ = made.window(beside));
    assert_eq!(made.window(beside).limits, Limits { usecs: 64, packets: 4 });
    let gone = |made: &mut Made| (0..200).position(|_| made.window(STREAM).limits.packets == 256);
    assert_eq!(gone(&mut made), Some(5), "12 ms");
    assert_eq!(made.window(beside).limits.packets, 4, "they are known for a while");
    assert_eq!(gone(&mut made), Some(5));
    (0..150).for_each(|_| _ = made.window(STREAM));
    assert_eq!(made.window(beside).limits.packets, 256, "one window says nothing after 300 ms");
}

#[test]
fn a_sparse_window_ends_holds_and_a_clock_that_goes_back_begins_a_window() {
    let mut made = Made::new(Direction::Receive, 1024);
    made.usecs(STREAM, 3);
    made.now += 10 * MS;
    assert_eq!(made.usecs(Window { batches: 15, ..Window::default() }, 1), [0]);
    assert_eq!(made.policy.ceiling_usecs(), None);
    made.now = 0;
    assert_eq!(made.usecs(STREAM, 2), [0, 30]);
}

#[test]
fn a_queue_that_begins_anew_begins_a_window() {
    let mut made = Made::new(Direction::Receive, 1024);
    made.usecs(Window { holds: 9, idle_holds: 1, ..STREAM }, 3);
    made.counts = Counts { holds: 3, idle_holds: 3, short: 5, ..Counts::default() };
    assert_eq!(made.usecs(STREAM, 2), [256, 256]);
}

/// Joined segments: 6,000 a second.
const FEW: Window = Window { batches: 12, calls: 12, ..STREAM };
const JOINED: u64 = 65_226;

fn of_bytes(direction: Direction, bytes: u64) -> Made {
    Made { bytes, ..Made::new(direction, 1024) }
}

#[test]
fn what_nobody_waits_for_is_held_for_two_milliseconds_although_holds_are_idle() {
    let mut made = of_bytes(Direction::Transmit, 66);
    let acks = Window { acks: 12, holds: 5, idle_holds: 5, ..FEW };
    assert_eq!(made.usecs(acks, 6), [0, 0, 500, 500, 500, 2000]);
    assert_eq!(made.usecs(acks, 100), [2000; 100]);
    let mixed = Window { acks: 2, holds: 0, idle_holds: 0, ..FEW };
    assert_eq!(made.usecs(mixed, 6)[5], 0, "data is waited for");
}

#[test]
fn acknowledgements_beside_short_messages_are_not_held() {
    let mut made = of_bytes(Direction::Transmit, 66);
    let acks = Window { acks: 190, ..STREAM };
    assert_eq!(made.usecs(acks, 6)[5], 2000);
    let beside = Window { short: 2, ..acks };
    assert_eq!(made.usecs(beside, 4), [2000, 2000, 0, 0], "three windows with short messages");
    assert_eq!(made.usecs(acks, 5), [0; 5]);
    assert_eq!(made.usecs(acks, 9)[8], 2000, "there were none for a while");
    assert_eq!(made.policy.ceiling_usecs(), None);
}

#[test]
fn beside_short_messages_8_kb_wait() {
    let packets = [JOINED, 9000, 1500].map(|bytes| {
        let mut made = of_bytes(Direction::Receive, bytes);
        made.usecs(Window { batches: 210, short: 10, answers: 10, ..STREAM }, 9);
        made.policy.settings().limits.packets
    });
    // The mean has short messages in it.
    assert_eq!(packets, [1, 1, 4]);
}

fn any_window() -> impl Strategy<Value = Window> {
    let counts = (0..2000u64, 0..2000u64, 0..200u64, 0..200u64);
    let calls = (0..2000u64, 0..2000u64, 0..50u64, 0..50u64, 0..20_000_000u64);
    (counts, calls).prop_map(
        |((batches, acks, short, answers), (calls, suppressed, holds, idle, idle_last_ns))| Window {
            batches,
            acks: acks.min(batches),
            short: short.min(batches),
            answers,
            calls: calls.min(batches),
            suppressed,
            holds,
            idle_holds: idle.min(holds),
            idle_last_ns,
        },
    )
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Receive), Just(Direction::Transmit)]
}

proptest! {
    /// Limits never exceed their bounds, whatever a guest makes the counts be.
    #[test]
    fn limits_are_within_their_bounds_whatever_is_counted(
        direction in direction(),
        entries in prop_oneof![Just(1u16), Just(4), Just(256), Just(1024), Just(32_768)],
        steps in proptest::collection::vec((any_window(), 0..200_000u64), 1..60),
    ) {
        let mut made = Made::new(direction, entries);
        for (window, bytes) in steps {
            made.bytes = bytes;
            let Settings { limits, spares_short } = made.window(window);
            prop_assert!(limits == Limits::OFF || limits.holds());
            prop_assert!(limits.usecs <= 2000 && limits.packets <= u32::from(entries / 4).clamp(1, 256));
            prop_assert!(direction == Direction::Receive || !spares_short);
        }
    }

    /// A load that is the same all the time sees a few moves in its first seconds, and then none.
    #[test]
    fn a_constant_load_sees_few_moves_and_then_none(
        direction in direction(),
        window in any_window(),
        bytes in 60..100_000u64,
    ) {
        let mut made = Made { bytes, ..Made::new(direction, 1024) };
        let mut moves = Vec::new();
        for number in 0..10_000 {
            let before = made.policy.settings();
            // Without holds there are no idle ones.
            let is_held = before.limits.holds();
            let holds = if is_held { window.holds } else { 0 };
            made.window(Window { holds, idle_holds: window.idle_holds.min(holds), ..window });
            if made.policy.settings() != before {
                moves.push(number);
            }
        }
        // The most that was seen is 13 moves, the last of them in window 148.
        prop_assert!(moves.len() <= 24 && moves.last().is_none_or(|last| *last < 1000), "{moves:?}");
    }
}
