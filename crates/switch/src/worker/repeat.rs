//! Decisions repeated for packets that come with their flow id.
//!
//! Where the kernel cannot follow a flow by itself, the program of a port with our hints tells which one a packet is of
//! (`FlowAction::Tell`). The worker remembers under that flow id what it decided, and does the same with the next such
//! packet: it asks neither the rules nor the forwarding table, and of a packet that goes nowhere it does not read the
//! headers.
//!
//! The rule it keeps: a decision is repeated only while all holds that it relied upon. An id is given to one flow only,
//! ever, and the program gives it to packets that have all of the flow's key; it was given under the rules that are in force
//! ([`Topology::knows_flow_id`]: two packets that other rules did not tell apart may fall under different ones now, also
//! because their port has other VLANs); the
//! snapshot of ports and rules and both stations' generations are what they were. And each [`PAUSE`] a packet goes the
//! long way, which keeps the forwarding table fresh and tells the flow's keeper that it is in use. Who has a slot keeps it
//! that long, so that what was found for a burst is there until the burst is done.
//!
//! Memory: [`SLOTS`] × 64 bytes, 1 MiB, all of it taken in [`Repeats::new`].

use forebay_kernel::{FlowCount, Generations};
use forebay_policy::Nanos;
use forebay_pool::prefetch;

use super::Worker;
use super::proposal::{Guard, PAUSE, is_lasting};
use super::record::Record;
use super::stretch::Found;
use super::verdict::Verdict;
use crate::rules::{Doing, Place};
use crate::topology::{PortEntry, Topology};

/// Flow ids count up, so that as many flows as this do not share a slot.
const SLOTS: usize = 1 << 14;
/// No flow id is 0.
const NOBODYS: u32 = 0;

/// One decision; a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot {
    flow_id: u32,
    /// The rule's, if one said it.
    place: Place,
    verdict: Verdict,
    guard: Guard,
    /// Of the snapshot.
    serial: u64,
    until: Nanos,
    /// What repeated it since it was proposed to the kernel.
    packets: u32,
    bytes: u64,
}

/// A worker's.
pub(crate) struct Repeats {
    slots: Box<[Slot]>,
}

impl Repeats {
    pub(crate) fn new() -> Self {
        let slot = Slot {
            flow_id: NOBODYS,
            place: Place::NONE,
            verdict: Verdict::Flood,
            guard: Guard::default(),
            serial: 0,
            until: Nanos(0),
            packets: 0,
            bytes: 0,
        };
        Self { slots: vec![slot; SLOTS].into_boxed_slice() }
    }

    /// What is known under the flow id is on its way into the processor's cache from now on.
    #[inline]
    pub(super) fn seek(&self, flow_id: u32) {
        prefetch(&self.slots[index_of(flow_id)]);
    }

    /// The decision that packets with this flow id repeat, if all holds that it relied upon.
    #[inline]
    pub(super) fn find(
        &self,
        flow_id: u32,
        (topology, port): (&Topology, &PortEntry),
        generations: &Generations,
        now: Nanos,
    ) -> Option<Found> {
        let slot = &self.slots[index_of(flow_id)];
        let is_known = slot.flow_id == flow_id && topology.knows_flow_id(port, flow_id);
        let holds = is_known && slot.serial == topology.serial() && now.0 < slot.until.0;
        (holds && slot.guard.holds(generations)).then_some(Found(index_of(flow_id) as u32))
    }

    /// What it says.
    #[inline]
    pub(super) fn verdict(&self, found: Found) -> Verdict {
        self.slots[found.0 as usize].verdict
    }

    /// Remembers a decision, unless the next packet may have another fate, or another flow has the slot.
    pub(super) fn put(
        &mut self,
        flow_id: u32,
        (verdict, place): (Verdict, Place),
        guard: Guard,
        (topology, port): (&Topology, &PortEntry),
        now: Nanos,
    ) {
        let is_lasting = match verdict {
            Verdict::Forward(_) => true,
            Verdict::Drop(reason) | Verdict::Refused(reason, _) => is_lasting(reason),
            Verdict::Flood => false,
        };
        let (serial, until) = (topology.serial(), Nanos(now.0 + PAUSE.0));
        let slot = &mut self.slots[index_of(flow_id)];
        let is_taken = slot.flow_id != flow_id && slot.serial == serial && now.0 < slot.until.0;
        if is_lasting && !is_taken && topology.knows_flow_id(port, flow_id) {
            *slot = Slot { flow_id, place, verdict, guard, serial, until, packets: 0, bytes: 0 };
        }
    }

    /// What repeated the decision under this flow id since it was last asked.
    pub(super) fn take_carried(&mut self, flow_id: u32) -> FlowCount {
        let slot = &mut self.slots[index_of(flow_id)];
        if slot.flow_id != flow_id {
            return FlowCount::default();
        }
        FlowCount {
            packets: std::mem::take(&mut slot.packets).into(),
            bytes: std::mem::take(&mut slot.bytes),
        }
    }
}

fn index_of(flow_id: u32) -> usize {
    flow_id as usize % SLOTS
}

/// Those of the packets that repeat this decision before one does not.
pub(super) fn repeating(found: Found, records: &mut [Record]) -> &mut [Record] {
    let count = records.iter().take_while(|record| record.repeats == Some(found)).count();
    &mut records[..count]
}

