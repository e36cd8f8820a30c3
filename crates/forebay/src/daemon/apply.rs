//! Applies a configuration to the running switch, as the difference from the one that was applied before.
//!
//! One part that is refused is logged and does not hold back the others. What is returned is what was really applied,
//! so that the next SIGHUP tries the refused parts again.

mod rules;

use std::collections::HashSet;

use forebay_control::config::{ConfigDiff, FlowsConfig, LoopConfig, PortChange};
use forebay_control::fdb::FdbAdd;
use forebay_control::port::{PortAdd, PortShow, PortSpec};
use forebay_control::{Config, ErrorCode, SwitchControl};

/// Applies ports, static entries and rules to a switch that was just started with this configuration. It has none of
/// them, or those of an earlier daemon; what the file asked for then and does not any more is taken back.
pub(super) fn at_start(switch: &dyn SwitchControl, earlier: Option<&Config>, config: &Config) -> Config {
    let nothing = Config::default();
    let earlier = earlier.unwrap_or(&nothing);
    let mut started = config.clone();
    started.ports = taken_over(switch, earlier, config);
    // An entry that is there already can be added again.
    let is_gone = |entry: &&FdbAdd| !config.fdb.static_entries.contains(entry);
    started.fdb.static_entries = earlier.fdb.static_entries.iter().filter(is_gone).cloned().collect();
    let there: Vec<_> = switch.rule_list().into_iter().map(|shown| shown.rule).collect();
    let gone = earlier.flows.rules.iter().filter(|rule| !config.flows.rules.contains(rule)).cloned();
    started.flows.rules.extend(gone);
    started.flows.rules.retain(|rule| there.contains(rule));
    difference(switch, &started, config)
}

/// Ports of both configurations that are there already, because an earlier daemon had them, as they are.
fn taken_over(switch: &dyn SwitchControl, earlier: &Config, config: &Config) -> Vec<PortSpec> {
    let there = switch.port_list();
    let nothing = Config::default();
    let as_asked = |name: &str| {
        let named = |port: &&PortSpec| port.port_name() == name;
        let before = earlier.ports.iter().find(named).map(|port| (port, earlier.coalesce_of(port)));
        before.or_else(|| {
            let port = config.ports.iter().find(named)?;
            // No file stated its moderation, and what requests have set since stays if this one states none either.
            let unstated = if port.is_guest() { &nothing.coalesce.guests } else { &nothing.coalesce.netdevs };
            Some((port, &unstated[..]))
        })
    };
    let as_it_is = |shown: &PortShow| {
        let (asked, coalesce) = as_asked(&shown.name)?;
        let (vlan, coalesce) = (shown.vlan.clone(), coalesce.to_vec());
        Some(PortSpec { vlan, isolated: shown.isolated, coalesce, ..asked.clone() })
    };
    there.iter().filter_map(as_it_is).collect()
}

/// Applies what differs, and returns what is applied then.
pub(super) fn difference(switch: &dyn SwitchControl, old: &Config, new: &Config) -> Config {
    let diff = old.diff(new);
    if diff.is_empty() {
        return old.clone();
    }
    for key in &diff.needs_restart {
        tracing::warn!("{key} has changed in the file; restart the daemon to apply it");
    }
    let FlowsConfig { redirect_peer, max_entries, .. } = old.flows;
    let flows = FlowsConfig { redirect_peer, max_entries, ..new.flows.clone() };
    let loops = LoopConfig { never_block: old.loops.never_block.clone(), ..new.loops.clone() };
    let mut applied = Config {
        flows,
        loops,
        switch: old.switch.clone(),
        api: old.api.clone(),
        pool: old.pool.clone(),
        metrics: old.metrics.clone(),
        ..new.clone()
    };
    apply_coalesce_defaults(switch, &diff, old, &mut applied);
    delete_ports(switch, diff.ports_del.clone());
    let refused = add_ports(switch, &diff.ports_add);
    applied.ports.retain(|port| !refused.contains(port.port_name()));
    for change in &diff.ports_set {
        set_port(switch, change, old, &mut applied);
    }
    apply_settings(switch, &diff, old, &mut applied);
    apply_static_entries(switch, &diff, &mut applied);
    rules::apply(switch, &diff, &mut applied);
    tracing::info!(ports = applied.ports.len(), "the configuration file is applied");
    applied
}

