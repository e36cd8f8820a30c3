//! Fifth verb: count every packet of the burst out, exactly once.

use forebay_control::DropReason;

use super::decide::Verdict;
use super::{Channel, Worker};

/// What the turn has found out besides verdicts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) not_learned: u64,
    pub(super) completed_checksums: u64,
}

impl Worker {
    /// Adds the turn to the counters of its port, which the channel keeps even after the port left the topology.
    pub(super) fn complete(&mut self, channel: &Channel, tally: &Tally) {
        channel.gauge.set(u64::from(channel.ring.occupancy()));
        let worker = self.shared.worker_cell(self.index);
        worker.batches.add(u64::from(!self.burst.is_empty()));
        worker.packets.add(self.burst.len() as u64);
        let cell = channel.cells.of(self.index);
        let (mut forwarded, mut flooded, mut drops) = (0, 0, [0u64; DropReason::COUNT]);
        for verdict in &self.verdicts {
            match verdict {
                Verdict::Forward(_) => forwarded += 1,
                Verdict::Flood => flooded += 1,
                Verdict::Drop(reason) => drops[reason.index()] += 1,
            }
        }
        let bytes = (0..self.burst.len()).map(|index| u64::from(self.burst.len_bytes(index))).sum();
        cell.rx_packets.add(self.burst.len() as u64);
        cell.rx_bytes.add(bytes);
        cell.forwarded_packets.add(forwarded);
        cell.flooded_packets.add(flooded);
        cell.not_learned.add(tally.not_learned);
        cell.completed_checksums.add(tally.completed_checksums);
        for reason in DropReason::ALL {
            if drops[reason.index()] > 0 {
                cell.drop(reason, drops[reason.index()]);
            }
        }
    }
}
