//! Which rule decides about a packet that was read only in part.
//!
//! A sender chooses how many tags and extension headers a packet has, and nobody looks behind any number of them. So a
//! rule that asks for what is unread may match or not. The caller says what such a doubt means for a rule's action.
//!
//! The rule it keeps: rules are asked in the order in which they win. The first that matches whatever the unread fields
//! are decides, unless a rule before it is in doubt and the caller has an answer for that. For each step of
//! [`Unread`] there is a classifier of what is left of the rules, so that a doubtful packet costs what others cost.

use forebay_wire::Unread;

use crate::{Classifier, Fields, Rule};

/// The steps at which something is unread.
const STEPS: [Unread; 3] = [Unread::Ports, Unread::Transport, Unread::Everything];

/// What rules say of a packet that was read only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadOutcome<'c, A> {
    /// The answer of the first rule that matches or may match and that has an answer.
    Answer(&'c A),
    /// No rule has an answer.
    NoRule,
    /// No rule asks for what is unread: the ordinary [`Classifier`] finds the rule.
    NotAsked,
}

/// What is left of a set of rules for packets that cannot be read in full. Changes with the rules: make a new one.
#[derive(Clone, Debug)]
pub struct UnreadClassifier<A> {
    /// By step; `None` where no rule asks for what is unread.
    steps: [Option<Classifier<A>>; STEPS.len()],
}

impl<A> Default for UnreadClassifier<A> {
    fn default() -> Self {
        Self { steps: [None, None, None] }
    }
}

impl<A> UnreadClassifier<A> {
    /// Of these rules. `answer` says what a rule does: with a packet that it matches (`true`), and with one that it may
    /// match (`false`), where `None` means that the rules behind it are asked.
    pub fn new<R>(rules: &Classifier<R>, answer: impl Fn(&Rule<R>, bool) -> Option<A>) -> Self {
        Self { steps: STEPS.map(|unread| step(rules, unread, &answer)) }
    }

    /// Returns what the rules say of a packet; [`UnreadOutcome::NotAsked`] if it was read in full. May be called on the
    /// packet path.
    pub fn classify(&self, fields: &Fields) -> UnreadOutcome<'_, A> {
        let step = STEPS.iter().position(|step| *step == fields.unread);
        let Some(classifier) = step.and_then(|step| self.steps[step].as_ref()) else {
            return UnreadOutcome::NotAsked;
        };
        match classifier.classify(fields) {
            Some(rule) => UnreadOutcome::Answer(&rule.action),
            None => UnreadOutcome::NoRule,
        }
    }
}

fn step<R, A>(
    rules: &Classifier<R>,
    unread: Unread,
    answer: &impl Fn(&Rule<R>, bool) -> Option<A>,
) -> Option<Classifier<A>> {
    let is_certain = |rule: &Rule<R>| rule.matching.without(unread) == rule.matching;
    if rules.iter().all(is_certain) {
        return None;
    }
    let mut left = Classifier::new();
    for rule in rules.iter() {
        if let Some(action) = answer(rule, is_certain(rule)) {
            // Refused only where a rule that wins asks for the same.
            let _ = left.insert(rule.id, rule.priority, rule.matching.without(unread), action);
        }
    }
    Some(left)
}

#[cfg(test)]
mod tests {
    use forebay_wire::TagKinds;
    use proptest::prelude::*;

    use super::*;
    use crate::Match;
    use crate::testing::{any_match, packet, wanted};

    /// The packet as it looks where this much of it is unread.
    fn as_read(packet: &Fields, unread: Unread) -> Fields {
        let mut fields = Fields { unread, ..*packet };
        if let Some(network) = &mut fields.network {
            network.ports = network.ports.filter(|_| unread < Unread::Ports);
            network.proto = if unread < Unread::Transport { network.proto } else { 60 };
        }
        if unread == Unread::Everything {
            fields = Fields { ethertype: 0x8100, tags: TagKinds::NONE, network: None, ..fields };
        }
        fields
    }

    /// Rules with an odd number restrict, the others do not.
    fn answer(rule: &Rule<()>, is_certain: bool) -> Option<(u64, bool)> {
        (is_certain || rule.id % 2 == 1).then_some((rule.id, is_certain))
    }

    fn by_definition(rules: &Classifier<()>, fields: &Fields) -> Option<(u64, bool)> {
        rules.iter().find_map(|rule| {
            let left = rule.matching.without(fields.unread);
            left.matches(fields).then(|| answer(rule, left == rule.matching)).flatten()
        })
    }

    fn steps() -> impl Strategy<Value = Unread> {
        proptest::sample::select(&STEPS[..])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_first_rule_in_doubt_or_certain_answers(
            rules in proptest::collection::vec((0u32..4, any_match()), 0..16),
            packets in proptest::collection::vec((packet(), steps()), 20),
        ) {
            let mut classifier = Classifier::new();
            for (id, (priority, matching)) in rules.into_iter().enumerate() {
                let _ = classifier.insert(id as u64, priority, matching, ());
            }
            let unread = UnreadClassifier::new(&classifier, answer);
            for (packet, step) in packets {
                let fields = as_read(&packet, step);
                let found = match unread.classify(&fields) {
                    UnreadOutcome::Answer(answer) => Some(*answer),
                    UnreadOutcome::NoRule => None,
                    UnreadOutcome::NotAsked => classifier.classify(&fields).map(|rule| (rule.id, true)),
                };
                prop_assert_eq!(found, by_definition(&classifier, &fields), "{:?}", fields);
            }
        }

        #[test]
        fn a_rule_that_matches_a_packet_may_match_what_is_read_of_it(rule in any_match(), packet in packet(), step in steps()) {
            let packets = [packet, wanted(&rule, &packet)];
            for packet in packets.iter().filter(|packet| rule.matches(packet)) {
                prop_assert!(rule.without(step).matches(&as_read(packet, step)), "{}: {:?}", rule, packet);
            }
        }

        #[test]
        fn a_rule_in_doubt_matches_some_packet_that_looks_so(rule in any_match(), packet in packet(), step in steps()) {
            // Only IP packets can be read in part.
            prop_assume!(packet.network.is_some() || step == Unread::Everything);
            let fields = as_read(&packet, step);
            if rule.without(step).matches(&fields) {
                let whole = completed(&rule, &packet, step);
                prop_assert!(rule.matches(&whole), "{}: {:?}", rule, whole);
                prop_assert_eq!(as_read(&whole, step), fields);
            }
        }
    }

    /// The packet with what the rule wants in the place of what is unread.
    fn completed(rule: &Match, packet: &Fields, unread: Unread) -> Fields {
        let like = wanted(rule, packet);
        if unread == Unread::Everything {
            return like;
        }
        let mut whole = *packet;
        if let (Some(network), Some(like)) = (&mut whole.network, &like.network) {
            network.proto = match rule.ip_proto {
                Some(proto) if unread >= Unread::Transport => proto,
                _ => network.proto,
            };
            network.ports = like.ports;
        }
        whole
    }

    #[test]
    fn nothing_is_in_doubt_where_no_rule_asks_for_what_is_unread() {
        let mut rules = Classifier::new();
        let by_source = Match { src: Some("10.0.0.0/8".parse().unwrap()), ..Match::default() };
        rules.insert(1, 1, by_source, ()).unwrap();
        let unread = UnreadClassifier::new(&rules, answer);
        assert_eq!(unread.steps.map(|step| step.is_some()), [false, false, true]);
    }
}
