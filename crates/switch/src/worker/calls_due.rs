//! Calls between turns: those that are due, and what changes how they are moderated.

use forebay_control::PortId;
use forebay_policy::Nanos;

use super::guest_output::GuestOutput;
use super::moderation::{Choice, ModeratedQueue, Moderation, Place};
use super::outlet::Outlet;
use super::{ServedSource, Slot, Source, Worker};

impl Worker {
    /// Calls guests whose packets have waited for long enough.
    #[inline]
    pub(super) fn call_those_due(&mut self, now: Nanos) {
        while let Some(number) = self.moderation.take_due(now) {
            match self.moderated(number) {
                (moderation, Some(queue)) => queue.expire(moderation),
                (moderation, None) => moderation.forgive(number),
            }
        }
    }

    /// The queue with this number, if it runs.
    fn moderated(&mut self, number: usize) -> (&mut Moderation, Option<&mut ModeratedQueue>) {
        let Self { moderation, outlets, sources, .. } = self;
        let queue = match moderation.place(number) {
            Some(Place::Source(slot)) => {
                let served = sources.get_mut(slot.index()).and_then(Option::as_deref_mut);
                served.and_then(moderated_of)
            }
            Some(Place::Output(port, index)) => match outlets[usize::from(port.0)].as_deref_mut() {
                Some(Outlet::Guest(guest)) => guest.queues().get_mut(index),
                Some(Outlet::Memory(_)) | None => None,
            },
            None => None,
        };
        (moderation, queue)
    }

    /// Room for more queues, and for those that are here.
    pub(super) fn grow_moderation(&mut self, mut more: Box<Moderation>) {
        std::mem::swap(&mut self.moderation, &mut more);
        self.moderation.adopt(*more);
    }

    /// A queue's limits are chosen in another way from now on.
    pub(super) fn moderate(&mut self, number: usize, choice: Choice, now: Nanos) {
        self.moderation.choose(number, choice);
        self.limits_changed(number, now);
    }

    /// What is chosen for a queue, or asked for by its guest, is another.
    pub(super) fn limits_changed(&mut self, number: usize, now: Nanos) {
        if let (moderation, Some(queue)) = self.moderated(number) {
            queue.obey(moderation, now);
        }
    }

    pub(super) fn start_output(&mut self, port: PortId, outlet: &mut Outlet, now: Nanos) {
        let Outlet::Guest(guest) = outlet else { return };
        for (index, queue) in guest.queues().iter_mut().enumerate() {
            queue.start(&mut self.moderation, Place::Output(port, index), now);
        }
    }

    pub(super) fn stop_output(&mut self, guest: &mut GuestOutput) {
        guest.queues().iter_mut().for_each(|queue| queue.stop(&mut self.moderation));
    }

    pub(super) fn start_source(&mut self, slot: Slot, served: &mut ServedSource, now: Nanos) {
        if let Some(queue) = moderated_of(served) {
            queue.start(&mut self.moderation, Place::Source(slot), now);
        }
    }

    pub(super) fn stop_source(&mut self, served: &mut ServedSource) {
        if let Some(queue) = moderated_of(served) {
            queue.stop(&mut self.moderation);
        }
    }
}

fn moderated_of(served: &mut ServedSource) -> Option<&mut ModeratedQueue> {
    match &mut served.source {
        Source::Guest(guest) => Some(guest.queue()),
        Source::Xsk(_) | Source::Memory(_) | Source::Long(_) => None,
    }
}
