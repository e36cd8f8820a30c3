//! `[[flows.rules]]`: the file knows rules by what they say, the switch by their numbers.

use forebay_control::config::ConfigDiff;
use forebay_control::rule::RuleAdd;
use forebay_control::{Config, ErrorCode, SwitchControl};

/// Deletes before it adds, so that a rule can take the place of one that asks the same.
pub(super) fn apply(switch: &dyn SwitchControl, diff: &ConfigDiff, applied: &mut Config) {
    delete(switch, &diff.rules_del, applied);
    for rule in &diff.rules_add {
        if let Err(error) = switch.flow_add(rule.clone()) {
            tracing::error!("the rule ({rule}, priority {}) is not added: {error}", rule.priority);
            applied.flows.rules.retain(|other| other != rule);
        }
    }
}

/// A rule that somebody deleted by request before is gone, as the file asks for.
fn delete(switch: &dyn SwitchControl, rules: &[RuleAdd], applied: &mut Config) {
    if rules.is_empty() {
        return;
    }
    for shown in switch.rule_list().into_iter().filter(|shown| rules.contains(&shown.rule)) {
        match switch.flow_del(shown.id) {
            Err(error) if error.code != ErrorCode::NoSuchRule => {
                tracing::error!("rule {} ({}) is not deleted: {error}", shown.id, shown.rule);
                // Kept in mind, so that the next time tries again.
                applied.flows.rules.push(shown.rule);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{at_start, difference};
    use super::*;
    use crate::testing::MemorySwitch;

    fn config(rules: &[(u16, &str)]) -> Config {
        let mut text = "[[port]]\nnetdev = \"a\"\n".to_owned();
        for (priority, action) in rules {
            text += &format!("[[flows.rules]]\npriority = {priority}\naction = \"{action}\"\n");
        }
        Config::parse(&text).unwrap()
    }

    fn rules(switch: &MemorySwitch) -> Vec<(u64, String)> {
        switch.rule_list().into_iter().map(|shown| (shown.id, shown.rule.action.to_string())).collect()
    }

    #[test]
    fn only_the_difference_in_rules_reaches_the_switch() {
        let switch = MemorySwitch::default();
        let applied = at_start(&switch, None, &config(&[(3, "drop"), (2, "normal"), (1, "mark:1")]));
        assert_eq!(rules(&switch), [(1, "drop".into()), (2, "normal".into()), (3, "mark:1".into())]);
        let new = config(&[(3, "output:a"), (2, "normal")]);
        assert_eq!(difference(&switch, &applied, &new), new);
        assert_eq!(rules(&switch), [(4, "output:a".into()), (2, "normal".into())]);
    }

    #[test]
    fn a_refused_rule_is_tried_again_and_one_deleted_by_request_is_no_obstacle() {
        let switch = MemorySwitch::default();
        let mine = switch.flow_add(config(&[(2, "normal")]).flows.rules.remove(0)).unwrap();
        let wanted = config(&[(2, "drop"), (1, "mark:1")]);
        let applied = at_start(&switch, None, &wanted);
        assert_eq!(applied.flows.rules, wanted.flows.rules[1..]);
        switch.flow_del(mine.id).unwrap();
        let applied = difference(&switch, &applied, &wanted);
        assert_eq!(applied, wanted);
        assert_eq!(rules(&switch), [(3, "drop".into()), (2, "mark:1".into())]);
        switch.flow_del(3).unwrap();
        assert_eq!(difference(&switch, &applied, &config(&[])), config(&[]));
        assert_eq!(rules(&switch), []);
    }
}
