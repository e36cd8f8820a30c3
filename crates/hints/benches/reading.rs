//! Instructions that it takes to read one hint of each packet of a burst: through a plan, and by hand from a struct that
//! the compiler knows.
//!
//! `make instructions` runs it and holds the one against the other.

#![expect(missing_docs, reason = "the macros make public items")]

use std::hint::black_box;

use forebay_hints::builder::Builder;
use forebay_hints::{BELOW_BYTES, Btf, Hint, Layout, Plan};
use gungraun::{library_benchmark, library_benchmark_group, main};

type Burst = Vec<[u8; BELOW_BYTES]>;

const PACKETS: u8 = 64;
const STRUCT_BYTES: u32 = 28;
const RX_HASH: u32 = 8;
const PRESENT: u32 = 20;
const ID: u32 = 24;

/// What lies below the packets of a burst: every third has no hash.
fn burst() -> Burst {
    let below = |packet: u8| {
        let mut below = [packet; BELOW_BYTES];
        let present = if packet % 3 == 0 { 0 } else { u32::MAX };
        below[at(PRESENT)].copy_from_slice(&present.to_ne_bytes());
        below
    };
    (0..PACKETS).map(below).collect()
}

fn at(offset: u32) -> std::ops::Range<usize> {
    let start = BELOW_BYTES - (STRUCT_BYTES - offset) as usize;
    start..start + 4
}

fn plan() -> Plan {
    let mut types = Builder::new();
    let [two, four, eight] = [2, 4, 8].map(|bytes| types.int("unsigned", bytes, false));
    let members = [
        ("rx_timestamp", eight, 0, 0),
        ("rx_hash", four, RX_HASH * 8, 0),
        ("rx_hash_type", four, 96, 0),
        ("rx_vlan_tci", two, 128, 0),
        ("rx_vlan_proto", two, 144, 0),
        ("hints_present", four, PRESENT * 8, 0),
        ("layout_id", four, ID * 8, 0),
    ];
    let _ = types.composite("forebay_hints", false, STRUCT_BYTES, &members);
    let btf = Btf::parse(&types.build()).expect("what was built can be read");
    Plan::compile(&Layout::find(&btf).expect("it keeps the contract"))
}

#[library_benchmark]
#[bench::a_burst(burst())]
fn by_hand(burst: Burst) -> (u32, Burst) {
    let word = |below: &[u8; BELOW_BYTES], offset| {
        u32::from_ne_bytes(below[at(offset)].try_into().expect("a word has four bytes"))
    };
    let hash = |below| (word(below, PRESENT) & Hint::RxHash.bit() != 0).then(|| word(below, RX_HASH));
    let sum = black_box(&burst).iter().filter_map(hash).fold(0, u32::wrapping_add);
    (sum, burst)
}

#[library_benchmark]
#[bench::a_burst(burst(), plan())]
fn through_a_plan(burst: Burst, plan: Plan) -> (u32, Burst, Plan) {
    let reader = black_box(&plan);
    let hash = |below| reader.read(below).rx_hash();
    let sum = black_box(&burst).iter().filter_map(hash).fold(0, u32::wrapping_add);
    (sum, burst, plan)
}

library_benchmark_group!(name = reading, benchmarks = [by_hand, through_a_plan]);
main!(library_benchmark_groups = reading);