/// Before any port is told to be moderated like all others.
fn apply_coalesce_defaults(
    switch: &dyn SwitchControl,
    diff: &ConfigDiff,
    old: &Config,
    applied: &mut Config,
) {
    let Some(defaults) = &diff.coalesce else { return };
    if let Err(error) = switch.coalesce_defaults(defaults.clone()) {
        tracing::error!("the settings in [coalesce] are not applied: {error}");
        applied.coalesce = old.coalesce.clone();
    }
}

fn delete_ports(switch: &dyn SwitchControl, names: Vec<String>) {
    if names.is_empty() {
        return;
    }
    match switch.port_del(&names) {
        Ok(reply) => {
            // Somebody deleted it by request before: what the file asks for is so.
            let refused = reply.refused.iter().filter(|refused| refused.error.code != ErrorCode::NoSuchPort);
            refused.for_each(|refused| {
                tracing::error!("port {} is not deleted: {}", refused.name, refused.error)
            });
        }
        Err(error) => tracing::error!("no port is deleted: {error}"),
    }
}

/// Returns the names of the ports that were not added. A port whose netdev is not there is added, and waits for it.
fn add_ports(switch: &dyn SwitchControl, ports: &[PortSpec]) -> HashSet<String> {
    if ports.is_empty() {
        return HashSet::new();
    }
    let reply = switch.port_add(PortAdd { ports: ports.to_vec(), wait: true });
    let mut netdevs = HashSet::new();
    for refused in &reply.refused {
        tracing::error!("the port on {} is not added: {}", refused.netdev, refused.error);
        netdevs.insert(refused.netdev.as_str());
    }
    let refused = ports.iter().filter(|port| netdevs.contains(port.asked_for()));
    refused.map(|port| port.port_name().to_owned()).collect()
}

fn set_port(switch: &dyn SwitchControl, change: &PortChange, old: &Config, applied: &mut Config) {
    let Err(error) = switch.port_set(&change.name, change.set.clone()) else { return };
    tracing::error!("port {} is not changed: {error}", change.name);
    let named = |port: &&PortSpec| port.port_name() == change.name;
    let slot = applied.ports.iter_mut().find(|port| port.port_name() == change.name);
    if let (Some(before), Some(slot)) = (old.ports.iter().find(named), slot) {
        slot.clone_from(before);
    }
}

fn apply_settings(switch: &dyn SwitchControl, diff: &ConfigDiff, old: &Config, applied: &mut Config) {
    let Some(settings) = diff.settings else { return };
    if let Err(error) = switch.apply_settings(settings) {
        tracing::error!("the settings in [fdb], [flood] and [flows] are not applied: {error}");
        let static_entries = std::mem::take(&mut applied.fdb.static_entries);
        applied.fdb = old.fdb.clone();
        applied.fdb.static_entries = static_entries;
        applied.flood = old.flood.clone();
        let rules = std::mem::take(&mut applied.flows.rules);
        applied.flows = FlowsConfig { rules, ..old.flows.clone() };
    }
}

