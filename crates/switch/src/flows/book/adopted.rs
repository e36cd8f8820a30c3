//! The book of a table that an earlier process wrote, and what is noted for the next one.

use forebay_control::DropReason;
use forebay_kernel::{AdoptedFlow, FlowAction, FlowCount, FlowNote, FlowNumber};
use forebay_policy::Nanos;

use super::{Entry, FlowBook};
use crate::worker::Offer;

impl FlowBook {
    /// Takes up the flows that an earlier process left.
    pub(crate) fn adopt(&mut self, now: Nanos) {
        for AdoptedFlow { number, key, verdict, note } in self.table.adopt() {
            let offer = Offer {
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
            let entry = Entry { offer, verdict, installed: now, used: now, carried: settled, settled };
            self.entries.insert(number, entry);
            self.port(key.port_id()).share.entered();
            if let FlowAction::Tell { .. } = verdict.action {
                // Marks are this process's own.
                self.take_out(number);
            }
        }
    }

    /// How far each flow's counters have become its ports'.
    pub(crate) fn marks(&self) -> Vec<(FlowNumber, FlowCount)> {
        self.entries.iter().chain(&self.leaving).map(|(number, entry)| (*number, entry.settled)).collect()
    }

    /// Notes that what is marked has been saved.
    pub(crate) fn note_settled(&self, marks: &[(FlowNumber, FlowCount)]) {
        for (number, count) in marks.iter().filter(|(number, _)| self.holds(number)) {
            self.table.note_settled(*number, *count);
        }
    }

    fn holds(&self, number: &FlowNumber) -> bool {
        self.entries.contains_key(number) || self.leaving.contains_key(number)
    }
}

/// The VLAN, and the reason of a drop.
pub(super) fn note_of(offer: &Offer) -> FlowNote {
    FlowNote { vid: offer.vid, reason: offer.reason.map_or(0, |reason| reason.index() as u16 + 1) }
}

fn reason_of(note: FlowNote) -> Option<DropReason> {
    let index = note.reason.checked_sub(1)?;
    DropReason::ALL.get(usize::from(index)).copied()
}
