//! What was found, kind by kind.

use forebay_testbed::host::PortKind;
use forebay_testbed::measure::spread::Spread;

use super::course::What;
use super::judge::{Judge, Tally};
use crate::experiment::{Cell, Report, Table};

/// Puts one kind of port into the report.
pub(super) fn fill(report: &mut Report, kind: PortKind, judge: &Judge) {
    let columns = [
        "change",
        "made",
        "frames received after it",
        "lost",
        "violations",
        "asked",
        "verdict",
        "carried by the kernel again, median ms",
        "longest, ms",
        "not within 2 s",
    ];
    let mut table = Table::new(format!("Changes with {} ports", kind.name()), columns);
    let mut whole = Tally::default();
    for what in What::ALL {
        let tally = judge.tally(what);
        table.row(row(what.name(), &tally));
        whole.count += tally.count;
        whole.frames += tally.frames;
        whole.lost += tally.lost;
        whole.violations += tally.violations;
        whole.not_carried += tally.not_carried;
        whole.carried.extend(tally.carried);
    }
    table.row(row("all", &whole));
    report.table(table);
    if whole.violations > 0 {
        report.broken(format!(
            "{} frames did not obey a change with {} ports",
            whole.violations,
            kind.name()
        ));
        judge.examples().iter().for_each(|example| report.note(example.clone()));
    }
    if whole.not_carried > 0 {
        let (count, kind) = (whole.not_carried, kind.name());
        report
            .broken(format!("after {count} changes with {kind} ports the kernel did not carry the new way"));
    }
    if let Some(refused) = judge.refused {
        let named: Vec<String> = refused.iter().map(|(name, count)| format!("{name} {count}")).collect();
        report.note(format!("Flows not installed with {} ports: {}.", kind.name(), named.join(", ")));
    }
}

fn row(name: &str, tally: &Tally) -> [Cell; 10] {
    let times = Spread::of(tally.carried.iter().map(|time| time.as_secs_f64() * 1e3));
    let verdict = match (tally.count, tally.violations, tally.not_carried) {
        (0, ..) => "not made",
        (_, 0, 0) => "holds",
        (_, 0, _) => "NOT CARRIED",
        _ => "DOES NOT HOLD",
    };
    [
        name.into(),
        tally.count.into(),
        tally.frames.into(),
        tally.lost.into(),
        tally.violations.into(),
        "0".into(),
        verdict.into(),
        times.map(|times| times.median).into(),
        times.map(|times| times.most).into(),
        tally.not_carried.into(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::course::{COURSE, Step, place};
    use super::super::judge::Heard;
    use super::*;

    fn text(place: u8) -> String {
        let mut judge = Judge::default();
        judge.completed(Step::HOME, 0);
        judge.completed(COURSE[0], 10);
        judge.carried(Some(Duration::from_millis(3)));
        judge.hear(Heard { number: 12, begun: 1, place });
        let mut report = Report::begin("changes", "t", "a");
        fill(&mut report, PortKind::VethTcx, &judge);
        report.text()
    }

    #[test]
    fn a_violation_breaks_the_report_and_none_does_not() {
        assert!(!text(place::C).contains("BROKEN"), "{}", text(place::C));
        let broken = text(place::B);
        assert!(broken.contains("BROKEN: 1 frames") && broken.contains("DOES NOT HOLD"), "{broken}");
    }
}
