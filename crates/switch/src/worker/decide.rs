//! Third verb: learn where the packet came from and decide where it goes.

use std::ops::Range;

use forebay_control::stats::Lookups;
use forebay_control::{DropReason, PortId};
use forebay_hints::Hint;
use forebay_policy::Nanos;
use forebay_pool::Arena;
use forebay_wire::mac;

use super::cache::Tally;
use super::classify::Headers;
use super::clock::Moment;
use super::offer::{Guard, Made};
use super::receive::Stretch;
use super::repeat::Found;
use super::{Member, Worker};
use crate::fdb::Learned;
use crate::rules::{ActiveRule, Doing};
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
    /// Nowhere, for what the port is where it would go.
    Refused(DropReason, PortId),
}

impl Verdict {
    #[inline]
    pub(super) fn leaves(&self) -> bool {
        matches!(self, Verdict::Forward(_) | Verdict::Flood)
    }
}

/// Whether the table knows where a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// It does.
    Known,
    /// A limit said no.
    Unknown,
    /// The next packet will tell.
    Unsure,
}

impl Worker {
    /// A verdict for each packet of the burst.
    pub(super) fn decide(&mut self, arena: &Arena, topology: &Topology, moment: Moment) {
        self.verdicts.clear();
        self.extras.clear();
        for index in 0..self.stretches.len() {
            let Stretch { port, packets, alike } = self.stretches[index].clone();
            let port = port.and_then(|id| topology.port(id));
            let member = port.and_then(|port| self.members[usize::from(port.id.0)].take());
            match (port, member) {
                (Some(port), Some(mut member)) => {
                    self.decide_for(arena, topology, port, &mut member, (packets, alike), moment);
                    self.members[usize::from(port.id.0)] = Some(member);
                }
                _ => {
                    let dropped = Verdict::Drop(DropReason::PortDown);
                    self.verdicts.extend(std::iter::repeat_n(dropped, packets.len()));
                }
            }
        }
    }

    fn decide_for(
        &mut self,
        arena: &Arena,
        topology: &Topology,
        port: &PortEntry,
        member: &mut Member,
        (packets, alike): (Range<usize>, Option<Found>),
        moment: Moment,
    ) {
        let now = moment.now;
        let (now_s, looks_up) = (now.seconds(), topology.looks_up_flows());
        let (mut not_learned, mut lookups, mut tally) = (0, Lookups::default(), Tally::default());
        let mut rest = packets.clone();
        if let Some(found) = alike {
            self.repeat(topology, found, packets.clone());
            lookups.repeated += packets.len() as u64;
            rest.start = packets.end;
        } else {
            self.ask_rules(arena, topology, packets.clone());
        }
        while let Some(index) = rest.next() {
            if let Some(found) = self.repeated[index] {
                let count = self.repeating(found, index..packets.end);
                self.repeat(topology, found, index..index + count);
                lookups.repeated += count as u64;
                rest.start = index + count;
                continue;
            }
            let at = index - packets.start;
            let verdict = match self.classified[index] {
                Ok(mut headers) => {
                    let guard = looks_up.then(|| Guard::begin(&self.shared.generations, headers));
                    let learned = self.learn(port, headers, now_s);
                    not_learned += u64::from(learned == Source::Unknown);
                    let ruling = self.find_rule(topology, at, &mut tally);
                    let extras = self.extras.len();
                    if let Some(rule) = ruling.rule {
                        rule.cells.count(self.index, 1, self.burst.len_bytes(index).into());
                    }
                    let doing = ruling.rule.map(|rule| &rule.doing);
                    if let Some(Doing::Mark(mark)) = doing {
                        headers.mark = *mark;
                        self.classified[index] = Ok(headers);
                    }
                    let verdict = match doing {
                        Some(Doing::Drop) => Verdict::Drop(DropReason::ByRule),
                        Some(Doing::Output(ports)) => self.output(ports, index, topology, port, headers),
                        Some(Doing::Normal | Doing::Mark(_) | Doing::Mirror(_)) | None => {
                            self.verdict(topology, port, member, headers, now, &mut lookups)
                        }
                    };
                    if let Some(Doing::Mirror(to)) = doing {
                        self.mirror(index, *to, topology, headers, verdict);
                    }
                    if let (Some(guard), Source::Known) = (guard, learned) {
                        let is_to_many = ruling.rule.is_some_and(ActiveRule::is_to_many);
                        let has_copies = is_to_many || self.extras.len() > extras;
                        let mark = self.below[index].flow_mark;
                        let mut carried = self.repeats.take_carried(mark);
                        carried.packets += 1;
                        carried.bytes += u64::from(self.burst.len_bytes(index));
                        let made = Made { verdict, ruling, has_copies, carried };
                        self.offers.make(topology, port, headers, made, guard, now);
                        if !has_copies {
                            self.repeats.put(mark, (verdict, ruling.place), guard, topology, now);
                        }
                    }
                    verdict
                }
                Err(reason) => Verdict::Drop(reason),
            };
            self.verdicts.push(verdict);
        }
        if let Some(tap) = &mut member.tap {
            for index in packets.clone() {
                tap.take(arena, self.burst.packet(index), self.below[index].hints, moment.realtime_ns);
            }
            // Its memory is given back here, once a capture.
            if tap.is_abandoned() {
                member.tap = None;
            }
        }
        if let Some(cells) = &port.latency {
            // What programs read, and what a device's clock is kept at by PTP.
            let cell = cells.of(self.index);
            let arrived = self.below[packets].iter().filter(|below| below.hints.has(Hint::RxTimestamp));
            arrived.for_each(|below| cell.observe(below.hints.rx_timestamp, moment.tai_ns));
        }
        member.cells.of(self.index).not_learned.add(not_learned);
        let cell = self.shared.worker_cell(self.index);
        cell.known.add(lookups.known);
        cell.unknown.add(lookups.unknown);
        cell.group.add(lookups.group);
        cell.repeated.add(lookups.repeated);
        cell.cached.add(tally.cached);
        cell.classified.add(tally.classified);
    }

