//! The table and charts of what ports cost.

use forebay_control::eswitch::SpoolMode;
use forebay_testbed::measure::spread::number;

use super::super::published;
use super::super::{Cell, Chart, Report, Series, Shape, Table};
use super::{MODES, QUEUES};

/// The depth that comparisons with others are made at: a ring's usual one.
const USUAL_DEPTH: u32 = 1024;
const KILOBYTES: f64 = 1000.0;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    Forebay { mode: SpoolMode, depth: u32 },
    Ovs,
}

/// What was said beforehand, in MB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prediction {
    pub(super) whole: f64,
    pub(super) a_port: f64,
}

/// One row, in MB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) switch: Switch,
    pub(super) queues: u32,
    pub(super) ports: u32,
    pub(super) without_ports: f64,
    pub(super) whole: f64,
    pub(super) predicted: Option<Prediction>,
}

impl Row {
    fn a_port(&self) -> f64 {
        (self.whole - self.without_ports) / f64::from(self.ports)
    }

    fn name(&self) -> String {
        match self.switch {
            Switch::Forebay { mode, .. } => mode.name().to_owned(),
            Switch::Ovs => "ovs-afxdp".to_owned(),
        }
    }

    fn depth(&self) -> Option<u32> {
        match self.switch {
            Switch::Forebay { depth, .. } => Some(depth),
            Switch::Ovs => None,
        }
    }

    /// By how many percent the prediction is off.
    fn off_percent(&self) -> Option<f64> {
        self.predicted.map(|predicted| 100.0 * (predicted.whole / self.whole - 1.0))
    }

    fn cells(&self, ovs: Option<&Row>) -> [Cell; 12] {
        let theirs = self.depth().and_then(|depth| published::representor_megabytes(depth, self.queues));
        let is_ovs = self.switch == Switch::Ovs;
        let less = ovs.filter(|_| !is_ovs).map(|ovs| ovs.a_port() / self.a_port());
        let depth = self.depth().map_or(Cell::from("its own"), Cell::from);
        [
            self.name().into(),
            self.queues.into(),
            depth,
            self.ports.into(),
            (self.a_port() * KILOBYTES).into(),
            self.predicted.map(|predicted| predicted.a_port * KILOBYTES).into(),
            self.without_ports.into(),
            self.whole.into(),
            self.predicted.map(|predicted| predicted.whole).into(),
            self.off_percent().into(),
            less.into(),
            theirs.map(|megabytes| megabytes * KILOBYTES).into(),
        ]
    }
}

const COLUMNS: [&str; 12] = [
    "spool mode",
    "queues",
    "depth",
    "ports",
    "a port, kB",
    "predicted, kB",
    "without ports, MB",
    "whole, MB",
    "whole predicted, MB",
    "off, %",
    "times less than OVS a port",
    "slides: mlx5 representor, kB",
];

/// Puts everything into the report.
pub(super) fn fill(report: &mut Report, depths: &[u32], rows: &[Row]) {
    let mut table = Table::new("Memory, the kernel's included", COLUMNS);
    let ovs = |queues: u32| rows.iter().find(|row| row.switch == Switch::Ovs && row.queues == queues);
    rows.iter().for_each(|row| table.row(row.cells(ovs(row.queues))));
    report.table(table);
    for queues in QUEUES {
        report.chart(chart(depths, rows, queues));
    }
    let is_usual = |row: &&Row| row.switch == Switch::Forebay { mode: SpoolMode::Spp, depth: USUAL_DEPTH };
    for row in rows.iter().filter(is_usual) {
        if let Some(ovs) = ovs(row.queues) {
            report.note(format!(
                "{} queues, depth {USUAL_DEPTH}: a port of OVS takes {} times what one takes in spp.",
                row.queues,
                number(ovs.a_port() / row.a_port())
            ));
        }
    }
}

fn chart(depths: &[u32], rows: &[Row], queues: u32) -> Chart {
    let title = format!("A port over its depth, {queues} queues");
    let labels = depths.iter().map(u32::to_string);
    let mut chart = Chart::new(title, "kB", Shape::Lines, labels).logarithmic();
    let at = |switch: Switch| rows.iter().find(|row| row.switch == switch && row.queues == queues);
    let kilobytes = |switch: Switch| at(switch).map(|row| row.a_port() * KILOBYTES);
    for mode in MODES {
        let values = depths.iter().map(|depth| kilobytes(Switch::Forebay { mode, depth: *depth }));
        chart = chart.with(Series::new(mode.name(), values));
    }
    chart =
        chart.with(Series::new("OVS AF_XDP, its own depth", depths.iter().map(|_| kilobytes(Switch::Ovs))));
    let theirs = |depth: &u32| published::representor_megabytes(*depth, queues).map(|mega| mega * KILOBYTES);
    chart.with(Series::published("slides: mlx5", depths.iter().map(theirs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [Row; 2] {
        let spp = Switch::Forebay { mode: SpoolMode::Spp, depth: 1024 };
        let predicted = Some(Prediction { whole: 46.2, a_port: 0.042 });
        let ours = Row { switch: spp, queues: 1, ports: 100, without_ports: 40.0, whole: 44.0, predicted };
        let ovs = Row {
            switch: Switch::Ovs,
            ports: 10,
            without_ports: 100.0,
            whole: 900.0,
            predicted: None,
            ..ours
        };
        [ours, ovs]
    }

    #[test]
    fn a_port_is_the_growth_divided_and_compared_within_the_run() {
        let [spp, ovs] = rows();
        assert!((spp.a_port() - 0.04).abs() < 1e-9 && (ovs.a_port() - 80.0).abs() < 1e-9);
        assert!((spp.off_percent().unwrap() - 5.0).abs() < 1e-9);
        let cells = spp.cells(Some(&ovs)).map(|cell| cell.text());
        assert_eq!(cells[4..6], ["40.0", "42.0"]);
        assert_eq!(cells[10..], ["2000", "2860"]);
        assert_eq!(ovs.cells(Some(&ovs))[10], Cell::None);
    }

    #[test]
    fn every_row_and_the_comparison_are_in_the_report() {
        let mut report = Report::begin("memory", "t", "a");
        fill(&mut report, &[512, 1024], &rows());
        let text = report.text();
        assert!(text.contains("ovs-afxdp") && text.contains("takes 2000 times"), "{text}");
    }
}
