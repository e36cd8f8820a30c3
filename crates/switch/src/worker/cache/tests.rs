use std::ops::Range;

use forebay_control::PortId;
use forebay_flow::{Fields, Match};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::rules::tests::set;
use crate::worker::classify::Headers;
use crate::worker::key::tests::{Packet, fields_of, packet};

const SECRET: [u64; 2] = [0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321];

fn hinted(rx_hash: u32, rx_hash_type: u32) -> Values {
    let present = Hint::RxHash.bit() | Hint::RxHashType.bit();
    Values { present, rx_hash, rx_hash_type, ..Values::default() }
}

/// What a program may write: nothing, always the same, anything; of L4 type or not.
fn hints() -> impl Strategy<Value = Values> {
    prop_oneof![
        Just(Values::default()),
        Just(hinted(7, RSS_L4)),
        any::<(u32, u32)>().prop_map(|(hash, kind)| hinted(hash, kind)),
        any::<u32>().prop_map(|hash| Values { present: 0, ..hinted(hash, RSS_L4) }),
    ]
}

fn rule() -> impl Strategy<Value = Match> {
    let l2 = (select(vec![None, None, Some(0u32), Some(1)]), select(vec![None, None, None, Some(7u16)]));
    let nets = || select(vec![None, None, Some("10.0.0.0/8"), Some("10.0.0.1/32"), Some("10.1.0.2/31")]);
    let six = || select(vec![None, Some("fd00::/8"), Some("fd00::1/128")]);
    let ports = || select(vec![None, None, Some("0-2"), Some("3")]);
    let protos = select(vec![None, Some(6u8), Some(17), Some(17), Some(1)]);
    (l2, nets(), nets(), six(), ports(), ports(), protos).prop_map(
        |((in_port, vlan), src, dst, six, sport, dport, ip_proto)| {
            let parse = |text: Option<&str>| text.map(|text| text.parse().expect("a network"));
            let ported = ip_proto.is_some_and(|proto| proto != 1);
            let range = |text: Option<&str>| text.filter(|_| ported).map(|text| text.parse().expect("ports"));
            let (src, dst) = if src.is_none() && dst.is_none() { (None, six) } else { (src, dst) };
            let rule =
                Match { in_port, vlan, ip_proto, src: parse(src), dst: parse(dst), ..Match::default() };
            Match { src_ports: range(sport), dst_ports: range(dport), ..rule }
        },
    )
}

/// The rules' ids and the class, as the classifier alone says.
fn classified(rules: &RuleSet, fields: &Fields) -> (Option<u64>, Option<Class>) {
    let (place, class) = rules.find(fields);
    (rules.rule(place).map(|rule| rule.id), Some(class))
}

fn find(
    cache: &mut RulingCache,
    rules: &RuleSet,
    (headers, bytes): &Packet,
    hints: Values,
    tally: &mut Tally,
) -> (Option<u64>, Option<Class>) {
    let key = Key::read(headers, bytes);
    let set = cache.seek(&key, &hints);
    let ruling = cache.find(rules, &key, set, true, tally);
    (ruling.rule.map(|rule| rule.id), ruling.class)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_hints_say_the_ruling_is_the_classifiers(
        rules in prop::collection::vec(prop::collection::vec(rule(), 1..12), 1..4),
        packets in prop::collection::vec((0usize..4, packet(), hints()), 1..300),
    ) {
        let sets: Vec<RuleSet> = rules.iter().map(|rules| set(rules)).collect();
        let (mut cache, mut tally) = (RulingCache::new(SECRET), Tally::default());
        let (mut generation, mut last) = (0, 0);
        for (which, packet, hints) in &packets {
            // Rules change back and forth; each time they are another generation.
            let rules = &sets[which % sets.len()];
            generation += u64::from(*which != last);
            last = *which;
            cache.follow(generation);
            let found = find(&mut cache, rules, packet, *hints, &mut tally);
            prop_assert_eq!(found, classified(rules, &fields_of(packet)));
        }
        prop_assert_eq!(tally.cached + tally.classified, packets.len() as u64);
    }
}

fn udp(flow: u32) -> Packet {
    let headers = Headers {
        input: PortId(1),
        dst: 2,
        src: 4,
        vid: 0,
        tag: None,
        tag_is_out: false,
        ethertype: 0x0800,
        mark: 0,
    };
    let [a, b, c, d] = flow.to_be_bytes();
    let mut bytes = vec![0; 60];
    (bytes[14], bytes[23]) = (0x45, 17);
    bytes[26..38].copy_from_slice(&[10, 0, a, b, 10, 0, 0, 2, c, d, 3, 0xe8]);
    (headers, bytes)
}

fn rules() -> RuleSet {
    set(&[Match {
        ip_proto: Some(17),
        dst: Some("10.0.0.0/8".parse().expect("a network")),
        dst_ports: Some("1000-2000".parse().expect("ports")),
        ..Match::default()
    }])
}

