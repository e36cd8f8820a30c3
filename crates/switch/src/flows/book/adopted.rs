//! The book of a table that an earlier process wrote, and what is noted for the next one.

use forebay_control::DropReason;
use forebay_kernel::{AdoptedFlow, FlowAction, FlowCount, FlowKey, FlowNote, FlowNumber};
use forebay_policy::Nanos;

use super::{Entry, FlowBook};
use crate::worker::Proposal;

/// How far a flow's counters have become its ports'.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettledFlow {
    number: FlowNumber,
    /// With the next one: whose place it was.
    key: FlowKey,
    installed: Nanos,
    settled: FlowCount,
}

impl FlowBook {
    /// Takes up the flows that an earlier process left.
    pub(crate) fn adopt(&mut self, now: Nanos) {
        for AdoptedFlow { number, key, verdict, note } in self.table.adopt() {
            let proposal = Proposal {
                key,
                repeat: Ok(verdict),
                vid: note.vid,
                reason: reason_of(note),
                carried: FlowCount::default(),
                rule: None,
                deeper: None,
                tell: None,
            };
            let settled = self.table.settled(number);
            let entry = Entry { proposal, verdict, installed: now, used: now, carried: settled, settled };
            self.entries.insert(number, entry);
            self.port(key.port_id()).share.entered();
            if let FlowAction::Tell { .. } = verdict.action {
                // Flow ids are this process's own.
                self.take_out(number);
            }
        }
    }

    /// How far each flow's counters have become its ports'.
    pub(crate) fn settled_flows(&self) -> Vec<SettledFlow> {
        let flows = self.entries.iter().chain(&self.leaving);
        let flow = |(number, entry): (&FlowNumber, &Entry)| {
            let Entry { installed, settled, .. } = *entry;
            SettledFlow { number: *number, key: entry.proposal.key, installed, settled }
        };
        flows.map(flow).collect()
    }

    /// Notes that what these flows had settled has been saved. A flow may have got another's place meanwhile.
    pub(crate) fn note_settled(&self, flows: &[SettledFlow]) {
        for flow in flows.iter().filter(|flow| self.is_there(flow)) {
            self.table.note_settled(flow.number, flow.settled);
        }
    }

    fn is_there(&self, flow: &SettledFlow) -> bool {
        let entry = self.entries.get(&flow.number).or_else(|| self.leaving.get(&flow.number));
        entry.is_some_and(|entry| (entry.proposal.key, entry.installed) == (flow.key, flow.installed))
    }
}

/// The VLAN, and the reason of a drop.
pub(super) fn note_of(proposal: &Proposal) -> FlowNote {
    FlowNote { vid: proposal.vid, reason: proposal.reason.map_or(0, |reason| reason.index() as u16 + 1) }
}

fn reason_of(note: FlowNote) -> Option<DropReason> {
    let index = note.reason.checked_sub(1)?;
    DropReason::ALL.get(usize::from(index)).copied()
}
