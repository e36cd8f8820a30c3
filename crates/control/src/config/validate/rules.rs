//! What `[[flows.rules]]` must keep to.

use std::collections::{HashMap, HashSet};

use super::{Checked, Config, Problem, Step};
use crate::port::PortSpec;
use crate::rule::{Identity, MAX_RULES, RuleAdd};

pub(super) fn check(config: &Config) -> Checked {
    let rules = &config.flows.rules;
    if rules.len() > MAX_RULES {
        let message = format!("flows.rules: {} rules, limit {MAX_RULES}; remove some", rules.len());
        return Err(Problem { path: path(MAX_RULES, "priority"), message });
    }
    let ports: HashSet<&str> = config.ports.iter().map(PortSpec::port_name).collect();
    let mut seen = HashMap::new();
    for (index, rule) in rules.iter().enumerate() {
        possible(index, rule)?;
        known_ports(index, rule, &ports)?;
        once(index, rule, &mut seen)?;
    }
    Ok(())
}

fn possible(index: usize, rule: &RuleAdd) -> Checked {
    rule.validate().map_err(|error| {
        let key = key(error.field.as_deref().unwrap_or_default());
        Problem { path: path(index, key), message: format!("flows.rules.{error}") }
    })
}

/// The key of this name.
fn key(field: &str) -> &'static str {
    let keys = ["in_port", "src_mac", "dst_mac", "vlan", "ip_proto", "src", "dst", "sport", "dport"];
    keys.into_iter().find(|key| *key == field).unwrap_or("priority")
}

fn known_ports(index: usize, rule: &RuleAdd, ports: &HashSet<&str>) -> Checked {
    let Some(name) = rule.ports().find(|name| !ports.contains(name)) else { return Ok(()) };
    let key = if rule.in_port.as_deref() == Some(name) { "in_port" } else { "action" };
    let message = format!(
        "flows.rules.{key}: no [[port]] is named `{name}`; add it, or add the rule later with `forebay flow add`"
    );
    Err(Problem { path: path(index, key), message })
}

fn once<'a>(index: usize, rule: &'a RuleAdd, seen: &mut HashMap<Identity<'a>, usize>) -> Checked {
    let Some(first) = seen.insert(rule.identity(), index) else { return Ok(()) };
    let message = format!(
        "flows.rules.priority: rules {} and {} of the file ask for the same ({rule}) at priority {}, limit once; \
         remove one of them",
        first + 1,
        index + 1,
        rule.priority
    );
    Err(Problem { path: path(index, "priority"), message })
}

fn path(index: usize, key: &'static str) -> Vec<Step> {
    vec![Step::Key("flows"), Step::Key("rules"), Step::Item(index), Step::Key(key)]
}
