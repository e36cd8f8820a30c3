//! A reader, a learner and a thread that learns and forgets, at once, on a table so small that slots change hands
//! all the time.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use super::*;

/// Stations, each with two ports that no other has: a wrong answer shows.
const STATIONS: u64 = 24;
/// Few enough slots (32) that every slot is every station's in turn.
const LIMITS: Limits = Limits { total: 16, per_port: 1000, ageing_s: 2 };
/// What the churning thread does before all end.
const STEPS: u64 = if cfg!(miri) { 2000 } else { 1_000_000 };

const fn mac_of(station: u64) -> u64 {
    0x0200_0000_0000 + station
}

const fn port_of(station: u64, which: u64) -> u16 {
    (station * 2 + which % 2) as u16
}

/// A fixed pseudo-random sequence: the threads' interleaving is random enough.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

fn reader(fdb: &Fdb, clock: &AtomicU64, stop: &AtomicBool) -> u64 {
    let (mut random, mut hits) = (Sequence(7), 0);
    while !stop.load(Relaxed) {
        let station = random.next() % STATIONS;
        if let Some(port) = fdb.lookup(1, mac_of(station), clock.load(Relaxed) as u32) {
            assert_eq!(u64::from(port) / 2, station, "a port that was never this station's");
            hits += 1;
        }
    }
    hits
}

fn learner(fdb: &Fdb, clock: &AtomicU64, stop: &AtomicBool) {
    let mut random = Sequence(3);
    while !stop.load(Relaxed) {
        learn(fdb, clock, &mut random);
    }
}

fn learn(fdb: &Fdb, clock: &AtomicU64, random: &mut Sequence) {
    let station = random.next() % STATIONS;
    let port = port_of(station, random.next());
    match fdb.learn(1, mac_of(station), port, clock.load(Relaxed) as u32) {
        Learned::Moved { from } => assert_eq!(u64::from(from) / 2, station),
        Learned::NoRoom | Learned::LimitPort | Learned::LimitMoves | Learned::Static | Learned::Multicast => {
            panic!("nothing here can lead to that")
        }
        // On few CPUs the token's holder needs ours to get on.
        Learned::Busy => thread::yield_now(),
        Learned::New | Learned::Known | Learned::Refreshed | Learned::LimitShare | Learned::LimitTotal => {}
    }
}

fn churn(fdb: &Fdb, clock: &AtomicU64) {
    let mut random = Sequence(99);
    for _ in 0..STEPS {
        let station = random.next() % STATIONS;
        match random.next() % 64 {
            0 => _ = fdb.flush(Flush { port: Some(port_of(station, 0)), ..Flush::default() }),
            1 => _ = fdb.expire(clock.fetch_add(1, Relaxed) as u32, 8),
            2 => fdb.entries().for_each(|e| assert_eq!(mac_of(u64::from(e.port) / 2), e.mac)),
            n if n % 2 == 0 => learn(fdb, clock, &mut random),
            _ => {
                let gone = fdb.remove(1, mac_of(station));
                assert!(gone.is_none_or(|e| u64::from(e.port) / 2 == station && e.mac == mac_of(station)));
            }
        }
    }
}

#[test]
fn no_reader_ever_sees_a_port_that_was_never_the_stations() {
    let fdb = fdb_of(LIMITS, [1, 2]);
    let (clock, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let hits = thread::scope(|scope| {
        let reader = scope.spawn(|| reader(&fdb, &clock, &stop));
        let learner = scope.spawn(|| learner(&fdb, &clock, &stop));
        let churned = scope.spawn(|| churn(&fdb, &clock)).join();
        // Whatever came of it: the others must end, too, for the test to.
        stop.store(true, Relaxed);
        learner.join().unwrap();
        churned.unwrap();
        reader.join().unwrap()
    });
    assert!(hits > 0, "the reader never found a station");
    check_quiet(&fdb);
}

/// When all threads have ended, the counts are what the slots hold.
fn check_quiet(fdb: &Fdb) {
    let entries: Vec<_> = fdb.entries().collect();
    assert_eq!(fdb.len() as usize, entries.len());
    for port in 0..(2 * STATIONS) as u16 {
        assert_eq!(fdb.census.learned_on(port) as usize, entries.iter().filter(|e| e.port == port).count());
    }
    let mut stations: Vec<_> = entries.iter().map(|e| e.mac).collect();
    stations.sort_unstable();
    stations.dedup();
    assert_eq!(stations.len(), entries.len(), "a station has two entries");
    assert_eq!(fdb.flush(Flush { with_static: true, ..Flush::default() }), entries.len());
    assert_eq!(fdb.len(), 0);
}
