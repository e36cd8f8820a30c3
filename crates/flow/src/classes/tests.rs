use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_wire::Unread;
use proptest::prelude::*;

use super::*;
use crate::testing::{any_match, packet, port_range, prefix};
use crate::{Classifier, Family, Network};

fn source(text: &str) -> Match {
    Match { src: Some(text.parse().unwrap()), ..Match::default() }
}

fn to_ports(text: &str) -> Match {
    Match { ip_proto: Some(6), dst_ports: Some(text.parse().unwrap()), ..Match::default() }
}

fn of(rules: &[Match]) -> Classes {
    Classes::new(rules).unwrap()
}

fn tcp(src: Ipv4Addr, ports: (u16, u16)) -> Fields {
    with(Network::v4(src, [10, 0, 0, 9].into(), 6, Some(ports)))
}

fn with(network: Network) -> Fields {
    let ethertype = network.family().ethertype();
    Fields {
        in_port: 1,
        vlan: 1,
        src_mac: 1,
        dst_mac: 2,
        ethertype,
        tags: TagKinds::NONE,
        network: Some(network),
        unread: Unread::Nothing,
    }
}

#[test]
fn without_rules_about_them_packets_are_all_alike() {
    let l2_only = Match { vlan: Some(1), ..Match::default() };
    for classes in [Classes::default(), of(&[l2_only])] {
        assert_eq!(classes, Classes::default());
        assert_eq!(classes.of(&tcp([10, 0, 0, 1].into(), (1, 2))), Class::default());
        assert_eq!(classes.dst_ports(), [(PortRange::ALL, 0)]);
        assert_eq!(classes.protos(), [0; 256]);
        assert_eq!(classes.src_prefixes().count() + classes.ethertypes().count(), 0);
    }
}

#[test]
fn a_scan_of_all_ports_makes_two_classes_where_a_rule_is_about_some() {
    let classes = of(&[to_ports("80-90")]);
    let scan = (0..=u16::MAX).map(|port| classes.of(&tcp([10, 0, 0, 1].into(), (port, port))));
    let inside = (0..=u16::MAX).filter(|port| classes.of(&tcp([10, 0, 0, 1].into(), (0, *port))).dport == 1);
    assert_eq!(scan.collect::<HashSet<_>>().len(), 2);
    assert_eq!(inside.collect::<Vec<_>>(), (80..=90).collect::<Vec<_>>());
}

#[test]
fn a_scan_of_addresses_makes_two_classes_where_a_rule_is_about_a_network() {
    let classes = of(&[source("10.0.1.0/24")]);
    let scan = (0..1 << 16).map(|host| classes.of(&tcp((0x0a00_0000 | host).into(), (1, 2))));
    assert_eq!(scan.collect::<HashSet<_>>().len(), 2);
}

#[test]
fn an_address_is_of_the_class_of_the_longest_network_it_is_in() {
    let texts = ["10.0.1.0/24", "10.0.0.0/8", "::/0", "10.0.1.7", "10.0.1.0/24"];
    let classes = of(&texts.map(source));
    let listed: Vec<_> = classes.src_prefixes().map(|(prefix, class)| (prefix.to_string(), class)).collect();
    let expected = [("10.0.0.0/8", 1), ("10.0.1.0/24", 2), ("10.0.1.7/32", 3), ("::/0", 4)];
    assert_eq!(listed, expected.map(|(text, class)| (text.to_owned(), class)));
    let class = |address: [u8; 4]| classes.of(&tcp(address.into(), (1, 2))).src;
    let addresses = [[9, 9, 9, 9], [10, 9, 9, 9], [10, 0, 1, 6], [10, 0, 1, 7], [10, 0, 1, 8], [11, 0, 0, 0]];
    assert_eq!(addresses.map(class), [0, 1, 2, 3, 2, 0]);
    let v6 = with(Network::v6(Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, 6, None));
    assert_eq!((classes.of(&v6).src, classes.of(&v6).dst), (4, 0));
}

