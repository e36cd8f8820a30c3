//! Dynamic Thresholds: what saturated ports hold, beside the formula, and what is left for a quiet port's burst.
//!
//! The switch stands still while every port is offered more than it may hold, so that nothing drains: what it lets in is
//! what the port then holds. Hosts send in turns. Afterwards everything drains, and no port may hold anything.

mod events;
mod formula;
mod saturate;

use forebay_testbed::Result;
use saturate::{Arena, Burst};

use super::{Cell, Chart, OutputOptions, Policy, Report, Series, Setup, Shape, Table};

/// α = 2^(th−10): a quarter, one, eight.
const ALPHAS: [(u8, &str); 3] = [(8, "¼"), (10, "1"), (13, "8")];
const SENDERS: [usize; 4] = [1, 2, 4, 8];
/// Senders when a quiet port's burst arrives.
const CROWDED: usize = 8;
/// Frames of that burst.
const BURST: u64 = 256;
/// Hosts that random events happen to; not the two that [`Arena::build`] adds.
const RANDOM_HOSTS: usize = 6;
/// Frames of their pool.
const RANDOM_FRAMES: u32 = 16384;
/// From here on the measured is not what the formula says.
const TOLERANCE_PERCENT: f64 = 10.0;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of random events, most of them packets, after which no port may hold a frame
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub events: u64,
    /// Seed of the random events
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a port still holds frames afterwards, or held more than a tenth off the formula.
///
/// # Errors
/// When a lab can't be made or the switch refuses.
pub fn run(options: &Options) -> Result<bool> {
    let about = format!(
        "Every sending port is offered more than it may hold while the switch stands still. Expected: αB/(1+αN) frames \
         each, of B frames that N ports share (Choudhury and Hahne 1998). Then a quiet port's burst of {BURST} packets \
         arrives in the pool that {CROWDED} ports have saturated; then {} random events happen.",
        options.events
    );
    let mut report = Report::begin("threshold", "What saturated ports hold", about);
    let outcome = measure(&mut report).and_then(|()| shake(options, &mut report));
    report.conclude(outcome, &options.output)
}

fn measure(report: &mut Report) -> Result<()> {
    let mut bursts = Vec::new();
    for policy in Policy::ALL {
        eprintln!("policy {}", policy.name());
        let setup = Setup {
            policy,
            depth: Some(saturate::DEPTH),
            frames: Some(saturate::FRAMES),
            ..Setup::default()
        };
        let Some(mut arena) = Arena::build(&setup, CROWDED, report)? else { continue };
        if policy == Policy::Dt {
            let held = held_against_formula(&mut arena)?;
            fill_held(report, &held);
        }
        for (th, alpha) in ALPHAS {
            eprintln!("a burst into the saturated pool, α = {alpha}");
            bursts.push((policy, alpha, arena.burst(th, BURST)?));
        }
    }
    fill_bursts(report, &bursts);
    Ok(())
}

/// Random events, and the frames that do not come back.
fn shake(options: &Options, report: &mut Report) -> Result<()> {
    eprintln!("{} random events", options.events);
    let setup = Setup { frames: Some(RANDOM_FRAMES), ..Setup::default() };
    let Some(mut arena) = Arena::build(&setup, RANDOM_HOSTS, report)? else { return Ok(()) };
    let outcome = events::run(&mut arena, options.events, options.seed)?;
    let columns = [
        "seed",
        "packets",
        "changes",
        "drops on the last ports",
        "used afterwards",
        "frames astray",
        "seconds",
    ];
    let mut table = Table::new("After random events", columns);
    table.row([
        options.seed.into(),
        outcome.packets.into(),
        outcome.changes.into(),
        outcome.dropped.into(),
        outcome.left.into(),
        outcome.astray.into(),
        outcome.took.as_secs_f64().into(),
    ]);
    report.table(table);
    report.note(
        "Packets go from any host to any host, to everybody, and to stations nobody has heard of. Changes: a port's \
         threshold, reserve or ring depth, policy, spool mode, size of the pool, a port deleted and added.",
    );
    if outcome.left + outcome.astray > 0 {
        report.broken(format!(
            "after random events ports still hold {} frames, and {} are neither free nor posted",
            outcome.left, outcome.astray
        ));
    }
    Ok(())
}

/// What the senders of one round held.
#[derive(Debug, Clone)]
struct Held {
    alpha: &'static str,
    shared: u64,
    expected: f64,
    /// Each sender's frames.
    frames: Vec<u64>,
    /// Frames that ports still hold after everything has drained.
    left: u64,
}

impl Held {
    /// The greatest distance from the formula, in percent, with its sign.
    fn error_percent(&self) -> f64 {
        let off = |frames: &u64| 100.0 * (*frames as f64 / self.expected - 1.0);
        self.frames.iter().map(off).max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(f64::NAN)
    }
}

