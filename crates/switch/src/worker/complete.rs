//! Fifth verb: count every packet of the burst out, exactly once.

use forebay_control::DropReason;

use super::record::Record;
use super::stretch::Stretch;
use super::verdict::Verdict;
use super::{ServedSource, Worker};

impl Worker {
    /// Adds the turn to the counters of its ports, which workers keep even after a port left the topology.
    pub(super) fn complete(&self, served: &ServedSource) {
        served.gauge.set(u64::from(served.source.occupancy()));
        self.shared.worker_cell(self.index).batch(self.burst.len());
        for stretch in &self.stretches {
            self.count(stretch);
        }
    }

    fn count(&self, stretch: &Stretch) {
        let member = stretch.port.and_then(|port| self.members[usize::from(port.0)].as_deref());
        let Some(member) = member else {
            self.shared.worker_cell(self.index).strays.add(stretch.packets.len() as u64);
            return;
        };
        let cell = member.cells.of(self.index);
        let (mut forwarded, mut flooded, mut drops) = (0, 0, [0u64; DropReason::COUNT]);
        let mut count = |verdict, packets| match verdict {
            Verdict::Forward(_) => forwarded += packets,
            Verdict::Flood => flooded += packets,
            Verdict::Drop(reason) | Verdict::Refused(reason, _) => drops[reason.index()] += packets,
        };
        match stretch.alike.map(|found| self.repeats.verdict(found)) {
            Some(verdict) if !verdict.leaves() => count(verdict, stretch.packets.len() as u64),
            _ => {
                let records = &self.records[stretch.packets.clone()];
                let alike = |one: &Record, other: &Record| one.verdict == other.verdict;
                records.chunk_by(alike).for_each(|alike| count(alike[0].verdict, alike.len() as u64));
            }
        }
        cell.rx_packets.add(stretch.packets.len() as u64);
        cell.rx_bytes.add(self.burst.bytes_of(stretch.packets.clone()));
        cell.forwarded_packets.add(forwarded);
        cell.flooded_packets.add(flooded);
        for reason in DropReason::ALL {
            if drops[reason.index()] > 0 {
                cell.drop(reason, drops[reason.index()]);
            }
        }
    }
}