/// Hits among the packets of these flows, in turn.
fn hits(cache: &mut RulingCache, flows: Range<u32>, hints: impl Fn(u32) -> Values) -> u64 {
    let (rules, mut tally) = (rules(), Tally::default());
    for flow in flows {
        let found = find(cache, &rules, &udp(flow), hints(flow), &mut tally);
        assert_eq!(found.0, Some(1));
    }
    tally.cached
}

#[test]
fn the_second_packet_of_a_flow_is_found_by_any_good_hash() {
    // As of a device, of whose hash the lower bits chose the queue.
    let device = |flow: u32| hinted(flow.wrapping_mul(0x9e37_79b1) << 5, RSS_L4);
    let software = |_| Values::default();
    let l3 = |flow| hinted(flow & 3, 0);
    for hints in [&device as &dyn Fn(u32) -> Values, &software, &l3] {
        let mut cache = RulingCache::new(SECRET);
        let (first, second) = (hits(&mut cache, 0..1000, hints), hits(&mut cache, 0..1000, hints));
        assert!(first == 0 && second > 990, "{first} {second}");
    }
}

#[test]
fn of_more_flows_than_there_is_room_for_as_many_are_found_as_there_is_room_for() {
    let mut cache = RulingCache::new(SECRET);
    let flows = 4 * SLOTS as u32;
    let found: Vec<u64> = (0..6).map(|_| hits(&mut cache, 0..flows, |_| Values::default())).collect();
    assert!(found[1..].iter().all(|hits| *hits > SLOTS as u64 / 2 && *hits <= SLOTS as u64), "{found:?}");
}

#[test]
fn ten_thousand_flows_are_found_mostly() {
    let mut cache = RulingCache::new(SECRET);
    let found: Vec<u64> = (0..4).map(|_| hits(&mut cache, 0..10_000, |_| Values::default())).collect();
    assert!(found[1..].iter().all(|hits| *hits > 8_000), "{found:?}");
}

#[test]
fn a_hash_that_is_always_the_same_leaves_one_set() {
    let mut cache = RulingCache::new(SECRET);
    hits(&mut cache, 0..100, |_| hinted(7, RSS_L4));
    let filled = cache.slots.iter().flatten().filter(|slot| slot.stamp != 0).count();
    assert_eq!(filled, 2);
    assert_eq!(hits(&mut cache, 1000..1002, |_| Values::default()), 0);
}

#[test]
fn a_generation_of_rules_forgets_what_was_before_and_walks_nothing() {
    let mut cache = RulingCache::new(SECRET);
    let none = |_| Values::default();
    cache.follow(1);
    hits(&mut cache, 0..100, none);
    assert_eq!(hits(&mut cache, 0..100, none), 100);
    cache.follow(2);
    assert!(cache.slots.iter().flatten().filter(|slot| slot.stamp != 0).count() >= 100, "it is still there");
    assert_eq!(hits(&mut cache, 0..100, none), 0);
    cache.follow(1);
    assert_eq!(hits(&mut cache, 0..100, none), 0, "generations do not come back, but it must not matter");
}

#[test]
fn stamps_that_wrap_do_not_bring_anything_back() {
    let mut cache = RulingCache::new(SECRET);
    let none = |_| Values::default();
    hits(&mut cache, 0..100, none);
    cache.stamp = u32::MAX;
    cache.follow(1);
    assert_eq!(cache.stamp, 1);
    assert_eq!(hits(&mut cache, 0..100, none), 0);
}

#[test]
fn a_class_is_read_where_it_is_asked_for() {
    let (mut cache, rules, mut tally) = (RulingCache::new(SECRET), rules(), Tally::default());
    let (headers, bytes) = udp(1);
    let key = Key::read(&headers, &bytes);
    let set = cache.seek(&key, &Values::default());
    let mut class = |asks| cache.find(&rules, &key, set, asks, &mut tally).class;
    let known = class(true);
    assert!(known.is_some_and(|class| class.dport == 1));
    assert_eq!((class(true), class(false)), (known, None));
}

#[test]
fn another_secret_is_another_set() {
    let sets = |secret| {
        let cache = RulingCache::new(secret);
        let packets = (0..64).map(udp);
        let set = |(headers, bytes): Packet| cache.set_of(&Key::read(&headers, &bytes), &Values::default());
        packets.map(set).collect::<Vec<_>>()
    };
    let (one, other) = (sets(SECRET), sets([SECRET[0], 1]));
    assert!(one.iter().zip(&other).filter(|(one, other)| one == other).count() < 4);
}

#[test]
fn a_slot_is_a_cache_line() {
    assert_eq!((size_of::<Slot>(), size_of::<[Slot; 2]>()), (64, 128));
}
