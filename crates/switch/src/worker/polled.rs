//! Guests that a worker polls: their queues became empty, and they were not asked for kicks yet.
//!
//! A guest that is to kick makes a system call for it, and so does the worker that hears it. While the worker is awake, it
//! looks at the guests' rings instead. Before it sleeps, it asks all of them for kicks.

use arrayvec::ArrayVec;

use super::{Slot, Source, Worker};

/// Guests that one worker polls at once. More are asked for kicks when their queues become empty.
const POLLED: usize = 16;

/// The sources of those guests.
pub(super) type Polled = ArrayVec<Slot, POLLED>;

impl Worker {
    /// The queue of this source is empty, and its guest does not kick.
    pub(super) fn poll_guest(&mut self, slot: Slot) {
        if self.polled.contains(&slot) {
            return;
        }
        if self.polled.is_full() {
            self.await_kick(slot);
        } else {
            self.polled.push(slot);
        }
    }

    /// Looks at the guests' rings, and lists those that have packets. Says whether there are any.
    #[inline]
    pub(super) fn look_at_guests(&mut self) -> bool {
        let Self { polled, sources, run_list, .. } = self;
        let before = polled.len();
        polled.retain(|slot| match sources[slot.index()].as_deref().map(|served| &served.source) {
            Some(Source::Guest(guest)) if guest.has_waiting() => {
                run_list.wake(slot.0);
                false
            }
            Some(Source::Guest(_)) => true,
            // It was taken away.
            Some(Source::Xsk(_) | Source::Memory(_) | Source::Long(_)) | None => false,
        });
        polled.len() < before && !run_list.is_empty()
    }

    /// Asks all of them for kicks, and lists those that have packets after all. Says whether there are any.
    pub(super) fn await_kicks(&mut self) -> bool {
        while let Some(slot) = self.polled.pop() {
            self.await_kick(slot);
        }
        !self.run_list.is_empty()
    }

    fn await_kick(&mut self, slot: Slot) {
        if let Some(served) = self.sources[slot.index()].as_deref_mut()
            && let Source::Guest(guest) = &mut served.source
            && guest.allow_kicks()
        {
            self.run_list.wake(slot.0);
        }
    }
}
