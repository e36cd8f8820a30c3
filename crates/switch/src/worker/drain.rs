//! The collector's end where posted frames come back.

use std::sync::Arc;

use forebay_control::IfIndex;
use forebay_xsk::{Queue, RxRing};

/// Where a worker's packets to its own collector go, and where they end.
pub(crate) struct Drain {
    pub(super) queue: Arc<Queue>,
    pub(super) ring: RxRing,
    pub(super) ifindex: IfIndex,
    pub(super) futile: u32,
}

impl Drain {
    /// `ring` is that of the queue's own socket, `ifindex` the collector's transmit end.
    pub(crate) fn new(queue: Arc<Queue>, ring: RxRing, ifindex: IfIndex) -> Self {
        Self { queue, ring, ifindex, futile: 0 }
    }

    /// After a burst it is worth the attempt again.
    pub(super) fn try_again(&mut self) {
        self.futile = 0;
    }
}
