use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::testing::{of_v4, packet, shallow, wanted, wild_match};

const ANY: Match = Match {
    in_port: None,
    src_mac: None,
    dst_mac: None,
    vlan: None,
    ethertype: None,
    ip_proto: None,
    src: None,
    dst: None,
    src_ports: None,
    dst_ports: None,
};

fn prefix(text: &str) -> Option<Prefix> {
    Some(text.parse().unwrap())
}

fn ports(text: &str) -> Option<PortRange> {
    Some(text.parse().unwrap())
}

fn refusal(rule: Match) -> String {
    rule.check().unwrap_err().to_string()
}

/// A TCP packet from 10.0.0.1:1000 to 10.0.0.2:80.
fn tcp() -> Fields {
    let network = Network::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 6, Some((1000, 80)));
    of_v4(network)
}

/// A match of every field, fulfilled by [`tcp`].
fn everything() -> Match {
    Match {
        in_port: Some(3),
        src_mac: Some(1),
        dst_mac: Some(2),
        vlan: Some(10),
        ethertype: Some(0x0800),
        ip_proto: Some(6),
        src: prefix("10.0.0.1"),
        dst: prefix("10.0.0.0/24"),
        src_ports: ports("1000-2000"),
        dst_ports: ports("80"),
    }
}

#[test]
fn a_match_that_asks_nothing_matches_all() {
    assert_eq!(Match::default(), ANY);
    assert!(ANY.matches(&tcp()) && ANY.matches(&shallow(&tcp())));
    assert!(ANY.is_l2_only());
}

#[test]
fn every_field_counts() {
    let rule = everything();
    assert_eq!(rule.check(), Ok(()));
    assert!(rule.matches(&tcp()));
    let others = [
        Match { in_port: Some(4), ..rule },
        Match { src_mac: Some(2), ..rule },
        Match { dst_mac: Some(1), ..rule },
        Match { vlan: Some(11), ..rule },
        Match { ethertype: Some(0x86dd), ..rule },
        Match { ip_proto: Some(17), ..rule },
        Match { src: prefix("10.0.0.2"), ..rule },
        Match { dst: prefix("10.0.1.0/24"), ..rule },
        Match { src_ports: ports("80"), ..rule },
        Match { dst_ports: ports("1000"), ..rule },
    ];
    for other in others {
        assert!(!other.matches(&tcp()), "{other}");
    }
}

#[test]
fn layer_2_is_port_vlan_and_addresses_and_not_the_ethertype() {
    let l2 = Match { in_port: Some(3), src_mac: Some(1), dst_mac: Some(2), vlan: Some(10), ..ANY };
    assert!(l2.is_l2_only() && l2.matches_l2(&tcp()));
    for other in [
        Match { in_port: Some(4), ..l2 },
        Match { src_mac: Some(2), ..l2 },
        Match { dst_mac: Some(1), ..l2 },
        Match { vlan: Some(11), ..l2 },
    ] {
        assert!(!other.matches_l2(&tcp()), "{other}");
    }
    for deeper in [
        Match { ethertype: Some(0x0806), ..ANY },
        Match { ip_proto: Some(17), ..ANY },
        Match { src: prefix("192.0.2.0/24"), ..ANY },
        Match { dst: prefix("192.0.2.0/24"), ..ANY },
        Match { src_ports: ports("9"), ..ANY },
        Match { dst_ports: ports("9"), ..ANY },
    ] {
        assert!(!deeper.is_l2_only() && deeper.matches_l2(&tcp()), "{deeper}");
    }
}

#[test]
fn a_later_fragment_matches_no_rule_about_ports_and_any_about_addresses() {
    let mut fragment = tcp();
    fragment.network.as_mut().unwrap().ports = None;
    assert!(!everything().matches(&fragment));
    assert!(!Match { ip_proto: Some(6), src_ports: Some(PortRange::ALL), ..ANY }.matches(&fragment));
    assert!(!Match { ip_proto: Some(6), dst_ports: Some(PortRange::ALL), ..ANY }.matches(&fragment));
    assert!(Match { src_ports: None, dst_ports: None, ..everything() }.matches(&fragment));
}

