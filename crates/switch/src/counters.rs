//! Counters that one worker writes and anyone reads, without a locked instruction on the packet path.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_control::{DropReason, Drops, PortCounters};

/// A number with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to it; only its one writer may.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets it; only its one writer may.
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one worker counted for one port; on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PortCell {
    pub(crate) rx_packets: Counter,
    pub(crate) rx_bytes: Counter,
    pub(crate) tx_packets: Counter,
    pub(crate) tx_bytes: Counter,
    pub(crate) forwarded_packets: Counter,
    pub(crate) flooded_packets: Counter,
    /// Copies made for this port as an output; each is then sent or dropped for a tx reason.
    pub(crate) tx_offered: Counter,
    /// Packets whose source address was not learned because a limit was reached.
    pub(crate) not_learned: Counter,
    /// Packets whose checksum was unfinished and was completed.
    pub(crate) completed_checksums: Counter,
    pub(crate) drops: [Counter; DropReason::COUNT],
}

impl PortCell {
    #[inline]
    pub(crate) fn drop(&self, reason: DropReason, packets: u64) {
        self.drops[reason.index()].add(packets);
    }

    fn add_to(&self, sum: &mut PortCounters) {
        sum.rx_packets += self.rx_packets.get();
        sum.rx_bytes += self.rx_bytes.get();
        sum.tx_packets += self.tx_packets.get();
        sum.tx_bytes += self.tx_bytes.get();
        sum.forwarded_packets += self.forwarded_packets.get();
        sum.flooded_packets += self.flooded_packets.get();
        sum.not_learned_packets += self.not_learned.get();
        sum.completed_checksums += self.completed_checksums.get();
        sum.drops += Drops::from_array(std::array::from_fn(|reason| self.drops[reason].get()));
    }
}

/// One port's cells, one for each worker.
#[derive(Debug)]
pub(crate) struct PortCells(Box<[PortCell]>);

impl PortCells {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| PortCell::default()).collect())
    }

    /// The cell that worker `worker` writes.
    #[inline]
    pub(crate) fn of(&self, worker: usize) -> &PortCell {
        &self.0[worker]
    }

    /// What all workers counted.
    pub(crate) fn sum(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        self.0.iter().for_each(|cell| cell.add_to(&mut sum));
        sum
    }

    /// Copies made for this port as an output.
    pub(crate) fn tx_offered(&self) -> u64 {
        self.0.iter().map(|cell| cell.tx_offered.get()).sum()
    }
}

/// What one worker counted of itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCell {
    pub(crate) iterations: Counter,
    pub(crate) batches: Counter,
    pub(crate) packets: Counter,
    pub(crate) copies: Counter,
    pub(crate) departed: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) busy_ns: Counter,
    /// Packets in a shared ring that nobody knows the source of.
    pub(crate) strays: Counter,
}

/// Frames that one RX ring holds: seen at every poll, so that it is exact once the ring is quiet.
#[derive(Debug, Default)]
pub(crate) struct RingGauge {
    pub(crate) used: Counter,
    pub(crate) max: Counter,
}

impl RingGauge {
    #[inline]
    pub(crate) fn set(&self, frames: u64) {
        self.used.set(frames);
        if frames > self.max.get() {
            self.max.set(frames);
        }
    }
}
