//! Handing a switch over from one process to the next: what is saved, and how it is taken up again.
//!
//! The kernel goes on following flows while there is no daemon, because programs, links and tables are pinned, the table of
//! stations among them. What the next daemon needs besides is in a file: ports with their ids and counters, and rules.
//! Requests write what they change, counters are written once a second; so a killed daemon loses at most a second of
//! what it counted itself. What the kernel counted by flows is never lost.
//!
//! The rule it keeps: a flow goes on only if all it relied upon is as it was. A port whose netdev is another, or has another
//! MTU, has another generation afterwards; so has the switch if there are rules.

mod ports;
mod saver;
mod stations;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_control::hints::HintsSet;
use forebay_control::rss::RssSet;
use forebay_control::rxq::RxqSet;
use forebay_control::saved::file::Told;
use forebay_control::saved::fit::{Fitted, FittedPort};
use forebay_control::saved::{Asked, SavedPort, SavedState, Seen};
use forebay_control::{IfIndex, PortCounters, PortId};
use forebay_kernel::{LeftStations, Pins};

use super::counted::Counted;
use super::port::Port;
use super::{Change, Control};
use crate::flows::SettledFlow;
use crate::topology::PortEntry;

pub(super) use saver::{Saver, Ticket};

/// What flows from and to a port rely upon.
fn seen(entry: &PortEntry) -> Option<Seen> {
    if !entry.ways.is_empty() {
        // Their members are attached to anew.
        return None;
    }
    let PortEntry { mtu, is_xdp, takes_frames, peer, .. } = *entry;
    Some(Seen { ifindex: entry.output?.ifindex()?, mtu, is_xdp, takes_frames, peer })
}

/// What an earlier process left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Ports and rules.
    pub(crate) saved: Option<SavedState>,
    /// Stations, if they could be read.
    pub(crate) stations: Option<LeftStations>,
}

/// What is in the file, if it can be taken up.
pub(crate) fn read_saved(path: &Path) -> Option<SavedState> {
    saver::read(path)
}

impl Control {
    /// Saves what was asked for and what netdevs are like, if another process is to go on with it. It makes no system call
    /// and walks no flows; the ticket tells when all is written.
    pub(crate) fn save(&mut self) -> Ticket {
        let Some(last) = self.saver.as_ref().filter(|_| self.leaves()).map(Saver::state) else {
            return Ticket::NOTHING;
        };
        let counters = last.counters.iter().filter(|(id, _)| self.ports.contains_key(id));
        let counters = counters.map(|(id, counters)| (*id, *counters)).collect();
        let next = SavedState { counters, ..self.asked_state() };
        self.hand_over(next, Vec::new())
    }

    /// Whether another process may still take up what this one saves.
    fn leaves(&self) -> bool {
        !self.left && !self.datapath.pins().is_some_and(Pins::is_closed)
    }

    /// Saves all, with what was counted. Called once a second.
    pub(crate) fn save_counted(&mut self) -> Ticket {
        if self.saver.is_none() || !self.leaves() {
            return Ticket::NOTHING;
        }
        let now = self.now();
        let (settled, carried) = {
            let mut book = self.flow_book();
            book.settle_all(now);
            (book.settled_flows(), self.ports.keys().map(|id| (*id, book.counters(*id))).collect::<Vec<_>>())
        };
        let counters =
            carried.into_iter().map(|(id, carried)| (id, self.counted_so_far(id, carried))).collect();
        let next = SavedState { counters, ..self.asked_state() };
        self.hand_over(next, settled)
    }

    fn hand_over(&mut self, next: SavedState, settled: Vec<SettledFlow>) -> Ticket {
        self.saver.as_mut().map_or(Ticket::NOTHING, |saver| saver.save(next, settled))
    }

    /// All but the ports' counters.
    fn asked_state(&self) -> SavedState {
        SavedState {
            next_port: self.ports.next_id(),
            next_rule: self.rules.next_id(),
            retired: self.deleted().counters(),
            ports: self.ports.iter().map(|(id, port)| (*id, self.saved_port(port))).collect(),
            counters: BTreeMap::new(),
            rules: self.rules.asked(),
        }
    }

    /// What deleted ports have counted, with those that leave.
    fn deleted(&self) -> Counted {
        let mut sum = self.retired;
        self.ports.leaving().for_each(|port| sum += self.counted(port));
        sum
    }

    fn saved_port(&self, port: &Port) -> SavedPort {
        let asked = Asked {
            pool: port.share.asked(self.frame_bytes()),
            rxq: port.rxq.asked(self.pool.rxq()),
            rss: port.group.rss.asked(),
            hints: port.hints.hints().asked(),
            coalesce: Self::coalesce_asked(port),
        };
        SavedPort { spec: port.spec.clone(), seen: seen(&port.entry(false)), asked }
    }

