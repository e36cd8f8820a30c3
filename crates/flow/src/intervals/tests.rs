use proptest::option::weighted;
use proptest::prelude::*;

use super::*;
use crate::testing::port_range;

fn ports(text: &str) -> PortRange {
    text.parse().unwrap()
}

fn rule(priority: u32, range: &str) -> Ported {
    Ported { rank: Rank::new(priority, 0), range: ports(range), other: None }
}

fn of(rules: &[Ported]) -> Intervals {
    let mut intervals = Intervals::default();
    for rule in rules {
        intervals.insert(*rule);
    }
    intervals
}

fn firsts(intervals: &Intervals) -> Vec<u16> {
    intervals.pieces.iter().map(|piece| piece.first).collect()
}

#[test]
fn the_best_rule_wins_where_ranges_overlap() {
    let (a, b) = (rule(9, "80-90"), rule(5, "70-100"));
    let intervals = of(&[a, b]);
    let found = [69, 70, 79, 80, 90, 91, 100, 101].map(|port| intervals.find(port, 0));
    let [a, b] = [Some(a.rank), Some(b.rank)];
    assert_eq!(found, [None, b, b, a, a, b, b, None]);
}

#[test]
fn a_rule_that_cannot_win_is_not_listed() {
    let wide = Ported { other: Some(ports("1")), ..rule(5, "0-65535") };
    let intervals = of(&[rule(9, "80"), wide, rule(1, "0-65535")]);
    let listed: Vec<usize> = intervals.pieces.iter().map(|piece| piece.rules.len()).collect();
    assert_eq!((firsts(&intervals), listed), (vec![0, 80, 81], vec![2, 1, 2]));
}

#[test]
fn a_rule_about_both_ports_leaves_the_rest_to_those_below() {
    let both = Ported { other: Some(ports("7")), ..rule(9, "80") };
    let below = rule(5, "80-81");
    let intervals = of(&[below, both]);
    assert_eq!(intervals.find(80, 7), Some(both.rank));
    assert_eq!(intervals.find(80, 8), Some(below.rank));
    assert_eq!(intervals.find(81, 7), Some(below.rank));
}

#[test]
fn a_cut_that_another_rule_needs_outlives_the_one_that_made_it() {
    let mut intervals = of(&[rule(9, "80-90"), rule(5, "91-95"), rule(4, "80-85")]);
    assert_eq!(firsts(&intervals), [0, 80, 86, 91, 96]);
    assert!(intervals.remove(Rank::new(9, 0)));
    assert_eq!(firsts(&intervals), [0, 80, 86, 91, 96]);
    assert!(intervals.remove(Rank::new(5, 0)));
    assert_eq!(firsts(&intervals), [0, 80, 86]);
    assert!(!intervals.remove(Rank::new(5, 0)));
}

#[test]
fn the_line_has_pieces_up_to_both_its_ends() {
    let intervals = of(&[rule(9, "0-65535"), rule(10, "65535"), rule(11, "0")]);
    assert_eq!(firsts(&intervals), [0, 1, 65535]);
    let found = [0, 1, 65534, 65535].map(|port| intervals.find(port, 0));
    assert_eq!(found, [11, 9, 9, 10].map(|priority| Some(Rank::new(priority, 0))));
}

#[test]
fn many_narrow_rules_do_not_lengthen_the_lists() {
    let rules: Vec<Ported> = (0..2000u16)
        .map(|at| Ported { rank: Rank::new(1, at.into()), range: PortRange::single(at * 3), other: None })
        .collect();
    let intervals = of(&rules);
    assert!(intervals.pieces.iter().all(|piece| piece.rules.len() <= 1));
    assert_eq!(intervals.find(3 * 77, 0), Some(rules[77].rank));
    assert_eq!(intervals.find(3 * 77 + 1, 0), None);
}

proptest! {
    #[test]
    fn pieces_follow_from_the_rules_whatever_order_they_came_and_went_in(
        changes in proptest::collection::vec((0u32..4, 0u64..6, port_range(), weighted(0.5, port_range())), 1..40),
        probes in proptest::collection::vec((port_range(), 0u16..8), 8),
    ) {
        let mut intervals = Intervals::default();
        let mut rules: Vec<Ported> = Vec::new();
        for (priority, id, range, other) in changes {
            let rank = Rank::new(priority, id);
            let known = rules.iter().position(|rule| rule.rank == rank);
            prop_assert_eq!(intervals.remove(rank), known.is_some());
            match known {
                Some(at) => drop(rules.remove(at)),
                None => {
                    rules.push(Ported { rank, range, other });
                    intervals.insert(Ported { rank, range, other });
                }
            }
            rules.sort_by_key(|rule| Reverse(rule.rank));
            for (probe, other) in &probes {
                for port in [probe.first(), probe.last()] {
                    let covers = |rule: &&Ported| {
                        rule.range.contains(port) && rule.other.is_none_or(|range| range.contains(*other))
                    };
                    let expected = rules.iter().find(covers).map(|rule| rule.rank);
                    prop_assert_eq!(intervals.find(port, *other), expected, "{} {}", port, other);
                }
            }
            prop_assert_eq!(&intervals, &of(&rules));
        }
    }
}