#[test]
fn the_way_outwards_skips_networks_that_are_apart() {
    let texts = ["10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "10.0.1.0/24", "10.9.0.0/16", "11.0.0.0/8"];
    let classes = PrefixClasses::new(texts.iter().map(|text| text.parse().unwrap()), "networks").unwrap();
    let around: Vec<u16> = (1..=6).map(|class| classes.network(class).unwrap().around).collect();
    assert_eq!(around, [0, 1, 2, 1, 1, 0]);
}

#[test]
fn classes_know_the_kinds_of_tags_that_rules_ask_for() {
    let asking = |ethertypes: &[u16]| {
        let rules =
            ethertypes.iter().map(|ethertype| Match { ethertype: Some(*ethertype), ..Match::default() });
        of(&rules.collect::<Vec<_>>()).tags()
    };
    let kinds =
        [asking(&[]), asking(&[0x800]), asking(&[0x8100]), asking(&[0x88a8]), asking(&[0x8100, 0x88a8])];
    let both = TagKinds::CUSTOMER.with(TagKinds::SERVICE);
    assert_eq!(kinds, [TagKinds::NONE, TagKinds::NONE, TagKinds::CUSTOMER, TagKinds::SERVICE, both]);
}

#[test]
fn source_and_destination_are_told_apart() {
    let rule = Match {
        ip_proto: Some(6),
        src: Some("10.0.0.1".parse().unwrap()),
        dst: Some("10.0.0.9".parse().unwrap()),
        src_ports: Some("1".parse().unwrap()),
        dst_ports: Some("2".parse().unwrap()),
        ..Match::default()
    };
    let classes = of(&[rule]);
    let all = Class { ethertype: 0, src: 1, dst: 1, sport: 1, dport: 1, proto: 1, tags: TagKinds::NONE };
    assert_eq!(classes.of(&tcp([10, 0, 0, 1].into(), (1, 2))), all);
    assert_eq!(classes.of(&tcp([10, 0, 0, 9].into(), (2, 1))), Class { src: 0, sport: 0, dport: 0, ..all });
    assert_eq!(classes.dst_prefixes().next().unwrap().0.to_string(), "10.0.0.9/32");
    assert_eq!((classes.src_ports()[1].0.first(), classes.dst_ports()[1].0.first()), (1, 2));
}

#[test]
fn protocols_and_ethertypes_that_no_rule_names_are_alike() {
    let rules = [17, 6, 17].map(|proto| Match { ip_proto: Some(proto), ..Match::default() });
    let arp = Match { ethertype: Some(0x0806), ..Match::default() };
    let classes = of(&[rules[0], rules[1], rules[2], arp]);
    let protos = classes.protos();
    assert_eq!((protos[6], protos[17], protos.iter().filter(|class| **class != 0).count()), (1, 2, 2));
    assert_eq!(classes.ethertypes().collect::<Vec<_>>(), [(0x0806, 1)]);
    let class = |proto| classes.of(&with(Network::v4([0; 4].into(), [0; 4].into(), proto, None)));
    assert_eq!(class(1), class(2));
    assert_eq!((class(6).proto, class(17).proto, class(1).proto), (1, 2, 0));
    let arp = Fields { ethertype: 0x0806, network: None, ..tcp([0; 4].into(), (0, 0)) };
    assert_eq!(classes.of(&arp), Class { ethertype: 1, ..Class::default() });
}

#[test]
fn a_later_fragment_is_of_the_class_of_ports_that_no_rule_names() {
    let classes = of(&[Match { dst_ports: Some(PortRange::ALL), ..to_ports("80") }, to_ports("80")]);
    let mut fields = tcp([10, 0, 0, 1].into(), (80, 80));
    assert_eq!(classes.of(&fields).dport, 2);
    fields.network.as_mut().unwrap().ports = None;
    assert_eq!(classes.of(&fields), Class { proto: 1, ..Class::default() });
}

#[test]
fn too_many_networks_are_refused_with_the_limit() {
    let rules = |count: u32| {
        (0..count).map(|at| Match { dst: Some(Prefix::host(IpAddr::V4(at.into()))), ..Match::default() })
    };
    let fits: Vec<Match> = rules(65_535).collect();
    let last = of(&fits).of(&with(Network::v4([0; 4].into(), 65_534.into(), 0, None)));
    assert_eq!(last.dst, 65_535);
    let refused = Classes::new(&rules(65_536).collect::<Vec<_>>()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the rules tell 65536 destination networks apart, and 65535 is the limit"
    );
    let sources = rules(65_536).map(|rule| Match { src: rule.dst, dst: None, ..rule });
    let refused = Classes::new(&sources.collect::<Vec<_>>()).unwrap_err();
    assert_eq!(refused.what, "source networks");
}

#[test]
fn too_many_ports_and_protocols_are_refused_with_the_limit() {
    let about = |rule: fn(u16) -> Match, count: u32| {
        Classes::new(&(0..count).map(|at| rule(at as u16)).collect::<Vec<_>>())
            .map_err(|error| error.to_string())
    };
    let refused = |what: &str, classes: u32, limit: u32| {
        Err(format!("the rules tell {classes} {what} apart, and {limit} is the limit"))
    };
    let sport = |at| Match { src_ports: Some(PortRange::single(at)), ..Match::default() };
    let dport = |at| Match { dst_ports: Some(PortRange::single(at)), ..Match::default() };
    let ethertype = |at| Match { ethertype: Some(at), ..Match::default() };
    let proto = |at| Match { ip_proto: Some(at as u8), ..Match::default() };
    assert_eq!(about(sport, 65_536), refused("source ports", 65_536, 65_535));
    assert_eq!(about(dport, 65_536), refused("destination ports", 65_536, 65_535));
    assert_eq!(about(proto, 256), refused("IP protocols", 256, 255));
    assert!(about(sport, 65_535).is_ok_and(|classes| classes.src_ports().len() == 65_536));
    // The two of tags have no class of this kind.
    assert!(
        about(ethertype, 65_536).is_ok_and(|classes| classes.ethertypes().last() == Some((65_535, 65_534)))
    );
    assert!(about(proto, 255).is_ok_and(|classes| classes.protos()[254] == 255));
}

/// By definition: the ranges that cover each port.
fn covering(ranges: &[PortRange], port: u16) -> Vec<PortRange> {
    ranges.iter().copied().filter(|range| range.contains(port)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn packets_of_one_class_and_one_layer_2_fall_under_the_same_rule(
        rules in proptest::collection::vec((0u32..4, any_match()), 1..16),
        packets in proptest::collection::vec(packet(), 60),
    ) {
        let mut classifier = Classifier::new();
        for (id, (priority, matching)) in rules.into_iter().enumerate() {
            let _ = classifier.insert(id as u64, priority, matching, ());
        }
        let classes = Classes::new(classifier.iter().map(|rule| &rule.matching)).unwrap();
        let mut seen = HashMap::new();
        for packet in &packets {
            let Fields { in_port, vlan, src_mac, dst_mac, .. } = packets[0];
            let packet = Fields { in_port, vlan, src_mac, dst_mac, ..*packet };
            let rule = classifier.classify(&packet).map(|rule| rule.id);
            let (other, first) = *seen.entry(classes.of(&packet)).or_insert((packet, rule));
            prop_assert_eq!(rule, first, "{:?} and {:?}", packet, other);
        }
    }

    #[test]
    fn two_ports_are_of_one_class_exactly_if_the_same_ranges_cover_them(
        ranges in proptest::collection::vec(port_range(), 0..12),
    ) {
        let classes = PortClasses::new(ranges.iter().copied(), "ports").unwrap();
        let ports: Vec<u16> = (0..10).chain(65_530..=u16::MAX).collect();
        for one in &ports {
            let uncovered = covering(&ranges, *one).is_empty();
            prop_assert_eq!(classes.of(*one) == 0, uncovered, "{}", one);
            for other in &ports {
                let same = covering(&ranges, *one) == covering(&ranges, *other);
                prop_assert_eq!(classes.of(*one) == classes.of(*other), same, "{} and {}", one, other);
            }
        }
        let distinct: HashSet<u16> = classes.runs().iter().map(|(_, class)| *class).filter(|class| *class != 0).collect();
        prop_assert_eq!(distinct.iter().copied().max().map_or(0, usize::from), distinct.len(), "numbered without gaps");
    }

    #[test]
    fn runs_of_ports_have_no_gap_and_say_what_the_lookup_says(ranges in proptest::collection::vec(port_range(), 0..12)) {
        let classes = PortClasses::new(ranges.into_iter(), "ports").unwrap();
        let mut next = Some(0);
        for (range, class) in classes.runs() {
            prop_assert_eq!(Some(range.first()), next);
            prop_assert_eq!((classes.of(range.first()), classes.of(range.last())), (*class, *class));
            next = range.end();
        }
        prop_assert_eq!(next, None);
    }

    #[test]
    fn the_class_of_an_address_is_the_longest_network_of_those_listed(
        prefixes in proptest::collection::vec(prefix(), 0..16),
        packet in packet(),
    ) {
        let classes = PrefixClasses::new(prefixes.into_iter(), "networks").unwrap();
        let network = packet.network.unwrap_or(Network::v4([10, 0, 0, 1].into(), [0; 4].into(), 0, None));
        for address in [network.src(), network.dst()] {
            let (family, number) = Family::split(address);
            let longest = classes.iter().filter(|(prefix, _)| prefix.contains(address)).max_by_key(|(prefix, _)| prefix.len());
            prop_assert_eq!(classes.of(family, number), longest.map_or(0, |(_, class)| class), "{}", address);
        }
    }
}
