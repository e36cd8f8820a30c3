//! An output that one worker owns: a queue with one producer.

use forebay_control::PortId;
use forebay_pool::{Arena, PacketSegments};
use forebay_xsk::TagEdit;

use super::exchange::Exchange;
use super::guest::GuestOutput;
use super::memory::MemoryOutput;
use super::parcel::{Parcel, Undeliverable};

/// The owner's end. Matched once for each copy of a packet.
pub(crate) enum Outlet {
    /// A queue in this process's memory.
    Memory(MemoryOutput),
    /// A virtual machine's receive queues.
    Guest(GuestOutput),
}

impl Outlet {
    /// Copies a packet whose frames lie in `arena` into the queue. Says how long it is there.
    pub(super) fn send(
        &mut self,
        arena: &Arena,
        packet: PacketSegments<'_>,
        edit: TagEdit,
        to: (PortId, u32),
    ) -> Result<usize, Undeliverable> {
        match self {
            Outlet::Memory(memory) => memory.send(arena, packet, edit, to),
            Outlet::Guest(guest) => guest.send(arena, packet, edit),
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
    pub(super) fn show(&mut self) {
        if let Outlet::Guest(guest) = self {
            guest.show();
        }
    }
}