    /// Whether any packet of the burst goes anywhere.
    pub(super) fn has_leaving(&self) -> bool {
        let leaves = |stretch: &Stretch| match stretch.alike {
            Some(found) => self.repeats.verdict(found).leaves(),
            None => self.verdicts[stretch.packets.clone()].iter().any(Verdict::leaves),
        };
        !self.extras.is_empty() || self.stretches.iter().any(leaves)
    }

    /// Remembers the source address.
    fn learn(&self, port: &PortEntry, headers: Headers, now_s: u32) -> Source {
        match self.shared.fdb.learn(headers.vid, headers.src, port.id.0, now_s) {
            Learned::LimitPort | Learned::LimitTotal | Learned::NoRoom => Source::Unknown,
            Learned::Busy | Learned::Multicast => Source::Unsure,
            _ => Source::Known,
        }
    }

    fn verdict(
        &mut self,
        topology: &Topology,
        port: &PortEntry,
        member: &mut Member,
        headers: Headers,
        now: Nanos,
        lookups: &mut Lookups,
    ) -> Verdict {
        if mac::is_link_local(headers.dst) {
            return Verdict::Drop(DropReason::ReservedAddress);
        }
        if mac::is_multicast(headers.dst) {
            lookups.group += 1;
            return self.flood(topology, member, headers.vid, now);
        }
        let known = self.shared.fdb.lookup(headers.vid, headers.dst, now.seconds());
        match known.and_then(|id| topology.port(PortId(id))) {
            Some(output) => {
                lookups.known += 1;
                forward(port, output, headers.vid)
            }
            None => {
                lookups.unknown += 1;
                self.flood(topology, member, headers.vid, now)
            }
        }
    }

    /// Floods while the port's bucket and the worker's last: every copy costs one token.
    fn flood(&mut self, topology: &Topology, member: &mut Member, vid: u16, now: Nanos) -> Verdict {
        let copies = topology.members(vid).len().saturating_sub(1) as u64;
        if copies == 0 {
            return Verdict::Drop(DropReason::NoDestination);
        }
        self.shared.flood.refresh(&mut member.flood);
        self.shared.flood.refresh(&mut self.flood);
        if member.flood.take(now, copies) && self.flood.take(now, copies) {
            Verdict::Flood
        } else {
            Verdict::Drop(DropReason::FloodLimited)
        }
    }
}

fn forward(input: &PortEntry, output: &PortEntry, vid: u16) -> Verdict {
    if input.id == output.id {
        Verdict::Refused(DropReason::SamePort, output.id)
    } else if input.isolated && output.isolated {
        Verdict::Refused(DropReason::Isolated, output.id)
    } else if !output.vlans.carries(vid) {
        Verdict::Refused(DropReason::VlanNotAllowed, output.id)
    } else {
        Verdict::Forward(output.id)
    }
}
