//! One port's part in the pool.

use forebay_control::pool::{PoolPortSet, PoolThreshold};
use forebay_kernel::RingRule;
use forebay_policy::{Th, Threshold};

/// A port's part in the pool until something else is asked for: as much as is free. Nothing is reserved, because with a
/// thousand ports that could not be kept.
pub(super) const DEFAULT: Share = Share { threshold: Threshold::Dynamic(Th::ONE), reserve: 0 };

/// One port's part in the pool. It counts for each RX ring of the port by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) threshold: Threshold,
    /// Frames it may hold whatever its threshold says.
    pub(super) reserve: u32,
}

impl Share {
    /// For the kernel programs.
    pub(super) fn rule(self, depth: u32) -> RingRule {
        let (th, limit) = match self.threshold {
            Threshold::Dynamic(th) => (th.get().into(), 0),
            Threshold::Static(frames) => (0, frames),
        };
        RingRule { depth, reserve: self.reserve, th, limit }
    }

    /// The request that leads from the default to this.
    pub(super) fn asked(self, frame_bytes: u32) -> PoolPortSet {
        PoolPortSet {
            threshold: (self.threshold != DEFAULT.threshold).then(|| self.show(frame_bytes)),
            reserve: (self.reserve != DEFAULT.reserve).then_some(self.reserve),
        }
    }

    /// For whoever asks.
    pub(super) fn show(self, frame_bytes: u32) -> PoolThreshold {
        match self.threshold {
            Threshold::Dynamic(th) => PoolThreshold::Dynamic { th: th.get() },
            Threshold::Static(frames) => {
                PoolThreshold::Static { bytes: u64::from(frames) * u64::from(frame_bytes) }
            }
        }
    }
}
