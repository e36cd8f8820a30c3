//! What a virtual machine's packets take of the pool: frames on their way to other workers, and no others.
//!
//! They count in the port's account, as frames in the ring of a netdev's port do, and by the same rule. As there the account
//! is settled by looking: what the ring to another worker does not hold any more may be taken again.

use std::sync::Arc;

use forebay_kernel::RingAccount;

use crate::admission;
use crate::counters::RingGauge;

/// The account of one port, at the worker that serves it.
#[derive(Clone, Debug)]
pub(crate) struct UnderwayAccount {
    pub(crate) account: RingAccount,
    pub(crate) gauge: Arc<RingGauge>,
}

impl UnderwayAccount {
    /// Holds nothing.
    pub(crate) fn new(account: RingAccount) -> Self {
        Self { account, gauge: Arc::new(RingGauge::default()) }
    }

    /// Takes frames for a packet, all or none. Whether it may be copied.
    pub(super) fn take(&self, frames: u64) -> bool {
        let admits = admission::admits(&self.account, frames);
        if admits {
            self.account.take(frames);
            self.gauge.set(self.account.used());
        }
        admits
    }

    /// Sets the account to `held`, the frames of the port's packets that are still on their way.
    pub(super) fn settle(&self, held: u64) {
        self.gauge.set(held);
        self.account.settle(|| held);
    }
}
