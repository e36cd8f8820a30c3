//! An output that one worker owns: a queue with one producer.

use forebay_policy::Nanos;
use forebay_vhost::LentBytes;

use super::exchange::Exchange;
use super::guest_output::GuestOutput;
use super::memory::MemoryOutput;
use super::moderation::Moderation;
use super::parcel::{Leaving, Parcel, Pieces, Sent};

/// The owner's end. Matched once for each copy of a packet.
pub(crate) enum Outlet {
    /// A queue in this process's memory.
    Memory(MemoryOutput),
    /// A virtual machine's receive queues.
    Guest(GuestOutput),
}

impl Outlet {
    /// Copies a packet into the queue.
    pub(super) fn send(&mut self, pieces: &Pieces<'_>, leaving: Leaving) -> Sent {
        match self {
            Outlet::Memory(memory) => {
                Sent::whole(memory.send(pieces, leaving), leaving.packets, pieces.len())
            }
            Outlet::Guest(guest) => guest.send(pieces, &leaving),
        }
    }

    /// Copies a packet whose last bytes lie in a guest's memory. If the receiver does not take the packet as it is, the bytes are
    /// copied into `room` first.
    pub(super) fn send_lent(
        &mut self,
        pieces: Pieces<'_>,
        lent: LentBytes<'_>,
        room: &mut [u8],
        leaving: Leaving,
    ) -> Sent {
        if let Outlet::Guest(guest) = self
            && let Some(sent) = guest.send_lent(&pieces, lent, &leaving)
        {
            return sent;
        }
        let rest = [lent.copy_to(room)];
        self.send(&pieces.followed_by(&rest), leaving)
    }

    /// Queues a packet that another worker handed over, or frees it.
    pub(super) fn pass(&mut self, packet: &mut Vec<Parcel>, exchange: &mut Exchange) -> Sent {
        match self {
            Outlet::Memory(memory) => {
                let len = packet.iter().map(|parcel| usize::from(parcel.segment.len)).sum();
                let packets = packet[0].leaving.packets;
                Sent::whole(memory.pass(packet), packets, len)
            }
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
