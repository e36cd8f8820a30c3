use super::*;

const SECOND: Nanos = Nanos(Nanos::PER_SECOND);
const VID: u16 = 7;

fn at(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

/// A port that carries packets since the start.
fn port() -> LoopGuard {
    let mut guard = LoopGuard::default();
    guard.starts(at(0));
    guard
}

fn heard(nonce: u64, sender_is_lower: bool) -> Heard {
    Heard { nonce, vid: VID, sender_is_lower }
}

/// Two ports, of which the lower has sent probe 1 at the start.
fn pair() -> (LoopGuard, LoopGuard) {
    let mut low = port();
    low.sends(1, VID, at(0), SECOND);
    (low, port())
}

#[test]
fn a_probe_that_comes_in_at_another_port_blocks_that_port_and_not_its_sender() {
    let (low, mut high) = pair();
    assert!(high.hears(&low, heard(1, true), at(1), SECOND));
    assert!(high.is_blocked() && !low.is_blocked());
    assert!(!high.hears(&low, heard(1, true), at(2), SECOND), "it is blocked already");
}

#[test]
fn of_two_ports_that_hear_each_other_one_stays_open() {
    let (mut low, mut high) = pair();
    high.sends(2, VID, at(0), SECOND);
    // The lower one hears first, waits, and need not be blocked.
    assert!(!low.hears(&high, heard(2, false), at(1), SECOND));
    assert!(high.hears(&low, heard(1, true), at(2), SECOND));
    assert!(!low.hears(&high, heard(2, false), at(900), SECOND), "a blocked port's probe blocks nobody");
}

#[test]
fn a_loop_that_goes_one_way_is_cut_at_the_second_probe() {
    let (mut low, mut high) = (port(), port());
    high.sends(1, VID, at(0), SECOND);
    assert!(!low.hears(&high, heard(1, false), at(1), SECOND));
    high.sends(2, VID, at(1000), SECOND);
    assert!(low.hears(&high, heard(2, false), at(1001), SECOND));
}

#[test]
fn a_probe_that_was_heard_three_intervals_ago_is_forgotten() {
    let blocks = |ms| {
        let (mut low, mut high) = (port(), port());
        high.sends(1, VID, at(0), SECOND);
        assert!(!low.hears(&high, heard(1, false), at(0), SECOND));
        high.sends(2, VID, at(ms), SECOND);
        low.hears(&high, heard(2, false), at(ms), SECOND)
    };
    assert_eq!([499, 500, 2999, 3000].map(blocks), [false, true, true, false]);
}

#[test]
fn a_port_that_stops_is_not_forgiven_its_early_release() {
    let (mut low, mut high) = pair();
    for (nonce, now, seconds) in [(1, at(0), 3), (2, at(3000), 6), (3, at(9000), 12)] {
        low.sends(nonce, VID, now, SECOND);
        assert!(high.hears(&low, heard(nonce, true), now, SECOND));
        let end = high.ends(SECOND).unwrap();
        assert_eq!(end.since(now), seconds * Nanos::PER_SECOND);
        assert!(high.release(end, SECOND));
        high.stops();
        high.starts(end);
    }
}

#[test]
fn what_is_guessed_late_or_in_another_vlan_is_no_loop() {
    let (low, high) = pair();
    let blocks = |heard, now| {
        let mut high = high;
        high.hears(&low, heard, now, SECOND)
    };
    assert!(!blocks(heard(3, true), at(1)), "nobody sent it");
    assert!(!blocks(heard(1, true), at(2000)), "it is too old");
    assert!(!blocks(Heard { vid: 8, ..heard(1, true) }, at(1)), "a cable between two VLANs is no loop");
    assert!(blocks(heard(1, true), at(1999)));
}

#[test]
fn only_the_last_two_probes_count() {
    let (mut low, high) = pair();
    low.sends(2, VID, at(100), SECOND);
    low.sends(3, VID, at(200), SECOND);
    let blocks = |nonce| {
        let mut high = high;
        high.hears(&low, heard(nonce, true), at(300), SECOND)
    };
    assert_eq!([1, 2, 3].map(blocks), [false, true, true]);
}

#[test]
fn a_port_is_released_when_no_probe_came_for_three_intervals() {
    let (mut low, mut high) = pair();
    assert_eq!(high.next(SECOND), Some(at(0)), "it is to be probed");
    assert!(high.hears(&low, heard(1, true), at(0), SECOND));
    assert_eq!(high.due(), None, "a blocked port is not probed");
    assert_eq!(high.next(SECOND), Some(at(3000)), "it is to be released");
    low.sends(2, VID, at(1000), SECOND);
    assert!(!high.hears(&low, heard(2, true), at(1000), SECOND));
    assert!(!high.release(at(3999), SECOND), "the loop was there a moment ago");
    assert!(high.release(at(4000), SECOND) && !high.is_blocked());
    assert_eq!(high.due(), Some(at(4000)), "it is probed at once");
}

#[test]
fn each_release_that_was_too_early_doubles_the_time() {
    let (mut low, mut high) = pair();
    let mut now = at(0);
    let mut held = Vec::new();
    for nonce in 1..=8 {
        low.sends(nonce, VID, now, SECOND);
        assert!(high.hears(&low, heard(nonce, true), now, SECOND));
        let end = high.ends(SECOND).unwrap();
        held.push(end.since(now) / Nanos::PER_SECOND);
        assert!(high.release(end, SECOND));
        now = end;
    }
    assert_eq!(held, [3, 6, 12, 24, 48, 48, 48, 48]);
    now = Nanos(now.0 + 480 * Nanos::PER_SECOND);
    low.sends(9, VID, now, SECOND);
    assert!(high.hears(&low, heard(9, true), now, SECOND));
    assert_eq!(high.ends(SECOND).unwrap().since(now), 3 * Nanos::PER_SECOND, "it was good for long");
}

#[test]
fn two_blocked_ports_do_not_keep_each_other_blocked() {
    let (low, high) = pair();
    let mut third = port();
    let (mut low, mut high) = (low, high);
    assert!(high.hears(&low, heard(1, true), at(0), SECOND));
    third.sends(5, VID, at(0), SECOND);
    assert!(!low.hears(&third, heard(5, false), at(0), SECOND));
    third.sends(6, VID, at(1000), SECOND);
    assert!(low.hears(&third, heard(6, false), at(1000), SECOND), "it waited");
    assert!(!high.hears(&low, heard(1, true), at(1500), SECOND));
    assert!(high.release(at(3000), SECOND) && low.release(at(4000), SECOND));
}

#[test]
fn a_port_whose_stations_move_is_probed_soon_but_not_all_the_time() {
    let mut guard = port();
    assert_eq!(guard.due(), Some(at(0)));
    guard.sends(1, VID, at(0), SECOND);
    assert_eq!(guard.due(), Some(at(1000)));
    guard.hurry(at(30));
    assert_eq!(guard.due(), Some(at(100)));
    guard.hurry(at(500));
    assert_eq!(guard.due(), Some(at(100)));
    guard.sends(2, VID, at(100), SECOND);
    guard.hurry(at(400));
    assert_eq!(guard.due(), Some(at(400)));
}

#[test]
fn probes_that_are_due_soon_may_leave_together_but_not_in_a_hurry() {
    let mut guard = port();
    guard.sends(1, VID, at(0), SECOND);
    let slack = at(100).0;
    assert!(!guard.is_due(at(900), 0) && guard.is_due(at(900), slack) && !guard.is_due(at(899), slack));
    assert!(guard.is_due(at(1000), 0));
    assert!(!guard.is_due(at(99), at(1000).0) && guard.is_due(at(100), at(1000).0));
    guard.hurry(at(10));
    assert!(!guard.is_due(at(99), slack) && guard.is_due(at(100), 0));
}

#[test]
fn a_port_without_its_netdev_takes_no_part() {
    let (low, mut high) = pair();
    assert!(high.hears(&low, heard(1, true), at(0), SECOND));
    high.stops();
    assert!(!high.is_blocked() && high.due().is_none());
    high.hurry(at(1));
    assert!(!high.hears(&low, heard(1, true), at(1), SECOND) && high.due().is_none());
    high.starts(at(5));
    assert_eq!(high.due(), Some(at(5)));
}

#[test]
fn a_probe_that_is_skipped_is_due_an_interval_later_or_when_stations_move() {
    let mut guard = port();
    guard.sends(1, VID, at(0), SECOND);
    guard.skips(at(1000), SECOND);
    assert!(!guard.is_due(at(1999), 0) && guard.is_due(at(2000), 0));
    guard.hurry(at(1500));
    assert!(guard.is_due(at(1500), 0));
    guard.stops();
    guard.skips(at(1500), SECOND);
    assert_eq!(guard.due(), None, "it carries nothing");
}

#[test]
fn ports_that_rest_are_soon_looked_at_all_at_once() {
    // They began at times of their own.
    let mut ports: Vec<LoopGuard> = (0..97)
        .map(|n| {
            let mut guard = LoopGuard::default();
            guard.starts(at(n * 10));
            guard
        })
        .collect();
    let mut looks = Vec::new();
    while looks.len() < 10 {
        let now = ports.iter().filter_map(LoopGuard::due).min().unwrap();
        looks.push(now);
        for port in ports.iter_mut().filter(|port| port.may_skip(now, SECOND)) {
            port.skips(now, SECOND);
        }
        let latest = ports.iter().filter_map(LoopGuard::due).max().unwrap();
        assert!(latest.since(now) <= SECOND.0, "each is looked at once in an interval");
    }
    let between: Vec<u64> = looks.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert_eq!(between[2..], [SECOND.0; 7], "{looks:?}");
}
