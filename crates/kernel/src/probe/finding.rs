//! From what a probe saw to a line of the report.

use std::io;

use forebay_control::doctor::{Answer, Check, Severity};

/// Most netdevs or programs that are named in one line.
const NAMED_MAX: usize = 8;

/// Something to be looked for: what it is, how much its absence matters, and what helps then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Feature {
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// The kernel version that brought it; empty if no version did.
    pub(super) since: &'static str,
    /// The capability that looking takes.
    pub(super) needs: &'static str,
    /// What the switch does with it.
    pub(super) purpose: &'static str,
}

impl Feature {
    /// The line for what trying it out gave.
    pub(super) fn tried(self, outcome: io::Result<()>) -> Check {
        match outcome {
            Ok(()) => self.check(Answer::Available, self.purpose.to_owned(), None),
            Err(error) if is_no_answer(&error) => {
                let why = format!("{error}; looking needs {}", self.needs);
                self.unknown(why)
            }
            Err(error) => self.missing(error.to_string()),
        }
    }

    /// The line for a feature that is not there.
    pub(super) fn missing(self, why: String) -> Check {
        let remedy = match self.since {
            "" => None,
            since => Some(format!("Run Linux {since} or later, built with this feature.")),
        };
        let since = (!self.since.is_empty()).then(|| self.since.to_owned());
        self.check(Answer::NotSupported { since, why }, self.purpose.to_owned(), remedy)
    }

    /// The line for a feature that could not be looked for.
    pub(super) fn unknown(self, why: String) -> Check {
        let remedy = Some(format!("Run `forebay doctor` with {} to know.", self.needs));
        self.check(Answer::Unknown { why }, self.purpose.to_owned(), remedy)
    }

    fn check(self, answer: Answer, detail: String, remedy: Option<String>) -> Check {
        Check { name: self.name.to_owned(), answer, severity: self.severity, detail, remedy }
    }
}

/// Errors that tell about us or the moment, not about the kernel's features.
fn is_no_answer(error: &io::Error) -> bool {
    let about_us =
        [libc::EPERM, libc::ENOMEM, libc::ENOBUFS, libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::EINTR];
    error.raw_os_error().is_none_or(|errno| about_us.contains(&errno))
}

/// A line about a limit or a setting, which is either good enough or not.
pub(super) fn setting(
    name: &str,
    severity: Severity,
    detail: String,
    problem: Option<(String, String)>,
) -> Check {
    let (answer, remedy) = match problem {
        None => (Answer::Available, None),
        Some((why, remedy)) => (Answer::NotSupported { since: None, why }, Some(remedy)),
    };
    Check { name: name.to_owned(), answer, severity, detail, remedy }
}

/// A line about something that could not be read.
pub(super) fn unreadable(name: &str, severity: Severity, why: String) -> Check {
    Check {
        name: name.to_owned(),
        answer: Answer::Unknown { why },
        severity,
        detail: String::new(),
        remedy: None,
    }
}

/// Their names in one line.
pub(super) fn list(found: &[String]) -> String {
    let shown = found[..found.len().min(NAMED_MAX)].join("; ");
    match found.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURE: Feature = Feature {
        name: "x",
        severity: Severity::Required,
        since: "6.6",
        needs: "CAP_BPF",
        purpose: "to test",
    };

    #[test]
    fn a_denied_look_is_unknown_and_a_refused_use_is_not_supported() {
        let tried = |errno| FEATURE.tried(Err(io::Error::from_raw_os_error(errno)));
        for errno in [libc::EPERM, libc::ENOMEM, libc::EMFILE] {
            let check = tried(errno);
            assert!(matches!(&check.answer, Answer::Unknown { why } if why.contains("CAP_BPF")), "{check:?}");
        }
        for errno in [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOPROTOOPT, libc::EAFNOSUPPORT, libc::EACCES] {
            let check = tried(errno);
            assert!(
                matches!(&check.answer, Answer::NotSupported { since: Some(s), .. } if s == "6.6"),
                "{check:?}"
            );
            assert!(check.remedy.is_some_and(|remedy| remedy.contains("6.6")));
        }
        assert_eq!(FEATURE.tried(Ok(())).answer, Answer::Available);
    }

    #[test]
    fn a_long_list_is_cut_and_says_by_how_much() {
        let found: Vec<_> = (0..10).map(|n| format!("eth{n}")).collect();
        assert!(list(&found).ends_with("eth7; and 2 more"), "{}", list(&found));
        assert_eq!(list(&found[..2]), "eth0; eth1");
    }
}
