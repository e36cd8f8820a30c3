//! Handing a switch over from one process to the next: what is saved, and how it is taken up again.
//!
//! The kernel goes on following flows while there is no daemon, because programs, links and tables are pinned. What the
//! next daemon needs besides is in a file: ports with their ids and counters, rules, stations. It is written when
//! something was asked for, and once a second; so a killed daemon loses at most a second of what it counted itself. What
//! the kernel counted by flows is never lost.
//!
//! The rule it keeps: a flow goes on only if all it relied upon is as it was. A port whose netdev is another, or has another
//! MTU, has another generation afterwards; so has the switch if there are rules.

mod ports;
mod stations;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_control::hints::HintsSet;
use forebay_control::pool::PoolPortSet;
use forebay_control::port::PortSpec;
use forebay_control::rule::RuleAdd;
use forebay_control::rxq::RxqSet;
use forebay_control::{PortCounters, PortId};
use forebay_kernel::{LeftStations, Pins};
use serde::{Deserialize, Serialize};

use super::Control;
use super::port::Port;
use crate::topology::PortEntry;

/// Counts up when the file says something else than before.
const FORMAT: u32 = 1;

/// What one process leaves to the next.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Saved {
    format: u32,
    next_port: u32,
    pub(super) ports: Vec<SavedPort>,
    pub(super) next_rule: u64,
    pub(super) rules: Vec<(u64, RuleAdd)>,
    /// Of ports that are deleted.
    retired: PortCounters,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SavedPort {
    pub(super) id: PortId,
    pub(super) spec: PortSpec,
    seen: Option<Seen>,
    counters: PortCounters,
    #[serde(default)]
    asked: Asked,
}

/// What was asked for a port besides its specification.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Asked {
    pool: PoolPortSet,
    rxq: RxqSet,
    hints: HintsSet,
}

/// What flows from and to a port relied upon, besides what its specification says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    ifindex: u32,
    mtu: u32,
    is_xdp: bool,
    takes_frames: bool,
    peer: Option<u64>,
}

impl Seen {
    fn of(entry: &PortEntry) -> Option<Self> {
        let PortEntry { mtu, is_xdp, takes_frames, peer, .. } = *entry;
        Some(Self { ifindex: entry.output?.ifindex().0, mtu, is_xdp, takes_frames, peer })
    }
}

impl Saved {
    /// What is in the file, if it is one that this version wrote.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let saved: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (saved.format == FORMAT).then_some(saved)
    }

    /// In one step: whoever reads finds the old or the new one.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, path)
    }
}

impl Control {
    /// Saves all that another process needs to go on, if one is to.
    pub(crate) fn save(&mut self) {
        let Some(path) = self.saved_in.clone() else { return };
        if self.datapath.pins().is_some_and(Pins::is_closed) {
            return;
        }
        let now = self.now();
        let (marks, carried) = {
            let mut book = self.flow_book();
            book.settle_all(now);
            (book.marks(), self.ports.keys().map(|id| (*id, book.counters(*id))).collect::<Vec<_>>())
        };
        let saved = Saved {
            format: FORMAT,
            next_port: self.next_id,
            ports: carried.iter().map(|(id, carried)| self.saved_port(*id, *carried)).collect(),
            next_rule: self.rules.next_id(),
            rules: self.rules.asked(),
            retired: self.retired.counters(),
        };
        match saved.write(&path) {
            Ok(()) => self.flow_book().note_settled(&marks),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "what another daemon needs could not be saved");
            }
        }
    }

    fn saved_port(&self, id: PortId, carried: PortCounters) -> SavedPort {
        let port = &self.ports[&id];
        let counted = super::port::Counted { carried, ..self.counted(port) };
        let asked = Asked {
            pool: port.share.asked(self.frame_bytes()),
            rxq: port.rxq.asked(self.rxq),
            hints: port.hints.hints().asked(),
        };
        let (spec, seen) = (port.spec.clone(), Seen::of(&port.entry()));
        SavedPort { id, spec, seen, counters: counted.counters(), asked }
    }

    /// From now on saves in this file, and takes up what was saved there. Flows go on if the tables could be adopted;
    /// otherwise they are decided anew.
    pub(crate) fn take_over(
        &mut self,
        saved_in: PathBuf,
        saved: Option<Saved>,
        stations: Option<LeftStations>,
    ) {
        self.saved_in = Some(saved_in);
        let left = self.datapath.find_left_links();
        if let Some(saved) = saved {
            self.adopt(saved, &left, &stations.unwrap_or_default());
        }
        if let Err(error) = self.shared.fdb.publish() {
            tracing::warn!(%error, "the next daemon will learn stations anew");
        }
        // No port of this daemon has what is left.
        self.datapath.release_left_links();
        self.save();
    }

    fn adopt(&mut self, saved: Saved, left: &[(u16, u32)], stations: &LeftStations) {
        let (now, now_s) = (self.now(), self.shared.now_s());
        self.flow_book().adopt(now);
        self.next_id = saved.next_port % self.max_ports;
        self.retired.base = saved.retired;
        // Until all is as it was, nothing counts as changed.
        self.publication.set_adopting(true);
        let ports = saved.ports.iter().map(|port| (port.id, port.spec.clone())).collect();
        self.adopt_ports(ports, left);
        self.adopt_stations(stations, now_s);
        self.learn_from_flows(saved.rules.is_empty(), now_s);
        for port in &saved.ports {
            if let Some(adopted) = self.ports.get_mut(&port.id) {
                adopted.base = port.counters;
            }
        }
        for SavedPort { id, spec, asked, .. } in &saved.ports {
            if self.ports.contains_key(id) {
                self.ask_again(spec.port_name(), asked);
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
        let Asked { pool, rxq, hints } = asked;
        let mut refused = Vec::new();
        if !pool.is_empty() {
            refused.extend(self.pool_port_set(port, *pool).err());
        }
        if *rxq != RxqSet::default() {
            refused.extend(self.rxq_set(port, *rxq).err());
        }
        if *hints != HintsSet::default() {
            refused.extend(self.hints_set(port, hints.clone()).err());
        }
        for error in refused {
            tracing::warn!(port, %error, "what was asked for it is not taken over");
        }
    }

    /// Counts up the generations of ports that are not what flows relied upon.
    fn change_what_is_other(&self, saved: &[SavedPort]) {
        let generations = &self.shared.generations;
        for port in saved {
            let now = self.ports.get(&port.id).map(Port::entry).and_then(|entry| Seen::of(&entry));
            if now.is_none() || now != port.seen {
                generations.set_port(port.id.0, generations.of_port(port.id.0) + 1);
            }
        }
    }

    /// The process ends, and what it has attached stays.
    pub(crate) fn leave(&mut self) {
        self.save();
        self.left = true;
    }

    /// Nobody is to go on with what is here.
    pub(super) fn forget_saved(&mut self) {
        if let Some(path) = self.saved_in.take() {
            let _ = fs::remove_file(path);
        }
        if let Some(pins) = self.datapath.pins() {
            pins.close();
        }
    }
}
