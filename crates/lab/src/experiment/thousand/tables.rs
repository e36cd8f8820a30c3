//! What was measured, beside what was promised and what the slides have.

use forebay_testbed::measure::spread::number;

use super::super::{Cell, Chart, Report, Series, Shape, Table, megabytes, published};
use super::crowd::Reached;
use super::{Attached, Bare, Spoken};

/// The number of ports that the promises are about.
pub(super) const PROMISED_PORTS: u32 = 1000;
const TARGET_MEGABYTES: f64 = 150.0;
const TARGET_PORT_KIB: f64 = 64.0;
const TARGET_SECONDS: f64 = 5.0;
const TARGET_IDLE_PERCENT: f64 = 1.0;
/// The depth of a representor's ring that is usual.
const USUAL_DEPTH: u32 = 1024;

/// Puts everything into the report.
pub(super) fn fill(report: &mut Report, ports: u32, bare: &Bare, attached: &Attached, spoken: &Spoken) {
    let whole = attached.with_ports.since(&bare.baseline);
    report.table(memory(ports, bare, attached, spoken));
    report.table(time(ports, bare, attached));
    reach(report, ports, &spoken.reached);
    compare(report, ports, whole[0]);
}

/// Whether a promise was kept; nothing where it is about another number of ports.
fn verdict(ports: u32, value: f64, limit: f64) -> Cell {
    let word = if value <= limit { "kept" } else { "MISSED" };
    (ports == PROMISED_PORTS).then_some(word).into()
}

/// What was promised, where it is about this number of ports.
fn target(ports: u32, limit: Option<f64>) -> Option<String> {
    limit.filter(|_| ports == PROMISED_PORTS).map(|limit| format!("≤ {limit}"))
}

fn memory(ports: u32, bare: &Bare, attached: &Attached, spoken: &Spoken) -> Table {
    let mut table = Table::new("Memory", ["what", "measured", "by MemAvailable", "target", "verdict"]);
    let mut row = |what: &str, [held, available]: [f64; 2], limit: Option<f64>| {
        let verdict = limit.map(|limit| verdict(ports, held, limit));
        let target = target(ports, limit);
        table.row([what.into(), held.into(), available.into(), target.into(), verdict.unwrap_or(Cell::None)]);
    };
    let whole = attached.with_ports.since(&bare.baseline);
    let pool = megabytes(attached.pool_bytes as f64);
    let beyond = whole.map(|whole| (whole - pool) * 1e6 / f64::from(ports) / 1024.0);
    let growth = attached.with_ports.since(&attached.without_ports);
    let each = growth.map(|growth| growth * 1e6 / f64::from(ports) / 1024.0);
    row("whole cost with all ports, MB", whole, Some(TARGET_MEGABYTES));
    row("a port, all beyond the pool divided, KiB", beyond, Some(TARGET_PORT_KIB));
    row("a port, what ports added divided, KiB", each, None);
    row("daemon and pool without ports, MB", attached.without_ports.since(&bare.baseline), None);
    row("with all ports, after every host has spoken, MB", spoken.memory.since(&bare.baseline), None);
    row("drift before the start, nothing done, MB", bare.baseline.since(&bare.first), None);
    row("readings of the baseline lie apart by, MB", bare.baseline.width(), None);
    table
}

fn time(ports: u32, bare: &Bare, attached: &Attached) -> Table {
    let mut table = Table::new("Time", ["what", "measured", "target", "verdict"]);
    let mut row = |what: &str, value: f64, limit: Option<f64>, verdict: Cell| {
        let target = target(ports, limit);
        table.row([what.into(), value.into(), target.into(), verdict]);
    };
    let seconds = attached.request.as_secs_f64();
    let kept = verdict(ports, seconds, TARGET_SECONDS);
    row("all ports attached by one request, s", seconds, Some(TARGET_SECONDS), kept);
    let percent = |share: f64| share * 100.0;
    let idle = percent(attached.daemon + (attached.interrupts - bare.interrupts).max(0.0));
    let kept = idle_verdict(ports, percent(attached.daemon), percent(bare.interrupts), idle);
    row("idle: daemon, and interrupts more than before, % of a core", idle, Some(TARGET_IDLE_PERCENT), kept);
    row("of this the daemon", percent(attached.daemon), None, Cell::None);
    row("all interrupts of the machine with the switch", percent(attached.interrupts), None, Cell::None);
    row("all interrupts of the machine before it", percent(bare.interrupts), None, Cell::None);
    table
}

