//! The kernel programs' counters, read through shared memory.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::DatapathError;
use crate::layout::COUNTER_WORDS;
use crate::mapped::Mapped;

/// What the kernel programs counted for one port, all since the port was added. Each only ever grows, and may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// For the slow path, counted as packets on the wire (a GSO packet is as many as it will become).
    pub slow_path_packets: u64,
    /// Reached the collector's program.
    pub collected_packets: u64,
    /// Collected while no socket stood for the port.
    pub unclaimed_packets: u64,
    /// Could not be handed over by the port's program.
    pub refused_packets: u64,
    /// Not handed over because the port held its share of the pool.
    pub over_threshold_packets: u64,
    /// Not handed over because the ring had no room left.
    pub ring_full_packets: u64,
    /// Not handed over because one packet would take more frames than the ring has.
    pub too_big_packets: u64,
    /// Of a port whose packets go to several queues: to a worker on another NUMA node than the netdev.
    pub far_packets: u64,
}

impl KernelCounters {
    /// What was counted since `earlier`; right across a wrap.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            slow_path_packets: self.slow_path_packets.wrapping_sub(earlier.slow_path_packets),
            collected_packets: self.collected_packets.wrapping_sub(earlier.collected_packets),
            unclaimed_packets: self.unclaimed_packets.wrapping_sub(earlier.unclaimed_packets),
            refused_packets: self.refused_packets.wrapping_sub(earlier.refused_packets),
            over_threshold_packets: self.over_threshold_packets.wrapping_sub(earlier.over_threshold_packets),
            ring_full_packets: self.ring_full_packets.wrapping_sub(earlier.ring_full_packets),
            too_big_packets: self.too_big_packets.wrapping_sub(earlier.too_big_packets),
            far_packets: self.far_packets.wrapping_sub(earlier.far_packets),
        }
    }

    /// Slow path packets that the port's program handed to the collector.
    pub fn handed_over(&self) -> u64 {
        self.slow_path_packets
            .wrapping_sub(self.refused_packets)
            .wrapping_sub(self.over_threshold_packets)
            .wrapping_sub(self.ring_full_packets)
            .wrapping_sub(self.too_big_packets)
    }
}

/// The counters of every port id.
#[derive(Debug)]
pub(crate) struct CounterTable(Mapped<[AtomicU64; COUNTER_WORDS]>);

impl CounterTable {
    pub(crate) fn map(map: BorrowedFd<'_>, ports: u32) -> Result<Self, DatapathError> {
        Mapped::map(map, ports as usize, "map the port counters").map(Self)
    }

    /// The counters of `port_id`, each read once. Zero for an id the table does not have.
    pub(crate) fn read(&self, port_id: u16) -> KernelCounters {
        if usize::from(port_id) >= self.0.len() {
            return KernelCounters::default();
        }
        let words = self.0.get(port_id.into());
        let word = |n: usize| words[n].load(Ordering::Acquire);
        // The later stage is read first, so that a packet in between is seen as on its way and never as too many.
        let (unclaimed_packets, collected_packets) = (word(2), word(1));
        KernelCounters {
            far_packets: word(7),
            too_big_packets: word(6),
            ring_full_packets: word(5),
            over_threshold_packets: word(4),
            refused_packets: word(3),
            unclaimed_packets,
            collected_packets,
            slow_path_packets: word(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_survives_the_wrap() {
        let earlier = KernelCounters { slow_path_packets: u64::MAX - 1, ..Default::default() };
        let later = KernelCounters { slow_path_packets: 3, ..Default::default() };
        assert_eq!(later.since(&earlier).slow_path_packets, 5);
    }
}
