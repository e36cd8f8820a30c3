//! What is in the kernel's table, why, and what it carried.

mod adopted;

pub(crate) use adopted::SettledFlow;

use std::collections::HashMap;
use std::sync::Arc;

use forebay_control::{DropReason, PortCounters, PortId};
use forebay_kernel::{
    FlowAction, FlowCount, FlowKey, FlowNumber, FlowTable, FlowTag, FlowVerdict, Generations,
};
use forebay_policy::{FlowRefusal, FlowShare, Nanos};

use crate::fdb::Fdb;
use crate::worker::{Proposal, Unrepeatable};

/// Bytes of a VLAN tag.
const TAG: i64 = 4;

/// How many flows there may be, and how long one lasts that carries nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowLimits {
    pub(crate) max_entries: u64,
    pub(crate) idle: Nanos,
    /// Of each port; a burst of as many.
    pub(crate) installs_per_second: u64,
}

/// What became of proposals and flows so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) installed: u64,
    /// The port had its share of the table.
    pub(crate) over_share: u64,
    /// The port had its installs of this second.
    pub(crate) over_rate: u64,
    pub(crate) table_full: u64,
    /// Both places of the key were taken.
    pub(crate) no_slot: u64,
    /// Taken out because something had changed.
    pub(crate) invalidated: u64,
    /// Taken out because nothing was carried.
    pub(crate) idle: u64,
}

/// Decisions that the kernel cannot repeat, of which so many are shown.
const MAX_UNREPEATABLE: usize = 4096;

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) proposal: Proposal,
    /// What the kernel repeats.
    pub(crate) verdict: FlowVerdict,
    pub(crate) installed: Nanos,
    /// When something was last seen to be carried.
    pub(crate) used: Nanos,
    /// What it carried, as far as settled.
    pub(crate) carried: FlowCount,
    /// Where its counters were when they were settled.
    settled: FlowCount,
}

/// A decision that user space makes for each packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserEntry {
    pub(crate) proposal: Proposal,
    pub(crate) cannot: Unrepeatable,
    pub(crate) decided: Nanos,
    pub(crate) used: Nanos,
    pub(crate) carried: FlowCount,
}

/// One port's part.
#[derive(Debug)]
struct PortFlows {
    share: FlowShare,
    /// What the kernel carried from and to it.
    counters: PortCounters,
}

/// The table's bookkeeping. Everything is done under one lock, which no worker takes.
pub(crate) struct FlowBook {
    table: FlowTable,
    generations: Arc<Generations>,
    limits: FlowLimits,
    entries: HashMap<FlowNumber, Entry>,
    user_entries: HashMap<FlowKey, UserEntry>,
    /// Taken out; a program may be counting still.
    leaving: HashMap<FlowNumber, Entry>,
    ports: HashMap<u16, PortFlows>,
    /// What the kernel carried under each rule.
    rules: HashMap<u64, FlowCount>,
    totals: Totals,
    /// Of flows whose packets user space is told of.
    last_flow_id: u32,
}

impl FlowBook {
    pub(crate) fn new(table: FlowTable, generations: Arc<Generations>, limits: FlowLimits) -> Self {
        Self {
            table,
            generations,
            limits,
            entries: HashMap::new(),
            user_entries: HashMap::new(),
            leaving: HashMap::new(),
            ports: HashMap::new(),
            rules: HashMap::new(),
            totals: Totals::default(),
            last_flow_id: 0,
        }
    }

    pub(crate) fn set_limits(&mut self, limits: FlowLimits) {
        if limits.installs_per_second != self.limits.installs_per_second {
            let rate = limits.installs_per_second;
            self.ports.values_mut().for_each(|port| port.share.set_rate(rate));
        }
        self.limits = limits;
    }

