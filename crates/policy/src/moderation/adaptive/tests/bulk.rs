//! Few large packets: how many may wait, and for how long.

use super::*;

#[test]
fn few_large_packets_are_held_for_one_and_a_half_milliseconds_and_256_kb() {
    let mut made = of_bytes(Direction::Receive, JOINED);
    assert_eq!(made.usecs(FEW, 7), [0, 0, 0, 0, 0, 1500, 1500], "two windows of 6 ms agree");
    assert_eq!(made.window(FEW).limits.packets, 4);
    let packets = |bytes| {
        let mut made = of_bytes(Direction::Receive, bytes);
        made.usecs(FEW, 6);
        made.policy.settings().limits
    };
    assert_eq!(packets(9000), Limits { usecs: 1500, packets: 29 });
    assert_eq!(packets(8192).usecs, 1500);
    assert_eq!(packets(8191), Limits::OFF, "they are not large");
    // A mean that changes by less than half changes nothing.
    made.bytes = 50_000;
    made.usecs(FEW, 30);
    assert_eq!(made.window(FEW).limits.packets, 4);
    made.bytes = 40_000;
    made.usecs(FEW, 30);
    assert_eq!(made.window(FEW).limits.packets, 6);
}

#[test]
fn large_packets_that_are_many_or_answered_are_held_as_others_are() {
    let longest = |bytes, window| of_bytes(Direction::Receive, bytes).usecs(window, 30)[29];
    let many = |batches| Window { batches, calls: batches, ..STREAM };
    assert_eq!([longest(9000, many(23)), longest(9000, many(24))], [1500, 256], "12,000 a second");
    assert_eq!([longest(32_767, many(200)), longest(32_768, many(200))], [256, 1500], "joined segments");
    let mut made = of_bytes(Direction::Receive, 9000);
    made.usecs(FEW, 9);
    assert_eq!(made.usecs(many(62), 9)[8], 1500, "the threshold to stop is higher");
    assert_eq!(made.usecs(many(64), 9)[8], 256);
    assert_eq!(longest(JOINED, Window { answers: 1, ..FEW }), 0, "one of sixteen is answered");
}

#[test]
fn bulk_begins_when_its_rate_without_holds_is_known() {
    let begins = |batches| {
        let window = Window { batches, calls: batches, ..STREAM };
        of_bytes(Direction::Receive, JOINED).usecs(window, 9).iter().position(|usecs| *usecs > 0)
    };
    assert_eq!([begins(64), begins(99), begins(100), begins(300)], [Some(5), Some(4), Some(3), Some(1)]);
}

/// Joined segments, 40,000 a second: holds end by packets.
const FAST: Window = Window { batches: 80, calls: 80, ..STREAM };

fn held(batches: u64) -> Window {
    Window { batches, calls: 10, holds: 10, ..FAST }
}

#[test]
fn more_bulk_waits_while_it_comes_as_fast_as_without_holds() {
    let mut made = of_bytes(Direction::Receive, JOINED);
    let packets = |made: &mut Made, window, windows| {
        (0..windows).map(|_| made.window(window).limits.packets).collect::<Vec<_>>()
    };
    assert_eq!(packets(&mut made, FAST, 5)[4], 4);
    assert_eq!(packets(&mut made, held(77), 6), [4, 4, 4, 4, 4, 8], "400 packets are enough");
    assert_eq!(packets(&mut made, held(77), 6), [8, 8, 8, 8, 8, 16]);
    assert_eq!(packets(&mut made, held(77), 100), [16; 100], "it is the most");
}

/// What waits at most, each time that it changes. So many batches come in a window while there are holds, and without.
fn moves(with: u64, without: u64) -> Vec<u32> {
    let mut made = of_bytes(Direction::Receive, JOINED);
    made.usecs(FAST, 5);
    let mut moves = Vec::new();
    for _ in 0..100 {
        let is_held = made.policy.settings().limits.holds();
        let window = if is_held { held(with) } else { Window { batches: without, ..FAST } };
        let limits = made.window(window).limits;
        if moves.last() != Some(&limits.packets) {
            moves.push(limits.packets);
        }
    }
    moves
}

