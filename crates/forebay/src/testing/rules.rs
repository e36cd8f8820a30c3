//! Rules of the switch without packets.

use std::cmp::Reverse;

use forebay_control::rule::{MAX_RULES, RuleAdd, RuleShow, RuleState};
use forebay_control::{ApiError, ErrorCode};

use super::State;

impl State {
    pub(super) fn list_rules(&self) -> Vec<RuleShow> {
        let mut rules: Vec<_> =
            self.rules.iter().map(|(id, rule)| self.show_rule(*id, rule.clone())).collect();
        rules.sort_by_key(|shown| Reverse(shown.rule.priority));
        rules
    }

    pub(super) fn add_rule(&mut self, rule: RuleAdd) -> Result<RuleShow, ApiError> {
        rule.validate()?;
        if let Some((id, _)) = self.rules.iter().find(|(_, other)| other.asks_the_same(&rule)) {
            let message = format!("rule {id} asks for the same at priority {}", rule.priority);
            return Err(ApiError::new(ErrorCode::RuleExists, message));
        }
        if self.rules.len() >= MAX_RULES {
            return Err(
                ApiError::new(ErrorCode::TooManyRules, "there are too many rules").with_limit(MAX_RULES)
            );
        }
        self.last_rule += 1;
        self.rules.insert(self.last_rule, rule.clone());
        Ok(self.show_rule(self.last_rule, rule))
    }

    pub(super) fn delete_rule(&mut self, id: u64) -> Result<RuleShow, ApiError> {
        let gone = self.rules.remove(&id);
        let none = || ApiError::new(ErrorCode::NoSuchRule, format!("there is no rule {id}"));
        gone.map(|rule| self.show_rule(id, rule)).ok_or_else(none)
    }

    fn show_rule(&self, id: u64, rule: RuleAdd) -> RuleShow {
        let missing = rule.ports().find(|name| self.id_of(name).is_err());
        let reason = missing.map(|name| format!("there is no port `{name}`"));
        let state = if reason.is_some() { RuleState::Asleep } else { RuleState::Active };
        RuleShow { id, rule, state, reason, packets: 0, bytes: 0, age_seconds: 0 }
    }
}
