//! The policies, behind one interface: counts and time in, settings out.

use super::adaptive::Adaptive;
use super::counts::Counts;
use super::dim::{Dim, Sample};
use super::limits::{Limits, Settings};
use crate::Nanos;

/// How the limits of one queue are chosen. Works at any distance between two observations: after every turn in the
/// worker, or every 10 ms elsewhere.
#[derive(Clone, Debug, Default)]
pub enum Policy {
    /// A call is due after every packet.
    #[default]
    Off,
    /// Limits that do not change.
    Static(Limits),
    /// Linux's NetDIM.
    Dim(Dim),
    /// Hold while that gains something; see [`Adaptive`].
    Adaptive(Box<Adaptive>),
}

impl Policy {
    /// Learns the counts of the queue; returns what it is to obey from now on. Does not allocate.
    pub fn observe(&mut self, counts: &Counts, now: Nanos) -> Settings {
        match self {
            Policy::Off | Policy::Static(_) => {}
            Policy::Dim(dim) => {
                let sample = Sample {
                    packets: counts.packets as u32,
                    bytes: counts.bytes as u32,
                    calls: counts.calls as u16,
                };
                if dim.observe(sample, now) {
                    // The caller applies it at once.
                    dim.applied();
                }
            }
            Policy::Adaptive(adaptive) => adaptive.observe(counts, now),
        }
        self.settings()
    }

    /// What the queue is to obey.
    pub fn settings(&self) -> Settings {
        match self {
            Policy::Off => Settings::of(Limits::OFF),
            Policy::Static(limits) => Settings::of(*limits),
            Policy::Dim(dim) => Settings::of(dim.limits()),
            Policy::Adaptive(adaptive) => adaptive.settings(),
        }
    }
}
