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
use super::proposal::{Guard, Made};
use super::record::Record;
use super::repeat::repeating;
use super::scene::Scene;
use super::stretch::Stretch;
use super::verdict::Verdict;
use super::{Member, Worker, rule};
use crate::fdb::Learned;
use crate::rules::{Doing, Place, Ruling};
use crate::topology::{PortEntry, Topology};

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

/// What was found for one packet, and what that relied upon.
#[derive(Clone, Copy)]
struct Decision<'t> {
    verdict: Verdict,
    ruling: Ruling<'t>,
    /// The table knows where the packet came from.
    is_known: bool,
    /// `None` while nobody looks flows up, and if the table does not know where the packet came from.
    guard: Option<Guard>,
}

/// What is counted for packets of one stretch.
#[derive(Default)]
struct Counts {
    not_learned: u64,
    lookups: Lookups,
    tally: Tally,
}

impl Worker {
    /// A verdict for each packet of the burst.
    pub(super) fn decide(&mut self, arena: &Arena, topology: &Topology, moment: Moment) {
        self.extras.clear();
        for index in 0..self.stretches.len() {
            let stretch = self.stretches[index].clone();
            let port = stretch.port.and_then(|id| topology.port(id));
            let member = port.and_then(|port| self.members[usize::from(port.id.0)].take());
            let (Some(port), Some(mut member)) = (port, member) else {
                self.drop_all(stretch.packets, DropReason::PortDown);
                continue;
            };
            let mut counts = Counts::default();
            match stretch.alike {
                Some(found) => {
                    let mut records = std::mem::take(&mut self.records);
                    let Range { start, end } = stretch.packets;
                    self.repeat(topology, found, &mut records[start..end], start);
                    counts.lookups.repeated += stretch.packets.len() as u64;
                    self.records = records;
                }
                None => {
                    let scene = Scene { arena, topology, port, now: moment.now };
                    self.decide_each(&scene, &mut member, stretch.packets.clone(), &mut counts);
                }
            }
            if port.steering.is_some() {
                self.steer(topology, port, stretch.packets.clone(), moment.now);
            }
            self.show(arena, port, &mut member, stretch.packets, moment);
            self.count_decisions(&member, counts);
            self.members[usize::from(port.id.0)] = Some(member);
        }
    }

    fn drop_all(&mut self, packets: Range<usize>, reason: DropReason) {
        self.records[packets].iter_mut().for_each(|record| record.verdict = Verdict::Drop(reason));
    }

    /// Decides about packets of one port, of which some repeat decisions.
    fn decide_each(
        &mut self,
        scene: &Scene<'_>,
        member: &mut Member,
        packets: Range<usize>,
        counts: &mut Counts,
    ) {
        self.ask_rules(scene.arena, scene.topology, packets.clone());
        // They are put back below. So headers are read where they lie, and nothing is copied.
        let mut records = std::mem::take(&mut self.records);
        let mut index = packets.start;
        while index < packets.end {
            if let Some(found) = records[index].repeats {
                let alike = repeating(found, &mut records[index..packets.end]);
                counts.lookups.repeated += alike.len() as u64;
                self.repeat(scene.topology, found, alike, index);
                index += alike.len();
                continue;
            }
            let Record { classified, verdict, facts, .. } = &mut records[index];
            let headers = match classified {
                Ok(headers) => headers,
                Err(reason) => {
                    *verdict = Verdict::Drop(*reason);
                    index += 1;
                    continue;
                }
            };
            let decision = self.find(scene, member, index - packets.start, headers, counts);
            let has_copies = self.apply(scene, index, headers, &decision);
            *verdict = decision.verdict;
            let (headers, flow_id) = (*headers, facts.flow_id);
            let like = decide_like(scene, &mut records[index..packets.end], &decision);
            counts.lookups.repeated += like as u64;
            let alike = index..index + 1 + like;
            index = alike.end;
            self.record(scene, alike, (&headers, flow_id), &decision, has_copies);
        }
        self.records = records;
    }

