//! The difference between two configurations: what SIGHUP has to do.

use std::collections::{HashMap, HashSet};

use super::{Config, LogLevel, Settings};
use crate::coalesce::{CoalesceConfig, CoalesceSet};
use crate::fdb::{FdbAdd, FdbDel};
use crate::port::{PortSet, PortSpec};
use crate::rule::RuleAdd;

/// What has to be done to get from one configuration to another, in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigDiff {
    /// What moderates ports from now on that state nothing themselves, if that differs.
    pub coalesce: Option<CoalesceConfig>,
    /// The names of ports to delete: gone from the file, or to be added again with another netdev or attachment.
    pub ports_del: Vec<String>,
    /// Ports to add.
    pub ports_add: Vec<PortSpec>,
    /// Ports to change while they carry traffic.
    pub ports_set: Vec<PortChange>,
    /// Settings to take over, if any differ.
    pub settings: Option<Settings>,
    /// Static entries to delete; those of deleted ports are gone with them and not listed.
    pub fdb_del: Vec<FdbDel>,
    /// Static entries to add, after the ports.
    pub fdb_add: Vec<FdbAdd>,
    /// Rules to delete; those that name deleted ports too, for rules only sleep without their ports.
    pub rules_del: Vec<RuleAdd>,
    /// Rules to add, after those have gone.
    pub rules_add: Vec<RuleAdd>,
    /// The new log level, if it differs.
    pub log_level: Option<LogLevel>,
    /// Keys that differ and stay as they were until a restart.
    pub needs_restart: Vec<&'static str>,
}

/// A port that stays, with what changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortChange {
    /// The port's name.
    pub name: String,
    /// What changes.
    pub set: PortSet,
}

impl ConfigDiff {
    /// Whether there is nothing to do and nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == ConfigDiff::default()
    }
}

pub(super) fn between(old: &Config, new: &Config) -> ConfigDiff {
    let coalesce = Some(&new.coalesce).filter(|coalesce| **coalesce != old.coalesce).cloned();
    let mut diff = ConfigDiff { coalesce, ..ConfigDiff::default() };
    diff_ports(old, new, &mut diff);
    diff_static_entries(old, new, &mut diff);
    diff_rules(old, new, &mut diff);
    diff.settings = Some(new.settings()).filter(|settings| *settings != old.settings());
    diff.log_level = Some(new.log.level).filter(|level| *level != old.log.level);
    diff.needs_restart = needs_restart(old, new);
    diff
}

fn diff_ports(old: &Config, new: &Config, diff: &mut ConfigDiff) {
    let old_ports: HashMap<_, _> = old.ports.iter().map(|port| (port.port_name(), port)).collect();
    let new_names: HashSet<_> = new.ports.iter().map(PortSpec::port_name).collect();
    let gone = old.ports.iter().filter(|port| !new_names.contains(port.port_name()));
    diff.ports_del = gone.map(|port| port.port_name().to_owned()).collect();
    for port in &new.ports {
        match old_ports.get(port.port_name()) {
            None => diff.ports_add.push(port.clone()),
            Some(was) if is_another(was, port) => {
                diff.ports_del.push(port.port_name().to_owned());
                diff.ports_add.push(port.clone());
            }
            Some(was) => diff.ports_set.extend(change((old, was), (new, port))),
        }
    }
}

/// Whether the port must be made anew.
fn is_another(was: &PortSpec, port: &PortSpec) -> bool {
    (&was.netdev, &was.group, &was.vhost_user) != (&port.netdev, &port.group, &port.vhost_user)
        || (was.members, was.attach, was.promiscuous) != (port.members, port.attach, port.promiscuous)
}

fn change((old, was): (&Config, &PortSpec), (new, port): (&Config, &PortSpec)) -> Option<PortChange> {
    let is_moderated_otherwise = old.coalesce_of(was) != new.coalesce_of(port);
    let set = PortSet {
        coalesce: is_moderated_otherwise.then(|| port.coalesce.clone()),
        vlan: (was.vlan != port.vlan).then(|| port.vlan.clone()),
        isolated: (was.isolated != port.isolated).then_some(port.isolated),
    };
    (!set.is_empty()).then(|| PortChange { name: port.port_name().to_owned(), set })
}

