//! Nanoseconds per packet of what is done to every packet. Prints; asserts nothing.

use std::hint::black_box;
use std::time::Instant;

use forebay_wire::{complete_checksum, frame};

const ROUNDS: u32 = 5;
const CALLS: u32 = 2_000_000;

/// Prints the best of several rounds: noise only ever adds.
fn bench(name: &str, mut call: impl FnMut()) {
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    let best = (0..ROUNDS).map(|_| round(&mut call)).fold(f64::INFINITY, f64::min);
    println!("{name:<40} {best:8.2} ns");
}

fn udp(payload: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    let (total, udp) = ((28 + payload) as u16, (8 + payload) as u16);
    bytes.extend([0x45, 0, total.to_be_bytes()[0], total.to_be_bytes()[1], 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 0, 53, udp.to_be_bytes()[0], udp.to_be_bytes()[1], 1, 2]);
    bytes.resize(42 + payload, 0xa5);
    bytes
}

fn main() {
    let small = udp(18);
    let mut tagged = small.clone();
    tagged.splice(12..12, [0x81, 0, 0, 10]);
    bench("frame, untagged", || _ = black_box(frame(black_box(&small))));
    bench("frame, tagged", || _ = black_box(frame(black_box(&tagged))));
    for payload in [18, 1472] {
        let mut finished = udp(payload);
        bench(&format!("complete_checksum, finished, {payload} B"), || {
            _ = black_box(complete_checksum(black_box(&mut [&mut finished])));
        });
        let mut pristine = udp(payload);
        let pseudo = 2 * 0x0a00 + 1 + 2 + 17 + 8 + payload as u16;
        pristine[40..42].copy_from_slice(&pseudo.to_be_bytes());
        let unfinished = [pristine[40], pristine[41]];
        bench(&format!("complete_checksum, unfinished, {payload} B"), || {
            pristine[40..42].copy_from_slice(&unfinished);
            _ = black_box(complete_checksum(black_box(&mut [&mut pristine])));
        });
    }
}
