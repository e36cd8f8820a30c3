//! What of a saved state fits a daemon that may have other limits.
//!
//! - A port keeps its id. Where the id is beyond `switch.max_ports`, it gets a free one; without a free one it is left out.
//! - Of two ports with one name, the one with the lower id is taken.
//! - A port or rule that a request could not make is left out; so is the second of two rules that ask the same.
//! - Counters that no traffic can have reached begin at 0.

use std::collections::{BTreeSet, HashSet};

use super::file::Told;
use super::{SavedPort, SavedState};
use crate::rule::{MAX_RULES, RuleAdd};
use crate::{PortCounters, PortId};

/// Largest id of a rule that is taken over; behind it there are more than enough for new ones.
const MAX_RULE_ID: u64 = u64::MAX / 2;

/// A port that is to be made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedPort {
    /// The id that it gets.
    pub id: PortId,
    /// The id that it had.
    pub was: PortId,
    /// What is saved of it.
    pub port: SavedPort,
    /// What it had counted.
    pub counters: PortCounters,
}

/// A state that fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fitted {
    /// Ports, each with an id of its own below the limit and a name of its own.
    pub ports: Vec<FittedPort>,
    /// Rules in the order of their ids, which are from 1 and below [`Fitted::next_rule`].
    pub rules: Vec<(u64, RuleAdd)>,
    /// The id that the next port may get.
    pub next_port: u32,
    /// The id that the next rule gets.
    pub next_rule: u64,
    /// What deleted ports had counted.
    pub retired: PortCounters,
}

impl SavedState {
    /// What fits a daemon that has ids for `max_ports` ports; what does not fit is told.
    pub fn fit(self, max_ports: u32, told: &mut Told) -> Fitted {
        let rules = fit_rules(self.rules, told);
        let last_rule = rules.last().map_or(0, |(id, _)| *id);
        let mut counters = self.counters;
        let mut counted = |id| {
            counters.remove(&id).map_or_else(PortCounters::default, |counters| plausible(counters, told))
        };
        let with_counters: Vec<_> =
            self.ports.into_iter().map(|(id, port)| (id, port, counted(id))).collect();
        Fitted {
            ports: fit_ports(with_counters, max_ports, told),
            rules,
            next_port: self.next_port.checked_rem(max_ports).unwrap_or(0),
            next_rule: self.next_rule.clamp(last_rule + 1, MAX_RULE_ID + 1),
            retired: plausible(self.retired, told),
        }
    }
}

fn plausible(counters: PortCounters, told: &mut Told) -> PortCounters {
    if counters.is_plausible() {
        return counters;
    }
    told.tell(|| "counters are larger than any traffic makes them; they begin at 0".to_owned());
    PortCounters::default()
}

fn fit_ports(
    saved: Vec<(PortId, SavedPort, PortCounters)>,
    max_ports: u32,
    told: &mut Told,
) -> Vec<FittedPort> {
    let mut names = HashSet::new();
    let mut fit = Vec::new();
    for (was, port, counters) in saved {
        let name = port.spec.port_name().to_owned();
        if let Err(error) = port.spec.validate() {
            told.tell(|| format!("port {was} is left out: {error}"));
        } else if !names.insert(name.clone()) {
            told.tell(|| format!("port {was} is left out: another port is called `{name}`"));
        } else {
            fit.push(FittedPort { id: was, was, port, counters });
        }
    }
    let mut free = free_ids(&fit, max_ports);
    fit.retain_mut(|port| {
        if u32::from(port.was.0) < max_ports {
            return true;
        }
        let name = port.port.spec.port_name();
        match free.pop_first() {
            Some(id) => {
                told.tell(|| format!("port `{name}` has the id {id} instead of {}: switch.max_ports is {max_ports}", port.was));
                port.id = id;
                true
            }
            None => {
                told.tell(|| format!("port `{name}` is left out: switch.max_ports is {max_ports}; raise it and add the port again"));
                false
            }
        }
    });
    fit
}

/// As many free ids as ports need a new one, so that the work is bounded by what is saved.
fn free_ids(ports: &[FittedPort], max_ports: u32) -> BTreeSet<PortId> {
    let taken: HashSet<PortId> = ports.iter().map(|port| port.was).collect();
    let wanting = ports.iter().filter(|port| u32::from(port.was.0) >= max_ports).count();
    let ids = (0..=u16::MAX).take_while(|id| u32::from(*id) < max_ports).map(PortId);
    ids.filter(|id| !taken.contains(id)).take(wanting).collect()
}

fn fit_rules(saved: impl IntoIterator<Item = (u64, RuleAdd)>, told: &mut Told) -> Vec<(u64, RuleAdd)> {
    let saved: Vec<(u64, RuleAdd)> = saved.into_iter().collect();
    let mut asked = HashSet::new();
    let mut fits = Vec::new();
    for (id, rule) in &saved {
        if let Err(error) = rule.validate() {
            told.tell(|| format!("rule {id} is left out: {error}"));
        } else if !(1..=MAX_RULE_ID).contains(id) {
            told.tell(|| format!("rule {id} is left out: ids are from 1 to {MAX_RULE_ID}"));
        } else if !asked.insert(rule.identity()) {
            told.tell(|| format!("rule {id} is left out: another asks the same with the same priority"));
        } else if fits.len() >= MAX_RULES {
            told.tell(|| format!("rule {id} is left out: there may be {MAX_RULES} rules"));
        } else {
            fits.push(*id);
        }
    }
    let fits: HashSet<u64> = fits.into_iter().collect();
    saved.into_iter().filter(|(id, _)| fits.contains(id)).collect()
}