impl Config {
    /// Moderation of a port, whether it states that itself or not.
    pub fn coalesce_of<'a>(&'a self, port: &'a PortSpec) -> &'a [CoalesceSet] {
        match &port.coalesce[..] {
            [] if port.is_guest() => &self.coalesce.guests,
            [] => &self.coalesce.netdevs,
            own => own,
        }
    }
}

fn diff_static_entries(old: &Config, new: &Config, diff: &mut ConfigDiff) {
    let deleted: HashSet<&str> = diff.ports_del.iter().map(String::as_str).collect();
    let kept: HashSet<_> = new.fdb.static_entries.iter().map(|entry| (entry.vlan, entry.mac)).collect();
    let old_entries: HashSet<_> =
        old.fdb.static_entries.iter().map(|entry| (entry.vlan, entry.mac, entry.port.as_str())).collect();
    for entry in &old.fdb.static_entries {
        if !kept.contains(&(entry.vlan, entry.mac)) && !deleted.contains(entry.port.as_str()) {
            diff.fdb_del.push(FdbDel { vlan: entry.vlan, mac: entry.mac });
        }
    }
    for entry in &new.fdb.static_entries {
        let was_there = old_entries.contains(&(entry.vlan, entry.mac, entry.port.as_str()));
        if !was_there || deleted.contains(entry.port.as_str()) {
            diff.fdb_add.push(entry.clone());
        }
    }
}

/// A rule that differs in anything is another one.
fn diff_rules(old: &Config, new: &Config, diff: &mut ConfigDiff) {
    let (old_rules, new_rules) = (&old.flows.rules, &new.flows.rules);
    let (was, is): (HashSet<_>, HashSet<_>) = (old_rules.iter().collect(), new_rules.iter().collect());
    diff.rules_del = old_rules.iter().filter(|rule| !is.contains(rule)).cloned().collect();
    diff.rules_add = new_rules.iter().filter(|rule| !was.contains(rule)).cloned().collect();
}

fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let (switch, new_switch) = (&old.switch, &new.switch);
    let (pool, new_pool) = (&old.pool, &new.pool);
    let differs = [
        ("switch.socket", switch.socket != new_switch.socket),
        ("switch.workers", switch.workers != new_switch.workers),
        ("switch.cpus", switch.cpus != new_switch.cpus),
        ("switch.linger_us", switch.linger_us != new_switch.linger_us),
        ("switch.max_ports", switch.max_ports != new_switch.max_ports),
        ("switch.spool_mode", switch.spool_mode != new_switch.spool_mode),
        ("switch.join_segments", switch.join_segments != new_switch.join_segments),
        ("switch.long_queues", switch.long_queues != new_switch.long_queues),
        ("api.allow_programs", old.api.allow_programs != new.api.allow_programs),
        ("api.group", old.api.group != new.api.group),
        ("api.mode", old.api.mode != new.api.mode),
        ("api.read_only_group", old.api.read_only_group != new.api.read_only_group),
        ("api.read_only_mode", old.api.read_only_mode != new.api.read_only_mode),
        ("pool.frames", pool.frames != new_pool.frames),
        ("pool.frame_size", pool.frame_size != new_pool.frame_size),
        ("pool.rx_ring_depth", pool.rx_ring_depth != new_pool.rx_ring_depth),
        ("pool.policy", pool.policy != new_pool.policy),
        ("pool.refill", pool.refill != new_pool.refill),
        ("pool.refill_low", pool.refill_low != new_pool.refill_low),
        ("loop.never_block", old.loops.never_block != new.loops.never_block),
        ("flows.redirect_peer", old.flows.redirect_peer != new.flows.redirect_peer),
        ("flows.max_entries", old.flows.max_entries != new.flows.max_entries),
        ("metrics.listen", old.metrics.listen != new.metrics.listen),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}
