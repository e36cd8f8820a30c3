//! Medians, spreads and ratios.

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;

use super::{Contender, Value};
use crate::dut::DutKind;
use crate::measure::machine::Machine;
use crate::measure::spread::Spread;

/// Everything that was measured.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    machine: Machine,
    measurements: Vec<Measurement>,
}

/// One contender in one round.
#[derive(Debug, Clone, Serialize)]
struct Measurement {
    round: u32,
    contender: String,
    #[serde(skip)]
    is_forebay: bool,
    #[serde(flatten)]
    value: Value,
}

impl Report {
    /// A report from this machine, without measurements yet.
    pub(super) fn begin() -> Report {
        Report { machine: Machine::here(), measurements: Vec::new() }
    }

    /// Where and when it was measured.
    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn add(&mut self, round: u32, contender: Contender, values: Vec<Value>) {
        let is_forebay = contender.dut == DutKind::Forebay;
        let measurement = |value| Measurement { round, contender: contender.name(), is_forebay, value };
        self.measurements.extend(values.into_iter().map(measurement));
    }

    /// A row for each metric and contender; for peers the ratio of each Forebay to them.
    pub fn table(&self) -> String {
        let forebays = self.names(|m| m.is_forebay);
        let ratio_titles = forebays.iter().map(|name| format!("{name} / it"));
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let titles = ["metric", "contender", "median (least–most)"].map(str::to_owned);
        table.set_header(titles.into_iter().chain(ratio_titles));
        for metric in self.metrics() {
            for contender in self.names(|m| m.value.metric == metric) {
                let own = Spread::of(self.numbers(metric, &contender).map(|(_, number)| number));
                let own = own.map(Spread::text).unwrap_or_default();
                let ratios = forebays.iter().map(|forebay| self.ratio(metric, forebay, &contender));
                let row = [metric.to_owned(), contender.clone(), own];
                table.add_row(row.into_iter().chain(ratios.map(Option::unwrap_or_default)));
            }
        }
        table.to_string()
    }

    fn metrics(&self) -> Vec<&'static str> {
        let mut metrics = Vec::new();
        for measurement in &self.measurements {
            if !metrics.contains(&measurement.value.metric) {
                metrics.push(measurement.value.metric);
            }
        }
        metrics
    }

    fn names(&self, matches: impl Fn(&Measurement) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for measurement in self.measurements.iter().filter(|measurement| matches(measurement)) {
            if !names.contains(&measurement.contender) {
                names.push(measurement.contender.clone());
            }
        }
        names
    }

    fn numbers<'a>(&'a self, metric: &'a str, contender: &'a str) -> impl Iterator<Item = (u32, f64)> + 'a {
        let is_it = move |m: &&Measurement| m.value.metric == metric && m.contender == contender;
        self.measurements.iter().filter(is_it).map(|m| (m.round, m.value.value))
    }

    /// Within each round; nothing for a contender with itself, or where the peer's number is zero.
    fn ratio(&self, metric: &str, forebay: &str, peer: &str) -> Option<String> {
        if forebay == peer {
            return None;
        }
        let peers: Vec<(u32, f64)> = self.numbers(metric, peer).filter(|(_, number)| *number > 0.0).collect();
        let ratios = self.numbers(metric, forebay).filter_map(|(round, own)| {
            let (_, other) = peers.iter().find(|(at, _)| *at == round)?;
            Some(own / other)
        });
        Spread::of(ratios).map(Spread::text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        for (round, own, peer) in [(1, 2.0, 1.0), (2, 4.0, 4.0), (3, 9.0, 3.0)] {
            report.add(round, Contender::ALL[0], vec![Value::new("speed", own)]);
            report.add(round, Contender::ALL[2], vec![Value::new("speed", peer)]);
        }
        report
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let ratio = report().ratio("speed", "forebay (tcx)", "bridge");
        assert_eq!(ratio.as_deref(), Some("2.00 (1.00–3.00)"));
    }

    #[test]
    fn the_table_has_every_contender_and_no_ratio_to_itself() {
        let table = report().table();
        assert!(table.contains("4.00 (2.00–9.00)") && table.contains("3.00 (1.00–4.00)"), "{table}");
        assert_eq!(report().ratio("speed", "bridge", "bridge"), None);
    }
}
