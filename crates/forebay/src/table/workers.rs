//! What workers do, in the manner of Open vSwitch's `pmd-perf-show`.

use forebay_control::stats::{WorkerStats, WorkersShow};

use super::facts;

/// How many packets a burst had, in the order of [`WorkerStats::batch_sizes`].
const SIZES: [&str; forebay_control::stats::BATCH_SIZES] =
    ["1", "2-3", "4-7", "8-15", "16-31", "32-63", "64-127", "128"];

/// One paragraph a worker.
pub(crate) fn workers_show(shown: &WorkersShow) -> String {
    let seconds = shown.elapsed_ns as f64 / 1e9;
    let paragraphs: Vec<String> = shown.workers.iter().map(|worker| paragraph(worker, seconds)).collect();
    format!("in {seconds:.1} s\n\n{}", paragraphs.join("\n"))
}

fn paragraph(worker: &WorkerStats, seconds: f64) -> String {
    let cycles = worker.busy_cycles + worker.idle_cycles;
    let sizes = SIZES.iter().zip(worker.batch_sizes).filter(|(_, bursts)| *bursts > 0);
    let sizes = sizes.map(|(size, bursts)| format!("{size}: {}", percent(bursts, worker.batches)));
    facts(&[
        ("worker", worker.worker.to_string()),
        ("cpu", worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string())),
        (
            "at work",
            format!("{:.2} s, {}", worker.busy_ns as f64 / 1e9, share(worker.busy_ns as f64 / 1e9, seconds)),
        ),
        ("sleeps", worker.sleeps.to_string()),
        (
            "lingers",
            format!(
                "{}, {:.2} s, {}",
                worker.lingers,
                worker.linger_ns as f64 / 1e9,
                share(worker.linger_ns as f64 / 1e9, seconds)
            ),
        ),
        (
            "iterations",
            format!("{}, busy {}", worker.iterations, percent(worker.busy_iterations, worker.iterations)),
        ),
        ("cycles awake", format!("{cycles}, busy {}", percent(worker.busy_cycles, cycles))),
        ("packets", format!("{}, {:.0} a second", worker.packets, ratio(worker.packets as f64, seconds))),
        ("cycles a packet", format!("{:.0}", ratio(worker.busy_cycles as f64, worker.packets as f64))),
        (
            "bursts",
            format!(
                "{}, {:.1} packets each",
                worker.batches,
                ratio(worker.packets as f64, worker.batches as f64)
            ),
        ),
        ("burst sizes", sizes.collect::<Vec<_>>().join(", ")),
        ("lookups", lookups(worker)),
        ("rules", rules(worker)),
        (
            "copies out",
            format!("{}, by departures {}", worker.copies, percent(worker.departed, worker.copies)),
        ),
    ])
}

fn lookups(worker: &WorkerStats) -> String {
    let lookups = &worker.lookups;
    kinds([
        ("known", lookups.known),
        ("unknown", lookups.unknown),
        ("group", lookups.group),
        ("repeated", lookups.repeated),
    ])
}

fn rules(worker: &WorkerStats) -> String {
    kinds([("cached", worker.lookups.cached), ("classified", worker.lookups.classified)])
}

/// Each of these kinds, and its share of them all.
fn kinds<const N: usize>(kinds: [(&str, u64); N]) -> String {
    let all = kinds.iter().map(|(_, lookups)| lookups).sum();
    kinds.map(|(kind, lookups)| format!("{kind} {lookups} ({})", percent(lookups, all))).join(", ")
}

/// Nothing of nothing is nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn share(part: f64, whole: f64) -> String {
    format!("{:.1} %", 100.0 * ratio(part, whole))
}

fn percent(part: u64, whole: u64) -> String {
    share(part as f64, whole as f64)
}