fn apply_static_entries(switch: &dyn SwitchControl, diff: &ConfigDiff, applied: &mut Config) {
    for entry in &diff.fdb_del {
        match switch.fdb_del(entry.clone()) {
            Err(error) if error.code != ErrorCode::NoSuchEntry => {
                tracing::error!(
                    "the static entry {} in VLAN {} is not deleted: {error}",
                    entry.mac,
                    entry.vlan
                );
            }
            _ => {}
        }
    }
    for entry in &diff.fdb_add {
        if let Err(error) = switch.fdb_add(entry.clone()) {
            tracing::error!("the static entry {} in VLAN {} is not added: {error}", entry.mac, entry.vlan);
            let is_it = |other: &FdbAdd| (other.vlan, other.mac) == (entry.vlan, entry.mac);
            applied.fdb.static_entries.retain(|other| !is_it(other));
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_control::eswitch::Offload;

    use forebay_control::coalesce::CoalescePolicy;
    use forebay_control::port::{PortSet, PortState};

    use super::*;
    use crate::testing::MemorySwitch;

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap()
    }

    const TWO: &str = "[[port]]\nnetdev = \"a\"\n[[port]]\nnetdev = \"b\"\n[[fdb.static]]\nmac = \"02:00:00:00:00:01\"\nport = \"a\"\n";

    fn names(switch: &MemorySwitch) -> Vec<String> {
        let mut names: Vec<_> = switch.port_list().into_iter().map(|port| port.name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_refused_port_holds_back_nothing_and_is_tried_again() {
        let switch = MemorySwitch::default();
        let by_request = PortSpec { name: Some("other".to_owned()), ..PortSpec::new("b") };
        switch.port_add(PortAdd { ports: vec![by_request], wait: false });
        let applied = at_start(&switch, None, &config(TWO));
        assert_eq!(names(&switch), ["a", "other"]);
        assert_eq!(switch.fdb_list().len(), 1);
        assert_eq!(applied.ports.len(), 1);
        switch.port_del(&["other".to_owned()]).unwrap();
        let applied = difference(&switch, &applied, &config(TWO));
        assert_eq!(names(&switch), ["a", "b"]);
        assert_eq!(applied, config(TWO));
    }

    #[test]
    fn a_port_whose_netdev_is_not_there_waits_for_it() {
        let switch = MemorySwitch::default();
        let wanted = config(
            "[[port]]\nnetdev = \"missing\"\n[[fdb.static]]\nmac = \"02:00:00:00:00:01\"\nport = \"missing\"\n",
        );
        assert_eq!(at_start(&switch, None, &wanted), wanted);
        assert_eq!(switch.port_show("missing").unwrap().state, PortState::NetdevMissing);
        assert_eq!(switch.fdb_list().len(), 1);
    }

    #[test]
    fn only_the_difference_reaches_the_switch() {
        let switch = MemorySwitch::default();
        let applied =
            at_start(&switch, None, &config("[[port]]\nnetdev = \"a\"\n[[port]]\nnetdev = \"b\"\n"));
        let id_of_b = switch.port_show("b").unwrap().id;
        let new = config(
            "[fdb]\nageing_seconds = 5\n[[port]]\nnetdev = \"b\"\nisolated = true\n[[port]]\nnetdev = \"c\"\n",
        );
        let applied = difference(&switch, &applied, &new);
        assert_eq!(names(&switch), ["b", "c"]);
        let b = switch.port_show("b").unwrap();
        assert!(b.isolated && b.id == id_of_b, "b was changed in place");
        assert_eq!(switch.settings().unwrap().ageing_seconds, 5);
        assert_eq!(applied, new);
    }

    #[test]
    fn ports_are_moderated_as_the_file_states_or_as_all_are_and_again_when_that_changes() {
        let switch = MemorySwitch::default();
        let ports =
            "[[port]]\nnetdev = \"a\"\n[[port]]\nnetdev = \"b\"\ncoalesce = { policy = \"driver\" }\n";
        let with = |defaults: &str| config(&format!("{defaults}{ports}"));
        let policies =
            || ["a", "b"].map(|name| switch.stated(name).iter().map(|one| one.policy).next_back().flatten());
        let (off, dim, driver) = (CoalescePolicy::Off, CoalescePolicy::Dim, CoalescePolicy::Driver);
        let applied = at_start(&switch, None, &with(""));
        assert_eq!(policies(), [Some(off), Some(driver)]);
        let new = with("coalesce.netdevs = { policy = \"dim\" }\n");
        let applied = difference(&switch, &applied, &new);
        assert_eq!(applied, new);
        assert_eq!(switch.default_coalescing(), Some(new.coalesce.clone()));
        assert_eq!(policies(), [Some(dim), Some(driver)], "the default comes before the ports that obey it");
        // What a request has set stays until the file states something else for this port.
        let by_request = PortSet { coalesce: Some(new.ports[1].coalesce.clone()), ..PortSet::default() };
        switch.port_set("a", by_request).unwrap();
        assert_eq!(difference(&switch, &applied, &new), applied);
        assert_eq!(policies(), [Some(driver), Some(driver)]);
        // The next daemon has another default from its start on.
        let new = with("coalesce.netdevs = { policy = \"static\", usecs = 8 }\n");
        switch.coalesce_defaults(new.coalesce.clone()).unwrap();
        assert_eq!(at_start(&switch, Some(&applied), &new), new);
        assert_eq!(policies(), [Some(CoalescePolicy::Static), Some(driver)]);
    }

    #[test]
    fn a_port_deleted_by_request_is_no_obstacle() {
        let switch = MemorySwitch::default();
        let applied = at_start(&switch, None, &config("[[port]]\nnetdev = \"a\"\n"));
        switch.port_del(&["a".to_owned()]).unwrap();
        assert_eq!(difference(&switch, &applied, &Config::default()), Config::default());
    }

    #[test]
    fn what_the_file_asks_for_no_more_after_a_restart_is_taken_back_and_nothing_else() {
        let switch = MemorySwitch::default();
        let rule =
            |number: u32| format!("[[flows.rules]]\npriority = {number}\naction = \"mark:{number}\"\n");
        let earlier = config(&format!(
            "[[port]]\nnetdev = \"a\"\n[[port]]\nnetdev = \"b\"\n{}{}[[fdb.static]]\nmac = \"02:00:00:00:00:01\"\nport = \"a\"\n",
            rule(1),
            rule(2),
        ));
        assert_eq!(at_start(&switch, None, &earlier), earlier);
        // Not by the file.
        let by_request = config(&format!("[[port]]\nnetdev = \"c\"\n{}", rule(3)));
        switch.port_add(PortAdd { ports: by_request.ports, wait: false });
        switch.flow_add(by_request.flows.rules[0].clone()).unwrap();

        let now = config(&format!("[[port]]\nnetdev = \"a\"\nisolated = true\n{}", rule(2)));
        assert_eq!(at_start(&switch, Some(&earlier), &now), now);
        assert_eq!(names(&switch), ["a", "c"]);
        assert!(switch.port_show("a").unwrap().isolated);
        assert!(switch.fdb_list().is_empty());
        let rules: Vec<_> = switch.rule_list().iter().map(|shown| shown.rule.action.to_string()).collect();
        assert_eq!(rules, ["mark:3", "mark:2"]);
    }

    #[test]
    fn a_port_of_another_netdev_after_a_restart_is_made_anew() {
        let switch = MemorySwitch::default();
        let earlier = at_start(&switch, None, &config("[[port]]\nnetdev = \"a\"\nname = \"web\"\n"));
        let now = config("[[port]]\nnetdev = \"b\"\nname = \"web\"\n");
        assert_eq!(at_start(&switch, Some(&earlier), &now), now);
        assert_eq!(switch.port_show("web").unwrap().netdev, "b");
    }

    #[test]
    fn a_key_that_needs_a_restart_stays_until_then() {
        let switch = MemorySwitch::default();
        let applied = difference(&switch, &Config::default(), &config("[switch]\nworkers = 2\n"));
        assert_eq!(applied, Config::default());
        let applied =
            difference(&switch, &applied, &config("[flows]\nmax_entries = 2048\noffload = \"off\"\n"));
        assert_eq!((applied.flows.max_entries, applied.flows.offload), (65536, Offload::Off));
        assert_eq!(switch.settings().unwrap().offload, Offload::Off);
    }
}
