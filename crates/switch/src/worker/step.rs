//! A worker without its loop: one step at a time, for a switch in memory.

use super::clock::Moment;
use super::exchange::Exchange;
use super::{Slot, Source, TURN, Worker};

impl Worker {
    /// What the loop does between two waits, once: obey, pass on what was handed over, serve one source. Says how many
    /// packets that was.
    pub(crate) fn step(&mut self, moment: Moment) -> usize {
        self.arrivals.settle(moment);
        self.obey(moment);
        self.call_those_due(moment.now);
        let handed = self.deliver_handed(moment.now, TURN);
        self.observe_poll(self.run_list.is_empty(), moment.now);
        let served = self.run_list.pop().map_or(0, |slot| self.run_once(Slot(slot), moment));
        self.await_kicks();
        self.tend();
        handed + served
    }

    /// The source may have packets.
    pub(crate) fn wake(&mut self, slot: Slot) {
        self.run_list.wake(slot.0);
    }

    /// Whether nothing waits for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.run_list.is_empty() && !self.exchange.as_ref().is_some_and(Exchange::has_handed)
    }

    /// Frames in the RX rings that it serves.
    pub(crate) fn waiting_frames(&self) -> u32 {
        let served = self.sources.iter().flatten();
        served
            .map(|served| if let Source::Xsk(xsk) = &served.source { xsk.ring.occupancy() } else { 0 })
            .sum()
    }

    /// Frames that other workers have handed over and that it has not passed on.
    pub(crate) fn handed_frames(&self) -> u32 {
        self.exchange.as_ref().map_or(0, Exchange::waiting_frames)
    }
}
