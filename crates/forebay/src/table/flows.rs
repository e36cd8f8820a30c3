//! Rules, flows, and how full their table is.

use std::cmp::Reverse;

use forebay_control::flow::{FlowEntry, FlowList, FlowTable};
use forebay_control::rule::RuleShow;

use super::{Grid, mebibytes};

/// Rules if there are any, then flows, then their table.
pub(crate) fn flows(list: &FlowList) -> String {
    let rules = if list.rules.is_empty() { String::new() } else { rules(&list.rules) + "\n" };
    format!("{rules}{}\n{}", entries(&list.flows), summary(&list.table))
}

/// In the order in which they count.
fn rules(rules: &[RuleShow]) -> String {
    let mut grid = Grid::new(&[
        ">rule",
        ">priority",
        "match",
        "action",
        "state",
        ">packets",
        ">bytes",
        ">age s",
        "reason",
    ]);
    let mut rules: Vec<&RuleShow> = rules.iter().collect();
    rules.sort_by_key(|shown| (Reverse(shown.rule.priority), shown.id));
    for shown in rules {
        grid.row([
            shown.id.to_string(),
            shown.rule.priority.to_string(),
            shown.rule.to_string(),
            shown.rule.action.to_string(),
            shown.state.to_string(),
            shown.packets.to_string(),
            shown.bytes.to_string(),
            shown.age_seconds.to_string(),
            shown.reason.clone().unwrap_or_default(),
        ]);
    }
    grid.finish()
}

/// By port, the busiest first.
fn entries(flows: &[FlowEntry]) -> String {
    let mut grid = Grid::new(&[
        "in-port", ">vlan", "src-mac", "dst-mac", "deeper", "action", "tag", "runs", ">packets", ">bytes",
        ">age s", ">idle s", "reason",
    ]);
    let mut flows: Vec<&FlowEntry> = flows.iter().collect();
    flows.sort_by_key(|flow| (flow.in_port.as_str(), Reverse(flow.packets)));
    for flow in flows {
        grid.row([
            flow.in_port.clone(),
            vlan(flow),
            flow.src_mac.to_string(),
            flow.dst_mac.to_string(),
            flow.deeper.clone().unwrap_or_default(),
            flow.action.clone(),
            flow.tag.to_string(),
            flow.runs.to_string(),
            flow.packets.to_string(),
            flow.bytes.to_string(),
            flow.age_seconds.to_string(),
            flow.idle_seconds.to_string(),
            reason(flow),
        ]);
    }
    grid.finish()
}

/// That of the outer tag, and whether more tags follow.
fn vlan(flow: &FlowEntry) -> String {
    let outer = flow.vlan.map_or_else(|| "none".to_owned(), |vlan| vlan.to_string());
    if flow.stacked { outer + "+" } else { outer }
}

fn reason(flow: &FlowEntry) -> String {
    let rule = flow.rule.map(|id| format!("rule {id}"));
    let parts: Vec<String> = rule.into_iter().chain(flow.reason.clone()).collect();
    parts.join(": ")
}

fn summary(table: &FlowTable) -> String {
    let FlowTable { offload, entries, max_entries, installed_flows, invalidated_flows, idle_flows, .. } =
        table;
    let refused: Vec<String> =
        table.refused.iter().map(|(limit, flows)| format!("{flows} {limit}")).collect();
    format!(
        "offload {offload}, {entries} of {max_entries} flows in {}; installed {installed_flows}, \
         invalidated {invalidated_flows}, idle {idle_flows}, refused {}\n",
        mebibytes(table.bytes),
        refused.join(", ")
    )
}
