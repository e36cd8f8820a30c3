use super::*;

const MS: u64 = 1_000_000;

/// A queue whose windows of 2 ms are made up.
struct Made {
    policy: Adaptive,
    counts: Counts,
    now: u64,
}

/// A window: batches of one packet, and what became of the calls.
#[derive(Clone, Copy, Default)]
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
        let mut made = Self { policy: Adaptive::new(direction, entries), counts: Counts::default(), now: MS };
        made.policy.observe(&made.counts, Nanos(made.now));
        made
    }

    fn window(&mut self, window: Window) -> Settings {
        self.now += 2 * MS;
        let counts = &mut self.counts;
        counts.packets += window.batches;
        counts.batches += window.batches;
        counts.bytes += 1500 * window.batches;
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
    let first = |window| Made::new(Direction::Receive, 1024).usecs(Window { batches: 200, ..window }, 1)[0];
    assert_eq!([first(rate(23)), first(rate(24))], [0, 30], "calls count, not batches");
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
    assert_eq!([spares(128, 64), spares(128, 63), spares(129, 129)], [true, false, false], "64,000 a second");
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
    assert_eq!(made.window(beside).limits, Limits { usecs: 64, packets: 8 });
    let until = (0..100).position(|_| made.window(STREAM).limits.packets == 256);
    assert_eq!(until, Some(49), "100 ms");
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
