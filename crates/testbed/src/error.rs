//! What can go wrong in a lab: nearly always a program that said no.

use std::time::Duration;

/// A lab's result.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why a lab could not do something.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program ended with a failure; its words tell why.
    #[error("`{command}` failed with {status}: {output}")]
    Failed {
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// What it wrote, standard error last.
        output: String,
    },
    /// A program did not end in time and was killed.
    #[error("`{command}` did not end within {limit:?} and was killed; it wrote: {output}")]
    TooSlow {
        /// The command line.
        command: String,
        /// The time it had.
        limit: Duration,
        /// What it wrote.
        output: String,
    },
    /// A program could not be started.
    #[error("`{command}` could not be started: {source}; is the program installed?")]
    NotStarted {
        /// The command line.
        command: String,
        /// Why.
        source: std::io::Error,
    },
    /// A condition did not come true in time.
    #[error("waited {limit:?} in vain for {what}")]
    Waited {
        /// The condition in words.
        what: String,
        /// The time it had.
        limit: Duration,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A BPF program or map could not be loaded or used.
    #[error("{what}: {source}")]
    Bpf {
        /// What was being done.
        what: String,
        /// libbpf's answer.
        source: libbpf_rs::Error,
    },
    /// A program's output is not what was expected of it.
    #[error("{what} is not understood: {output}")]
    Output {
        /// Which output.
        what: String,
        /// The output.
        output: String,
    },
    /// Something this device under test can't do.
    #[error("{dut} can't {what}")]
    Unsupported {
        /// The device under test.
        dut: &'static str,
        /// What was asked of it.
        what: String,
    },
}

impl LabError {
    /// An I/O error with what was being done.
    pub fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> LabError {
        LabError::System { what: what.into(), source: source.into() }
    }

    /// A libbpf error with what was being done.
    pub fn bpf(what: impl Into<String>, source: libbpf_rs::Error) -> LabError {
        LabError::Bpf { what: what.into(), source }
    }

    /// Output that is not understood.
    pub fn output(what: impl Into<String>, output: impl Into<String>) -> LabError {
        LabError::Output { what: what.into(), output: output.into() }
    }
}
