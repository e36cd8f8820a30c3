//! What was found: each finding with the time it was found at, printed at once and again with the verdict.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use forebay_testbed::Result;

use crate::interrupt::Interrupt;

/// One fault that is found at every look must not bury the others.
const FINDINGS_MAX: usize = 200;

/// The findings so far.
#[derive(Debug)]
pub(super) struct Ledger {
    start: Instant,
    findings: Mutex<Vec<String>>,
    interrupt: Interrupt,
}

impl Ledger {
    pub(super) fn new(interrupt: Interrupt) -> Ledger {
        Ledger { start: Instant::now(), findings: Mutex::new(Vec::new()), interrupt }
    }

    /// Notes a finding; not after a signal, when everything fails because it is being torn down.
    pub(super) fn note(&self, what: impl Display) {
        if self.interrupt.is_set() {
            return;
        }
        let finding = format!("[{:6.1} s] {what}", self.start.elapsed().as_secs_f64());
        println!("FINDING {finding}");
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }

    /// The value, or a finding that names what was being done.
    pub(super) fn expect<T>(&self, what: &str, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.note(format_args!("{what}: {error}"))).ok()
    }

    /// Seconds since the soak began.
    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    pub(super) fn findings(&self) -> Vec<String> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