    fn counted_so_far(&self, id: PortId, carried: PortCounters) -> PortCounters {
        Counted { carried, ..self.counted(&self.ports[&id]) }.counters()
    }
}

impl Change<'_> {
    /// From now on saves in this file, and takes up what was left. Flows go on if the tables could be adopted;
    /// otherwise they are decided anew.
    pub(crate) fn take_over(&mut self, saved_in: PathBuf, left: Left) {
        let links = self.datapath.find_left_links();
        if let Some(saved) = left.saved {
            let mut told = Told::default();
            let fitted = saved.fit(self.ports.max_ports(), &mut told);
            told.sentences().for_each(|sentence| tracing::warn!("in the saved state: {sentence}"));
            self.adopt(fitted, &links, &left.stations.unwrap_or_default());
        }
        if let Err(error) = self.shared.fdb.publish() {
            tracing::warn!(%error, "the next daemon will learn stations anew");
        }
        // No port of this daemon has what is left.
        self.datapath.release_left_links();
        match Saver::start(saved_in, self.flows.shared_book()) {
            Ok(saver) => self.saver = Some(saver),
            Err(error) => tracing::error!(%error, "nothing can be left to another daemon"),
        }
        let ticket = self.save_counted();
        self.without_lock(|| ticket.wait());
    }

    fn adopt(&mut self, saved: Fitted, links: &[(u16, IfIndex)], stations: &LeftStations) {
        let (now, now_s) = (self.now(), self.shared.now_s());
        self.flow_book().adopt(now);
        self.ports.set_next_id(saved.next_port);
        self.retired.base = saved.retired;
        // Until all is as it was, nothing counts as changed.
        self.publication.set_adopting(true);
        self.adopt_ports(&saved.ports, links);
        self.adopt_stations(stations, &saved.ports, now_s);
        self.learn_from_flows(saved.rules.is_empty(), now_s);
        for port in &saved.ports {
            if let Some(adopted) = self.ports.get_mut(&port.id) {
                adopted.base = port.counters;
            }
        }
        for FittedPort { id, port, .. } in &saved.ports {
            if self.ports.contains_key(id) {
                self.ask_again(port.spec.port_name(), &port.asked);
            }
        }
        self.publication.set_adopting(false);
        self.change_what_is_other(&saved.ports);
        self.adopt_rules(saved.next_rule, saved.rules);
        self.publish();
        let flows = self.flow_book().len();
        tracing::info!(ports = self.ports.len(), flows, "took over what an earlier daemon left");
    }

    /// What is refused now, as when the pool is smaller, stays at its default.
    fn ask_again(&mut self, port: &str, asked: &Asked) {
        let Asked { pool, rxq, rss, hints, coalesce } = asked;
        let mut refused = Vec::new();
        if !pool.is_empty() {
            refused.extend(self.pool_port_set(port, *pool).err());
        }
        if *rxq != RxqSet::default() {
            refused.extend(self.rxq_set(port, *rxq).err());
        }
        if *rss != RssSet::default() {
            refused.extend(self.rss_set(port, rss).err());
        }
        if *hints != HintsSet::default() {
            refused.extend(self.hints_set(port, hints.clone()).err());
        }
        if let Ok(id) = self.id_of(port) {
            refused.extend(self.moderate_as(id, coalesce).into_iter().map(|wrong| wrong.error));
        }
        for error in refused {
            tracing::warn!(port, %error, "what was asked for it is not taken over");
        }
    }

    /// Nobody is to go on with what is here.
    pub(super) fn forget_saved(&mut self) {
        let saver = self.saver.take();
        self.without_lock(|| saver.map(Saver::forget));
        if let Some(pins) = self.datapath.pins() {
            pins.close();
        }
    }
}

impl Control {
    /// Counts up the generations of ports that are not what flows relied upon.
    fn change_what_is_other(&self, saved: &[FittedPort]) {
        let generations = &self.shared.generations;
        for port in saved {
            let now = self.ports.get(&port.id).map(|port| port.entry(false)).and_then(|entry| seen(&entry));
            if now.is_none() || now != port.port.seen || port.id != port.was {
                generations.set_port(port.id.0, generations.of_port(port.id.0) + 1);
            }
        }
    }

    /// The process ends, and what it has attached stays. Nothing is saved after this.
    pub(crate) fn leave(&mut self) -> Ticket {
        let ticket = self.save_counted();
        self.left = true;
        ticket
    }
}
