//! Rules of a switch in memory.

use std::sync::Arc;

use forebay_control::PortId;
use forebay_control::rule::{RuleAction, RuleAdd};

use super::MemorySwitch;
use crate::rules::{ActiveRule, Doing, RuleCells, RuleSet};

impl MemorySwitch {
    /// Puts these rules in force, first ones first. Ports are named by their ids.
    ///
    /// # Panics
    /// When a rule names a port in another way.
    pub fn set_rules(&mut self, rules: &[RuleAdd]) {
        let id = |name: &str| PortId(name.parse().expect("rules in memory name ports by their ids"));
        let active = rules.iter().zip(1u64..).map(|(rule, number)| {
            let doing = match &rule.action {
                RuleAction::Drop => Doing::Drop,
                RuleAction::Normal => Doing::Normal,
                RuleAction::Mark(mark) => Doing::Mark(*mark),
                RuleAction::Channel(channel) => Doing::Channel(*channel),
                RuleAction::Mirror(port) => Doing::Mirror(id(port)),
                RuleAction::Output(ports) => Doing::Output(ports.iter().map(|port| id(port)).collect()),
            };
            let cells = Arc::new(RuleCells::new(self.options.workers));
            let matching = rule.matching(rule.in_port.as_deref().map(|port| id(port).0.into()));
            (rule.priority.into(), matching, ActiveRule { id: number, doing, cells })
        });
        let set = Arc::new(RuleSet::new(active).expect("few classes"));
        self.publication.suspend_flows();
        let last_flow_id = self.book.last_flow_id();
        self.publication.set_rules(set, last_flow_id, true);
        self.publish();
    }
}
