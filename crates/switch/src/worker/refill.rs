//! Sixth verb: the burst's frames go back to where the kernel finds them.

use super::{BUDGET, Worker};

/// Frames that one call takes from the pool at most, besides those of the burst.
const TOP_UP: usize = 2 * BUDGET;

impl Worker {
    /// Posts the burst's frames to the fill ring, the rest to the magazine; then tops the fill ring up from the pool.
    pub(super) fn refill(&mut self) {
        for frame in self.burst.drain() {
            if let Err(frame) = self.fill.post(frame) {
                self.magazine.put(frame);
            }
        }
        self.top_up(TOP_UP);
        self.fill.publish();
        self.shared.worker_cell(self.index).fill_occupancy.set(u64::from(self.fill.occupancy()));
    }

    /// Fills the ring before the first packet.
    pub(super) fn prime(&mut self) {
        self.top_up(usize::MAX);
        self.refill();
    }

    fn top_up(&mut self, most: usize) {
        for _ in 0..most.min(self.fill.free_slots() as usize) {
            let Some(frame) = self.magazine.take() else { break };
            if let Err(frame) = self.fill.post(frame) {
                self.magazine.put(frame);
                break;
            }
        }
    }
}
