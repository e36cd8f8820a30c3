//! Everything that was counted for ports, before it is shown.

use std::ops::AddAssign;

use forebay_control::{DropReason, PortCounters};
use forebay_kernel::KernelCounters;
use forebay_xsk::Statistics;

use super::ring::add;

/// Everything that was counted for one port or several, in the raw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) cells: PortCounters,
    /// What an earlier process had counted, everything included.
    pub(super) base: PortCounters,
    /// What the kernel carried by flows.
    pub(super) carried: PortCounters,
    pub(super) tx_copies: u64,
    pub(super) kernel: KernelCounters,
    pub(super) sockets: Statistics,
    pub(super) collector_lost: u64,
    /// Loop probes that left, and such that came in.
    pub(super) probes: [u64; 2],
}

/// The sums of deleted ports.
pub(super) type Retired = Counted;

impl Counted {
    /// The port's counters as users see them: a packet that the kernel dropped was received too.
    pub(super) fn counters(&self) -> PortCounters {
        let mut shown = self.cells;
        shown += self.carried;
        shown += self.base;
        shown.tx_loop_probes += self.probes[0];
        shown.rx_loop_probes += self.probes[1];
        let kernel_drops = [
            (DropReason::NoFrame, self.sockets.rx_dropped),
            (DropReason::RxRingFull, self.sockets.rx_ring_full + self.kernel.ring_full_packets),
            (DropReason::RxTooBig, self.kernel.too_big_packets),
            (DropReason::CollectorFull, self.collector_lost + self.kernel.refused_packets),
            (DropReason::OverThreshold, self.kernel.over_threshold_packets),
            (DropReason::PortDown, self.kernel.unclaimed_packets),
        ];
        for (reason, packets) in kernel_drops {
            shown.drops[reason] += packets;
            shown.rx_packets += packets;
        }
        shown
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, other: Self) {
        self.cells += other.cells;
        self.carried += other.carried;
        self.base += other.base;
        self.tx_copies += other.tx_copies;
        self.kernel = sum(self.kernel, other.kernel);
        self.sockets = add(self.sockets, other.sockets);
        self.collector_lost += other.collector_lost;
        self.probes.iter_mut().zip(other.probes).for_each(|(sum, probes)| *sum += probes);
    }
}

fn sum(a: KernelCounters, b: KernelCounters) -> KernelCounters {
    KernelCounters {
        slow_path_packets: a.slow_path_packets.wrapping_add(b.slow_path_packets),
        collected_packets: a.collected_packets.wrapping_add(b.collected_packets),
        unclaimed_packets: a.unclaimed_packets.wrapping_add(b.unclaimed_packets),
        refused_packets: a.refused_packets.wrapping_add(b.refused_packets),
        over_threshold_packets: a.over_threshold_packets.wrapping_add(b.over_threshold_packets),
        ring_full_packets: a.ring_full_packets.wrapping_add(b.ring_full_packets),
        too_big_packets: a.too_big_packets.wrapping_add(b.too_big_packets),
        far_packets: a.far_packets.wrapping_add(b.far_packets),
    }
}
