//! Medians, spreads and ratios.

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use forebay_testbed::measure::machine::Machine;
use forebay_testbed::measure::spread::Spread;
use serde::Serialize;

use super::{Contender, Value, asked};

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
    contender: &'static str,
    #[serde(skip)]
    is_peer: bool,
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
        let (contender, is_peer) = (contender.name(), contender.is_peer());
        let measurement = |value| Measurement { round, contender, is_peer, value };
        self.measurements.extend(values.into_iter().map(measurement));
    }

    /// A row for each metric and contender, with its ratio to each peer.
    pub fn table(&self) -> String {
        let peers = self.names(|m| m.is_peer);
        let titles = ["metric", "contender", "median (least–most)"].map(str::to_owned);
        let mut table = table_of(titles.into_iter().chain(peers.iter().map(|peer| format!("/ {peer}"))));
        for metric in self.metrics() {
            for contender in self.names(|m| m.value.metric == metric) {
                let own = Spread::of(self.numbers(metric, contender).map(|(_, number)| number));
                let ratios = peers.iter().map(|peer| self.ratio(metric, contender, peer));
                let spreads = std::iter::once(own).chain(ratios).map(text_of);
                table.add_row([metric.to_owned(), contender.to_owned()].into_iter().chain(spreads));
            }
        }
        table.to_string()
    }

    /// A row for each ratio that is asked for, of the metrics that were measured; nothing when there is none.
    pub fn asked(&self) -> Option<String> {
        let titles = ["asked of", "ratio", "asked", "median (least–most)", "verdict"].map(str::to_owned);
        let mut table = table_of(titles);
        let metrics = self.metrics();
        for asked in asked::ALL.iter().filter(|asked| metrics.contains(&asked.metric)) {
            let ratio = |peer: Contender| self.ratio(asked.metric, asked.contender.name(), peer.name());
            let (measured, or) = (ratio(asked.peer), asked.or.and_then(|(_, peer)| ratio(peer)));
            let verdict = asked.verdict(measured, or).to_owned();
            let asked_for = [asked.metric.to_owned(), asked.name(), asked.text()];
            let found = [measured, or].map(text_of).into_iter().filter(|text| !text.is_empty());
            table.add_row(asked_for.into_iter().chain([found.collect::<Vec<_>>().join(", or "), verdict]));
        }
        (!table.is_empty()).then(|| table.to_string())
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

    fn names(&self, matches: impl Fn(&Measurement) -> bool) -> Vec<&'static str> {
        let mut names = Vec::new();
        for measurement in self.measurements.iter().filter(|measurement| matches(measurement)) {
            if !names.contains(&measurement.contender) {
                names.push(measurement.contender);
            }
        }
        names
    }

    fn numbers<'a>(&'a self, metric: &'a str, contender: &'a str) -> impl Iterator<Item = (u32, f64)> + 'a {
        let is_it = move |m: &&Measurement| m.value.metric == metric && m.contender == contender;
        self.measurements.iter().filter(is_it).map(|m| (m.round, m.value.value))
    }

    /// Within each round; nothing for a contender with itself, or where the peer's number is zero.
    fn ratio(&self, metric: &str, contender: &str, peer: &str) -> Option<Spread> {
        if contender == peer {
            return None;
        }
        let peers: Vec<(u32, f64)> = self.numbers(metric, peer).filter(|(_, number)| *number > 0.0).collect();
        Spread::of(self.numbers(metric, contender).filter_map(|(round, own)| {
            let (_, other) = peers.iter().find(|(at, _)| *at == round)?;
            Some(own / other)
        }))
    }
}

fn table_of(titles: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(titles);
    table
}

fn text_of(spread: Option<Spread>) -> String {
    spread.map(Spread::text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        for (round, own, peer) in [(1, 2.0, 1.0), (2, 4.0, 4.0), (3, 9.0, 3.0)] {
            report.add(round, Contender::Tcx, vec![Value::new(asked::ONE_STREAM, own)]);
            report.add(round, Contender::Bridge, vec![Value::new(asked::ONE_STREAM, peer)]);
        }
        report
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let ratio = report().ratio(asked::ONE_STREAM, "forebay (tcx)", "bridge");
        assert_eq!(ratio, Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
    }

    #[test]
    fn the_table_has_every_contender_and_no_ratio_to_itself() {
        let table = report().table();
        assert!(table.contains("4.00 (2.00–9.00)") && table.contains("3.00 (1.00–4.00)"), "{table}");
        assert_eq!(report().ratio(asked::ONE_STREAM, "bridge", "bridge"), None);
    }

    #[test]
    fn what_is_asked_of_measured_metrics_has_a_verdict() {
        let mut report = report();
        report.add(1, Contender::Bridge, vec![Value::new(asked::WEB, 30.0)]);
        let table = report.asked().unwrap();
        let row = |metric: &str| table.lines().find(|line| line.contains(metric)).unwrap_or_default();
        assert!(row(asked::ONE_STREAM).contains("≥ 1.00"), "{table}");
        assert!(row(asked::ONE_STREAM).contains("2.00 (1.00–3.00)"), "{table}");
        assert!(row(asked::ONE_STREAM).contains("holds"), "{table}");
        assert!(row(asked::WEB).contains("not measured"), "{table}");
        assert_eq!(row(asked::EIGHT_STREAMS), "");
        assert_eq!(Report::default().asked(), None);
    }
}
