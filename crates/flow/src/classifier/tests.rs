use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::testing::{any_match, of_v4, packet, shallow, wanted};
use crate::{PortRange, Prefix};

/// All rules in a row, tried one by one.
#[derive(Default)]
struct Oracle(Vec<Rule<u64>>);

impl Oracle {
    fn insert(&mut self, rule: Rule<u64>) -> Result<(), InsertError> {
        rule.matching.check()?;
        if self.0.iter().any(|other| other.id == rule.id) {
            return Err(InsertError::SameId { id: rule.id });
        }
        let same = |other: &&Rule<u64>| other.matching == rule.matching && other.priority == rule.priority;
        if let Some(other) = self.0.iter().find(same) {
            return Err(InsertError::SameMatch { id: other.id, priority: other.priority });
        }
        self.0.push(rule);
        self.0.sort_by(|a, b| b.priority.cmp(&a.priority).then(a.id.cmp(&b.id)));
        Ok(())
    }

    fn remove(&mut self, id: u64) -> Option<u64> {
        let at = self.0.iter().position(|rule| rule.id == id)?;
        Some(self.0.remove(at).action)
    }

    fn classify(&self, fields: &Fields) -> Option<&Rule<u64>> {
        self.0.iter().find(|rule| rule.matching.matches(fields))
    }

    /// The first rule that matches as far as layer 2 goes decides, if it asks for no more than that.
    fn classify_l2(&self, fields: &Fields) -> L2Outcome<'_, u64> {
        match self.0.iter().find(|rule| rule.matching.matches_l2(fields)) {
            Some(rule) if !rule.matching.is_l2_only() => L2Outcome::Deeper,
            decided => L2Outcome::Decided(decided),
        }
    }
}

fn rule(id: u64, priority: u32, matching: Match) -> Rule<u64> {
    Rule { id, priority, matching, action: id * 10 }
}

fn of(rules: &[Rule<u64>]) -> Classifier<u64> {
    let mut classifier = Classifier::new();
    for Rule { id, priority, matching, action } in rules {
        classifier.insert(*id, *priority, *matching, *action).unwrap();
    }
    classifier
}

fn prefix(text: &str) -> Option<Prefix> {
    Some(text.parse().unwrap())
}

fn packet_from(address: &str) -> Fields {
    let network = crate::Network::v4(address.parse().unwrap(), [10, 0, 0, 9].into(), 6, Some((1000, 80)));
    Fields { in_port: 1, vlan: 1, ..of_v4(network) }
}

fn tcp(dst_ports: PortRange) -> Match {
    Match { ip_proto: Some(6), dst_ports: Some(dst_ports), ..Match::default() }
}

#[test]
fn without_rules_nothing_is_found() {
    let classifier = Classifier::<()>::new();
    assert_eq!(classifier.classify(&packet_from("10.0.0.1")), None);
    assert_eq!(classifier.classify_l2(&packet_from("10.0.0.1")), L2Outcome::Decided(None));
    assert!(classifier.is_empty());
}

#[test]
fn the_higher_priority_wins_and_of_equal_ones_the_lower_id() {
    let wide = Match { src: prefix("10.0.0.0/8"), ..Match::default() };
    let narrow = Match { src: prefix("10.0.0.0/24"), ..Match::default() };
    let winner = |rules: &[Rule<u64>]| of(rules).classify(&packet_from("10.0.0.1")).map(|rule| rule.id);
    assert_eq!(winner(&[rule(1, 5, wide), rule(2, 6, narrow)]), Some(2));
    assert_eq!(winner(&[rule(1, 6, wide), rule(2, 5, narrow)]), Some(1), "a longer prefix is no priority");
    assert_eq!(winner(&[rule(2, 5, wide), rule(1, 5, narrow)]), Some(1));
    assert_eq!(winner(&[rule(1, 5, wide), rule(2, 5, narrow)]), Some(1));
}

#[test]
fn the_same_match_is_taken_at_another_priority_but_not_twice_at_one() {
    let mut classifier = of(&[rule(1, 5, tcp(PortRange::ALL))]);
    let refused = classifier.insert(2, 5, tcp(PortRange::ALL), 0).unwrap_err();
    assert_eq!(refused.to_string(), "rule 1 matches the same at priority 5");
    classifier.insert(2, 6, tcp(PortRange::ALL), 20).unwrap();
    assert_eq!(classifier.classify(&packet_from("10.0.0.1")).unwrap().action, 20);
    assert_eq!(classifier.remove(2), Some(20));
    assert_eq!(classifier.classify(&packet_from("10.0.0.1")).unwrap().action, 10);
}

#[test]
fn an_id_is_given_once_at_a_time() {
    let mut classifier = of(&[rule(1, 5, Match::default())]);
    let refused = classifier.insert(1, 6, tcp(PortRange::ALL), 0).unwrap_err();
    assert_eq!(refused.to_string(), "there is a rule 1 already");
    assert_eq!((classifier.len(), classifier.is_empty()), (1, false));
    assert_eq!(classifier.remove(1), Some(10));
    assert_eq!(classifier.insert(1, 5, Match::default(), 0), Ok(()));
}