#[test]
fn a_packet_that_is_not_ip_matches_no_rule_about_ip() {
    let arp = Fields { ethertype: 0x0806, network: None, ..tcp() };
    assert!(Match { ethertype: Some(0x0806), ..ANY }.matches(&arp));
    for rule in [
        Match { ip_proto: Some(0), ..ANY },
        Match { src: prefix("0.0.0.0/0"), ..ANY },
        Match { dst: prefix("::/0"), ..ANY },
        Match { src_ports: Some(PortRange::ALL), ..ANY },
        Match { dst_ports: Some(PortRange::ALL), ..ANY },
    ] {
        assert!(!rule.matches(&arp), "{rule}");
    }
}

#[test]
fn a_rule_about_a_protocol_takes_both_versions_of_ip_and_one_about_addresses_its_own() {
    let v6 = Network::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 6, Some((1, 2)));
    let v6 = Fields { ethertype: 0x86dd, network: Some(v6), ..tcp() };
    let about_proto = Match { ip_proto: Some(6), ..ANY };
    assert!(about_proto.matches(&tcp()) && about_proto.matches(&v6));
    let [v4_only, v6_only] = ["0.0.0.0/0", "::/0"].map(|text| Match { src: prefix(text), ..ANY });
    assert!(v4_only.matches(&tcp()) && !v4_only.matches(&v6));
    assert!(!v6_only.matches(&tcp()) && v6_only.matches(&v6));
}

#[test]
fn vlans_that_do_not_exist_are_refused() {
    for value in [4095, u16::MAX] {
        assert_eq!(
            refusal(Match { vlan: Some(value), ..ANY }),
            format!("vlan {value} is not one of 0 to 4094")
        );
    }
    for value in [0, 1, 4094] {
        assert_eq!(Match { vlan: Some(value), ..ANY }.check(), Ok(()));
    }
}

#[test]
fn addresses_of_more_than_six_bytes_are_refused() {
    let text = refusal(Match { src_mac: Some(1 << 48), ..ANY });
    assert_eq!(text, "src_mac 0x1000000000000 has more than 48 bits");
    let text = refusal(Match { dst_mac: Some(u64::MAX), ..ANY });
    assert_eq!(text, "dst_mac 0xffffffffffffffff has more than 48 bits");
    let broadcast = Some(0xffff_ffff_ffff);
    assert_eq!(Match { src_mac: broadcast, dst_mac: broadcast, ..ANY }.check(), Ok(()));
}

#[test]
fn networks_of_two_families_are_refused() {
    let text = refusal(Match { src: prefix("10.0.0.0/8"), dst: prefix("fd00::/8"), ..ANY });
    assert_eq!(text, "src 10.0.0.0/8 and dst fd00::/8 are of different versions of IP");
    assert_eq!(Match { src: prefix("fd00::/8"), dst: prefix("::/0"), ..ANY }.check(), Ok(()));
}

#[test]
fn a_network_behind_another_ethertype_is_refused() {
    let text = refusal(Match { ethertype: Some(0x86dd), src: prefix("10.0.0.0/8"), ..ANY });
    assert_eq!(text, "src 10.0.0.0/8 is not found behind ethertype 0x86dd");
    let text = refusal(Match { ethertype: Some(0x0800), dst: prefix("fd00::/8"), ..ANY });
    assert_eq!(text, "dst fd00::/8 is not found behind ethertype 0x0800");
    let text = refusal(Match { ethertype: Some(0x0806), dst: prefix("10.0.0.1"), ..ANY });
    assert_eq!(text, "dst 10.0.0.1/32 is not found behind ethertype 0x0806");
    assert_eq!(Match { ethertype: Some(0x86dd), src: prefix("fd00::/8"), ..ANY }.check(), Ok(()));
}

