//! What was found, beside what is asked.

use forebay_testbed::measure::spread::Spread;
use hdrhistogram::Histogram;

use super::super::{Cell, Chart, Report, Series, Shape, Table, megabytes};
use super::Options;
use super::first::First;
use super::flood::Flooded;
use super::grid::{Grid, IDLE_SECONDS};

/// A handful: what classes of six rules can make of one pair of addresses.
const ASKED_FLOWS: u64 = 64;
/// Of its rate before, what an established flow keeps.
const ASKED_SHARE: f64 = 0.9;
/// Of all flows, those that must be installed.
const ASKED_INSTALLED: f64 = 0.99;

fn verdict(holds: bool) -> Cell {
    if holds { "holds" } else { "DOES NOT HOLD" }.into()
}

/// Memory, installing, rates and expiry.
pub(super) fn grid(report: &mut Report, options: &Options, grid: &Grid) {
    report.table(memory(options, grid));
    report.table(installing(options, grid));
    report.table(rates(options, grid));
    report.table(expiry(grid));
    let refused = grid.table.refused.iter().map(|(name, count)| format!("{name} {count}"));
    let refused = refused.collect::<Vec<_>>().join(", ");
    report.note(format!("Offers that were not installed while all flows were new: {refused}."));
    if (grid.install.installed as f64) < ASKED_INSTALLED * options.all() as f64 {
        report.broken(format!("only {} of {} flows were installed", grid.install.installed, options.all()));
    }
    if grid.expiry.left > 0 {
        report.broken(format!("{} idle flows did not go", grid.expiry.left));
    }
}

fn memory(options: &Options, grid: &Grid) -> Table {
    let mut table = Table::new("Memory", ["what", "measured", "by MemAvailable"]);
    let [held, available] = grid.memory.with.since(&grid.memory.without);
    let each = |whole: f64| whole * 1e6 / options.all() as f64;
    let width = grid.memory.without.width();
    table.row(["all flows, beyond the empty table, MB".into(), held.into(), available.into()]);
    table.row(["a flow, beyond the empty table, bytes".into(), each(held).into(), each(available).into()]);
    table.row(["readings lie apart by, MB".into(), width[0].into(), width[1].into()]);
    let table_mb = megabytes(grid.table.bytes as f64);
    table.row(["the table for all that may be, as the daemon says, MB".into(), table_mb.into(), Cell::None]);
    table.row(["flows that may be".into(), grid.table.max_entries.into(), Cell::None]);
    table
}

fn installing(options: &Options, grid: &Grid) -> Table {
    let columns = ["flows", "asked, %", "installed", "verdict", "seconds", "flows a second"];
    let mut table = Table::new("Installing, all flows new", columns);
    let install = &grid.install;
    let holds = install.installed as f64 >= ASKED_INSTALLED * options.all() as f64;
    table.row([
        options.all().into(),
        (ASKED_INSTALLED * 100.0).into(),
        install.installed.into(),
        verdict(holds),
        install.duration.as_secs_f64().into(),
        install.rate.into(),
    ]);
    table
}

fn rates(options: &Options, grid: &Grid) -> Table {
    let columns = ["what", "median", "least", "most"];
    let mut table = Table::new("60-byte frames over XDP, Mpps", columns);
    let mut row = |what: String, numbers: Vec<f64>| {
        let spread = Spread::of(numbers);
        let cells = [|s: Spread| s.median, |s: Spread| s.least, |s: Spread| s.most];
        let [median, least, most] = cells.map(|of| Cell::from(spread.map(of)));
        table.row([what.into(), median, least, most]);
    };
    row("one flow".to_owned(), grid.rates.iter().map(|[one, _]| *one).collect());
    row(format!("{} flows in turn", options.all()), grid.rates.iter().map(|[_, all]| *all).collect());
    row("ratio within a round".to_owned(), grid.rates.iter().map(|[one, all]| all / one).collect());
    table
}

