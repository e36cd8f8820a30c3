//! How the daemon is set up for one row of an experiment.

use std::fmt;

use forebay_control::eswitch::SpoolMode;
use forebay_testbed::dut::{Forebay, ForebayOptions};
use forebay_testbed::lab::Lab;
use forebay_testbed::{LabError, Result};

use super::{Report, WORKER_CPU};

/// When frames are posted in fill rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refill {
    /// As many as the ring holds, always.
    #[default]
    Static,
    /// As many as the low watermark while the worker sleeps, the ring's worth once it is busy.
    Adaptive,
}

impl Refill {
    /// The word in configuration and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Refill::Static => "static",
            Refill::Adaptive => "adaptive",
        }
    }
}

/// Who may hold how much of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Dynamic Threshold.
    #[default]
    Dt,
    /// Forebay's own.
    Headroom,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 2] = [Policy::Dt, Policy::Headroom];

    /// The word in configuration and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Dt => "dt",
            Policy::Headroom => "headroom",
        }
    }
}

/// What the daemon is configured with. A key is written only where it differs from the daemon's own default, so that a
/// daemon that does not know a key yet is asked for it only where it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Setup {
    /// How ports share packet memory.
    pub mode: SpoolMode,
    /// When frames are posted.
    pub refill: Refill,
    /// Who may hold how much.
    pub policy: Policy,
    /// Workers, and queues a port; 0 is one, pinned.
    pub workers: u32,
    /// Packets a port's RX ring holds.
    pub depth: Option<u32>,
    /// Frames of the pool.
    pub frames: Option<u32>,
    /// Bytes of one frame.
    pub frame_size: Option<u32>,
}

impl Setup {
    /// The configuration file's text.
    pub fn toml(&self) -> String {
        let word = |is_there: bool, key: &str, word: &str| is_there.then(|| format!("{key} = \"{word}\"\n"));
        let number = |key: &str, value: Option<u32>| value.map(|value| format!("{key} = {value}\n"));
        let switch = [
            word(self.mode != SpoolMode::default(), "spool_mode", self.mode.name()),
            number("workers", Some(self.workers).filter(|workers| *workers > 1)),
        ];
        let pool = [
            word(self.refill != Refill::default(), "refill", self.refill.name()),
            word(self.policy != Policy::default(), "policy", self.policy.name()),
            number("rx_ring_depth", self.depth),
            number("frames", self.frames),
            number("frame_size", self.frame_size),
        ];
        let lines = |keys: &[Option<String>]| keys.iter().flatten().cloned().collect::<String>();
        format!("[switch]\n{}[pool]\n{}", lines(&switch), lines(&pool))
    }

    fn options(&self) -> ForebayOptions {
        let options = ForebayOptions::with_config(self.toml()).allowing_programs();
        if self.workers > 1 { options } else { options.pinned_to(WORKER_CPU) }
    }

    /// Whether every daemon must take this.
    fn is_plain(&self) -> bool {
        let Setup { mode, refill, policy, .. } = Setup::default();
        (self.mode, self.refill, self.policy) == (mode, refill, policy)
    }

    /// Starts the daemon; `None` when it refuses what it does not offer yet, which the report then says.
    ///
    /// # Errors
    /// When it does not start for another reason.
    pub fn start(&self, lab: &Lab, report: &mut Report) -> Result<Option<Forebay>> {
        match Forebay::start(lab, self.options()) {
            Ok(forebay) => Ok(Some(forebay)),
            Err(LabError::Failed { output, .. }) if !self.is_plain() => {
                report.skip(format!("{self}: {}", reason(&output)));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// What differs from a plain daemon, for messages.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Setup::default();
        let parts = [
            (self.mode != plain.mode).then(|| format!("spool mode {}", self.mode)),
            (self.refill != plain.refill).then(|| format!("refill {}", self.refill.name())),
            (self.policy != plain.policy).then(|| format!("policy {}", self.policy.name())),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// The daemon's last words, without the path of the file that they are about.
fn reason(output: &str) -> &str {
    let last = output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("the daemon did not start");
    last.split_once(".toml:").map_or(last, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_setup_asks_for_nothing_and_another_only_for_what_differs() {
        assert_eq!(Setup::default().toml(), "[switch]\n[pool]\n");
        let setup = Setup { mode: SpoolMode::Basic, workers: 2, depth: Some(64), ..Setup::default() };
        assert_eq!(
            setup.toml(),
            "[switch]\nspool_mode = \"basic\"\nworkers = 2\n[pool]\nrx_ring_depth = 64\n"
        );
        let setup = Setup { refill: Refill::Adaptive, policy: Policy::Headroom, ..Setup::default() };
        assert_eq!(setup.toml(), "[switch]\n[pool]\nrefill = \"adaptive\"\npolicy = \"headroom\"\n");
        assert_eq!(setup.to_string(), "refill adaptive, policy headroom");
    }

    #[test]
    fn a_plain_setup_is_a_configuration_that_the_daemon_takes() {
        let setup = Setup { workers: 2, depth: Some(2048), frames: Some(8192), ..Setup::default() };
        forebay_control::config::Config::parse(&setup.toml()).unwrap();
    }

    #[test]
    fn a_refusal_is_quoted_without_the_files_path() {
        let output = "starting\nforebay: /tmp/x/forebay.toml:2:14: switch.spool_mode is not valid\n\n";
        assert_eq!(reason(output), "2:14: switch.spool_mode is not valid");
        assert_eq!(reason(""), "the daemon did not start");
    }
}
