#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use forebay_kernel::LeftStations;
use forebay_wire::mac;
use proptest::prelude::*;

use super::table::Bucket;
use super::*;

const LIMITS: Limits = Limits { total: 64, per_port: 64, ageing_s: 300 };
const SEED: [u64; 2] = [0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321];
const ANNA: u64 = 0x0200_0000_000a;
const BERT: u64 = 0x0200_0000_000b;

fn small() -> Fdb {
    fdb_of(LIMITS, SEED)
}

/// The entries that a next process finds in the table's memory.
fn left_by(fdb: &Fdb) -> Vec<Entry> {
    let words = |bucket: &Bucket| {
        let load = |word: &std::sync::atomic::AtomicU64| word.load(Relaxed);
        bucket.keys.iter().map(load).zip(bucket.values.iter().map(load)).collect::<Vec<_>>()
    };
    let slots = fdb.table.buckets().iter().flat_map(words).filter(|(key, _)| *key != 0).collect();
    left_entries(&LeftStations { began_s: 0, slots }).collect()
}

#[test]
fn a_killed_process_leaves_its_stations_as_they_were_at_that_moment() {
    let fdb = small();
    fdb.learn(1, ANNA, 1, 10);
    fdb.add_static(1, BERT, 2, 10).unwrap();
    fdb.learn(1, ANNA, 3, 11);
    let mut left = left_by(&fdb);
    left.sort_unstable_by_key(|entry| entry.mac);
    let entry = |mac, port, is_static, seen_s| Entry { vid: 1, mac, port, is_static, seen_s };
    assert_eq!(left, [entry(ANNA, 3, false, 11), entry(BERT, 2, true, 10)]);
}

#[test]
fn a_station_heard_since_the_takeover_is_not_put_back() {
    let fdb = small();
    fdb.learn(1, ANNA, 3, 11);
    assert_eq!(fdb.take_up(1, ANNA, 1, 10), Learned::Known);
    assert_eq!(fdb.lookup(1, ANNA, 11), Some(3));
    assert_eq!(fdb.take_up(1, BERT, 1, 10), Learned::New);
    assert_eq!(fdb.take_up(1, 0x0100_5e00_0001, 1, 10), Learned::Multicast);
}

proptest! {
    /// A killed process may leave anything only where somebody else wrote; it must not matter.
    #[test]
    fn any_words_are_read_as_stations_or_not_at_all(slots in prop::collection::vec(any::<(u64, u64)>(), 0..64)) {
        let fdb = small();
        for entry in left_entries(&LeftStations { began_s: 0, slots }) {
            fdb.take_up(entry.vid, entry.mac, entry.port, entry.seen_s);
        }
        prop_assert!(fdb.len() <= LIMITS.total);
    }
}

/// The table as one would write it in twenty lines: a map, and counting by looking at everything.
struct Oracle {
    entries: HashMap<(u16, u64), Entry>,
    limits: Limits,
}

impl Oracle {
    fn learned_on(&self, port: u16) -> u32 {
        self.entries.values().filter(|e| e.port == port && !e.is_static).count() as u32
    }

    fn statics(&self) -> u32 {
        self.entries.values().filter(|e| e.is_static).count() as u32
    }

    fn has_expired(&self, e: Entry, now_s: u32) -> bool {
        !e.is_static && now_s.saturating_sub(e.seen_s) >= self.limits.ageing_s
    }

    fn lookup(&self, vid: u16, mac: u64, now_s: u32) -> Option<u16> {
        self.entries.get(&(vid, mac)).filter(|e| !self.has_expired(**e, now_s)).map(|e| e.port)
    }

    fn learn(&mut self, vid: u16, mac: u64, port: u16, now_s: u32) -> Learned {
        let held = self.learned_on(port);
        let free = self.limits.total.saturating_sub(self.entries.len() as u32);
        let new = Entry { vid, mac, port, is_static: false, seen_s: now_s };
        let learned = match self.entries.get(&(vid, mac)).copied() {
            _ if mac::is_multicast(mac) => Learned::Multicast,
            Some(e) if e.port == port && (e.is_static || e.seen_s >= now_s) => Learned::Known,
            Some(e) if e.port == port => Learned::Refreshed,
            Some(e) if e.is_static => Learned::Static,
            _ if held >= self.limits.per_port => Learned::LimitPort,
            _ if free > 0 && held >= free => Learned::LimitShare,
            Some(e) if self.has_expired(e, now_s) => Learned::New,
            Some(e) => Learned::Moved { from: e.port },
            None if free == 0 => Learned::LimitTotal,
            None => Learned::New,
        };
        if matches!(learned, Learned::New | Learned::Moved { .. } | Learned::Refreshed) {
            self.entries.insert((vid, mac), new);
        }
        learned
    }

