//! What rules say of a packet.

use std::ops::Range;

use forebay_control::{DropReason, PortId};
use forebay_flow::{Fields, TagKinds, Unread};
use forebay_pool::Arena;

use super::Worker;
use super::cache::Tally;
use super::classify::Headers;
use super::key::Key;
use super::scene::Scene;
use super::verdict::Verdict;
use crate::rules::{AtL2, Place, RuleSet, Ruling};
use crate::topology::{PortEntry, Topology};

/// What rules were asked of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// Layer 2 said it.
    Decided(Place),
    /// What lies deeper does, and is to be found in this set of the cache.
    Deeper { key: Key, set: u32 },
}

impl Worker {
    /// Reads what rules ask of these packets, so that all the cache's memory that is needed is on its way before the first
    /// of it is looked at.
    pub(super) fn ask_rules(&mut self, arena: &Arena, topology: &Topology, packets: Range<usize>) {
        self.asked.clear();
        let rules = topology.rules();
        if rules.is_empty() {
            return;
        }
        self.cache.follow(topology.generation());
        for index in packets {
            let record = &self.records[index];
            let asked = match &record.classified {
                _ if record.repeats.is_some() => Asked::Decided(Place::NONE),
                Ok(headers) => self.ask(arena, rules, index, headers),
                Err(_) => Asked::Decided(Place::NONE),
            };
            self.asked.push(asked);
        }
    }

    #[inline]
    fn ask(&self, arena: &Arena, rules: &RuleSet, index: usize, headers: &Headers) -> Asked {
        let fields = Fields {
            in_port: headers.input.0.into(),
            vlan: headers.vid,
            src_mac: headers.src,
            dst_mac: headers.dst,
            ethertype: headers.ethertype,
            tags: TagKinds::NONE,
            network: None,
            unread: Unread::Nothing,
        };
        if let AtL2::Decided(place) = rules.find_l2(&fields) {
            return Asked::Decided(place);
        }
        let first = &self.burst.packet(index)[0];
        let key = Key::read(headers, arena.bytes(&first.frame, first.offset, first.len));
        Asked::Deeper { key, set: self.cache.seek(&key, self.hints_of(index)) }
    }

    /// The rule that the packet falls under which was asked about in this place, if there is one.
    #[inline]
    pub(super) fn find_rule<'t>(
        &mut self,
        topology: &'t Topology,
        at: usize,
        tally: &mut Tally,
    ) -> Ruling<'t> {
        let rules = topology.rules();
        match self.asked.get(at) {
            None => Ruling::default(),
            Some(Asked::Decided(place)) => {
                Ruling { rule: rules.rule(*place), place: *place, ..Ruling::default() }
            }
            Some(Asked::Deeper { key, set }) => {
                self.cache.find(rules, key, *set, topology.looks_up_flows(), tally)
            }
        }
    }

    /// Notes the copy that a mirror makes of a packet, unless the packet goes there anyway.
    pub(super) fn mirror(
        &mut self,
        index: usize,
        to: PortId,
        topology: &Topology,
        headers: &Headers,
        verdict: Verdict,
    ) {
        let goes_there = match verdict {
            Verdict::Forward(id) => id == to,
            Verdict::Flood => is_flooded(to, topology, headers),
            Verdict::Drop(_) | Verdict::Refused(..) => false,
        };
        if to != headers.input && !goes_there {
            self.extras.push((index, to));
        }
    }

    /// Notes copies for the ports behind the first that may have the packet.
    pub(super) fn copy_to_others(&mut self, ports: &[PortId], index: usize, scene: &Scene<'_>, vid: u16) {
        let may = ports.iter().filter(|id| may_leave(**id, scene.topology, scene.port, vid).is_ok());
        self.extras.extend(may.skip(1).map(|id| (index, *id)));
    }
}

/// To the first of the ports that may have it.
pub(super) fn first_output(ports: &[PortId], scene: &Scene<'_>, headers: &Headers) -> Verdict {
    let mut refused = Verdict::Drop(DropReason::NoDestination);
    for id in ports {
        match may_leave(*id, scene.topology, scene.port, headers.vid) {
            Ok(()) => return Verdict::Forward(*id),
            Err(reason) => refused = Verdict::Refused(reason, *id),
        }
    }
    refused
}

/// Whether a packet that is flooded leaves at this port too.
fn is_flooded(id: PortId, topology: &Topology, headers: &Headers) -> bool {
    let is_isolated = |id| topology.port(id).is_some_and(|port| port.isolated);
    topology.members(headers.vid).contains(&id) && !(is_isolated(id) && is_isolated(headers.input))
}

/// A rule goes before what the forwarding table says and before isolation, not before VLANs.
fn may_leave(id: PortId, topology: &Topology, input: &PortEntry, vid: u16) -> Result<(), DropReason> {
    let output = topology.port(id).ok_or(DropReason::PortDown)?;
    if id == input.id {
        Err(DropReason::SamePort)
    } else if !output.vlans.carries(vid) {
        Err(DropReason::VlanNotAllowed)
    } else {
        Ok(())
    }
}
