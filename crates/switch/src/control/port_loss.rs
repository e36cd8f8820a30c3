//! Packets that the collector lost.

use forebay_kernel::KernelCounters;
use forebay_policy::Nanos;

use crate::settled;

/// Tells packets that the collector lost from packets that are on their way through it.
///
/// Both look the same in the counters: the port's program has counted them, and the collector's program has not. The
/// collector's rings have a limit, and packets beyond it are lost. If no counter moves for [`QUIET`], no packet is on its way,
/// and all that are missing are lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CollectorLoss {
    seen: KernelCounters,
    /// When `seen` was seen for the first time.
    since: Nanos,
    lost_packets: u64,
}

/// How long the counters must stand still. Several requests may look at once, so two looks alone say nothing.
const QUIET: Nanos = Nanos(settled::PAUSE.as_nanos() as u64);

impl CollectorLoss {
    /// Looks at `counters`; `room` is how many packets can be under way. Says whether all is accounted for.
    pub(super) fn observe(&mut self, counters: KernelCounters, room: u64, now: Nanos) -> bool {
        let gap = gap(counters);
        if counters != self.seen {
            self.lost_packets = self.lost_packets.max(gap.saturating_sub(room));
            (self.seen, self.since) = (counters, now);
        } else if now.0.saturating_sub(self.since.0) >= QUIET.0 {
            self.lost_packets = gap;
        }
        self.lost_packets == gap
    }

    /// Counts all that is missing as lost: nothing can be under way any more.
    pub(super) fn conclude(&mut self, counters: KernelCounters) {
        self.lost_packets = gap(counters);
    }

    pub(super) fn lost_packets(&self) -> u64 {
        self.lost_packets
    }
}

/// Slow path packets that were neither seen by the collector's program nor refused.
fn gap(counters: KernelCounters) -> u64 {
    let gap = counters.handed_over().wrapping_sub(counters.collected_packets);
    // The port's program may count a packet as one less than the kernel then makes of it.
    gap.cast_signed().max(0).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(slow_path: u64, collected: u64) -> KernelCounters {
        KernelCounters { slow_path_packets: slow_path, collected_packets: collected, ..Default::default() }
    }

    #[test]
    fn packets_on_their_way_are_not_lost() {
        let mut loss = CollectorLoss::default();
        assert!(!loss.observe(counters(1000, 900), 256, Nanos(0)));
        assert_eq!(loss.lost_packets(), 0);
        assert!(loss.observe(counters(1000, 1000), 256, QUIET));
    }

    #[test]
    fn what_cannot_be_on_its_way_is_lost() {
        let mut loss = CollectorLoss::default();
        loss.observe(counters(10_000, 1000), 256, Nanos(0));
        assert_eq!(loss.lost_packets(), 9000 - 256);
    }

    #[test]
    fn when_nothing_moves_the_rest_is_lost() {
        let mut loss = CollectorLoss::default();
        loss.observe(counters(1000, 990), 256, Nanos(7));
        assert!(loss.observe(counters(1000, 990), 256, Nanos(7 + QUIET.0)));
        assert_eq!(loss.lost_packets(), 10);
    }

    #[test]
    fn two_readers_at_once_take_nothing_on_its_way_for_lost() {
        let mut loss = CollectorLoss::default();
        for look in 0..100 {
            assert!(!loss.observe(counters(1000, 990), 256, Nanos(look)), "look {look}");
        }
        assert_eq!(loss.lost_packets(), 0);
    }

    #[test]
    fn at_the_end_all_that_is_missing_is_lost() {
        let mut loss = CollectorLoss::default();
        loss.conclude(counters(1000, 990));
        assert_eq!(loss.lost_packets(), 10);
    }

    #[test]
    fn more_collected_packets_than_slow_path_packets_are_no_loss() {
        let mut loss = CollectorLoss::default();
        for now in [Nanos(0), QUIET] {
            assert!(loss.observe(counters(1000, 1001), 256, now));
            assert_eq!(loss.lost_packets(), 0);
        }
    }

    #[test]
    fn the_kernels_counters_may_wrap() {
        let mut loss = CollectorLoss::default();
        loss.observe(counters(5, u64::MAX), 256, Nanos(0));
        assert!(loss.observe(counters(5, u64::MAX), 256, QUIET));
        assert_eq!(loss.lost_packets(), 6);
    }
}