fn held_against_formula(arena: &mut Arena) -> Result<Vec<Held>> {
    let mut all = Vec::new();
    for (th, alpha) in ALPHAS {
        for senders in SENDERS {
            eprintln!("α = {alpha}, {senders} ports");
            let round = arena.saturate(th, senders)?;
            let expected = formula::held(th, senders, arena.shared());
            all.push(Held { alpha, shared: arena.shared(), expected, frames: round.held, left: round.left });
        }
    }
    Ok(all)
}

fn fill_held(report: &mut Report, rounds: &[Held]) {
    let columns = [
        "α",
        "ports",
        "shared B",
        "αB/(1+αN)",
        "held, least",
        "held, most",
        "worst error, %",
        "used afterwards",
    ];
    let mut table = Table::new("Frames that saturated ports hold", columns);
    for round in rounds {
        let (least, most) = (round.frames.iter().min().copied(), round.frames.iter().max().copied());
        let error = round.error_percent();
        let ports = round.frames.len() as u64;
        table.row([
            round.alpha.into(),
            ports.into(),
            round.shared.into(),
            round.expected.into(),
            least.into(),
            most.into(),
            error.into(),
            round.left.into(),
        ]);
        let place = format!("α = {}, {ports} ports", round.alpha);
        if round.left > 0 {
            report.broken(format!(
                "{place}: ports still hold {} frames after everything has drained",
                round.left
            ));
        }
        if error.abs() > TOLERANCE_PERCENT {
            report.broken(format!("{place}: held frames are {error:.1} % off the formula"));
        }
    }
    report.table(table);
    for (_, alpha) in ALPHAS {
        report.chart(chart(rounds, alpha));
    }
}

fn chart(rounds: &[Held], alpha: &str) -> Chart {
    let rounds: Vec<&Held> = rounds.iter().filter(|round| round.alpha == alpha).collect();
    let labels = rounds.iter().map(|round| format!("{} ports", round.frames.len()));
    let mean = |round: &&Held| round.frames.iter().sum::<u64>() as f64 / round.frames.len() as f64;
    Chart::new(format!("Frames each saturated port holds, α = {alpha}"), "frames", Shape::Bars, labels)
        .with(Series::new("held, mean", rounds.iter().map(|round| Some(mean(round)))))
        .with(Series::published("αB/(1+αN)", rounds.iter().map(|round| Some(round.expected))))
}

fn fill_bursts(report: &mut Report, bursts: &[(Policy, &'static str, Burst)]) {
    let columns = [
        "policy",
        "α",
        "saturated ports",
        "quiet port's reserve",
        "burst",
        "refused",
        "of the burst, %",
        "crowd holds each, mean",
        "used afterwards",
    ];
    let mut table = Table::new("A quiet port's burst into the saturated pool", columns);
    for (policy, alpha, burst) in bursts {
        let share = 100.0 * burst.refused as f64 / BURST as f64;
        table.row([
            policy.name().into(),
            (*alpha).into(),
            (CROWDED as u64).into(),
            burst.reserve.into(),
            BURST.into(),
            burst.refused.into(),
            share.into(),
            burst.crowd_mean.into(),
            Cell::from(burst.left),
        ]);
        if burst.left > 0 {
            report.broken(format!(
                "policy {}, α = {alpha}: ports still hold {} frames",
                policy.name(),
                burst.left
            ));
        }
    }
    report.table(table);
    let labels = ALPHAS.map(|(_, alpha)| format!("α = {alpha}"));
    let mut chart = Chart::new("Refused of a quiet port's burst", "packets", Shape::Bars, labels);
    for policy in Policy::ALL {
        let refused = |alpha: &str| {
            let mut found = bursts.iter().filter(|(of, at, _)| *of == policy && *at == alpha);
            found.next().map(|(_, _, burst)| burst.refused as f64)
        };
        chart = chart.with(Series::new(policy.name(), ALPHAS.map(|(_, alpha)| refused(alpha))));
    }
    report.chart(chart);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(frames: Vec<u64>, left: u64) -> Held {
        Held { alpha: "1", shared: 4000, expected: 1000.0, frames, left }
    }

    #[test]
    fn the_worst_port_is_held_against_the_formula() {
        assert!((held(vec![1000, 1020, 970], 0).error_percent() + 3.0).abs() < 1e-9);
    }

    #[test]
    fn frames_that_stay_and_ports_that_take_too_much_are_broken() {
        let text_of = |round| {
            let mut report = Report::begin("threshold", "t", "a");
            fill_held(&mut report, &[round]);
            report.text()
        };
        assert!(!text_of(held(vec![1000, 1001], 0)).contains("BROKEN"));
        assert!(text_of(held(vec![1000, 1001], 1)).contains("still hold 1 frames"));
        assert!(text_of(held(vec![1000, 1101], 0)).contains("10.1 % off"));
    }
}
