//! Rules as users see and change them.
//!
//! A rule counts while all ports that it names are there, and sleeps otherwise. When rules change, the kernel follows
//! no flow until it has their classes; then all that was decided before is void.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_control::rule::{MAX_RULES, RuleAction, RuleAdd, RuleShow, RuleState};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_flow::TooManyClasses;
use forebay_kernel::{ClassTable, DatapathError};
use forebay_policy::Nanos;

use super::Control;
use crate::rules::{ActiveRule, Doing, RuleCells, RuleSet};

/// All rules there are.
pub(super) struct Rules {
    rules: BTreeMap<u64, Rule>,
    next_id: u64,
    classes: ClassTable,
}

struct Rule {
    asked: RuleAdd,
    added: Nanos,
    cells: Arc<RuleCells>,
    /// The ports it names, or the one that is not there.
    resolved: Result<Resolved, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Resolved {
    in_port: Option<PortId>,
    doing: Doing,
}

/// Why rules cannot be as they were to be.
#[derive(Debug, thiserror::Error)]
enum RulesError {
    #[error(transparent)]
    Classes(#[from] TooManyClasses),
    #[error(transparent)]
    Kernel(#[from] DatapathError),
}

impl Rules {
    pub(super) fn new(classes: ClassTable) -> Self {
        Self { rules: BTreeMap::new(), next_id: 1, classes }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// As they were asked for, with their ids.
    pub(super) fn asked(&self) -> BTreeMap<u64, RuleAdd> {
        self.rules.iter().map(|(id, rule)| (*id, rule.asked.clone())).collect()
    }

    fn active(&self) -> Result<RuleSet, TooManyClasses> {
        RuleSet::new(self.rules.iter().filter_map(|(id, rule)| {
            let resolved = rule.resolved.as_ref().ok()?;
            let matching = rule.asked.matching(resolved.in_port.map(|port| port.0.into()));
            let active =
                ActiveRule { id: *id, doing: resolved.doing.clone(), cells: Arc::clone(&rule.cells) };
            Some((rule.asked.priority.into(), matching, active))
        }))
    }
}

impl Control {
    /// Counters are as they were settled last.
    pub(crate) fn rule_list(&self) -> Vec<RuleShow> {
        let mut shown: Vec<RuleShow> =
            self.rules.rules.iter().map(|(id, rule)| self.show_rule(*id, rule)).collect();
        shown.sort_by_key(|shown| (std::cmp::Reverse(shown.rule.priority), shown.id));
        shown
    }

    fn show_rule(&self, id: u64, rule: &Rule) -> RuleShow {
        let (packets, bytes) = rule.cells.sum();
        let carried = self.flow_book().of_rule(id);
        let missing = rule.resolved.as_ref().err();
        RuleShow {
            id,
            rule: rule.asked.clone(),
            state: if missing.is_none() { RuleState::Active } else { RuleState::Asleep },
            reason: missing.map(|port| format!("there is no port `{port}`")),
            packets: packets + carried.packets,
            bytes: bytes + carried.bytes,
            age_seconds: Nanos(self.now().0.saturating_sub(rule.added.0)).seconds().into(),
        }
    }

    pub(crate) fn flow_add(&mut self, request: &RuleAdd) -> Result<RuleShow, ApiError> {
        self.generation()?;
        request.validate()?;
        self.refuse_rule(request)?;
        let resolved = self.resolve(request);
        if let Err(port) = &resolved {
            return Err(no_such_port(request, port));
        }
        let id = self.rules.next_id;
        let cells = Arc::new(RuleCells::new(self.workers.len()));
        let rule = Rule { asked: request.clone(), added: self.now(), cells, resolved };
        self.rules.rules.insert(id, rule);
        if let Err(error) = self.change_rules() {
            self.rules.rules.remove(&id);
            let _ = self.change_rules();
            return Err(ApiError::new(ErrorCode::TooManyRules, error.to_string())
                .with_remedy("delete rules that tell apart what need not be told apart"));
        }
        self.rules.next_id += 1;
        Ok(self.show_rule(id, &self.rules.rules[&id]))
    }

    /// Rules of an earlier process, which keep their ids.
    pub(super) fn adopt_rules(&mut self, next_id: u64, rules: Vec<(u64, RuleAdd)>) {
        self.rules.next_id = next_id.max(1);
        if rules.is_empty() {
            return;
        }
        for (id, asked) in rules {
            let (resolved, added) = (self.resolve(&asked), self.now());
            let cells = Arc::new(RuleCells::new(self.workers.len()));
            self.rules.rules.insert(id, Rule { asked, added, cells, resolved });
        }
        if let Err(error) = self.change_rules() {
            tracing::error!(%error, "rules could not be taken over; the kernel follows no flows");
        }
    }

    fn refuse_rule(&self, request: &RuleAdd) -> Result<(), ApiError> {
        if let Some((id, _)) = self.rules.rules.iter().find(|(_, rule)| rule.asked.asks_the_same(request)) {
            let message = format!("rule {id} asks the same with the same priority");
            return Err(ApiError::new(ErrorCode::RuleExists, message)
                .with_field("priority")
                .with_value(request.priority)
                .with_remedy(format!("give another priority, or delete it first: forebay flow del {id}")));
        }
        if self.rules.rules.len() >= MAX_RULES {
            let message = format!("there are {} rules already", self.rules.rules.len());
            return Err(ApiError::new(ErrorCode::TooManyRules, message)
                .with_limit(MAX_RULES)
                .with_remedy("delete rules with forebay flow del"));
        }
        Ok(())
    }

    pub(crate) fn flow_del(&mut self, id: u64) -> Result<RuleShow, ApiError> {
        self.generation()?;
        let Some(rule) = self.rules.rules.remove(&id) else {
            let error = ApiError::new(ErrorCode::NoSuchRule, format!("there is no rule {id}"));
            return Err(error.with_field("id").with_value(id).with_remedy("see `forebay flow list`"));
        };
        if let Err(error) = self.change_rules() {
            tracing::error!(%error, "rules could not be changed; the kernel follows no flows");
        }
        self.flow_book().settle_all(self.now());
        let shown = self.show_rule(id, &rule);
        self.flow_book().forget_rule(id);
        Ok(shown)
    }

    /// Ports have come or gone: rules that name them wake up or go to sleep.
    pub(super) fn resolve_rules(&mut self) {
        let resolved: Vec<_> =
            self.rules.rules.iter().map(|(id, rule)| (*id, self.resolve(&rule.asked))).collect();
        let mut changed = false;
        for (id, resolved) in resolved {
            if let Some(rule) = self.rules.rules.get_mut(&id).filter(|rule| rule.resolved != resolved) {
                rule.resolved = resolved;
                changed = true;
            }
        }
        if changed && let Err(error) = self.change_rules() {
            tracing::error!(%error, "rules could not be changed; the kernel follows no flows");
        }
    }

    /// Looks up the ports that a rule names, or says which is not there.
    fn resolve(&self, rule: &RuleAdd) -> Result<Resolved, String> {
        let id = |name: &str| self.ports.named(name).ok_or_else(|| name.to_owned());
        let doing = match &rule.action {
            RuleAction::Drop => Doing::Drop,
            RuleAction::Normal => Doing::Normal,
            RuleAction::Mark(mark) => Doing::Mark(*mark),
            RuleAction::Mirror(port) => Doing::Mirror(id(port)?),
            RuleAction::Output(ports) => {
                Doing::Output(ports.iter().map(|port| id(port)).collect::<Result<_, _>>()?)
            }
        };
        Ok(Resolved { in_port: rule.in_port.as_deref().map(id).transpose()?, doing })
    }

    /// Shows workers and kernel the rules as they are now. When this returns, what was decided before is void.
    fn change_rules(&mut self) -> Result<(), RulesError> {
        let set = self.rules.active()?;
        self.publication.suspend_flows();
        // No flow that was decided before can come into the table from here on.
        let last_mark = self.flow_book().last_mark();
        let entered = self.rules.classes.set(set.classes());
        let looks_up = self.is_of_use() && entered.is_ok();
        self.publication.set_rules(Arc::new(set), last_mark, looks_up);
        self.publish();
        Ok(entered?)
    }
}

fn no_such_port(request: &RuleAdd, port: &str) -> ApiError {
    let field = if request.in_port.as_deref() == Some(port) { "in_port" } else { "action" };
    ApiError::new(ErrorCode::NoSuchPort, format!("there is no port `{port}`"))
        .with_field(field)
        .with_value(port)
        .with_remedy("see `forebay port list`")
}
