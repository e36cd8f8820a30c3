//! Whole workers, snapshots and the flow keeper in virtual time, in random order, under faults and changes.
//!
//! Each step is one thing that may happen: a packet comes in, a worker has a turn, the keeper installs flows, a port or a
//! rule changes, a station moves, a port is flooded, the kernel hands over rubbish. After each round everything comes to
//! rest and is looked at. The rules it holds the switch to:
//!
//! - A frame is in exactly one place.
//! - A packet arrives at a port at most once, with the bytes that it was sent with and the tag that the settings say.
//! - A packet arrives only where some settings said so that were in force since it was sent. So a change is obeyed by the
//!   first packet after it.
//! - At rest, a packet for a known station arrives exactly there, and a broadcast exactly at the members of its VLAN.
//! - Counters of what was sent agree with what arrived.
//!
//! `FOREBAY_SIMULATION_PACKETS` says how many packets, `FOREBAY_SIMULATION_SEED` which; a failure names its seed.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod model;
mod random;
mod run;

use std::time::Instant;

use run::{Run, Tally};

/// Without a word about it; seconds in a debug build.
const PACKETS: u64 = 60_000;
/// Packets for each seed.
const PACKETS_A_SEED: u64 = 20_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn whatever_happens_frames_balance_and_packets_arrive_only_where_they_may() {
    let packets = number("FOREBAY_SIMULATION_PACKETS").unwrap_or(PACKETS);
    let first = number("FOREBAY_SIMULATION_SEED").unwrap_or(1);
    let (began, mut tally) = (Instant::now(), Tally::default());
    for seed in first..first + packets.div_ceil(PACKETS_A_SEED) {
        println!("seed {seed}");
        tally += Run::new(seed).run(PACKETS_A_SEED.min(packets));
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{tally:#?}\n{:.0} packets a second", tally.sent as f64 / seconds);
    assert!(tally.is_rich(), "too little happened: {tally:#?}");
}
