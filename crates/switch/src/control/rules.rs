//! Rules as users see and change them.
//!
//! A rule counts while all ports that it names are there, and the channel, and sleeps otherwise. When rules change, the kernel follows
//! no flow until it has their classes; then all that was decided before is void.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_control::rule::{MAX_RULES, RuleAction, RuleAdd, RuleShow, RuleState};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_flow::TooManyClasses;
use forebay_kernel::{ClassTable, DatapathError};
use forebay_policy::Nanos;

use super::Control;
use super::port::Port;
use super::port_book::PortBook;
use crate::flows::FlowBook;
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
    /// The ports it names, or what keeps it asleep.
    resolved: Result<Resolved, Missing>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Resolved {
    in_port: Option<PortId>,
    doing: Doing,
}

/// What a rule names and is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Missing {
    #[error("there is no port `{0}`")]
    Port(String),
    #[error("`{port}` has one netdev, and no channels that a rule can name")]
    Channels { port: String },
    #[error("`{port}` has {channels} channels, from 0")]
    Channel { port: String, channels: usize },
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

    /// What is to be in force, and what the kernel is to tell packets apart by.
    fn active(&self) -> Result<RuleSet, TooManyClasses> {
        RuleSet::new(self.rules.iter().filter_map(|(id, rule)| {
            let resolved = rule.resolved.as_ref().ok()?;
            let matching = rule.asked.matching(resolved.in_port.map(|port| port.0.into()));
            let active =
                ActiveRule { id: *id, doing: resolved.doing.clone(), cells: Arc::clone(&rule.cells) };
            Some((rule.asked.priority.into(), matching, active))
        }))
    }

    /// Whether another rule may be there, beside those that are.
    fn check(&self, request: &RuleAdd) -> Result<(), ApiError> {
        if let Some((id, _)) = self.rules.iter().find(|(_, rule)| rule.asked.asks_the_same(request)) {
            let message = format!("rule {id} asks the same with the same priority");
            return Err(ApiError::new(ErrorCode::RuleExists, message)
                .with_field("priority")
                .with_value(request.priority)
                .with_remedy(format!("give another priority, or delete it first: forebay flow del {id}")));
        }
        if self.rules.len() >= MAX_RULES {
            let message = format!("there are {} rules already", self.rules.len());
            return Err(ApiError::new(ErrorCode::TooManyRules, message)
                .with_limit(MAX_RULES)
                .with_remedy("delete rules with forebay flow del"));
        }
        Ok(())
    }

    /// Looks the rules' ports up again; says whether a rule wakes up or goes to sleep.
    fn resolve_again(&mut self, ports: &PortBook) -> bool {
        let mut is_other = false;
        for rule in self.rules.values_mut() {
            let resolved = resolve(&rule.asked, ports);
            is_other |= rule.resolved != resolved;
            rule.resolved = resolved;
        }
        is_other
    }

    /// All rules as users see them, with what `flows` carried under them.
    fn show_all(&self, flows: &FlowBook, now: Nanos) -> Vec<RuleShow> {
        let mut shown: Vec<RuleShow> =
            self.rules.iter().map(|(id, rule)| rule.show(*id, flows, now)).collect();
        shown.sort_by_key(|shown| (std::cmp::Reverse(shown.rule.priority), shown.id));
        shown
    }
}

impl Rule {
    /// A new one, for so many workers.
    fn new(asked: RuleAdd, ports: &PortBook, workers: usize, added: Nanos) -> Self {
        let resolved = resolve(&asked, ports);
        Self { asked, added, cells: Arc::new(RuleCells::new(workers)), resolved }
    }

    fn show(&self, id: u64, flows: &FlowBook, now: Nanos) -> RuleShow {
        let (packets, bytes) = self.cells.sum();
        let carried = flows.of_rule(id);
        let missing = self.resolved.as_ref().err();
        RuleShow {
            id,
            rule: self.asked.clone(),
            state: if missing.is_none() { RuleState::Active } else { RuleState::Asleep },
            reason: missing.map(ToString::to_string),
            packets: packets + carried.packets,
            bytes: bytes + carried.bytes,
            age_seconds: Nanos(now.0.saturating_sub(self.added.0)).seconds().into(),
        }
    }
}

/// Looks up the ports and the channel that a rule names, or says what is not there.
fn resolve(rule: &RuleAdd, ports: &PortBook) -> Result<Resolved, Missing> {
    let id = |name: &str| ports.named(name).ok_or_else(|| Missing::Port(name.to_owned()));
    let in_port = rule.in_port.as_deref().map(id).transpose()?;
    let doing = match &rule.action {
        RuleAction::Drop => Doing::Drop,
        RuleAction::Normal => Doing::Normal,
        RuleAction::Mark(mark) => Doing::Mark(*mark),
        RuleAction::Channel(channel) => {
            has_channel(in_port.map(|id| &ports[&id]), *channel)?;
            Doing::Channel(*channel)
        }
        RuleAction::Mirror(port) => Doing::Mirror(id(port)?),
        RuleAction::Output(ports) => {
            Doing::Output(ports.iter().map(|port| id(port)).collect::<Result<_, _>>()?)
        }
    };
    Ok(Resolved { in_port, doing })
}

