//! What an experiment found: tables, charts and remarks, for a terminal, as JSON and as one HTML page.
//!
//! An experiment fills its report while it runs, so that what was measured is shown also when a later step fails.
//! What could not be measured is named with its reason; nothing is left out in silence.

mod chart;
mod escape;
mod html;
mod svg;
mod table;

use std::path::{Path, PathBuf};

use forebay_testbed::measure::machine::Machine;
use forebay_testbed::{LabError, Result};
use serde::Serialize;

pub use chart::{Chart, Series, Shape};
pub use table::{Cell, Table};

/// Where a report goes besides the terminal.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OutputOptions {
    /// Write every number to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with tables and charts to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// One experiment's report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    name: &'static str,
    title: String,
    /// What was done, in a few sentences.
    about: String,
    machine: Machine,
    tables: Vec<Table>,
    charts: Vec<Chart>,
    notes: Vec<String>,
    /// What was not measured, and why not.
    skipped: Vec<String>,
    /// What must hold and did not.
    broken: Vec<String>,
}

impl Report {
    /// An empty report, from this machine.
    pub fn begin(name: &'static str, title: impl Into<String>, about: impl Into<String>) -> Report {
        Report {
            name,
            title: title.into(),
            about: about.into(),
            machine: Machine::here(),
            tables: Vec::new(),
            charts: Vec::new(),
            notes: Vec::new(),
            skipped: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Adds a chart, unless it has nothing to show.
    pub fn chart(&mut self, chart: Chart) {
        if chart.has_values() {
            self.charts.push(chart);
        }
    }

    /// Adds a remark.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Names something that is not measured, with the reason; once, however often it is said.
    pub fn skip(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.skipped.contains(&text) {
            eprintln!("skipped: {text}");
            self.skipped.push(text);
        }
    }

    /// Names something that must hold and did not: the command then ends with status 1.
    pub fn broken(&mut self, text: impl Into<String>) {
        self.broken.push(text.into());
    }

    /// As a terminal shows it.
    pub fn text(&self) -> String {
        let mut parts = vec![format!("{}\n{}", self.title, self.about)];
        parts.extend(self.tables.iter().map(Table::text));
        for (word, lines) in self.remarks() {
            parts.extend(lines.iter().map(|line| format!("{word}{line}")));
        }
        parts.push(self.machine.to_string());
        parts.join("\n")
    }

    /// Notes, what was skipped and what was broken, each with its word.
    fn remarks(&self) -> [(&'static str, &[String]); 3] {
        [("", &self.notes), ("Not measured: ", &self.skipped), ("BROKEN: ", &self.broken)]
    }

    /// Prints the report, writes its files and says whether all that must hold did.
    ///
    /// # Errors
    /// That of the experiment, after what was measured before it has been written; or a file's.
    pub fn conclude(&self, outcome: Result<()>, output: &OutputOptions) -> Result<bool> {
        println!("{}", self.text());
        if let Some(path) = &output.json {
            let json = serde_json::to_string_pretty(self).expect("numbers and names are always JSON");
            write(path, &json)?;
        }
        if let Some(path) = &output.html {
            write(path, &html::page(self))?;
        }
        outcome.map(|()| self.broken.is_empty())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| LabError::system(format!("writing {}", path.display()), error))?;
    println!("Written: {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::begin("rings", "Rings & things", "How deep <is> deep enough?");
        let mut table = Table::new("Depth", ["depth", "lost", "remark"]);
        table.row([Cell::from(64u64), Cell::from(1.5), Cell::from("a < b")]);
        table.row([Cell::from(128u64), Cell::None, Cell::from("")]);
        report.table(table);
        let series = Series::new("ours", [Some(1.5), None]);
        report.chart(Chart::new("Lost", "packets", Shape::Lines, ["64", "128"]).with(series));
        report.skip("mode none: not offered");
        report.skip("mode none: not offered");
        report
    }

    #[test]
    fn what_was_skipped_is_said_once_in_every_form() {
        let report = report();
        assert_eq!(report.text().matches("Not measured: mode none: not offered").count(), 1);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["skipped"], serde_json::json!(["mode none: not offered"]));
        assert_eq!(html::page(&report).matches("not offered").count(), 1);
    }

    #[test]
    fn rows_in_json_carry_their_columns_names() {
        let json = serde_json::to_value(report()).unwrap();
        let rows = &json["tables"][0]["rows"];
        assert_eq!(rows[0], serde_json::json!({ "depth": 64, "lost": 1.5, "remark": "a < b" }));
        assert_eq!(rows[1]["lost"], serde_json::Value::Null);
    }

    #[test]
    fn the_page_is_whole_by_itself_and_says_nothing_as_markup() {
        let page = html::page(&report());
        assert!(page.contains("How deep &lt;is&gt; deep enough?") && page.contains("a &lt; b"), "{page}");
        assert!(!page.contains("<script") && !page.contains("href=") && !page.contains("src="), "{page}");
        for tag in ["svg", "table", "tr", "td", "th", "html", "body", "style"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert!(opened > 0 && opened == page.matches(&format!("</{tag}>")).count(), "{tag} in\n{page}");
        }
    }

    #[test]
    fn a_chart_without_values_is_left_out() {
        let mut report = Report::begin("x", "x", "x");
        report.chart(Chart::new("x", "x", Shape::Bars, ["a"]).with(Series::new("y", [None])));
        assert!(report.charts.is_empty());
    }

    #[test]
    fn what_is_broken_and_an_error_are_both_reported_after_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let output = OutputOptions { json: Some(directory.path().join("x.json")), html: None };
        let mut report = report();
        assert!(report.conclude(Ok(()), &output).unwrap());
        report.broken("a host was not reached");
        assert!(!report.conclude(Ok(()), &output).unwrap());
        let error = report.conclude(Err(LabError::output("this", "that")), &output).unwrap_err();
        assert!(error.to_string().contains("this"));
        assert!(std::fs::read_to_string(output.json.unwrap()).unwrap().contains("a host was not reached"));
    }
}