impl Worker {
    /// Finds which of the burst's packets repeat a decision.
    pub(super) fn find_repeats(&mut self, topology: &Topology, now: Nanos) {
        let Self { repeats, records, stretches, burst, shared, .. } = self;
        let records = &mut records[..burst.len()];
        records.iter_mut().for_each(|record| record.repeats = None);
        for stretch in stretches.iter_mut() {
            let port = stretch.port.and_then(|id| topology.port(id));
            let Some(port) = port.filter(|port| port.is_told && !stretch.packets.is_empty()) else {
                continue;
            };
            let records = &mut records[stretch.packets.clone()];
            let find = |flow_id| repeats.find(flow_id, (topology, port), &shared.generations, now);
            // Packets of one flow come one after the other, mostly.
            let first = records[0].facts.flow_id;
            if records.iter().all(|record| record.facts.flow_id == first) {
                stretch.alike = find(first);
                continue;
            }
            let alike = |one: &Record, other: &Record| one.facts.flow_id == other.facts.flow_id;
            records.chunk_by(alike).for_each(|alike| repeats.seek(alike[0].facts.flow_id));
            for alike in records.chunk_by_mut(alike) {
                let found = find(alike[0].facts.flow_id);
                alike.iter_mut().for_each(|record| record.repeats = found);
            }
        }
    }

    /// Does with these packets what was done with the one before them; `first` is where they begin in the burst.
    pub(super) fn repeat(&mut self, topology: &Topology, found: Found, records: &mut [Record], first: usize) {
        let count = records.len();
        let bytes = self.burst.bytes_of(first..first + count);
        let slot = &mut self.repeats.slots[found.0 as usize];
        slot.packets = slot.packets.wrapping_add(count as u32);
        slot.bytes = slot.bytes.wrapping_add(bytes);
        let verdict = slot.verdict;
        if let Some(rule) = topology.rules().rule(slot.place) {
            rule.cells.count(self.index, count as u64, bytes);
            if let Doing::Mark(mark) = &rule.doing {
                let headers = records.iter_mut().filter_map(|record| record.classified.as_mut().ok());
                headers.for_each(|headers| headers.mark = *mark);
            }
        }
        for record in records {
            // One that is sent on must have headers, and it has: the port's program read them.
            record.verdict = match record.classified {
                Err(reason) if verdict.leaves() => Verdict::Drop(reason),
                _ => verdict,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_control::PortId;

    use super::*;
    use crate::topology::tests::entry;

    const FORWARD: (Verdict, Place) = (Verdict::Forward(PortId(1)), Place::NONE);

    fn is_found(repeats: &Repeats, flow_id: u32, topology: &Topology, at: u64) -> bool {
        let generations = Generations::detached(4).expect("memory");
        repeats.find(flow_id, (topology, &entry(0, "all")), &generations, Nanos(at)).is_some()
    }

    #[test]
    fn a_decision_is_repeated_for_its_flow_id_and_for_its_time() {
        let (mut repeats, topology) = (Repeats::new(), Topology::default());
        assert!(!is_found(&repeats, NOBODYS, &topology, 0));
        repeats.put(5, FORWARD, Guard::default(), (&topology, &entry(0, "all")), Nanos(7));
        assert!(is_found(&repeats, 5, &topology, 6 + PAUSE.0));
        assert!(!is_found(&repeats, 5, &topology, 7 + PAUSE.0));
        assert!(!is_found(&repeats, 5 + SLOTS as u32, &topology, 8), "it shares the slot");
        let other = 5 + SLOTS as u32;
        repeats.put(other, FORWARD, Guard::default(), (&topology, &entry(0, "all")), Nanos(6 + PAUSE.0));
        assert!(is_found(&repeats, 5, &topology, 8), "it has the slot");
        repeats.put(other, FORWARD, Guard::default(), (&topology, &entry(0, "all")), Nanos(7 + PAUSE.0));
        let later = 8 + PAUSE.0;
        assert!(is_found(&repeats, other, &topology, later) && !is_found(&repeats, 5, &topology, later));
    }

    #[test]
    fn what_depends_on_the_moment_is_not_repeated() {
        let (mut repeats, topology) = (Repeats::new(), Topology::default());
        for verdict in [Verdict::Flood, Verdict::Drop(forebay_control::DropReason::FloodLimited)] {
            repeats.put(5, (verdict, Place::NONE), Guard::default(), (&topology, &entry(0, "all")), Nanos(7));
            assert!(!is_found(&repeats, 5, &topology, 8), "{verdict:?}");
        }
    }

    #[test]
    fn a_flow_id_that_was_given_under_other_rules_says_nothing() {
        let (mut repeats, mut topology) = (Repeats::new(), Topology::default());
        topology.set_flows(true, 5);
        for (flow_id, is_known) in [(4, false), (5, false), (6, true)] {
            repeats.put(flow_id, FORWARD, Guard::default(), (&topology, &entry(0, "all")), Nanos(7));
            assert_eq!(is_found(&repeats, flow_id, &topology, 8), is_known, "{flow_id}");
        }
        topology.set_flows(true, u32::MAX);
        repeats.put(1, FORWARD, Guard::default(), (&topology, &entry(0, "all")), Nanos(7));
        assert!(is_found(&repeats, 1, &topology, 8), "they begin anew");
    }
}