fn expiry(grid: &Grid) -> Table {
    let columns = [
        "flows",
        "idle time, s",
        "left",
        "asked",
        "verdict",
        "seconds from the last packet",
        "flows a second",
    ];
    let mut table = Table::new("Expiry", columns);
    let expiry = &grid.expiry;
    let seconds = expiry.duration.as_secs_f64();
    let beyond = (seconds - f64::from(IDLE_SECONDS)).max(0.0);
    table.row([
        expiry.flows.into(),
        IDLE_SECONDS.into(),
        expiry.left.into(),
        0u32.into(),
        verdict(expiry.left == 0),
        seconds.into(),
        (beyond > 0.0).then(|| (expiry.flows - expiry.left) as f64 / beyond).into(),
    ]);
    table
}

/// The first packets.
pub(super) fn first(report: &mut Report, first: &First) {
    let columns = ["packets", "timed", "p50, µs", "p99, µs"];
    let mut table = Table::new("From one socket to the other", columns);
    let micros = |times: &Histogram<u64>, q| times.value_at_quantile(q) as f64 / 1e3;
    let woken = "by itself: a thread on the worker's processor is woken, and answers";
    for (name, times) in
        [("first of a flow", &first.first), ("later, in the kernel", &first.later), (woken, &first.woken)]
    {
        table.row([name.into(), times.len().into(), micros(times, 0.5).into(), micros(times, 0.99).into()]);
    }
    report.table(table);
    if first.lost + first.not_installed > 0 {
        let First { lost, not_installed, .. } = first;
        report.note(format!(
            "Of these packets {lost} did not arrive; {not_installed} flows were not installed."
        ));
    }
    let pair = |q| [Some(micros(&first.first, q)), Some(micros(&first.later, q))];
    let chart = Chart::new("Latency of a packet", "µs", Shape::Bars, ["first", "later"]);
    report.chart(chart.with(Series::new("p50", pair(0.5))).with(Series::new("p99", pair(0.99))));
}

/// The flood.
pub(super) fn flood(report: &mut Report, flooded: &Flooded) {
    let mut table = Table::new("A flood of 5-tuples", ["what", "measured", "asked", "verdict"]);
    let mut row = |what: &str, value: Cell| table.row([what.into(), value, Cell::None, Cell::None]);
    let Flooded { before, during, beside, after, .. } = *flooded;
    let percent = |share: f64| Cell::from(share * 100.0);
    row("distinct 5-tuples sent", flooded.tuples.into());
    row("seconds", flooded.duration.as_secs_f64().into());
    row("of its frames arrived, %", percent(flooded.arrived as f64 / flooded.tuples as f64));
    row("share of a processor: the flood's thread and ksoftirqd, %", percent(flooded.share));
    row("share of a processor: the daemon, %", percent(flooded.daemon));
    row("an established flow before, Mpps", before.into());
    row("during, Mpps", during.into());
    row("beside the same flood into a netdev that is no port, Mpps", beside.into());
    row("after, Mpps", after.into());
    row("during / beside the flood into no port", (during / beside).into());
    // The machine itself is faster or slower by the minute: what it was on either side of the flood counts.
    let share = during / f64::midpoint(before, after);
    let (few, keeps) = (flooded.flows <= ASKED_FLOWS, share >= ASKED_SHARE);
    let asked = format!("≤ {ASKED_FLOWS}");
    table.row(["flows that it made".into(), flooded.flows.into(), asked.into(), verdict(few)]);
    let asked = format!("≥ {ASKED_SHARE}");
    table.row(["during / mean of before and after".into(), share.into(), asked.into(), verdict(keeps)]);
    report.table(table);
    if !few {
        report.broken(format!("a flood of 5-tuples made {} flows", flooded.flows));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(flows: u64, during: f64) -> String {
        let flooded = Flooded {
            tuples: 1000,
            duration: Duration::from_secs(1),
            arrived: 1000,
            flows,
            before: 2.0,
            during,
            beside: 2.0,
            after: 2.0,
            share: 0.3,
            daemon: 0.0,
        };
        let mut report = Report::begin("flows", "t", "a");
        flood(&mut report, &flooded);
        report.text()
    }

    #[test]
    fn many_flows_of_a_flood_break_the_report_and_a_slow_flow_only_does_not_hold() {
        assert!(!text(12, 1.9).contains("HOLD"), "{}", text(12, 1.9));
        let slow = text(12, 1.0);
        assert!(slow.contains("DOES NOT HOLD") && !slow.contains("BROKEN"), "{slow}");
        assert!(text(5000, 1.9).contains("BROKEN: a flood of 5-tuples made 5000 flows"));
    }
}
