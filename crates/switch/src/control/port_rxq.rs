//! One port's receive queues, and how a fill ring is kept.

use forebay_control::config::PoolConfig;
use forebay_control::rxq::{RefillKind, RxqBinding, RxqSet};
use forebay_policy::{Refill, RefillRule};

/// How a fill ring is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefillSettings {
    pub(super) rule: RefillRule,
    pub(super) low: u32,
}

impl RefillSettings {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self { rule: rule(config.refill), low: config.refill_low }
    }

    /// For a ring of `high` entries.
    pub(super) fn refill(self, high: u32) -> Refill {
        Refill::new(self.rule, self.low.min(high), high)
    }
}

pub(super) fn rule(kind: RefillKind) -> RefillRule {
    match kind {
        RefillKind::Static => RefillRule::Static,
        RefillKind::Adaptive => RefillRule::Adaptive,
    }
}

/// One port's receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rxq {
    /// Entries of an RX ring; of its own fill ring too, where it is bound directly.
    pub(super) depth: u32,
    pub(super) refill: RefillSettings,
    /// Bound to the port's own netdev, though the spool mode does not ask for it.
    pub(super) direct: bool,
}

impl Rxq {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self { depth: config.rx_ring_depth, refill: RefillSettings::new(config), direct: false }
    }

    /// The request that leads from `default` to this.
    pub(super) fn asked(self, default: Self) -> RxqSet {
        let refill = self.refill;
        RxqSet {
            depth: (self.depth != default.depth).then_some(self.depth),
            refill: (refill.rule != default.refill.rule).then(|| kind(refill.rule)),
            low: (refill.low != default.refill.low).then_some(refill.low),
            binding: (self.direct != default.direct).then_some(RxqBinding::Direct),
        }
    }
}

pub(super) fn kind(rule: RefillRule) -> RefillKind {
    match rule {
        RefillRule::Static => RefillKind::Static,
        RefillRule::Adaptive => RefillKind::Adaptive,
    }
}
