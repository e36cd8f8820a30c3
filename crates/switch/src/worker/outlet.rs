//! An output that one worker owns: a queue with one producer.

use forebay_policy::Nanos;

use super::exchange::Exchange;
use super::guest::GuestOutput;
use super::memory::MemoryOutput;
use super::moderation::Moderation;
use super::parcel::{Leaving, Parcel, Pieces, Undeliverable};

/// The owner's end. Matched once for each copy of a packet.
pub(crate) enum Outlet {
    /// A queue in this process's memory.
    Memory(MemoryOutput),
    /// A virtual machine's receive queues.
    Guest(GuestOutput),
}

impl Outlet {
    /// Copies a packet into the queue.
    pub(super) fn send(&mut self, pieces: &Pieces<'_>, leaving: Leaving) -> Result<(), Undeliverable> {
        match self {
            Outlet::Memory(memory) => memory.send(pieces, leaving),
            Outlet::Guest(guest) => guest.send(pieces, &leaving.undone),
        }
    }

    /// Queues a packet that another worker handed over, or frees it.
    pub(super) fn pass(
        &mut self,
        packet: &mut Vec<Parcel>,
        exchange: &mut Exchange,
    ) -> Result<(), Undeliverable> {
        match self {
            Outlet::Memory(memory) => memory.pass(packet),
            Outlet::Guest(guest) => {
                let passed = guest.pass(exchange.arena(), packet);
                exchange.free(packet);
                passed
            }
        }
    }

    /// Whether the receiver is to be shown what was queued ([`Outlet::show`]).
    #[inline]
    pub(super) fn is_owed(&self) -> bool {
        matches!(self, Outlet::Guest(guest) if guest.is_owed())
    }

    /// Shows the receiver what was queued; packet path, once a turn.
    pub(super) fn show(&mut self, moderation: &mut Moderation, now: Nanos) {
        if let Outlet::Guest(guest) = self {
            guest.show(moderation, now);
        }
    }
}
