//! Flows as users see them.
//!
//! There may be a million, so the list is made without the control lock: names and rules are copied under it, and the
//! book of flows is locked for [`PIECE`] flows at a time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::flow::{FlowEntry, FlowRuns, TagAction};
use forebay_control::port::AttachKind;
use forebay_control::{MacAddr, PortId, Vid};
use forebay_kernel::{FlowAction, FlowCount, FlowPath, FlowTag};
use forebay_policy::Nanos;
use forebay_wire::mac;

use super::Control;
use crate::flows::{Entry, FlowBook, UserEntry};
use crate::rules::RuleSet;
use crate::worker::Proposal;

/// Why such packets are not seen on the output's netdev.
const TO_PEER: &str = "handed to the other end of the output's veth";
/// Flows that are read under one lock.
const PIECE: usize = 4096;

/// What a list of flows is made from.
pub(crate) struct FlowLister {
    book: Arc<Mutex<FlowBook>>,
    rules: Arc<RuleSet>,
    names: HashMap<PortId, String>,
    /// Ports whose packets come in by XDP.
    with_xdp: HashSet<PortId>,
    now: Nanos,
}

/// Counts for ports what flows have carried since the last time, a piece of the flows at a time.
pub(crate) fn settle_flows(book: &Mutex<FlowBook>, now: Nanos) {
    let numbers = lock_book(book).numbers();
    numbers.chunks(PIECE).for_each(|piece| lock_book(book).settle_some(piece, now));
}

impl Control {
    pub(crate) fn flow_lister(&self) -> FlowLister {
        let (book, rules) = (self.flows.shared_book(), Arc::clone(self.publication.rules()));
        let with_xdp = self.ports.values().filter(|port| port.kind == AttachKind::Xdp).map(|port| port.id);
        FlowLister { book, rules, names: self.port_names(), with_xdp: with_xdp.collect(), now: self.now() }
    }

    /// Name of each port.
    pub(crate) fn port_names(&self) -> HashMap<PortId, String> {
        self.ports.values().map(|port| (port.id, port.spec.port_name().to_owned())).collect()
    }
}

impl FlowLister {
    /// All flows by the port they come from, those with the most packets first.
    pub(crate) fn list(&self) -> Vec<FlowEntry> {
        let numbers = lock_book(&self.book).numbers();
        let mut flows = Vec::new();
        for piece in numbers.chunks(PIECE) {
            let mut book = lock_book(&self.book);
            book.settle_some(piece, self.now);
            let entries: Vec<Entry> = book.some(piece).copied().collect();
            drop(book);
            flows.extend(entries.iter().filter_map(|entry| self.show_flow(entry)));
        }
        let in_user_space: Vec<UserEntry> = lock_book(&self.book).user_entries().copied().collect();
        flows.extend(in_user_space.iter().filter_map(|entry| self.show_user_flow(entry)));
        flows.sort_by(|a, b| (&a.in_port, b.packets).cmp(&(&b.in_port, a.packets)));
        flows
    }

    fn show_flow(&self, entry: &Entry) -> Option<FlowEntry> {
        let (action, tag) = match entry.verdict.action {
            FlowAction::Output { port_id, tag, .. } => (self.output_text(port_id)?, tag),
            FlowAction::Drop { .. } => ("drop".to_owned(), FlowTag::Keep),
            FlowAction::Deeper { .. } => ("deeper".to_owned(), FlowTag::Keep),
            // Shown as what user space does.
            FlowAction::Tell { .. } | FlowAction::Steer { .. } => return None,
        };
        let tag = match tag {
            FlowTag::Keep => TagAction::Keep,
            FlowTag::Remove => TagAction::Remove,
            FlowTag::Set(vid) => TagAction::Set(Vid::new(vid)?),
        };
        let shown =
            self.show_proposal(&entry.proposal, action, entry.carried, [entry.installed, entry.used])?;
        let reason = match entry.verdict.action {
            FlowAction::Output { path: FlowPath::Peer, .. } => Some(TO_PEER.to_owned()),
            _ => shown.reason,
        };
        Some(FlowEntry { tag, runs: self.runs(entry), reason, ..shown })
    }

    /// Which of the kernel's programs acts.
    fn runs(&self, entry: &Entry) -> FlowRuns {
        let is_passed_on = matches!(
            entry.verdict.action,
            FlowAction::Output { path: FlowPath::Packets | FlowPath::Peer, .. }
        );
        let has_xdp = self.with_xdp.contains(&PortId(entry.proposal.key.port_id()));
        if has_xdp && !is_passed_on { FlowRuns::Xdp } else { FlowRuns::Tcx }
    }

    fn show_user_flow(&self, entry: &UserEntry) -> Option<FlowEntry> {
        let action = match (entry.cannot.output, entry.proposal.reason) {
            (Some(port), _) => self.output_text(port.0)?,
            (None, Some(_)) => "drop".to_owned(),
            (None, None) => "flood".to_owned(),
        };
        let shown =
            self.show_proposal(&entry.proposal, action, entry.carried, [entry.decided, entry.used])?;
        let reason = Some(entry.cannot.why.text().to_owned());
        Some(FlowEntry { runs: FlowRuns::User, reason, ..shown })
    }

    fn output_text(&self, port_id: u16) -> Option<String> {
        Some(format!("output:{}", self.names.get(&PortId(port_id))?))
    }

    fn show_proposal(
        &self,
        proposal: &Proposal,
        action: String,
        carried: FlowCount,
        [decided, used]: [Nanos; 2],
    ) -> Option<FlowEntry> {
        let key = proposal.key;
        let seconds = |since: Nanos| Nanos(self.now.0.saturating_sub(since.0)).seconds().into();
        Some(FlowEntry {
            in_port: self.names.get(&PortId(key.port_id()))?.clone(),
            vlan: key.tag().and_then(Vid::new),
            stacked: key.is_stacked(),
            src_mac: MacAddr(mac::to_bytes(key.src())),
            dst_mac: MacAddr(mac::to_bytes(key.dst())),
            deeper: proposal.deeper.map(|(class, _)| self.rules.describe(class)),
            action,
            tag: TagAction::Keep,
            runs: FlowRuns::User,
            reason: proposal.reason.map(|reason| reason.name().to_owned()),
            rule: proposal.rule,
            packets: carried.packets,
            bytes: carried.bytes,
            age_seconds: seconds(decided),
            idle_seconds: seconds(used),
        })
    }
}

/// A thread that panicked while it held the lock has left counters that are still each in order.
pub(super) fn lock_book(book: &Mutex<FlowBook>) -> MutexGuard<'_, FlowBook> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}
