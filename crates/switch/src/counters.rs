//! Counters that one worker writes and anyone reads, without a locked instruction on the packet path.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_control::counters::BadFrames;
use forebay_control::stats::BATCH_SIZES;
use forebay_control::{DropReason, Drops, PortCounters};
use forebay_policy::Buckets;
use forebay_wire::BadFrame;

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
    pub(crate) tx_copies: Counter,
    /// Packets whose source address was not learned because a limit was reached.
    pub(crate) not_learned: Counter,
    /// Packets whose station was behind another port before.
    pub(crate) moved: Counter,
    /// Packets whose station would have moved here, had the port not reached its limit of moves.
    pub(crate) move_limited: Counter,
    /// Of a port whose packets are steered, packets to one port that a worker serves, and those that another worker had.
    pub(crate) steered: Counter,
    pub(crate) away: Counter,
    /// Of these, those where that worker is on another NUMA node.
    pub(crate) across: Counter,
    /// Packets whose checksum was unfinished and was completed.
    pub(crate) completed_checksums: Counter,
    pub(crate) drops: [Counter; DropReason::COUNT],
    bad_frames: BadFrameCell,
}

/// Packets dropped as [`DropReason::BadFrame`], by cause.
#[derive(Debug, Default)]
struct BadFrameCell {
    runt: Counter,
    truncated_tag: Counter,
    multicast_source: Counter,
    zero_source: Counter,
}

impl PortCell {
    #[inline]
    pub(crate) fn drop(&self, reason: DropReason, packets: u64) {
        self.drops[reason.index()].add(packets);
    }

    /// Counts what was wrong with a packet that is dropped as [`DropReason::BadFrame`].
    #[cold]
    pub(crate) fn bad_frame(&self, cause: BadFrame) {
        let counter = match cause {
            BadFrame::Runt => &self.bad_frames.runt,
            BadFrame::TruncatedTag => &self.bad_frames.truncated_tag,
            BadFrame::MulticastSource => &self.bad_frames.multicast_source,
            BadFrame::ZeroSource => &self.bad_frames.zero_source,
        };
        counter.add(1);
    }

    fn add_to(&self, sum: &mut PortCounters) {
        sum.rx_packets += self.rx_packets.get();
        sum.rx_bytes += self.rx_bytes.get();
        sum.tx_packets += self.tx_packets.get();
        sum.tx_bytes += self.tx_bytes.get();
        sum.forwarded_packets += self.forwarded_packets.get();
        sum.flooded_packets += self.flooded_packets.get();
        sum.not_learned_packets += self.not_learned.get();
        sum.moved_packets += self.moved.get();
        sum.move_limited_packets += self.move_limited.get();
        sum.completed_checksums += self.completed_checksums.get();
        sum.drops += Drops::from_array(std::array::from_fn(|reason| self.drops[reason].get()));
        sum.bad_frames += BadFrames {
            runt: self.bad_frames.runt.get(),
            truncated_tag: self.bad_frames.truncated_tag.get(),
            multicast_source: self.bad_frames.multicast_source.get(),
            zero_source: self.bad_frames.zero_source.get(),
        };
    }
}

/// How long one worker's packets of one port had been under way when it was decided where they go.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LatencyCell {
    pub(crate) buckets: [Counter; Buckets::COUNT],
    /// Packets that arrived after they were decided about: the device's clock is not ours.
    pub(crate) from_the_future: Counter,
}

impl LatencyCell {
    /// Counts a packet that arrived at `arrived`, by the clock that says `now`.
    #[inline]
    pub(crate) fn observe(&self, arrived: u64, now: u64) {
        match now.checked_sub(arrived) {
            Some(ns) => self.buckets[Buckets::of(ns)].add(1),
            None => self.from_the_future.add(1),
        }
    }
}

/// One port's, one for each worker.
#[derive(Debug)]
pub(crate) struct LatencyCells(Box<[LatencyCell]>);

