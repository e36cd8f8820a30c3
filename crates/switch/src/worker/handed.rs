//! What a virtual machine's packets take of the pool: frames on their way to other workers, and no others.
//!
//! They count in the port's account, as frames in the ring of a netdev's port do, and by the same rule. As there the account
//! is settled by looking: what the ring to another worker does not hold any more may be taken again.

use std::sync::Arc;

use forebay_control::PortId;
use forebay_kernel::RingAccount;

use super::{Member, Worker};
use crate::admission;
use crate::counters::RingGauge;

/// The account of one port, at the worker that serves it.
#[derive(Clone, Debug)]
pub(crate) struct HandedAccount {
    pub(crate) account: RingAccount,
    pub(crate) gauge: Arc<RingGauge>,
}

impl HandedAccount {
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
    fn settle(&self, held: u64) {
        self.gauge.set(held);
        self.account.settle(|| held);
    }
}

impl Worker {
    /// Sets the accounts right of ports whose packets were handed over.
    pub(super) fn settle_handed(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        exchange.look_at_owing(|port, held| {
            if let Some(handed) = handed_of(&self.members, port) {
                handed.settle(held);
            }
        });
    }

    /// The port takes no more. What of it is on its way counts in nobody's account.
    pub(super) fn forget_handed(&self, port: PortId) {
        if let Some(handed) = handed_of(&self.members, port) {
            handed.settle(0);
        }
    }
}

/// The account of a virtual machine's port.
#[inline]
pub(super) fn handed_of(members: &[Option<Box<Member>>], port: PortId) -> Option<&HandedAccount> {
    members[usize::from(port.0)].as_deref()?.handed.as_ref()
}
