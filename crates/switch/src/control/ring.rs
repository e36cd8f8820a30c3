//! Rings as the control side holds them.

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

/// The rings of a port, or those that ports share.
#[derive(Default)]
pub(super) struct Rings {
    serving: Vec<Ring>,
    leaving: Vec<Ring>,
    past_drops: Statistics,
}

impl Rings {
    /// Those that the kernel delivers to.
    pub(super) fn serving(&self) -> &[Ring] {
        &self.serving
    }

    pub(super) fn serving_mut(&mut self) -> &mut [Ring] {
        &mut self.serving
    }

    /// Those in whose place others are or none, until they are empty and closed.
    pub(super) fn leaving(&self) -> &[Ring] {
        &self.leaving
    }

    /// Those that serve, and those that leave.
    pub(super) fn all(&self) -> impl Iterator<Item = &Ring> {
        self.serving.iter().chain(&self.leaving)
    }

    /// Puts `rings` in the place of those that serve, which leave.
    pub(super) fn replace(&mut self, rings: Vec<Ring>) {
        self.leaving.extend(std::mem::replace(&mut self.serving, rings));
    }

    /// Those that serve and for which `stays` is false leave.
    pub(super) fn keep(&mut self, stays: impl Fn(&Ring) -> bool) {
        let (staying, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.serving).into_iter().partition(stays);
        self.serving = staying;
        self.leaving.extend(gone);
    }

    /// Takes out those that leave. What the kernel dropped at them stays counted.
    pub(super) fn take_leaving(&mut self) -> Vec<Ring> {
        self.past_drops = drops_at(&self.leaving, self.past_drops);
        std::mem::take(&mut self.leaving)
    }

    /// What the kernel dropped at them, and at those that are no more.
    pub(super) fn drops(&self) -> Statistics {
        drops_at(self.all(), self.past_drops)
    }

    /// Frames that their accounts hold. A ring and the one in whose place it is have one account.
    pub(super) fn used(&self) -> u64 {
        let is_replaced = |old: &&Ring| self.serving.iter().any(|ring| ring.worker == old.worker);
        let mut counted: Vec<usize> = Vec::new();
        let alone = self.leaving.iter().filter(|old| !is_replaced(old)).filter(|old| {
            let is_first = !counted.contains(&old.worker);
            counted.push(old.worker);
            is_first
        });
        self.serving.iter().chain(alone).map(|ring| ring.account.used()).sum()
    }
}

/// `past` and what the kernel has dropped at `rings` since they were opened.
fn drops_at<'a>(rings: impl IntoIterator<Item = &'a Ring>, past: Statistics) -> Statistics {
    rings.into_iter().fold(past, |sum, ring| add(sum, ring.socket.statistics().unwrap_or_default()))
}

pub(super) fn add(a: Statistics, b: Statistics) -> Statistics {
    Statistics { rx_dropped: a.rx_dropped + b.rx_dropped, rx_ring_full: a.rx_ring_full + b.rx_ring_full }
}