    pub(crate) fn limits(&self) -> FlowLimits {
        self.limits
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The flow id that was given last.
    pub(crate) fn last_flow_id(&self) -> u32 {
        self.last_flow_id
    }

    /// Bytes of kernel memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// The table, for a stand-in of the kernel programs.
    pub(crate) fn table(&self) -> &FlowTable {
        &self.table
    }

    /// Takes what a worker tells.
    pub(crate) fn take(&mut self, proposal: Proposal, now: Nanos) {
        match proposal.repeat {
            Ok(verdict) => {
                self.user_entries.remove(&proposal.key);
                self.install(proposal, verdict, now);
            }
            Err(cannot) => {
                self.note(proposal, cannot, now);
                if let Some(verdict) = proposal.tell {
                    self.install(proposal, verdict, now);
                }
            }
        }
    }

    /// Remembers what the kernel cannot repeat, for users.
    fn note(&mut self, proposal: Proposal, cannot: Unrepeatable, now: Nanos) {
        if self.user_entries.len() >= MAX_UNREPEATABLE && !self.user_entries.contains_key(&proposal.key) {
            return;
        }
        let fresh = UserEntry { proposal, cannot, decided: now, used: now, carried: FlowCount::default() };
        let entry = self.user_entries.entry(proposal.key).or_insert(fresh);
        (entry.proposal, entry.cannot, entry.used) = (proposal, cannot, now);
        entry.carried.packets += proposal.carried.packets;
        entry.carried.bytes += proposal.carried.bytes;
    }

    /// Puts in what a worker proposed, in the place of what was decided before for such packets; unless it is void by now
    /// or a limit says no.
    fn install(&mut self, proposal: Proposal, verdict: FlowVerdict, now: Nanos) {
        if !verdict.holds(proposal.key, &self.generations) {
            return;
        }
        if let Some(number) = self.table.find(proposal.key) {
            if self.says(number, &verdict) {
                self.keep_told(number, &proposal, now);
                return;
            }
            self.take_out(number);
            self.totals.invalidated += 1;
        }
        if !self.may_install(proposal.key.port_id(), now) {
            return;
        }
        let verdict = self.numbered(verdict);
        let Ok(number) = self.table.insert(proposal.key, &verdict, adopted::note_of(&proposal)) else {
            self.totals.no_slot += 1;
            return;
        };
        // The place had counters at 0 when it was free. Programs may have counted in it since.
        let nothing = FlowCount::default();
        let entry =
            Entry { proposal, verdict, installed: now, used: now, carried: nothing, settled: nothing };
        self.entries.insert(number, entry);
        self.port(proposal.key.port_id()).share.entered();
        self.totals.installed += 1;
    }

    /// Whether the flow says just this, under whatever flow id.
    fn says(&self, number: FlowNumber, verdict: &FlowVerdict) -> bool {
        self.entries.get(&number).is_some_and(|entry| {
            let action = match (entry.verdict.action, verdict.action) {
                (FlowAction::Tell { flow_id, .. }, FlowAction::Tell { port_id, .. }) => {
                    FlowAction::Tell { port_id, flow_id }
                }
                (_, action) => action,
            };
            entry.verdict == FlowVerdict { action, ..*verdict }
        })
    }

    /// A flow whose packets go to user space carries nothing itself; that it is proposed again says it is in use.
    fn keep_told(&mut self, number: FlowNumber, proposal: &Proposal, now: Nanos) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if let FlowAction::Tell { .. } | FlowAction::Steer { .. } = entry.verdict.action {
            entry.used = now;
            self.keep_outer(proposal, now);
        }
    }

    /// The verdict with a flow id of its own, where it has one.
    fn numbered(&mut self, verdict: FlowVerdict) -> FlowVerdict {
        let FlowAction::Tell { port_id, .. } = verdict.action else { return verdict };
        // After 2^32 flows they begin anew: none of the first is left, nor are packets that were told of it.
        self.last_flow_id = self.last_flow_id.checked_add(1).unwrap_or(1);
        FlowVerdict { action: FlowAction::Tell { port_id, flow_id: self.last_flow_id }, ..verdict }
    }

    fn may_install(&mut self, port_id: u16, now: Nanos) -> bool {
        let free = self.limits.max_entries.saturating_sub(self.len());
        let refused = match self.port(port_id).share.ask(free, now) {
            Ok(()) => return true,
            Err(FlowRefusal::TableFull) => &mut self.totals.table_full,
            Err(FlowRefusal::OverShare) => &mut self.totals.over_share,
            Err(FlowRefusal::OverRate) => &mut self.totals.over_rate,
        };
        *refused += 1;
        false
    }