impl LatencyCells {
    pub(crate) fn new(workers: usize) -> Self {
        let cell = || LatencyCell {
            buckets: std::array::from_fn(|_| Counter::default()),
            from_the_future: Counter::default(),
        };
        Self((0..workers).map(|_| cell()).collect())
    }

    /// The cell that worker `worker` writes.
    #[inline]
    pub(crate) fn of(&self, worker: usize) -> &LatencyCell {
        &self.0[worker]
    }

    /// What all workers counted, by bucket.
    pub(crate) fn counts(&self) -> Vec<u64> {
        (0..Buckets::COUNT).map(|bucket| self.0.iter().map(|cell| cell.buckets[bucket].get()).sum()).collect()
    }

    /// Packets that seemed to arrive after they were decided about.
    pub(crate) fn ahead_of_us(&self) -> u64 {
        self.0.iter().map(|cell| cell.from_the_future.get()).sum()
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

    /// Packets that came in at this port, and that were for it.
    pub(crate) fn passed(&self) -> u64 {
        let passed = |cell: &PortCell| cell.rx_packets.get().wrapping_add(cell.tx_copies.get());
        self.0.iter().map(passed).fold(0, u64::wrapping_add)
    }

    /// Moves of stations to this port, those that were refused included.
    pub(crate) fn moves(&self) -> u64 {
        let moves = |cell: &PortCell| cell.moved.get().wrapping_add(cell.move_limited.get());
        self.0.iter().map(moves).fold(0, u64::wrapping_add)
    }

    /// Packets to one port that a worker serves, those of them that another worker had, and those that one on another node
    /// had.
    pub(crate) fn steered(&self) -> [u64; 3] {
        let sum = |of: fn(&PortCell) -> &Counter| self.0.iter().map(|cell| of(cell).get()).sum();
        [sum(|cell| &cell.steered), sum(|cell| &cell.away), sum(|cell| &cell.across)]
    }

    /// Copies made for this port as an output.
    pub(crate) fn tx_copies(&self) -> u64 {
        self.0.iter().map(|cell| cell.tx_copies.get()).sum()
    }
}

/// What one worker counted of itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCell {
    pub(crate) iterations: Counter,
    pub(crate) busy_iterations: Counter,
    pub(crate) busy_cycles: Counter,
    pub(crate) idle_cycles: Counter,
    pub(crate) batches: Counter,
    pub(crate) batch_sizes: [Counter; BATCH_SIZES],
    pub(crate) known: Counter,
    pub(crate) unknown: Counter,
    pub(crate) group: Counter,
    /// Packets whose ruling was known, and such that the classifier was asked about.
    pub(crate) repeated: Counter,
    pub(crate) cached: Counter,
    pub(crate) classified: Counter,
    /// Moves of stations from port to port, those that were refused included.
    pub(crate) moves: Counter,
    pub(crate) packets: Counter,
    pub(crate) copies: Counter,
    pub(crate) departed: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) lingers: Counter,
    pub(crate) linger_ns: Counter,
    pub(crate) busy_ns: Counter,
    /// Packets in a shared ring that nobody knows the source of.
    pub(crate) strays: Counter,
    /// Descriptors that pointed outside the pool.
    pub(crate) bad_descriptors: Counter,
    /// Packets whose layout's id was given out once and means nothing any more, and such whose id never was.
    pub(crate) stale_layouts: Counter,
    pub(crate) unknown_layouts: Counter,
}

impl WorkerCell {
    /// Counts a burst by its size.
    #[inline]
    pub(crate) fn batch(&self, packets: usize) {
        if let Some(magnitude) = packets.checked_ilog2() {
            self.batches.add(1);
            self.batch_sizes[(magnitude as usize).min(BATCH_SIZES - 1)].add(1);
            self.packets.add(packets as u64);
        }
    }
}

/// Frames that one RX ring holds: seen at every poll, so that it is exact once the ring is quiet.
#[derive(Debug, Default)]
pub(crate) struct RingGauge {
    pub(crate) used: Counter,
    /// By the ring's worker.
    polled: Watermark,
    /// By the control thread, which looks at the account between polls.
    looked: Watermark,
    /// How often the watermarks were cleared; the control thread writes it.
    clears: Counter,
}

