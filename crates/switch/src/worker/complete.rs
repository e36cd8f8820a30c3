//! Fifth verb: count every packet of the burst out, exactly once.

use forebay_control::DropReason;

use super::decide::Verdict;
use super::receive::Stretch;
use super::{Channel, Worker};

impl Worker {
    /// Adds the turn to the counters of its ports, which workers keep even after a port left the topology.
    pub(super) fn complete(&self, channel: &Channel) {
        channel.gauge.set(u64::from(channel.ring.occupancy()));
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
        for verdict in &self.verdicts[stretch.packets.clone()] {
            match verdict {
                Verdict::Forward(_) => forwarded += 1,
                Verdict::Flood => flooded += 1,
                Verdict::Drop(reason) | Verdict::Refused(reason, _) => drops[reason.index()] += 1,
            }
        }
        let bytes = stretch.packets.clone().map(|index| u64::from(self.burst.len_bytes(index))).sum();
        cell.rx_packets.add(stretch.packets.len() as u64);
        cell.rx_bytes.add(bytes);
        cell.forwarded_packets.add(forwarded);
        cell.flooded_packets.add(flooded);
        for reason in DropReason::ALL {
            if drops[reason.index()] > 0 {
                cell.drop(reason, drops[reason.index()]);
            }
        }
    }
}
