//! Stations of an earlier daemon.
//!
//! They are in a table of their own that outlives the daemon, as they were at its last moment. Flows tell of stations
//! where that table cannot be taken up.

use std::collections::HashMap;

use forebay_control::PortId;
use forebay_control::saved::fit::FittedPort;
use forebay_kernel::{FlowAction, LeftStations};

use crate::control::Control;
use crate::fdb::{Entry, FdbError, Learned, left_entries};
use crate::switch::machine_now_s;

impl Control {
    /// Takes up stations that were left, as far as their ports are there and the limits let them in.
    pub(super) fn adopt_stations(&self, left: &LeftStations, ports: &[FittedPort], now_s: u32) {
        let ids: HashMap<u16, PortId> = ports.iter().map(|port| (port.was.0, port.id)).collect();
        let left_now_s = machine_now_s().saturating_sub(left.began_s);
        let (mut adopted, mut without_port, mut refused) = (0u64, 0u64, 0u64);
        for entry in left_entries(left) {
            let silent_s = left_now_s.saturating_sub(entry.seen_s.into());
            match ids.get(&entry.port).filter(|id| self.ports.contains_key(id)) {
                None => without_port += 1,
                Some(id) if self.adopt_station(&Entry { port: id.0, ..entry }, silent_s, now_s) => {
                    adopted += 1
                }
                Some(_) => refused += 1,
            }
        }
        if without_port + refused > 0 {
            tracing::warn!(
                adopted,
                without_port,
                refused,
                "some stations are not taken over: their ports are not there, or fdb.max_entries or \
                 fdb.max_entries_per_port is smaller"
            );
        }
    }

    fn adopt_station(&self, entry: &Entry, silent_s: u64, now_s: u32) -> bool {
        let Entry { vid, mac, port, is_static, .. } = *entry;
        if is_static {
            let added: Result<_, FdbError> = self.shared.fdb.add_static(vid, mac, port, now_s);
            return added.is_ok();
        }
        // The switch's clock begins anew: a station that was silent before that counts as just heard.
        let seen_s = now_s.saturating_sub(u32::try_from(silent_s).unwrap_or(u32::MAX));
        matches!(self.shared.fdb.take_up(vid, mac, port, seen_s), Learned::New | Learned::Known)
    }

    /// Stations that flows which hold were decided with, where the table does not have them. What a rule sends to a port is
    /// not behind it.
    pub(super) fn learn_from_flows(&self, with_destinations: bool, now_s: u32) {
        let fdb = &self.shared.fdb;
        let learn = |vid, mac, port| {
            if fdb.lookup(vid, mac, now_s).is_none() && self.ports.contains_key(&PortId(port)) {
                fdb.learn(vid, mac, port, now_s);
            }
        };
        let book = self.flow_book();
        let holding =
            book.entries().filter(|entry| entry.verdict.holds(entry.proposal.key, &self.shared.generations));
        for entry in holding {
            let (vid, key) = (entry.proposal.vid, entry.proposal.key);
            learn(vid, key.src(), key.port_id());
            if let (true, FlowAction::Output { port_id, .. }) = (with_destinations, entry.verdict.action) {
                learn(vid, key.dst(), port_id);
            }
        }
    }
}
