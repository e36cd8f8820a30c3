//! How policies of moderation respond to loads: constant ones, steps, ramps, bursts, mixes, and a load that follows the
//! moderation. Everything is simulated, in virtual time and at stated costs, so that the same numbers come out each time.

mod loads;
mod played;

use forebay_testbed::Result;

use self::loads::{Constant, Course};
use self::played::{Name, Played};
use super::{Cell, Chart, OutputOptions, Report, Series, Shape, Table};

/// After a step of load a policy is to have settled within this time, in milliseconds.
const SETTLED_MS: f64 = 20.0;
/// From this difference on one row is better than another.
const MORE: f64 = 1.03;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Virtual seconds of each constant load, after which moves are counted
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Simulates and reports; false when `adaptive` moves under a constant load, does not settle, carries less than `dim`, or is worse
/// than it and better in nothing.
///
/// # Errors
/// When a file can't be written.
pub fn run(options: &Options) -> Result<bool> {
    let about = "Simulated: one guest with one processor, a worker, and the policies that decide after each turn. Costs are \
                 stated and not measured: 4 µs for an interrupt and 0.5 µs for a packet; where segments are joined, 8 µs \
                 and 1 ns for each byte. Latency is from a packet's arrival until the guest has it, of the first of the \
                 loads. Rest: moves an hour, after the first 200 ms. Settled: time of the last move after a step. \
                 Overshoot: the longest hold on the way beyond the one at the end, as a part of that.";
    let mut report = Report::begin("moderation-loads", "Moderation under loads that change", about);
    at_rest(options, &mut report);
    for course in loads::courses() {
        follow(&course, &mut report);
    }
    report.conclude(Ok(()), &options.output)
}

fn at_rest(options: &Options, report: &mut Report) {
    let columns = [
        "load",
        "policy",
        "packets, 1000/s",
        "Gbit/s",
        "interrupts, 1000/s",
        "guest, %",
        "p50, µs",
        "p99, µs",
        "moves an hour",
        "worse than dim by > 3 %",
        "better",
    ];
    let mut table = Table::new("Constant loads", columns);
    for constant in loads::constants() {
        eprintln!("{}", constant.name);
        let rows = Name::ALL.map(|name| Played::constant(&constant, name, options.seconds));
        let (dim, ours) = (&rows[1], &rows[2]);
        let [worse, better] = [better(dim, ours), better(ours, dim)];
        for (name, played) in Name::ALL.iter().zip(&rows) {
            let is_ours = *name == Name::Adaptive;
            table.row([
                Cell::from(if *name == Name::Off { constant.name } else { "" }),
                name.text().into(),
                (played.packets_a_second / 1e3).into(),
                played.gigabits.into(),
                (played.calls_a_second / 1e3).into(),
                (100.0 * played.guest_share).into(),
                played.p50_us.into(),
                played.p99_us.into(),
                played.moves_an_hour.into(),
                if is_ours { named(&worse) } else { "".into() },
                if is_ours { named(&better) } else { "".into() },
            ]);
            if is_ours && played.moves_an_hour > 0.0 {
                report.broken(format!("adaptive moves under a constant load: {}", constant.name));
            }
        }
        judge(&constant, [&worse, &better], report);
    }
    report.table(table);
}

/// In what one row is better than another by more than [`MORE`].
fn better(one: &Played, other: &Played) -> Vec<&'static str> {
    let more = |one: f64, other: f64| one > other * MORE;
    let has_more = more(one.gigabits, other.gigabits) || more(one.packets_a_second, other.packets_a_second);
    let all = [
        ("throughput", has_more),
        ("interrupts", more(other.calls_a_second, one.calls_a_second)),
        ("p99", more(other.p99_us, one.p99_us)),
    ];
    all.into_iter().filter_map(|(name, is_better)| is_better.then_some(name)).collect()
}

fn named(which: &[&str]) -> Cell {
    if which.is_empty() { "–".into() } else { which.join(", ").into() }
}

/// What must hold: a loop's throughput is not the price of fewer interrupts, and whatever is worse has bought something.
fn judge(constant: &Constant, [worse, better]: [&[&str]; 2], report: &mut Report) {
    if worse.contains(&"throughput") {
        report.broken(format!("adaptive carries less than dim: {}", constant.name));
    }
    if !worse.is_empty() && better.is_empty() {
        report.broken(format!("adaptive is worse than dim, and in nothing better: {}", constant.name));
    }
}

fn follow(course: &Course, report: &mut Report) {
    eprintln!("{}", course.name);
    let columns = [
        "step",
        "to",
        "policy",
        "settled, ms",
        "moves",
        "overshoot, %",
        "hold at the end, µs",
        "interrupts at the end, 1000/s",
    ];
    let mut table = Table::new(course.name, columns);
    let played = [Name::Dim, Name::Adaptive].map(|name| (name, Played::course(course, name)));
    for (number, step) in course.steps.iter().enumerate() {
        for (name, steps) in &played {
            let found = &steps[number];
            table.row([
                Cell::from(number as u64 + 1),
                step.name.into(),
                name.text().into(),
                found.settled_ms.into(),
                (found.moves as u64).into(),
                (100.0 * found.overshoot).into(),
                f64::from(found.usecs).into(),
                (found.calls_a_second / 1e3).into(),
            ]);
            if *name == Name::Adaptive && course.is_judged && found.settled_ms > SETTLED_MS {
                let text = format!(
                    "{}: adaptive settles {:.1} ms after the step to {}",
                    course.name, found.settled_ms, step.name
                );
                report.broken(text);
            }
        }
    }
    report.table(table);
    let labels =
        || (0..played[0].1.iter().map(|step| step.holds.len()).sum::<usize>()).map(|ms| ms.to_string());
    let chart = |title: String, unit, of: fn(&played::Step) -> &[f64]| {
        let mut chart = Chart::new(title, unit, Shape::Lines, labels());
        for (name, steps) in &played {
            let values = steps.iter().flat_map(of).map(|value| Some(*value));
            chart = chart.with(Series::new(name.text(), values.collect::<Vec<_>>()));
        }
        chart
    };
    report.chart(chart(format!("{}: hold in force, by ms", course.name), "µs", |step| &step.holds));
    report.chart(chart(format!("{}: interrupts, by ms", course.name), "1000/s", |step| &step.calls));
}
