//! Looks at the machine before the daemon starts, so that it refuses with a reason instead of failing half-way.

use forebay_control::doctor::{Answer, Check, DoctorReport, Severity};

/// What is missing, one line each, or nothing.
pub(crate) fn missing(report: &DoctorReport) -> Vec<String> {
    report.checks.iter().filter(|check| check.severity == Severity::Required).filter_map(line).collect()
}

fn line(check: &Check) -> Option<String> {
    let Answer::NotSupported { since, why } = &check.answer else { return None };
    let mut line = format!("{}: {why}", check.name);
    if let Some(since) = since {
        line.push_str(&format!(" (needs {since})"));
    }
    if let Some(remedy) = &check.remedy {
        line.push_str(&format!("; {remedy}"));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: Answer, severity: Severity) -> Check {
        let remedy = Some("run as root".to_owned());
        Check { name: "CAP_BPF".to_owned(), answer, severity, detail: String::new(), remedy }
    }

    #[test]
    fn only_what_is_known_to_be_missing_and_needed_stops_the_start() {
        let missing_answer = || Answer::NotSupported { since: None, why: "not held".to_owned() };
        let report = DoctorReport::new(vec![
            check(missing_answer(), Severity::Required),
            check(missing_answer(), Severity::Degraded),
            check(Answer::Unknown { why: "no procfs".to_owned() }, Severity::Required),
            check(Answer::Available, Severity::Required),
        ]);
        assert_eq!(missing(&report), ["CAP_BPF: not held; run as root"]);
    }
}