    fn port(&mut self, port_id: u16) -> &mut PortFlows {
        let per_second = self.limits.installs_per_second;
        self.ports.entry(port_id).or_insert_with(|| PortFlows {
            share: FlowShare::new(per_second),
            counters: PortCounters::default(),
        })
    }

    /// Settles all flows; what carried something keeps its stations' entries fresh. Flows that are void or idle go.
    pub(crate) fn sweep(&mut self, fdb: &Fdb, now: Nanos) {
        let numbers: Vec<FlowNumber> = self.entries.keys().copied().collect();
        // Twice as fast while the table is nearly full.
        let is_crowded = self.len() > self.limits.max_entries / 8 * 7;
        let idle = if is_crowded { self.limits.idle.0 / 2 } else { self.limits.idle.0 };
        for number in numbers {
            let carried = self.settle(number, now);
            let Some(entry) = self.entries.get(&number) else { continue };
            let (proposal, verdict) = (entry.proposal, entry.verdict);
            if !verdict.holds(proposal.key, &self.generations) {
                self.totals.invalidated += 1;
                self.take_out(number);
            } else if now.0.saturating_sub(entry.used.0) >= idle {
                self.totals.idle += 1;
                self.take_out(number);
            } else if carried {
                fdb.refresh(proposal.vid, proposal.key.src(), proposal.key.port_id(), now.seconds());
            }
        }
        self.user_entries.retain(|_, entry| now.0.saturating_sub(entry.used.0) < idle);
    }

    /// Counts for ports what flows have carried since the last time.
    pub(crate) fn settle_all(&mut self, now: Nanos) {
        let numbers = self.numbers();
        self.settle_some(&numbers, now);
    }

    /// As [`FlowBook::settle_all`], of these flows.
    pub(crate) fn settle_some(&mut self, numbers: &[FlowNumber], now: Nanos) {
        for number in numbers {
            self.settle(*number, now);
        }
    }

    /// Numbers of all flows, those included that are taken out and may still count.
    pub(crate) fn numbers(&self) -> Vec<FlowNumber> {
        self.entries.keys().chain(self.leaving.keys()).copied().collect()
    }

    /// Whether the flow carried something since the last time.
    fn settle(&mut self, number: FlowNumber, now: Nanos) -> bool {
        let count = self.table.count(number);
        let Some(entry) = self.entries.get_mut(&number).or_else(|| self.leaving.get_mut(&number)) else {
            return false;
        };
        let fresh = FlowCount {
            packets: count.packets.wrapping_sub(entry.settled.packets),
            bytes: count.bytes.wrapping_sub(entry.settled.bytes),
        };
        if fresh == FlowCount::default() {
            return false;
        }
        entry.settled = count;
        entry.used = now;
        entry.carried.packets += fresh.packets;
        entry.carried.bytes += fresh.bytes;
        let (proposal, action) = (entry.proposal, entry.verdict.action);
        self.count(&proposal, action, fresh);
        self.keep_outer(&proposal, now);
        true
    }

    /// The flow that says to look deeper carries nothing itself.
    fn keep_outer(&mut self, proposal: &Proposal, now: Nanos) {
        let outer = proposal.deeper.and_then(|(_, outer)| self.table.find(outer));
        if let Some(entry) = outer.and_then(|number| self.entries.get_mut(&number)) {
            entry.used = now;
        }
    }

    fn count(&mut self, proposal: &Proposal, action: FlowAction, fresh: FlowCount) {
        if let Some(rule) = proposal.rule {
            let counted = self.rules.entry(rule).or_default();
            counted.packets += fresh.packets;
            counted.bytes += fresh.bytes;
        }
        let input = &mut self.port(proposal.key.port_id()).counters;
        input.rx_packets += fresh.packets;
        input.rx_bytes += fresh.bytes;
        input.offloaded_packets += fresh.packets;
        match (action, proposal.reason) {
            (FlowAction::Output { port_id, tag, .. }, _) => {
                input.forwarded_packets += fresh.packets;
                let output = &mut self.port(port_id).counters;
                output.tx_packets += fresh.packets;
                output.tx_bytes += bytes_out(fresh, tag, proposal.key);
            }
            (
                FlowAction::Drop { .. }
                | FlowAction::Deeper { .. }
                | FlowAction::Tell { .. }
                | FlowAction::Steer { .. },
                reason,
            ) => {
                input.drops[reason.unwrap_or(DropReason::NoDestination)] += fresh.packets;
            }
        }
    }

