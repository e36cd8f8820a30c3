//! What the machine offers: the answers of `forebay doctor`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a probe found. "Unknown" is an answer too: a probe that could not look must not guess.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is there.
    Available,
    /// It is not there.
    NotSupported {
        /// The kernel version that has it, if one does.
        since: Option<String>,
        /// How this was found.
        why: String,
    },
    /// The probe could not tell.
    Unknown {
        /// What kept it from telling.
        why: String,
    },
}

/// What it means when a check's answer is not "available".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// The switch works, slower or with less.
    Degraded,
    /// The switch can't start.
    Required,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// What is checked, in a few words.
    pub name: String,
    /// What was found.
    #[serde(flatten)]
    pub answer: Answer,
    /// What it means if it isn't available.
    pub severity: Severity,
    /// What was seen: a version, a limit, a program's name.
    pub detail: String,
    /// What to do, when there is something to do.
    pub remedy: Option<String>,
}

/// All checks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    /// The checks, in the order they were made.
    pub checks: Vec<Check>,
    /// What to do, in one or two sentences.
    pub summary: String,
}

impl DoctorReport {
    /// The report of these checks, with the summary that follows from them.
    pub fn new(checks: Vec<Check>) -> DoctorReport {
        let summary = summarise(&checks);
        DoctorReport { checks, summary }
    }

    /// Whether nothing that the switch needs was found missing.
    pub fn can_start(&self) -> bool {
        !self.checks.iter().any(|check| check.is_missing(Severity::Required))
    }
}

impl Check {
    fn is_missing(&self, severity: Severity) -> bool {
        self.severity == severity && matches!(self.answer, Answer::NotSupported { .. })
    }
}

fn summarise(checks: &[Check]) -> String {
    let names = |severity| {
        let missing = checks.iter().filter(|check| check.is_missing(severity));
        missing.map(|check| check.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let unknown = checks.iter().filter(|check| matches!(check.answer, Answer::Unknown { .. })).count();
    let mut parts = Vec::new();
    match names(Severity::Required) {
        missing if missing.is_empty() => parts.push("Forebay can start here.".to_owned()),
        missing => parts.push(format!("Forebay can't start here: {missing}.")),
    }
    match names(Severity::Degraded) {
        missing if missing.is_empty() => {}
        missing => parts.push(format!("It can do without: {missing}.")),
    }
    if unknown > 0 {
        parts.push(format!("Not known: {unknown} of {} checks.", checks.len()));
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, answer: Answer, severity: Severity) -> Check {
        Check { name: name.to_owned(), answer, severity, detail: String::new(), remedy: None }
    }

    #[test]
    fn a_missing_requirement_is_named_and_an_unknown_one_is_not_guessed() {
        let missing = || Answer::NotSupported { since: Some("6.6".to_owned()), why: String::new() };
        let unknown = Answer::Unknown { why: "no permission".to_owned() };
        let report = DoctorReport::new(vec![check("tcx links", missing(), Severity::Required)]);
        assert!(!report.can_start() && report.summary.contains("can't start here: tcx links"));
        let report = DoctorReport::new(vec![check("tcx links", unknown, Severity::Required)]);
        assert!(report.can_start() && report.summary.contains("Not known: 1 of 1"), "{}", report.summary);
        let report = DoctorReport::new(vec![check("busy polling", missing(), Severity::Degraded)]);
        assert_eq!(report.summary, "Forebay can start here. It can do without: busy polling.");
    }
}
