//! Where a packet leaves is where the next one should come to: the worker that serves its output.

use std::ops::Range;

use forebay_control::rss::RssSteering;
use forebay_policy::Nanos;

use super::Worker;
use super::verdict::Verdict;
use crate::topology::{PortEntry, Topology};

impl Worker {
    /// Counts packets of a port that steers, and leads those of stations that leave by another worker's port there.
    pub(super) fn steer(&self, topology: &Topology, port: &PortEntry, packets: Range<usize>, now: Nanos) {
        let Some(steering) = port.steering else { return };
        let (mut steered, mut away, mut across) = (0, 0, 0);
        let nodes = &self.shared.worker_nodes;
        for record in &self.records[packets] {
            let (Verdict::Forward(to), Ok(headers)) = (record.verdict, &record.classified) else { continue };
            let Some(home) = topology.port(to).and_then(|output| output.home) else { continue };
            steered += 1;
            away += u64::from(home != self.index);
            across += u64::from(nodes[home] != nodes[self.index]);
            if steering == RssSteering::Output && home != self.index {
                self.shared.steered.lead(headers.dst, home, now.0 / 1_000_000);
            }
        }
        let cell = port.cells.of(self.index);
        cell.steered.add(steered);
        cell.away.add(away);
        cell.across.add(across);
    }
}
