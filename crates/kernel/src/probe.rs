//! What this machine can do for the switch: the answers of `forebay doctor`.
//!
//! The rule this module keeps: it tries rather than guesses. Each feature is used once, in a network namespace and on
//! a veth pair made for it, and what was made is gone when the probe returns. Where a probe may not look, for lack of
//! a capability, the answer is "unknown" and names the capability. Version numbers only say since when there is a
//! feature that was found missing.
//!
//! ```text
//!   privileges ─ system ─ kernel (scratch namespace: programs, af_xdp) ─ conflicts ─ nics ─ hints ─► DoctorReport
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod af_xdp;
mod conflicts;
mod finding;
mod hints;
mod kernel;
mod nics;
mod privileges;
pub(crate) mod programs;
mod system;

#[cfg(test)]
mod tests;

use forebay_control::doctor::DoctorReport;

/// What the switch is going to be, as far as limits depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Ports, each with a socket for each worker.
    pub ports: u64,
    /// Workers.
    pub workers: u64,
    /// Memory for packets, in bytes; it is pinned.
    pub pool_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { ports: 1000, workers: 1, pool_bytes: 64 << 20 }
    }
}

impl Options {
    /// Descriptors that the daemon has open: each port's netdev and its sockets, and a hundred for all else.
    fn descriptors(&self) -> u64 {
        self.ports.saturating_mul(self.workers.saturating_add(1)).saturating_add(100)
    }

    /// Mappings that the daemon has: an RX ring for each port and worker, and a thousand for code, heap and stacks.
    fn mappings(&self) -> u64 {
        self.ports.saturating_mul(self.workers).saturating_add(1000)
    }
}

/// Looks at everything, in the calling thread's network namespace. Takes a fraction of a second; leaves nothing.
pub fn run(options: &Options) -> DoctorReport {
    let mut checks = system::kernel_checks();
    checks.extend(privileges::checks(options));
    checks.extend(kernel::checks());
    checks.extend(system::limit_checks(options));
    checks.extend(conflicts::checks());
    checks.extend(nics::checks());
    checks.extend(hints::checks());
    DoctorReport::new(checks)
}