/// Interrupts are everybody's: where others have more of them than half of what the target allows, only the daemon's
/// own time can miss it.
fn idle_verdict(ports: u32, daemon: f64, interrupts_before: f64, idle: f64) -> Cell {
    let is_quiet = interrupts_before < TARGET_IDLE_PERCENT / 2.0;
    match verdict(ports, if is_quiet { idle } else { daemon }, TARGET_IDLE_PERCENT) {
        Cell::Text(word) if !is_quiet && word == "kept" => {
            "by the daemon; others' interrupts hide the rest".into()
        }
        verdict => verdict,
    }
}

fn reach(report: &mut Report, ports: u32, reached: &Reached) {
    let columns = ["hosts", "reached the common host", "at the first try", "seconds"];
    let mut table = Table::new("Who is reached", columns);
    let seconds = reached.duration.as_secs_f64();
    table.row([ports.into(), reached.hosts.into(), reached.at_once.into(), seconds.into()]);
    report.table(table);
    if reached.hosts < ports {
        report.broken(format!("{} of {ports} hosts did not reach the common host", ports - reached.hosts));
    }
}

/// Beside as many mlx5 representors.
fn compare(report: &mut Report, ports: u32, whole: f64) {
    let Some(each) = published::representor_megabytes(USUAL_DEPTH, 1) else { return };
    let theirs = each * f64::from(ports);
    let (sum, times) = (number(theirs), number(theirs / whole));
    report.note(format!(
        "The slides: a representor with one queue of {USUAL_DEPTH} takes {each} MB, so {ports} take {sum} MB: {times} \
         times as much."
    ));
    let chart = Chart::new("Memory of all ports", "MB", Shape::Bars, [format!("{ports} ports")]);
    let chart = chart.with(Series::new("forebay, pool included", [Some(whole)]));
    report.chart(chart.with(Series::published("slides: mlx5, depth 1024", [Some(theirs)])));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_testbed::measure::spread::Spread;

    use super::super::point::Point;
    use super::*;

    fn point(held_mb: f64) -> Point {
        let spread = |mb: f64| Spread { median: mb * 1e6, least: mb * 1e6, most: mb * 1e6 };
        Point { held: spread(held_mb), available: spread(20_000.0 - held_mb) }
    }

    fn report_of(ports: u32, whole_mb: f64) -> String {
        let bare = Bare { first: point(200.0), baseline: point(200.0), interrupts: 0.002 };
        let attached = Attached {
            without_ports: point(245.0),
            with_ports: point(200.0 + whole_mb),
            request: Duration::from_millis(400),
            pool_bytes: 32 << 20,
            daemon: 0.001,
            interrupts: 0.003,
        };
        let reached = Reached { hosts: ports - 1, at_once: 1, duration: Duration::from_secs(1) };
        let mut report = Report::begin("thousand", "t", "a");
        fill(&mut report, ports, &bare, &attached, &Spoken { reached, memory: point(300.0) });
        report.text()
    }

    #[test]
    fn a_promise_that_is_missed_says_so_and_one_for_another_number_says_nothing() {
        let text = report_of(1000, 90.0);
        assert!(text.contains("kept") && !text.contains("MISSED"), "{text}");
        assert!(report_of(1000, 151.0).contains("MISSED"));
        let many = report_of(4000, 400.0);
        assert!(!many.contains("kept") && !many.contains("MISSED"), "{many}");
    }

    #[test]
    fn others_interrupts_neither_keep_nor_miss_the_promise_of_an_idle_switch() {
        assert_eq!(idle_verdict(1000, 0.1, 0.2, 0.9).text(), "kept");
        assert_eq!(idle_verdict(1000, 0.1, 0.2, 1.1).text(), "MISSED");
        assert!(idle_verdict(1000, 0.1, 4.0, 2.8).text().starts_with("by the daemon"));
        assert_eq!(idle_verdict(1000, 1.1, 4.0, 2.8).text(), "MISSED");
    }

    #[test]
    fn a_port_beyond_the_pool_is_the_rest_divided() {
        // (90 MB − 32 MiB) / 1000 ports.
        assert!(report_of(1000, 90.0).contains("55.1"), "{}", report_of(1000, 90.0));
    }

    #[test]
    fn a_host_that_is_not_reached_is_not_passed_over() {
        assert!(report_of(1000, 90.0).contains("BROKEN: 1 of 1000 hosts"));
    }
}
