//! What one port knows of loops.

use forebay_policy::{LoopGuard, Nanos};

/// What a port knows of loops.
#[derive(Debug, Default)]
pub(super) struct Probing {
    pub(super) guard: LoopGuard,
    /// Which of its VLANs is probed next.
    pub(super) turn: usize,
    pub(super) sent: u64,
    /// Packets that had passed a guest's port when it was probed last; `None`: it is probed whether or not there are more.
    pub(super) passed: Option<u64>,
    /// Probes that had come in under its id before it was there.
    pub(super) baseline: u64,
    /// Moves of stations to the port at the last look.
    pub(super) moves: u64,
    /// Why it is blocked.
    pub(super) reason: String,
    /// When a probe of a group came in at the group last.
    pub(super) echoed: Option<Nanos>,
}

impl Probing {
    /// Of a new port, under whose id so many probes have come in before.
    pub(super) fn new(baseline: u64) -> Self {
        Self { baseline, ..Self::default() }
    }

    /// Why the port is blocked, if it is.
    pub(super) fn blocked(&self) -> Option<&str> {
        self.guard.is_blocked().then_some(&self.reason)
    }
}