    /// Finds where a packet goes: what it relies upon is noted first, then its sender is learned, then rules and
    /// forwarding table are asked.
    #[inline]
    fn find<'t>(
        &mut self,
        scene: &Scene<'t>,
        member: &mut Member,
        at: usize,
        headers: &Headers,
        counts: &mut Counts,
    ) -> Decision<'t> {
        let looks_up = scene.topology.looks_up_flows();
        let guard = looks_up.then(|| Guard::begin(&self.shared.generations, headers));
        let source = self.learn(scene.port, member, headers, scene.now);
        counts.not_learned += u64::from(source == Source::Unknown);
        let ruling = self.find_rule(scene.topology, at, &mut counts.tally);
        let verdict = match ruling.rule.map(|rule| &rule.doing) {
            _ if ruling.place == Place::UNDECIDABLE => Verdict::Drop(DropReason::Undecidable),
            Some(Doing::Drop) => Verdict::Drop(DropReason::ByRule),
            Some(Doing::Output(ports)) => rule::first_output(ports, scene, headers),
            Some(Doing::Normal | Doing::Mark(_) | Doing::Mirror(_) | Doing::Channel(_)) | None => {
                self.verdict(scene, member, headers, &mut counts.lookups)
            }
        };
        let is_known = source == Source::Known;
        Decision { verdict, ruling, is_known, guard: guard.filter(|_| is_known) }
    }

    /// Does what the rule wants besides: it counts, marks, and copies. Says whether it wants copies.
    #[inline]
    fn apply(
        &mut self,
        scene: &Scene<'_>,
        index: usize,
        headers: &mut Headers,
        decision: &Decision<'_>,
    ) -> bool {
        let Some(rule) = decision.ruling.rule else { return false };
        rule.cells.count(self.index, 1, self.burst.len_bytes(index).into());
        let extras = self.extras.len();
        match &rule.doing {
            Doing::Mark(mark) => headers.mark = *mark,
            Doing::Output(ports) => self.copy_to_others(ports, index, scene, headers.vid),
            Doing::Mirror(to) => self.mirror(index, *to, scene.topology, headers, decision.verdict),
            Doing::Drop | Doing::Normal | Doing::Channel(_) => {}
        }
        rule.is_to_many() || self.extras.len() > extras
    }

    /// Tells kernel and cache what was decided about these packets, so that they repeat it.
    #[inline]
    fn record(
        &mut self,
        scene: &Scene<'_>,
        alike: Range<usize>,
        (headers, flow_id): (&Headers, u32),
        decision: &Decision<'_>,
        has_copies: bool,
    ) {
        let Decision { verdict, ruling, guard: Some(guard), .. } = *decision else { return };
        let mut carried = self.repeats.take_carried(flow_id);
        carried.packets += alike.len() as u64;
        carried.bytes += self.burst.bytes_of(alike);
        let made = Made { verdict, ruling, has_copies, carried };
        self.proposals.make(scene.topology, scene.port, *headers, made, guard, scene.now);
        if !has_copies {
            self.repeats.put(
                flow_id,
                (verdict, ruling.place),
                guard,
                (scene.topology, scene.port),
                scene.now,
            );
        }
    }

    /// Shows the packets to a capture, and to the histogram of times under way.
    fn show(
        &mut self,
        arena: &Arena,
        port: &PortEntry,
        member: &mut Member,
        packets: Range<usize>,
        moment: Moment,
    ) {
        if let Some(tap) = &mut member.tap {
            for index in packets.clone() {
                let hints = *self.hints_of(index);
                tap.take(arena, self.burst.packet(index), hints, moment.realtime_ns);
            }
            // Its memory is given back here, once a capture.
            if tap.is_abandoned() {
                member.tap = None;
            }
        }
        if let Some(cells) = &port.latency {
            // What programs read, and what a device's clock is kept at by PTP.
            for index in packets {
                let hints = self.hints_of(index);
                if hints.has(Hint::RxTimestamp) {
                    let arrived = hints.rx_timestamp;
                    self.arrivals.observe(cells, arrived, moment);
                }
            }
        }
    }

    fn count_decisions(&self, member: &Member, counts: Counts) {
        let Counts { not_learned, lookups, tally } = counts;
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
            None => self.records[stretch.packets.clone()].iter().any(|record| record.verdict.leaves()),
        };
        !self.extras.is_empty() || self.stretches.iter().any(leaves)
    }

    /// Remembers the source address.
    fn learn(&self, port: &PortEntry, member: &mut Member, headers: &Headers, now: Nanos) -> Source {
        let may_move = || self.shared.moves.take(&mut member.moves, now, 1);
        let learned = self.shared.fdb.learn_if(headers.vid, headers.src, port.id.0, now.seconds(), may_move);
        if let Learned::Moved { .. } | Learned::LimitMoves = learned {
            self.tell_move(port, learned);
        }
        match learned {
            Learned::LimitMoves => Source::Unknown,
            Learned::LimitPort | Learned::LimitShare | Learned::LimitTotal | Learned::NoRoom => {
                Source::Unknown
            }
            Learned::Busy | Learned::Multicast => Source::Unsure,
            _ => Source::Known,
        }
    }

    /// A station that moves may be in a loop: then the housekeeper wants to know at once.
    #[cold]
    fn tell_move(&self, port: &PortEntry, learned: Learned) {
        let cell = port.cells.of(self.index);
        if learned == Learned::LimitMoves { &cell.move_limited } else { &cell.moved }.add(1);
        self.shared.worker_cell(self.index).moves.add(1);
        self.shared.attention.call();
    }

    fn verdict(
        &mut self,
        scene: &Scene<'_>,
        member: &mut Member,
        headers: &Headers,
        lookups: &mut Lookups,
    ) -> Verdict {
        if mac::is_link_local(headers.dst) {
            return Verdict::Drop(DropReason::ReservedAddress);
        }
        if mac::is_multicast(headers.dst) {
            lookups.group += 1;
            return self.flood(scene.topology, member, headers.vid, scene.now);
        }
        let known = self.shared.fdb.lookup(headers.vid, headers.dst, scene.now.seconds());
        match known.and_then(|id| scene.topology.port(PortId(id))) {
            Some(output) => {
                lookups.known += 1;
                forward(scene.port, output, headers.vid)
            }
            None => {
                lookups.unknown += 1;
                self.flood(scene.topology, member, headers.vid, scene.now)
            }
        }
    }

    /// Floods while the port's bucket and the worker's last: every copy costs one token.
    fn flood(&mut self, topology: &Topology, member: &mut Member, vid: u16, now: Nanos) -> Verdict {
        let copies = topology.members(vid).len().saturating_sub(1) as u64;
        if copies == 0 {
            return Verdict::Drop(DropReason::NoDestination);
        }
        if self.flood.take(&self.shared.flood, &mut member.flood, now, copies) {
            Verdict::Flood
        } else {
            Verdict::Drop(DropReason::FloodLimited)
        }
    }
}

/// Decides about packets behind the first as about it, as long as they are like it. Says how many they are.
///
/// Without rules, nothing but headers decides where a packet goes whose sender and receiver are known, and both are what
/// they were for the first packet of the same moment.
#[inline]
fn decide_like(scene: &Scene<'_>, records: &mut [Record], decision: &Decision<'_>) -> usize {
    let is_lasting = matches!(decision.verdict, Verdict::Forward(_)) && decision.is_known;
    let Some((first, others)) = records.split_first_mut() else { return 0 };
    if !is_lasting || !scene.topology.rules().is_empty() {
        return 0;
    }
    let like = others.iter().take_while(|other| other.is_like(first)).count();
    others[..like].iter_mut().for_each(|other| other.verdict = decision.verdict);
    like
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