impl RingGauge {
    /// Sets what the ring holds; only its worker may.
    #[inline]
    pub(crate) fn set(&self, frames: u64) {
        self.used.set(frames);
        self.polled.raise(frames, self.clears.get());
    }

    /// Counts what the ring's account says into the watermark; only the control thread may.
    pub(crate) fn look(&self, frames: u64) {
        self.looked.raise(frames, self.clears.get());
    }

    /// Begins the watermark anew, with what is held now; only the control thread may.
    pub(crate) fn clear_max(&self) {
        self.clears.add(1);
    }

    /// The most frames that were seen since the watermark was cleared; for the control thread.
    pub(crate) fn max(&self) -> u64 {
        let clears = self.clears.get();
        // Where nobody has looked since, the most is what was there at the last look.
        let polled = self.polled.since(clears).unwrap_or_else(|| self.used.get());
        polled.max(self.looked.since(clears).unwrap_or(0))
    }
}

/// The most since a clearing. One party raises it; whoever clears does not write to it, but counts clearings, and
/// frames of an earlier one do not count any more. Frames and clearings share a word, so that they are never torn
/// apart.
///
/// ```text
///  63           32 31            0
/// ┌───────────────┬───────────────┐
/// │   clearings   │    frames     │
/// └───────────────┴───────────────┘
/// ```
#[derive(Debug, Default)]
struct Watermark(Counter);

impl Watermark {
    /// Only its one writer may. `clears` is what the writer has read, and may be behind by now.
    #[inline]
    fn raise(&self, frames: u64, clears: u64) {
        let word = clears << 32 | frames.min(u32::MAX.into());
        let before = self.0.get();
        if word > before || word >> 32 != before >> 32 {
            self.0.set(word);
        }
    }

    /// The frames, if they are of clearing `clears`.
    fn since(&self, clears: u64) -> Option<u64> {
        let word = self.0.get();
        (word >> 32 == clears & u64::from(u32::MAX)).then_some(word & u64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_keeps_the_most_and_begins_anew_when_cleared() {
        let gauge = RingGauge::default();
        for frames in [3, 90, 7, 0] {
            gauge.set(frames);
        }
        assert_eq!((gauge.used.get(), gauge.max()), (0, 90));
        gauge.clear_max();
        assert_eq!(gauge.max(), 0);
        gauge.set(5);
        gauge.set(0);
        assert_eq!(gauge.max(), 5);
    }

    #[test]
    fn what_is_held_when_a_watermark_is_cleared_is_its_beginning() {
        let gauge = RingGauge::default();
        gauge.set(90);
        gauge.set(40);
        gauge.clear_max();
        assert_eq!(gauge.max(), 40, "before the worker looks again");
        gauge.set(0);
        assert_eq!(gauge.max(), 0, "the worker found it empty");
    }

    #[test]
    fn a_worker_that_is_late_does_not_bring_the_old_watermark_back() {
        let gauge = RingGauge::default();
        let clears = gauge.clears.get();
        gauge.set(0);
        gauge.clear_max();
        // It read the number of clearings before, and writes after.
        gauge.polled.raise(500, clears);
        assert_eq!(gauge.max(), 0);
        gauge.set(4);
        assert_eq!(gauge.max(), 4);
    }

    #[test]
    fn what_was_seen_between_polls_counts_too() {
        let gauge = RingGauge::default();
        gauge.set(4);
        gauge.look(11);
        assert_eq!(gauge.max(), 11);
        gauge.clear_max();
        assert_eq!(gauge.max(), 4);
    }

    #[test]
    fn the_number_of_clearings_may_wrap() {
        let gauge = RingGauge::default();
        gauge.clears.set(u32::MAX.into());
        gauge.set(9);
        assert_eq!(gauge.max(), 9);
        gauge.clear_max();
        gauge.set(2);
        assert_eq!(gauge.max(), 2);
    }
}