#[test]
fn a_protocol_behind_another_ethertype_than_ips_is_refused() {
    let text = refusal(Match { ethertype: Some(0x0806), ip_proto: Some(17), ..ANY });
    assert_eq!(text, "ip_proto 17 is not found behind ethertype 0x0806, which is not IP");
    for ethertype in [0x0800, 0x86dd] {
        assert_eq!(Match { ethertype: Some(ethertype), ip_proto: Some(17), ..ANY }.check(), Ok(()));
    }
}

#[test]
fn ports_of_a_protocol_without_them_are_refused() {
    let text = refusal(Match { src_ports: ports("80-90"), ..ANY });
    assert_eq!(text, "src_ports 80-90 need ip_proto 6 (TCP), 17 (UDP) or 132 (SCTP), not none");
    let text = refusal(Match { ip_proto: Some(1), dst_ports: ports("80"), ..ANY });
    assert_eq!(text, "dst_ports 80 need ip_proto 6 (TCP), 17 (UDP) or 132 (SCTP), not 1");
    for proto in [6, 17, 132] {
        let rule = Match { ip_proto: Some(proto), src_ports: ports("1"), dst_ports: ports("2"), ..ANY };
        assert_eq!(rule.check(), Ok(()));
    }
}

#[test]
fn a_match_is_written_in_the_order_of_the_headers() {
    assert_eq!(ANY.to_string(), "any");
    assert_eq!(
        everything().to_string(),
        "in_port 3 src_mac 00:00:00:00:00:01 dst_mac 00:00:00:00:00:02 vlan 10 ethertype 0x0800 ip_proto 6 \
         src 10.0.0.1/32 dst 10.0.0.0/24 src_ports 1000-2000 dst_ports 80"
    );
    let rule = Match { dst_mac: Some(0x0211_2233_44ff), ..ANY };
    assert_eq!(rule.to_string(), "dst_mac 02:11:22:33:44:ff");
}

proptest! {
    /// `check` is neither too strict nor too lax: what it lets pass has a packet, and what it refuses has none.
    /// Packets are consistent here, as parsed ones are: an IP header comes behind its EtherType, ports behind a
    /// protocol with them.
    #[test]
    fn exactly_what_a_packet_can_match_passes(rule in wild_match(), like in packet()) {
        let mut packet = wanted(&rule, &like);
        if let Some(network) = packet.network.as_mut().filter(|_| rule.asks_network()) {
            if rule.ethertype == Some(0x86dd) && rule.src.or(rule.dst).is_none() {
                network.family = Family::V6;
            }
            packet.ethertype = network.family.ethertype();
            network.ports = network.ports.filter(|_| [6, 17, 132].contains(&network.proto));
        } else {
            packet.network = None;
        }
        prop_assert_eq!(rule.check().is_ok(), rule.matches(&packet), "{}", rule);
    }

    #[test]
    fn a_match_is_of_layer_2_only_if_packets_with_and_without_the_rest_match(rule in wild_match(), like in packet()) {
        let rule = Match { ethertype: rule.ethertype.map(|_| 0x0806), ..rule };
        prop_assert_eq!(rule.is_l2_only(), rule.matches(&shallow(&wanted(&rule, &like))), "{}", rule);
    }
}

#[test]
fn a_tags_ethertype_asks_for_a_further_tag_and_others_for_what_is_behind_all() {
    let of = |ethertype| Match { ethertype: Some(ethertype), ..ANY };
    for bits in 0..=TagKinds::MASK {
        let packet = Fields { tags: TagKinds::from_bits(bits), ..tcp() };
        assert_eq!(of(0x8100).matches(&packet), bits & 1 != 0);
        assert_eq!(of(0x88a8).matches(&packet), bits & 2 != 0);
        assert!(of(0x0800).matches(&packet), "whatever tags are before it");
    }
}