    fn add_static(&mut self, vid: u16, mac: u64, port: u16, now_s: u32) -> Result<Option<Entry>, FdbError> {
        let is_static = self.entries.get(&(vid, mac)).is_some_and(|e| e.is_static);
        if mac::is_multicast(mac) {
            return Err(FdbError::Multicast { mac });
        }
        if !is_static && self.statics() >= self.limits.total {
            return Err(FdbError::TooManyStatic { limit: self.limits.total });
        }
        Ok(self.entries.insert((vid, mac), Entry { vid, mac, port, is_static: true, seen_s: now_s }))
    }

    fn retain(&mut self, keep: impl Fn(&Self, Entry) -> bool) -> usize {
        let gone: Vec<_> =
            self.entries.iter().filter(|(_, e)| !keep(self, **e)).map(|(key, _)| *key).collect();
        gone.iter().for_each(|key| _ = self.entries.remove(key));
        gone.len()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Learn { vid: u16, mac: u64, port: u16 },
    Lookup { vid: u16, mac: u64 },
    AddStatic { vid: u16, mac: u64, port: u16 },
    Remove { vid: u16, mac: u64 },
    Flush(Flush),
    Expire,
    SetLimits(Limits),
    Pass { seconds: u32 },
    GoBack { seconds: u32 },
}

fn ops() -> impl Strategy<Value = Op> {
    let vid = || 1u16..3;
    let mac = || prop_oneof![20 => (0u64..12).prop_map(|n| ANNA + (n << 8)), 1 => Just(mac::BROADCAST)];
    let port = || 0u16..4;
    let limits = (0u32..40, 0u32..12, 0u32..400).prop_map(|(total, per_port, ageing_s)| Limits {
        total,
        per_port,
        ageing_s,
    });
    let flush = (proptest::option::of(port()), proptest::option::of(vid()), any::<bool>())
        .prop_map(|(port, vid, with_static)| Op::Flush(Flush { port, vid, with_static }));
    prop_oneof![
        20 => (vid(), mac(), port()).prop_map(|(vid, mac, port)| Op::Learn { vid, mac, port }),
        10 => (vid(), mac()).prop_map(|(vid, mac)| Op::Lookup { vid, mac }),
        3 => (vid(), mac(), port()).prop_map(|(vid, mac, port)| Op::AddStatic { vid, mac, port }),
        3 => (vid(), mac()).prop_map(|(vid, mac)| Op::Remove { vid, mac }),
        1 => flush,
        2 => Just(Op::Expire),
        1 => limits.prop_map(Op::SetLimits),
        4 => (0u32..200).prop_map(|seconds| Op::Pass { seconds }),
        1 => (0u32..3).prop_map(|seconds| Op::GoBack { seconds }),
    ]
}

/// Does one thing to both, and compares what they say.
fn step(fdb: &Fdb, oracle: &mut Oracle, now_s: &mut u32, op: Op) -> Result<(), TestCaseError> {
    let now = *now_s;
    match op {
        Op::Learn { vid, mac, port } => {
            prop_assert_eq!(fdb.learn(vid, mac, port, now), oracle.learn(vid, mac, port, now));
        }
        Op::Lookup { vid, mac } => prop_assert_eq!(fdb.lookup(vid, mac, now), oracle.lookup(vid, mac, now)),
        Op::AddStatic { vid, mac, port } => {
            prop_assert_eq!(fdb.add_static(vid, mac, port, now), oracle.add_static(vid, mac, port, now));
        }
        Op::Remove { vid, mac } => prop_assert_eq!(fdb.remove(vid, mac), oracle.entries.remove(&(vid, mac))),
        Op::Flush(which) => prop_assert_eq!(fdb.flush(which), oracle.retain(|_, e| !which.matches(e))),
        Op::Expire => {
            let expired = oracle.retain(|oracle, e| !oracle.has_expired(e, now));
            prop_assert_eq!(fdb.expire(now, usize::MAX), expired);
        }
        Op::SetLimits(limits) => {
            fdb.set_limits(limits).unwrap();
            oracle.limits = limits;
        }
        Op::Pass { seconds } => *now_s = now.saturating_add(seconds),
        Op::GoBack { seconds } => *now_s = now.saturating_sub(seconds),
    }
    Ok(())
}

fn check_census(fdb: &Fdb, oracle: &Oracle) -> Result<(), TestCaseError> {
    let entries: HashMap<_, _> = fdb.entries().map(|e| ((e.vid, e.mac), e)).collect();
    prop_assert_eq!(fdb.entries().count(), entries.len(), "a key has two entries");
    prop_assert_eq!(&entries, &oracle.entries);
    prop_assert_eq!(fdb.len() as usize, entries.len());
    for port in 0..4 {
        prop_assert_eq!(fdb.census.learned_on(port), oracle.learned_on(port));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_table_does_what_a_map_would_do(
        seed: [u64; 2],
        start in prop_oneof![Just(0u32), Just(u32::MAX - 1000)],
        ops in proptest::collection::vec(ops(), 1..150),
    ) {
        let fdb = fdb_of(LIMITS, seed);
        let mut oracle = Oracle { entries: HashMap::new(), limits: LIMITS };
        let mut now_s = start;
        for op in ops {
            step(&fdb, &mut oracle, &mut now_s, op)?;
            check_census(&fdb, &oracle)?;
        }
    }
}

#[test]
fn a_station_is_found_where_it_was_last_heard() {
    let fdb = small();
    assert_eq!(fdb.lookup(1, ANNA, 0), None);
    assert_eq!(fdb.learn(1, ANNA, 7, 0), Learned::New);
    assert_eq!(fdb.lookup(1, ANNA, 0), Some(7));
    assert_eq!(fdb.lookup(2, ANNA, 0), None, "another VLAN is another table");
    assert_eq!(fdb.learn(1, ANNA, 8, 0), Learned::Moved { from: 7 });
    assert_eq!(fdb.lookup(1, ANNA, 0), Some(8));
    assert_eq!((fdb.census.learned_on(7), fdb.census.learned_on(8), fdb.len()), (0, 1, 1));
}

#[test]
fn a_station_that_may_not_move_stays_and_only_then_is_it_asked() {
    let fdb = small();
    assert_eq!(fdb.learn_if(1, ANNA, 7, 0, || panic!("it is new")), Learned::New);
    assert_eq!(fdb.learn_if(1, ANNA, 7, 0, || panic!("it is there")), Learned::Known);
    assert_eq!(fdb.learn_if(1, ANNA, 8, 0, || false), Learned::LimitMoves);
    assert_eq!(fdb.lookup(1, ANNA, 0), Some(7));
    assert_eq!(fdb.learn_if(1, ANNA, 8, 0, || true), Learned::Moved { from: 7 });
}

#[test]
fn the_station_zero_in_vlan_zero_is_a_station_like_any_other() {
    let fdb = small();
    assert_eq!(fdb.lookup(0, 0, 0), None);
    assert_eq!(fdb.learn(0, 0, 0, 0), Learned::New);
    assert_eq!(fdb.lookup(0, 0, 0), Some(0));
}

#[test]
fn an_entry_lives_its_ageing_time_and_not_a_second_more() {
    let fdb = small();
    fdb.learn(1, ANNA, 7, 1000);
    assert_eq!(fdb.lookup(1, ANNA, 1299), Some(7));
    assert_eq!(fdb.lookup(1, ANNA, 1300), None);
    assert_eq!(fdb.learn(1, ANNA, 7, 1299), Learned::Refreshed);
    assert_eq!(fdb.learn(1, ANNA, 7, 1299), Learned::Known);
    assert_eq!(fdb.learn(1, ANNA, 7, 1298), Learned::Known, "a clock a little behind takes nothing back");
    assert_eq!(fdb.lookup(1, ANNA, 1598), Some(7));
    assert_eq!(fdb.expire(1598, usize::MAX), 0);
    assert_eq!(fdb.expire(1599, usize::MAX), 1);
    assert_eq!(fdb.len(), 0);
}

#[test]
fn a_sweep_in_small_steps_meets_every_entry_once_a_round() {
    let fdb = small();
    (0..40).for_each(|n| assert_eq!(fdb.learn(1, ANNA + (n << 8), n as u16 % 8, 0), Learned::New));
    let steps = fdb.table.buckets().len();
    let expired: usize = (0..steps).map(|_| fdb.expire(300, 8)).sum();
    assert_eq!((expired, fdb.len()), (40, 0));
}

#[test]
fn a_static_entry_neither_moves_nor_ages_nor_falls_to_a_flush_of_learned_ones() {
    let fdb = small();
    fdb.learn(1, ANNA, 7, 0);
    let before = fdb.add_static(1, ANNA, 9, 0).unwrap().unwrap();
    assert_eq!((before.port, before.is_static), (7, false));
    assert_eq!(fdb.learn(1, ANNA, 7, 0), Learned::Static);
    assert_eq!(fdb.learn(1, ANNA, 9, 0), Learned::Known);
    assert_eq!(fdb.expire(u32::MAX, usize::MAX), 0);
    assert_eq!(fdb.flush(Flush::default()), 0);
    assert_eq!(fdb.lookup(1, ANNA, u32::MAX), Some(9));
    assert_eq!(fdb.flush(Flush { port: Some(9), vid: None, with_static: true }), 1);
    assert_eq!(fdb.lookup(1, ANNA, 0), None);
}

#[test]
fn a_flood_of_stations_costs_the_flooding_port_only() {
    let fdb = fdb_of(Limits { total: 1000, per_port: 100, ageing_s: 300 }, SEED);
    let refused = (0..10_000).filter(|n| fdb.learn(1, ANNA + (n << 8), 1, 0) == Learned::LimitPort).count();
    assert_eq!((refused, fdb.census.learned_on(1)), (9900, 100));
    assert_eq!(fdb.learn(1, BERT, 2, 0), Learned::New);
    assert_eq!(fdb.learn(1, BERT, 1, 0), Learned::LimitPort, "nor can the flooder take a station over");
    assert_eq!(fdb.lookup(1, BERT, 0), Some(2));
}

#[test]
fn ports_that_work_together_leave_room_for_others_even_if_stations_move_between_them() {
    let fdb = fdb_of(Limits { total: 900, per_port: 200, ageing_s: 300 }, SEED);
    for n in 0..10_000u64 {
        let station = ANNA + (n << 8);
        // Learned at one port and at once moved to another.
        fdb.learn(1, station, 0, 0);
        fdb.learn(1, station, 1 + (n % 7) as u16, 0);
    }
    assert!((780..=850).contains(&fdb.len()), "{} of 900 entries are taken", fdb.len());
    for n in 0..25 {
        assert_eq!(fdb.learn(1, BERT + (n << 32), 9, 0), Learned::New, "station {n}");
    }
}

#[test]
fn a_full_table_refuses_to_learn_but_takes_a_static_entry() {
    let fdb = fdb_of(Limits { total: 10, per_port: 10, ageing_s: 300 }, SEED);
    (0..10).for_each(|n| assert_eq!(fdb.learn(1, ANNA + (n << 8), n as u16, 0), Learned::New));
    assert_eq!(fdb.learn(1, BERT, 12, 0), Learned::LimitTotal);
    assert_eq!(fdb.add_static(1, BERT, 2, 0), Ok(None));
    assert_eq!(fdb.lookup(1, BERT, 0), Some(2));
}

#[test]
fn groups_have_no_place_in_the_table() {
    let fdb = small();
    assert_eq!(fdb.learn(1, mac::BROADCAST, 1, 0), Learned::Multicast);
    assert_eq!(fdb.add_static(1, mac::BROADCAST, 1, 0), Err(FdbError::Multicast { mac: mac::BROADCAST }));
    assert_eq!(fdb.len(), 0);
}

#[test]
fn a_worker_goes_on_without_the_token_and_still_finds_and_refreshes() {
    let fdb = small();
    fdb.learn(1, ANNA, 7, 0);
    let held = fdb.token.hold();
    assert_eq!(fdb.learn(1, BERT, 8, 1), Learned::Busy);
    assert_eq!(fdb.learn(1, ANNA, 8, 1), Learned::Busy);
    assert_eq!(fdb.learn(1, ANNA, 7, 1), Learned::Refreshed);
    assert_eq!(fdb.lookup(1, ANNA, 1), Some(7));
    drop(held);
    assert_eq!(fdb.learn(1, BERT, 8, 1), Learned::New);
}

#[test]
fn limits_above_what_the_table_was_made_for_are_refused_with_both_numbers() {
    let fdb = small();
    let error = fdb.set_limits(Limits { total: 65, ..LIMITS }).unwrap_err();
    assert_eq!(error.to_string(), "an FDB of 65 entries does not fit a table made for 64");
    assert_eq!(fdb.total.load(Relaxed), LIMITS.total);
}

#[test]
fn a_table_at_its_limit_has_room_for_everyone_whatever_the_seed() {
    let limits = Limits { total: 4096, per_port: u32::MAX, ageing_s: 300 };
    for seed in 0..32 {
        let fdb = fdb_of(limits, [seed, !seed]);
        assert!((0..4096).all(|n| fdb.learn(1, ANNA + n, n as u16, 0) == Learned::New), "seed {seed}");
    }
}

#[test]
fn when_both_buckets_are_full_the_station_is_not_learned_and_nothing_breaks() {
    let fdb = fdb_of(Limits { total: 1, per_port: 100, ageing_s: 300 }, SEED);
    // Limits beyond the capacity, as no caller can set them: the table has 16 slots, two buckets.
    fdb.total.store(100, Relaxed);
    let learned: Vec<_> = (0..200).map(|n| fdb.learn(1, ANNA + (n << 8), 1, 0)).collect();
    let count = |what: Learned| learned.iter().filter(|l| **l == what).count();
    assert_eq!((count(Learned::New), count(Learned::NoRoom)), (16, 184));
    assert_eq!((fdb.len(), fdb.entries().count()), (16, 16));
    assert!(fdb.add_static(2, BERT, 1, 0).is_err_and(|e| e == FdbError::NoRoom { vid: 2, mac: BERT }));
}