    /// All flows go; how many there were.
    pub(crate) fn flush(&mut self) -> u64 {
        let numbers: Vec<FlowNumber> = self.entries.keys().copied().collect();
        numbers.iter().for_each(|number| self.take_out(*number));
        self.user_entries.clear();
        numbers.len() as u64
    }

    /// No flow from or to this port is left. After its generation was counted up and a grace period.
    pub(crate) fn leave(&mut self, ports: &[PortId], now: Nanos) {
        let concerns = |entry: &Entry| {
            let output = entry.verdict.action.port_id().unwrap_or(entry.proposal.key.port_id());
            ports.iter().any(|port| port.0 == output || port.0 == entry.proposal.key.port_id())
        };
        let numbers: Vec<FlowNumber> =
            self.entries.iter().filter(|(_, entry)| concerns(entry)).map(|(number, _)| *number).collect();
        self.user_entries.retain(|key, _| !ports.iter().any(|port| port.0 == key.port_id()));
        self.settle_all(now);
        numbers.iter().for_each(|number| self.take_out(*number));
    }

    /// The port is gone and its counters were read for the last time: those of the next port with its id begin anew.
    pub(crate) fn retire(&mut self, port: PortId) {
        self.ports.remove(&port.0);
    }

    /// What the kernel has carried from and to this port, as far as settled.
    pub(crate) fn counters(&self, port: PortId) -> PortCounters {
        self.ports.get(&port.0).map(|port| port.counters).unwrap_or_default()
    }

    /// What the kernel has carried under a rule, as far as settled.
    pub(crate) fn of_rule(&self, rule: u64) -> FlowCount {
        self.rules.get(&rule).copied().unwrap_or_default()
    }

    /// The rule is gone; flows that it decided are void.
    pub(crate) fn forget_rule(&mut self, rule: u64) {
        self.rules.remove(&rule);
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The flows of `numbers` that are still there.
    pub(crate) fn some<'a>(&'a self, numbers: &'a [FlowNumber]) -> impl Iterator<Item = &'a Entry> {
        numbers.iter().filter_map(|number| self.entries.get(number))
    }

    pub(crate) fn user_entries(&self) -> impl Iterator<Item = &UserEntry> {
        self.user_entries.values()
    }

    fn take_out(&mut self, number: FlowNumber) {
        if let Some(entry) = self.entries.remove(&number) {
            self.table.remove(number);
            let port = self.port(entry.proposal.key.port_id());
            port.share.left();
            self.leaving.insert(number, entry);
        }
    }

    /// Whether places were given up since [`FlowBook::take_left`].
    pub(crate) fn has_left(&self) -> bool {
        self.table.has_left()
    }

    /// Places that were given up: they are to be handed to [`FlowBook::reclaim`] after a grace period.
    pub(crate) fn take_left(&mut self) -> Vec<FlowNumber> {
        self.table.take_left()
    }

    /// Counts these for the last time and makes their places free.
    pub(crate) fn reclaim(&mut self, left: &[FlowNumber], now: Nanos) {
        for number in left {
            self.settle(*number, now);
            self.leaving.remove(number);
        }
        self.table.reclaim(left);
    }
}

/// Bytes that left, for what came in.
fn bytes_out(carried: FlowCount, tag: FlowTag, key: FlowKey) -> u64 {
    let change = match (tag, key.tag()) {
        (FlowTag::Remove, Some(_)) => -TAG,
        (FlowTag::Set(_), None) => TAG,
        _ => 0,
    };
    carried.bytes.wrapping_add_signed(change.wrapping_mul(carried.packets as i64))
}
