//! A ring as the control side holds it.

use std::sync::Arc;

use forebay_kernel::{Bank, RingAccount};
use forebay_xsk::{PortSocket, Statistics};

use crate::counters::RingGauge;
use crate::pool_instance::SupplyGauge;
use crate::worker::Slot;

/// A ring that a worker serves, with its socket.
pub(super) struct Ring {
    pub(super) worker: usize,
    pub(super) slot: Slot,
    /// Where the kernel's table has its socket.
    pub(super) bank: Bank,
    pub(super) depth: u32,
    pub(super) socket: Arc<PortSocket>,
    pub(super) gauge: Arc<RingGauge>,
    pub(super) account: RingAccount,
    /// What had been taken when the account was last looked at.
    pub(super) taken: u64,
    /// Its own supply of frames, where it has one.
    pub(super) supply: Option<SupplyGauge>,
}

/// `past` and what the kernel has dropped at `rings` since they were opened.
pub(super) fn drops_at<'a>(rings: impl IntoIterator<Item = &'a Ring>, past: Statistics) -> Statistics {
    let mut sum = past;
    for ring in rings {
        sum = add(sum, ring.socket.statistics().unwrap_or_default());
    }
    sum
}

/// Frames that the accounts of `rings` and of `leaving` ones hold. A ring and the one in whose place it is have one account.
pub(super) fn held(rings: &[Ring], leaving: &[Ring]) -> u64 {
    let is_replaced = |old: &&Ring| rings.iter().any(|ring| ring.worker == old.worker);
    let mut counted: Vec<usize> = Vec::new();
    let alone = leaving.iter().filter(|old| !is_replaced(old)).filter(|old| {
        let is_first = !counted.contains(&old.worker);
        counted.push(old.worker);
        is_first
    });
    rings.iter().chain(alone).map(|ring| ring.account.used()).sum()
}

pub(super) fn add(a: Statistics, b: Statistics) -> Statistics {
    Statistics { rx_dropped: a.rx_dropped + b.rx_dropped, rx_ring_full: a.rx_ring_full + b.rx_ring_full }
}
