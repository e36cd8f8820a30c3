//! What one daemon saves for the next: ports, what was asked for them, what they counted, and rules.
//!
//! It is written as differences: a [`Change`] says what is other than when the last one was written. A file
//! ([`file`]) is a row of changes, and what holds is their sum. So a request writes what it changed, whatever else there is.
//!
//! The rule it keeps: anything may be in the file that is read. What cannot be understood or does not fit costs only
//! itself ([`fit`]), and is told.

pub mod file;
pub mod fit;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz_check;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::coalesce::CoalesceSet;
use crate::hints::HintsSet;
use crate::pool::PoolPortSet;
use crate::port::PortSpec;
use crate::rss::RssSet;
use crate::rule::RuleAdd;
use crate::rxq::RxqSet;
use crate::{IfIndex, PortCounters, PortId};

/// A port as it is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPort {
    /// What it was made with, and changed to since.
    pub spec: PortSpec,
    /// What flows relied upon; `None` while it had no netdev that was up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// What was asked for it by later requests.
    #[serde(default)]
    pub asked: Asked,
}

/// What was asked for a port besides its specification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// `pool set`.
    #[serde(default)]
    pub pool: PoolPortSet,
    /// `rxq set`.
    #[serde(default)]
    pub rxq: RxqSet,
    /// `rss set`.
    #[serde(default)]
    pub rss: RssSet,
    /// `hints set`.
    #[serde(default)]
    pub hints: HintsSet,
    /// `coalesce set`, of each queue that is not at its defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coalesce: Vec<CoalesceSet>,
}

/// What flows from and to a port relied upon, besides what its specification says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The netdev's index.
    pub ifindex: IfIndex,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The port's program is an XDP program.
    pub is_xdp: bool,
    /// The netdev takes frames of XDP programs.
    pub takes_frames: bool,
    /// The station at the netdev's other end.
    #[serde(default)]
    pub peer: Option<u64>,
}

/// All that is saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedState {
    /// The id that the next port would get.
    pub next_port: u32,
    /// The id that the next rule would get.
    pub next_rule: u64,
    /// What ports had counted that are deleted.
    pub retired: PortCounters,
    /// Ports by their ids.
    pub ports: BTreeMap<PortId, SavedPort>,
    /// What each port has counted.
    pub counters: BTreeMap<PortId, PortCounters>,
    /// Rules by their ids.
    pub rules: BTreeMap<u64, RuleAdd>,
}

/// How one state differs from the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Change {
    #[serde(skip_serializing_if = "Option::is_none")]
    next_port: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_rule: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retired: Option<PortCounters>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone_ports: Vec<PortId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<(PortId, SavedPort)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counters: Vec<(PortId, PortCounters)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone_rules: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<(u64, RuleAdd)>,
}

impl Change {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Change::default()
    }
}

impl SavedState {
    /// What turns this state into `next`.
    pub fn change_to(&self, next: &SavedState) -> Change {
        Change {
            next_port: (self.next_port != next.next_port).then_some(next.next_port),
            next_rule: (self.next_rule != next.next_rule).then_some(next.next_rule),
            retired: (self.retired != next.retired).then_some(next.retired),
            gone_ports: gone(&self.ports, &next.ports),
            ports: changed(&self.ports, &next.ports),
            counters: changed(&self.counters, &next.counters),
            gone_rules: gone(&self.rules, &next.rules),
            rules: changed(&self.rules, &next.rules),
        }
    }

    /// Takes a change in. What a port had counted goes with it.
    pub fn apply(&mut self, change: Change) {
        self.next_port = change.next_port.unwrap_or(self.next_port);
        self.next_rule = change.next_rule.unwrap_or(self.next_rule);
        self.retired = change.retired.unwrap_or(self.retired);
        for id in change.gone_ports {
            self.ports.remove(&id);
            self.counters.remove(&id);
        }
        change.gone_rules.iter().for_each(|id| drop(self.rules.remove(id)));
        self.ports.extend(change.ports);
        self.counters.extend(change.counters);
        self.rules.extend(change.rules);
    }
}

fn gone<K: Copy + Ord, V>(before: &BTreeMap<K, V>, after: &BTreeMap<K, V>) -> Vec<K> {
    before.keys().filter(|key| !after.contains_key(key)).copied().collect()
}

fn changed<K: Copy + Ord, V: Clone + PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> Vec<(K, V)> {
    let is_other = |(key, value): &(&K, &V)| before.get(key) != Some(value);
    after.iter().filter(is_other).map(|(key, value)| (*key, value.clone())).collect()
}