#[test]
fn what_no_packet_can_match_is_refused() {
    let mut classifier = Classifier::new();
    let refused = classifier.insert(1, 5, Match { vlan: Some(4095), ..Match::default() }, ()).unwrap_err();
    assert_eq!(refused, InsertError::Match(MatchError::Vlan { value: 4095 }));
    assert_eq!(refused.to_string(), "vlan 4095 is not one of 0 to 4094");
    assert!(classifier.is_empty());
}

#[test]
fn rules_are_listed_in_the_order_in_which_they_win() {
    let vlan = |vlan| Match { vlan: Some(vlan), ..Match::default() };
    let classifier =
        of(&[rule(4, 1, vlan(1)), rule(3, 9, vlan(2)), rule(2, 1, vlan(3)), rule(7, 9, vlan(4))]);
    assert_eq!(classifier.iter().map(|rule| rule.id).collect::<Vec<_>>(), [3, 7, 2, 4]);
    assert_eq!(classifier.get(7).map(|rule| rule.matching.vlan), Some(Some(4)));
    assert_eq!(classifier.get(5), None);
}

#[test]
fn a_change_to_a_clone_leaves_the_original_alone() {
    let original = of(&[rule(1, 5, Match::default())]);
    let mut changed = original.clone();
    changed.insert(2, 6, tcp(PortRange::ALL), 20).unwrap();
    changed.remove(1);
    let found =
        |classifier: &Classifier<u64>| classifier.classify(&packet_from("10.0.0.1")).map(|rule| rule.id);
    assert_eq!((found(&original), found(&changed)), (Some(1), Some(2)));
}

#[test]
fn a_lookup_stops_at_the_group_that_cannot_do_better() {
    let lens = ["10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/24", "10.0.0.1/32"];
    let source = |text: &str| Match { src: prefix(text), ..Match::default() };
    let rules: Vec<_> =
        lens.iter().zip([7, 5, 8, 6]).map(|(text, at)| rule(at, at as u32, source(text))).collect();
    let mut classifier = of(&rules);
    let look = |classifier: &Classifier<u64>, address| {
        let fields = packet_from(address);
        let (best, asked) = classifier.find(&Key::of(&fields), fields.ports());
        (best.map(Rank::id), asked)
    };
    assert_eq!(look(&classifier, "10.0.0.1"), (Some(8), 1));
    assert_eq!(look(&classifier, "10.0.1.1"), (Some(7), 2));
    assert_eq!(look(&classifier, "10.1.1.1"), (Some(7), 2));
    assert_eq!(look(&classifier, "11.1.1.1"), (None, 4));
    classifier.remove(8);
    assert_eq!(look(&classifier, "10.0.0.1"), (Some(7), 1));
    classifier.insert(9, 9, source("11.1.0.0/16"), 0).unwrap();
    assert_eq!(look(&classifier, "11.1.1.1"), (Some(9), 1), "a group moves up with its best rule");
    classifier.remove(9);
    assert_eq!(look(&classifier, "10.0.0.1"), (Some(7), 1), "and down again");
}

#[test]
fn rules_of_one_kind_cost_one_group_however_many_they_are() {
    let rules: Vec<_> = (0..5000u16)
        .map(|at| {
            let [high, low] = at.to_be_bytes();
            let src = Prefix::host(std::net::IpAddr::from([10, 0, high, low]));
            rule(at.into(), at.into(), Match { src: Some(src), ..Match::default() })
        })
        .collect();
    let classifier = of(&rules);
    assert_eq!(classifier.groups.len(), 1);
    assert_eq!(classifier.classify(&packet_from("10.0.1.2")).unwrap().id, 258);
}

#[test]
fn nothing_is_left_of_rules_that_are_gone() {
    let source = |text: &str| Match { src: prefix(text), vlan: Some(1), ..Match::default() };
    let stays = rule(1, 5, source("10.0.0.0/8"));
    let mut classifier = of(&[
        stays.clone(),
        rule(2, 5, source("11.0.0.0/8")),
        rule(3, 5, source("10.0.0.0/9")),
        rule(4, 5, tcp(PortRange::ALL)),
        rule(5, 5, Match { vlan: Some(2), ..Match::default() }),
    ]);
    assert_eq!((classifier.groups.len(), classifier.l2.size()), (4, (2, 3)));
    for id in [2, 3, 4, 5] {
        assert!(classifier.remove(id).is_some());
    }
    assert_eq!(
        (classifier.groups.len(), classifier.groups[0].buckets(), classifier.l2.size()),
        (1, 1, (1, 1))
    );
    assert_eq!(classifier.iter().collect::<Vec<_>>(), [&stays]);
    assert_eq!(classifier.remove(1), Some(10));
    assert_eq!((classifier.groups.len(), classifier.l2.size()), (0, (0, 0)));
    assert!(classifier.by_match.is_empty() && classifier.rules.is_empty() && classifier.order.is_empty());
}