/// Whether the port that packets come in at has such a channel now.
fn has_channel(port: Option<&Port>, channel: u32) -> Result<(), Missing> {
    let Some(port) = port else { return Ok(()) };
    let (name, channels) = (port.spec.port_name().to_owned(), port.group.tuning.workers.len());
    match port.spec.is_group() {
        false => Err(Missing::Channels { port: name }),
        true if channel as usize >= channels => Err(Missing::Channel { port: name, channels }),
        true => Ok(()),
    }
}

impl Control {
    /// Counters are as they were settled last.
    pub(crate) fn rule_list(&self) -> Vec<RuleShow> {
        self.rules.show_all(&self.flow_book(), self.now())
    }

    pub(crate) fn flow_add(&mut self, request: &RuleAdd) -> Result<RuleShow, ApiError> {
        self.instance()?;
        request.validate()?;
        self.rules.check(request)?;
        let rule = Rule::new(request.clone(), &self.ports, self.workers.len(), self.now());
        match &rule.resolved {
            // Nobody knows yet how many there will be.
            Ok(_) | Err(Missing::Channel { channels: 0, .. }) => {}
            Err(missing) => return Err(refuse(request, missing)),
        }
        let id = self.rules.next_id;
        self.rules.rules.insert(id, rule);
        if let Err(error) = self.change_rules() {
            self.rules.rules.remove(&id);
            let _ = self.change_rules();
            return Err(ApiError::new(ErrorCode::TooManyRules, error.to_string())
                .with_remedy("delete rules that tell apart what need not be told apart"));
        }
        self.rules.next_id += 1;
        Ok(self.rules.rules[&id].show(id, &self.flow_book(), self.now()))
    }

    /// Rules of an earlier process, which keep their ids.
    pub(super) fn adopt_rules(&mut self, next_id: u64, rules: Vec<(u64, RuleAdd)>) {
        self.rules.next_id = next_id.max(1);
        if rules.is_empty() {
            return;
        }
        for (id, asked) in rules {
            let rule = Rule::new(asked, &self.ports, self.workers.len(), self.now());
            self.rules.rules.insert(id, rule);
        }
        if let Err(error) = self.change_rules() {
            tracing::error!(%error, "rules could not be taken over; the kernel follows no flows");
        }
    }

    pub(crate) fn flow_del(&mut self, id: u64) -> Result<RuleShow, ApiError> {
        self.instance()?;
        let Some(rule) = self.rules.rules.remove(&id) else {
            let error = ApiError::new(ErrorCode::NoSuchRule, format!("there is no rule {id}"));
            return Err(error.with_field("id").with_value(id).with_remedy("see `forebay flow list`"));
        };
        if let Err(error) = self.change_rules() {
            tracing::error!(%error, "rules could not be changed; the kernel follows no flows");
        }
        let now = self.now();
        let mut book = self.flow_book();
        book.settle_all(now);
        let shown = rule.show(id, &book, now);
        book.forget_rule(id);
        Ok(shown)
    }

    /// Whether a rule names a channel.
    pub(super) fn lead_to_channels(&self) -> bool {
        let names_one = |rule: &Rule| matches!(&rule.resolved, Ok(Resolved { doing: Doing::Channel(_), .. }));
        self.rules.rules.values().any(names_one)
    }

    /// Ports or channels have come or gone: rules that name them wake up or go to sleep.
    pub(super) fn resolve_rules(&mut self) {
        if self.rules.resolve_again(&self.ports)
            && let Err(error) = self.change_rules()
        {
            tracing::error!(%error, "rules could not be changed; the kernel follows no flows");
        }
    }

    /// Shows workers and kernel the rules as they are now. When this returns, what was decided before is void.
    fn change_rules(&mut self) -> Result<(), RulesError> {
        let set = self.rules.active()?;
        self.publication.suspend_flows();
        // No flow that was decided before can come into the table from here on.
        let last_flow_id = self.flow_book().last_flow_id();
        let entered = self.rules.classes.set(set.classes());
        let looks_up = self.is_of_use() && entered.is_ok();
        self.publication.set_rules(Arc::new(set), last_flow_id, looks_up);
        self.publish();
        Ok(entered?)
    }
}

fn refuse(request: &RuleAdd, missing: &Missing) -> ApiError {
    let error = |code| ApiError::new(code, missing.to_string());
    match missing {
        Missing::Port(port) => {
            let is_input = request.in_port.as_deref() == Some(port);
            let field = if is_input { "in_port" } else { "action" };
            let error = error(ErrorCode::NoSuchPort).with_field(field).with_value(port);
            error.with_remedy("see `forebay port list`")
        }
        Missing::Channels { port } => {
            let error = error(ErrorCode::NotSupported).with_field("in_port").with_value(port);
            error
                .with_limit("ports with several members")
                .with_remedy("forebay port add NAME --group A,B, or another action")
        }
        Missing::Channel { port, channels } => {
            let error = error(ErrorCode::InvalidValue).with_field("action").with_value(&request.action);
            error
                .with_limit(format!("channel:0 to channel:{}", channels.saturating_sub(1)))
                .with_remedy(format!("`forebay channels show {port}` lists them"))
        }
    }
}
