//! The tables that a comparison ends in.

use std::fs;

use crate::experiment::Candidate;
use crate::measure::{Sample, Spread};

/// Packets a second and what they cost.
pub(crate) fn packets(candidates: &[Candidate]) {
    println!("| way, batch | Mpps | CPU ns/packet | CPU ÷ (a) | wall ÷ (a) | calls/packet | late | lost |");
    println!("|---|---|---|---|---|---|---|---|");
    let reference = &candidates[0].samples;
    for candidate in candidates {
        let samples = &candidate.samples;
        println!(
            "| {} | {} | {} | {} | {} | {:.3} | {:.0} % | {} |",
            candidate.name,
            spread(samples, |sample| 1000.0 / sample.wall_ns_per_packet()).show(2),
            spread(samples, Sample::cpu_ns_per_packet).show(0),
            ratio(samples, reference, Sample::cpu_ns_per_packet).show(2),
            ratio(samples, reference, Sample::wall_ns_per_packet).show(2),
            spread(samples, |sample| per_packet(sample, sample.tally.syscalls)).median,
            spread(samples, |sample| 100.0 * per_packet(sample, sample.tally.late_frames)).median,
            lost(samples),
        );
    }
    println!();
}

/// Bytes a second and what they cost.
pub(crate) fn bytes(candidates: &[Candidate]) {
    println!("| way, segments | Gbit/s | CPU ns/kB | CPU ÷ (a) | calls/segment | refused | arrived |");
    println!("|---|---|---|---|---|---|---|");
    let reference = &candidates[0].samples;
    for candidate in candidates {
        let samples = &candidate.samples;
        let arrived = spread(samples, |sample| 100.0 * per_packet(sample, sample.arrived.packets));
        let calls = spread(samples, |sample| per_packet(sample, sample.tally.syscalls)).median;
        let refused = spread(samples, |sample| 100.0 * per_packet(sample, sample.tally.refused)).median;
        if arrived.greatest == 0.0 {
            println!("| {} | nothing | | | {calls:.3} | {refused:.0} % | 0 % |", candidate.name);
            continue;
        }
        println!(
            "| {} | {} | {} | {} | {calls:.3} | {refused:.0} % | {:.0} % |",
            candidate.name,
            spread(samples, Sample::gigabits_per_second).show(1),
            spread(samples, Sample::cpu_ns_per_kilobyte).show(0),
            ratio(samples, reference, Sample::cpu_ns_per_kilobyte).show(2),
            arrived.median,
        );
    }
    println!();
}

fn spread(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Spread {
    Spread::of(samples.iter().map(of))
}

/// Round by round, so that a busy minute of the machine's weighs on both.
fn ratio(samples: &[Sample], reference: &[Sample], of: impl Fn(&Sample) -> f64) -> Spread {
    Spread::of(samples.iter().zip(reference).map(|(sample, reference)| of(sample) / of(reference)))
}

fn per_packet(sample: &Sample, count: u64) -> f64 {
    count as f64 / sample.tally.offered as f64
}

/// Share of all rounds' packets that did not arrive.
fn lost(samples: &[Sample]) -> String {
    let lost: u64 = samples.iter().map(Sample::lost).sum();
    let offered: u64 = samples.iter().map(|sample| sample.tally.offered).sum();
    if lost == 0 { "0".into() } else { format!("{:.3} %", 100.0 * lost as f64 / offered as f64) }
}

/// Kernel memory in slabs (large kmallocs included) and vmalloc areas, machine-wide: where ring and UMEM arrays lie.
pub(crate) fn kernel_kilobytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let is_wanted = |line: &&str| line.starts_with("SUnreclaim:") || line.starts_with("VmallocUsed:");
    let kilobytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    text.lines().filter(is_wanted).filter_map(kilobytes).sum()
}