#[test]
fn layer_2_decides_where_deeper_rules_lie_below_or_elsewhere() {
    let vlan = |vlan| Match { vlan: Some(vlan), ..Match::default() };
    let deep = |vlan| Match { vlan: Some(vlan), ..tcp(PortRange::ALL) };
    let classifier =
        of(&[rule(1, 5, vlan(1)), rule(2, 4, deep(1)), rule(3, 5, deep(2)), rule(4, 4, vlan(2))]);
    let outcome = |vlan| classifier.classify_l2(&Fields { vlan, ..packet_from("10.0.0.1") });
    assert_eq!(outcome(1), L2Outcome::Decided(classifier.get(1)));
    assert_eq!(outcome(2), L2Outcome::Deeper);
    assert_eq!(outcome(3), L2Outcome::Decided(None));
}

#[test]
fn the_ethertype_is_deeper_than_layer_2() {
    let about_arp = Match { ethertype: Some(0x0806), ..Match::default() };
    let classifier = of(&[rule(1, 5, about_arp)]);
    assert_eq!(classifier.classify_l2(&packet_from("10.0.0.1")), L2Outcome::Deeper);
}

#[derive(Clone, Debug)]
enum Change {
    Insert { id: u64, priority: u32, matching: Match },
    Again { id: u64, of: Index },
    Remove { id: u64 },
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0u64..24, 0u32..4, any_match()).prop_map(|(id, priority, matching)| Change::Insert { id, priority, matching }),
        1 => (0u64..24, any::<Index>()).prop_map(|(id, of)| Change::Again { id, of }),
        2 => (0u64..24).prop_map(|id| Change::Remove { id }),
    ]
}

/// Makes the change to both, which must agree on whether it can be made.
fn apply(change: &Change, classifier: &mut Classifier<u64>, oracle: &mut Oracle) {
    let new = match change {
        Change::Insert { id, priority, matching } => rule(*id, *priority, *matching),
        Change::Again { id, of } if !oracle.0.is_empty() => Rule { id: *id, ..of.get(&oracle.0).clone() },
        Change::Again { id, .. } | Change::Remove { id } => {
            assert_eq!(classifier.remove(*id), oracle.remove(*id));
            return;
        }
    };
    assert_eq!(classifier.insert(new.id, new.priority, new.matching, new.action), oracle.insert(new));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_answer_is_that_of_trying_all_rules_in_order(
        changes in proptest::collection::vec(change(), 1..60),
        packets in proptest::collection::vec(packet(), 10),
    ) {
        let (mut classifier, mut oracle) = (Classifier::new(), Oracle::default());
        for change in &changes {
            apply(change, &mut classifier, &mut oracle);
            prop_assert_eq!(classifier.len(), oracle.0.len());
            for packet in &packets {
                prop_assert_eq!(classifier.classify(packet), oracle.classify(packet), "{:?}", packet);
                prop_assert_eq!(classifier.classify_l2(packet), oracle.classify_l2(packet), "{:?}", packet);
            }
        }
        for rule in &oracle.0 {
            let packet = wanted(&rule.matching, &packets[0]);
            prop_assert_eq!(classifier.classify(&packet), oracle.classify(&packet), "{:?}", packet);
        }
        prop_assert!(classifier.iter().eq(&oracle.0));
    }

    /// The definition of `classify_l2` itself: decided means that no packet with this layer 2 falls elsewhere,
    /// deeper that two packets with it fall under different rules.
    #[test]
    fn layer_2_decides_exactly_where_nothing_deeper_can_change_the_rule(
        rules in proptest::collection::vec((0u32..4, any_match()), 0..12),
        packets in proptest::collection::vec(packet(), 20),
    ) {
        let mut classifier = Classifier::new();
        for (id, (priority, matching)) in rules.into_iter().enumerate() {
            let _ = classifier.insert(id as u64, priority, matching, ());
        }
        for packet in &packets {
            let Fields { in_port, vlan, src_mac, dst_mac, .. } = *packet;
            match classifier.classify_l2(packet) {
                L2Outcome::Decided(rule) => {
                    for deeper in &packets {
                        let deeper = Fields { in_port, vlan, src_mac, dst_mac, ..*deeper };
                        prop_assert_eq!(classifier.classify(&deeper), rule);
                    }
                }
                L2Outcome::Deeper => {
                    let first = classifier.iter().find(|rule| rule.matching.matches_l2(packet)).unwrap();
                    let (one, other) = (wanted(&first.matching, packet), shallow(packet));
                    prop_assert_eq!(classifier.classify(&one), Some(first));
                    prop_assert_ne!(classifier.classify(&other), Some(first));
                }
            }
        }
    }
}