#[test]
fn less_bulk_waits_if_it_comes_more_slowly_than_without_holds_and_at_last_none() {
    assert_eq!(moves(76, 80), [4, 0, 2, 0], "without holds it is looked at again");
}

#[test]
fn bulk_that_has_become_slower_by_itself_is_held_on() {
    assert_eq!(moves(76, 79), [4, 0, 8, 16], "and then more of it");
    assert_eq!(moves(77, 80), [4, 8, 16]);
}

#[test]
fn nothing_more_waits_if_holds_end_by_time() {
    let mut made = of_bytes(Direction::Receive, JOINED);
    // Six in the time of a hold, and eight may wait.
    let slow = Window { batches: 8, calls: 2, holds: 2, ..STREAM };
    made.usecs(Window { calls: 8, holds: 0, ..slow }, 12);
    assert_eq!(made.window(slow).limits, Limits { usecs: 1500, packets: 4 });
    made.usecs(slow, 300);
    assert_eq!(made.window(slow).limits.packets, 8);
}

/// Shows the policy a window in which every hold is idle. Returns the number of packets that may wait then, and the ceiling.
fn idle(made: &mut Made, batches: u64, holds: u64) -> (u32, Option<u32>) {
    let window = Window { batches, holds, idle_holds: holds, idle_last_ns: holds * 200_000, ..FEW };
    (made.window(window).limits.packets, made.policy.ceiling_usecs())
}

#[test]
fn ten_idle_holds_of_bulk_that_has_become_slower_are_enough() {
    let mut made = of_bytes(Direction::Receive, JOINED);
    made.usecs(FEW, 6);
    assert_eq!(idle(&mut made, 11, 9), (4, None));
    assert_eq!(idle(&mut made, 11, 1), (2, Some(1500)), "half as much waits");
    assert_eq!(idle(&mut made, 11, 10), (0, Some(0)));
}

#[test]
fn idle_holds_of_bulk_that_comes_as_fast_as_without_them_are_no_reason() {
    let mut made = of_bytes(Direction::Receive, JOINED);
    made.usecs(FEW, 9);
    for _ in 0..100 {
        assert_eq!(idle(&mut made, 12, 10), (4, None));
    }
    // It has become slower since, and that alone counts.
    assert_eq!(idle(&mut made, 11, 10), (2, Some(1500)));
}

#[test]
fn idle_holds_are_shortened_while_the_rate_without_holds_is_not_known() {
    let mut made = Made::new(Direction::Receive, 1024);
    let held = Window { calls: 20, holds: 20, ..STREAM };
    made.usecs(STREAM, 3);
    assert_eq!(made.usecs(held, 50)[49], 256, "rates were compared");
    // Under holds it becomes bulk.
    made.bytes = JOINED;
    let usecs = made.usecs(Window { holds: 4, idle_holds: 4, idle_last_ns: 800_000, ..FEW }, 30);
    assert!(usecs.contains(&1500));
    assert_eq!(usecs[29], 0);
}

#[test]
fn holds_of_bulk_in_doubt_end_for_24_milliseconds_at_most() {
    let mut made = of_bytes(Direction::Receive, JOINED);
    made.usecs(FEW, 9);
    let slow = Window { batches: 11, calls: 3, holds: 3, ..FEW };
    let began = (0..200).position(|_| !made.window(slow).limits.holds());
    assert!(began.is_some(), "it comes more slowly than without holds");
    let without = Window { batches: 11, ..FEW };
    assert_eq!(made.usecs(without, 12), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1500]);
}

#[test]
fn a_sender_of_bulk_whose_window_comes_as_one_batch_is_not_held_for_long() {
    let mut made = of_bytes(Direction::Receive, JOINED);
    assert_eq!(made.usecs(FEW, 9)[8], 1500);
    // 60 KB, and then no more until the end of the hold.
    let idle = Window { batches: 6, calls: 6, holds: 6, idle_holds: 6, ..FEW };
    assert_eq!(made.usecs(idle, 30)[29], 0);
    assert_eq!(made.policy.ceiling_usecs(), Some(0));
}
