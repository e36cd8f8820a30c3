//! Third verb: learn where the packet came from and decide where it goes.

use forebay_control::{DropReason, PortId};
use forebay_policy::Nanos;
use forebay_wire::mac;

use super::classify::Headers;
use super::{Channel, Tally, Worker};
use crate::fdb::Learned;
use crate::topology::{PortEntry, Topology};

/// Where one packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// To one port.
    Forward(PortId),
    /// To every other port of its VLAN.
    Flood,
    /// Nowhere.
    Drop(DropReason),
}

impl Worker {
    /// A verdict for each packet of the burst.
    pub(super) fn decide(
        &mut self,
        topology: &Topology,
        channel: &mut Channel,
        now: Nanos,
        tally: &mut Tally,
    ) {
        self.verdicts.clear();
        let Some(port) = topology.port(channel.port) else {
            let dropped = std::iter::repeat_n(Verdict::Drop(DropReason::PortDown), self.burst.len());
            self.verdicts.extend(dropped);
            return;
        };
        let now_s = now.seconds();
        for index in 0..self.classified.len() {
            let verdict = match self.classified[index] {
                Ok(headers) => {
                    tally.not_learned += u64::from(!self.learn(port, headers, now_s));
                    self.verdict(topology, port, channel, headers, now)
                }
                Err(reason) => Verdict::Drop(reason),
            };
            self.verdicts.push(verdict);
        }
    }

    /// Remembers the source address. `false`: a limit said no.
    fn learn(&self, port: &PortEntry, headers: Headers, now_s: u32) -> bool {
        let learned = self.shared.fdb.learn(headers.vid, headers.src, port.id.0, now_s);
        !matches!(learned, Learned::LimitPort | Learned::LimitTotal | Learned::NoRoom)
    }

    fn verdict(
        &mut self,
        topology: &Topology,
        port: &PortEntry,
        channel: &mut Channel,
        headers: Headers,
        now: Nanos,
    ) -> Verdict {
        if mac::is_link_local(headers.dst) {
            return Verdict::Drop(DropReason::ReservedAddress);
        }
        let known = (!mac::is_multicast(headers.dst))
            .then(|| self.shared.fdb.lookup(headers.vid, headers.dst, now.seconds()))
            .flatten()
            .and_then(|id| topology.port(PortId(id)));
        match known {
            Some(output) => forward(port, output, headers.vid),
            None => self.flood(topology, channel, headers.vid, now),
        }
    }

    /// Floods while the port's bucket and the worker's last: every copy costs one token.
    fn flood(&mut self, topology: &Topology, channel: &mut Channel, vid: u16, now: Nanos) -> Verdict {
        let copies = topology.members(vid).len().saturating_sub(1) as u64;
        if copies == 0 {
            return Verdict::Drop(DropReason::NoDestination);
        }
        self.shared.flood.refresh(&mut channel.flood);
        self.shared.flood.refresh(&mut self.flood);
        if channel.flood.take(now, copies) && self.flood.take(now, copies) {
            Verdict::Flood
        } else {
            Verdict::Drop(DropReason::FloodLimited)
        }
    }
}

fn forward(input: &PortEntry, output: &PortEntry, vid: u16) -> Verdict {
    if input.id == output.id {
        Verdict::Drop(DropReason::SamePort)
    } else if input.isolated && output.isolated {
        Verdict::Drop(DropReason::Isolated)
    } else if !output.vlans.carries(vid) {
        Verdict::Drop(DropReason::VlanNotAllowed)
    } else {
        Verdict::Forward(output.id)
    }
}
