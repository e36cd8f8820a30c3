//! How long packets were under way, by the clock of the turn that decides about them.

use std::sync::Arc;

use super::clock::Moment;
use crate::counters::LatencyCells;

/// Packets that seem to arrive after their turn: its clock is read before they are looked for, so that a later reading
/// has to tell whether they did.
pub(super) struct Arrivals {
    /// Which worker counts.
    worker: usize,
    later: Vec<(Arc<LatencyCells>, u64)>,
}

impl Arrivals {
    /// Of worker `worker`, which has at most `packets` in a turn.
    pub(super) fn new(worker: usize, packets: usize) -> Self {
        Self { worker, later: Vec::with_capacity(packets) }
    }

    /// Counts a packet that arrived at `arrived`, now or by the clock's next reading.
    #[inline]
    pub(super) fn observe(&mut self, cells: &Arc<LatencyCells>, arrived: u64, moment: Moment) {
        if arrived <= moment.tai_ns {
            cells.of(self.worker).observe(arrived, moment.tai_ns);
        } else {
            self.later.push((Arc::clone(cells), arrived));
        }
    }

    /// Counts those left, by the clock's next reading.
    #[inline]
    pub(super) fn settle(&mut self, moment: Moment) {
        for (cells, arrived) in self.later.drain(..) {
            cells.of(self.worker).observe(arrived, moment.tai_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tai_ns: u64) -> Moment {
        Moment { tai_ns, ..Moment::default() }
    }

    #[test]
    fn what_arrives_within_a_turn_is_not_from_the_future() {
        let cells = Arc::new(LatencyCells::new(1));
        let mut arrivals = Arrivals::new(0, 3);
        for arrived in [900, 1100, 1300] {
            arrivals.observe(&cells, arrived, at(1000));
        }
        for _ in 0..2 {
            arrivals.settle(at(1200));
            assert_eq!((cells.counts().iter().sum::<u64>(), cells.ahead_of_us()), (2, 1));
        }
    }
}
