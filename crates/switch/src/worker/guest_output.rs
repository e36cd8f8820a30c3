//! A virtual machine's receive queues, as the worker that owns them fills them.

use std::sync::Arc;

use forebay_policy::{Nanos, RingShare, Sender};
use forebay_pool::Arena;
use forebay_vhost::{Features, LentBytes, Put, RingError, Virtqueue};
use forebay_wire::net_header::NetHeader;

use super::finish::finish;
use super::guest::GuestCells;
use super::moderation::{ModeratedQueue, Moderation};
use super::parcel::{Leaving, Parcel, Pieces, Sent, Undeliverable};

/// A guest's receive queues. Ports that send to it share each of them ([`RingShare`]).
pub(crate) struct GuestOutput {
    queues: Vec<ModeratedQueue>,
    /// One for each queue.
    shares: Vec<RingShare>,
    /// What both ends agreed on.
    features: Features,
    cells: Arc<GuestCells>,
    /// Something was written since the guest was last shown.
    is_owed: bool,
    is_broken: bool,
}

impl GuestOutput {
    /// Queues of one guest, at least one.
    pub(crate) fn new(mut queues: Vec<ModeratedQueue>, features: Features, cells: Arc<GuestCells>) -> Self {
        // A worker looks for buffers when it has packets.
        queues.iter_mut().for_each(|queue| queue.virtqueue.suppress_kicks());
        let shares = vec![RingShare::default(); queues.len()];
        Self { queues, shares, features, cells, is_owed: false, is_broken: false }
    }

    pub(crate) fn into_queues(self) -> Vec<ModeratedQueue> {
        self.queues
    }

    /// The guest takes other packets from now on.
    pub(super) fn set_takes(&mut self, takes: Features) {
        self.features = takes;
    }

    pub(super) fn queues(&mut self) -> &mut [ModeratedQueue] {
        &mut self.queues
    }

    /// Copies a packet into the guest's buffers: as it is, if the guest agreed to take such packets.
    /// One that is cut counts as its parts.
    pub(super) fn send(&mut self, pieces: &Pieces<'_>, leaving: &Leaving) -> Sent {
        let Leaving { packets, undone, .. } = leaving;
        if undone.is_plain() || self.features.takes(undone) {
            let len = pieces.len();
            let put = self.put(*undone, pieces.in_order(), LentBytes::default(), len, leaving.sender());
            return Sent::whole(put, *packets, len);
        }
        let mut bytes = 0;
        let finished = finish(pieces, undone, |pieces| {
            let len = pieces.iter().map(|piece| piece.len()).sum();
            let (parts, lent) = (pieces.iter().copied(), LentBytes::default());
            let put = self.put(NetHeader::default(), parts, lent, len, leaving.sender());
            put.inspect(|()| bytes += len as u64)
        });
        Sent { packets: finished.put, bytes, lost: finished.lost }
    }

    /// Copies a finished packet that lies in one piece.
    #[inline]
    pub(super) fn send_bytes(&mut self, bytes: &[u8], sender: Sender) -> Result<(), Undeliverable> {
        let (part, lent) = (std::iter::once(bytes), LentBytes::default());
        self.put(NetHeader::default(), part, lent, bytes.len(), sender)
    }

    /// Copies a packet whose last bytes lie in another guest's memory. `None`: this guest takes no such packet. Then the switch has to
    /// cut it, and for that to read it.
    pub(super) fn send_lent(
        &mut self,
        pieces: &Pieces<'_>,
        lent: LentBytes<'_>,
        leaving: &Leaving,
    ) -> Option<Sent> {
        let Leaving { packets, undone, .. } = leaving;
        if !self.features.takes(undone) {
            return None;
        }
        let len = pieces.len() + lent.len();
        let put = self.put(*undone, pieces.in_order(), lent, len, leaving.sender());
        Some(Sent::whole(put, *packets, len))
    }

    /// Copies a packet that another worker handed over.
    pub(super) fn pass(&mut self, arena: &Arena, packet: &[Parcel]) -> Sent {
        self.send(&Pieces::handed(arena, packet), &packet[0].leaving)
    }

    #[inline]
    fn put<'p>(
        &mut self,
        undone: NetHeader,
        pieces: impl Iterator<Item = &'p [u8]> + Clone,
        lent: LentBytes<'_>,
        len: usize,
        sender: Sender,
    ) -> Result<(), Undeliverable> {
        if self.is_broken {
            return Err(Undeliverable::Full);
        }
        let number = match self.queues.len() {
            1 => 0,
            queues => queue_of(pieces.clone(), queues),
        };
        let (queue, share) = (&mut self.queues[number], &mut self.shares[number]);
        if !share.is_open() && !admits(share, sender, &mut queue.virtqueue, len as u32) {
            queue.note_full();
            self.is_owed = true;
            return Err(Undeliverable::OverShare);
        }
        let before = queue.virtqueue.places();
        match queue.virtqueue.put_lent(undone, pieces.clone(), lent, len as u32) {
            Ok(Put::Done) => {
                share.take(sender, queue.virtqueue.places() - before);
                queue.count(len as u32, || pieces.clone().next());
                self.is_owed = true;
            }
            Ok(Put::Full) => {
                queue.note_full();
                self.is_owed = true;
                return Err(Undeliverable::Full);
            }
            Ok(Put::TooLong) => return Err(Undeliverable::TooLong),
            Err(error) => {
                self.breaks(error);
                return Err(Undeliverable::Full);
            }
        }
        Ok(())
    }

    fn breaks(&mut self, error: RingError) {
        self.is_broken = true;
        self.cells.breaks(error);
    }

    /// Whether the guest is to be shown what was written.
    #[inline]
    pub(super) fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Shows the guest what was written, and calls it if it wants that.
    pub(super) fn show(&mut self, moderation: &mut Moderation, now: Nanos) {
        self.is_owed = false;
        for (queue, share) in self.queues.iter_mut().zip(&mut self.shares) {
            queue.show(moderation, now);
            share.look(now, || queue.virtqueue.waiting().into());
        }
        if !self.is_broken && self.queues[0].virtqueue.is_broken() {
            self.breaks(RingError::MemoryFault);
        }
    }
}

/// Whether the sender may put a packet of `len` bytes into a queue, or has its share of the queue already.
#[inline(never)]
fn admits(share: &mut RingShare, sender: Sender, virtqueue: &mut Virtqueue, len: u32) -> bool {
    let (places, free) = (virtqueue.places_for(len), virtqueue.waiting());
    share.admits(sender, places, free.into())
}

/// Packets between two stations go by one queue, in order.
fn queue_of<'p>(mut pieces: impl Iterator<Item = &'p [u8]>, queues: usize) -> usize {
    let addresses = pieces.next().and_then(|first| first.first_chunk::<12>());
    let Some([dst @ .., a, b, c, d]) = addresses else { return 0 };
    let low = u64::from(u32::from_ne_bytes([*a, *b, *c, *d]));
    let high = u64::from_ne_bytes(*dst);
    let hash = (high ^ low.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * queues as u64) >> 32) as usize
}
