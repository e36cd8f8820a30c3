//! Rules and packets for tests, out of so few values that they meet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

use forebay_wire::{TagKinds, Unread};

use crate::{Family, Fields, Match, Network, PortRange, Prefix};

const V4: [[u8; 4]; 6] =
    [[10, 0, 0, 0], [10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 1, 0], [138, 0, 0, 0], [255, 255, 255, 255]];
const V6: [u128; 6] = [0, 1, 10 << 120, 0xfd << 120, 0xfd << 120 | 1, u128::MAX];
const V4_LENS: [u8; 7] = [0, 1, 8, 23, 24, 31, 32];
const V6_LENS: [u8; 6] = [0, 1, 8, 64, 127, 128];
const PROTOS: [u8; 5] = [0, 1, 6, 17, 132];
const ETHERTYPES: [u16; 4] = [0x0800, 0x86dd, 0x0806, 0];
/// What rules ask for besides: that a packet has further tags.
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// Group bits and the top bit of 48 are among them.
const MACS: [u64; 3] = [1, 2, 0xffff_ffff_fffe];

/// A packet of IPv4.
pub(crate) fn of_v4(network: Network) -> Fields {
    Fields {
        in_port: 3,
        vlan: 10,
        src_mac: 1,
        dst_mac: 2,
        ethertype: 0x0800,
        tags: TagKinds::NONE,
        network: Some(network),
        unread: Unread::Nothing,
    }
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![6 => 0u16..8, 1 => Just(u16::MAX), 1 => Just(u16::MAX - 1)]
}

pub(crate) fn port_range() -> impl Strategy<Value = PortRange> {
    (port(), port()).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap())
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    select(&V4[..]).prop_map(Ipv4Addr::from)
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    select(&V6[..]).prop_map(Ipv6Addr::from)
}

pub(crate) fn prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (v4(), select(&V4_LENS[..])).prop_map(|(address, len)| network(address.into(), len));
    let v6 = (v6(), select(&V6_LENS[..])).prop_map(|(address, len)| network(address.into(), len));
    prop_oneof![2 => v4, 1 => v6]
}

fn network(address: IpAddr, len: u8) -> Prefix {
    match Prefix::new(address, len) {
        Ok(network) | Err(crate::PrefixError::HostBits { network, .. }) => network,
        Err(error) => panic!("{error}"),
    }
}

fn ports() -> impl Strategy<Value = Option<(u16, u16)>> {
    weighted(0.8, (port(), port()))
}

pub(crate) fn packet() -> impl Strategy<Value = Fields> {
    let proto = select(&PROTOS[..]);
    let network = prop_oneof![
        2 => (v4(), v4(), proto.clone(), ports()).prop_map(|(src, dst, proto, ports)| Network::v4(src, dst, proto, ports)),
        1 => (v6(), v6(), proto, ports()).prop_map(|(src, dst, proto, ports)| Network::v6(src, dst, proto, ports)),
    ];
    let l2 = (1u32..3, 0u16..3, select(&MACS[..]), select(&MACS[..]));
    let tags = (0..=TagKinds::MASK).prop_map(TagKinds::from_bits);
    let deeper = (select(&ETHERTYPES[..]), tags, weighted(0.85, network));
    (l2, deeper).prop_map(|(l2, (ethertype, tags, network))| {
        let (in_port, vlan, src_mac, dst_mac) = l2;
        Fields { in_port, vlan, src_mac, dst_mac, ethertype, tags, network, unread: Unread::Nothing }
    })
}

/// A match that may contradict itself.
pub(crate) fn wild_match() -> impl Strategy<Value = Match> {
    let l2 = (
        weighted(0.2, 1u32..3),
        weighted(0.2, select(&MACS[..])),
        weighted(0.2, select(&MACS[..])),
        weighted(0.2, 1u16..3),
    );
    let deeper = (
        weighted(0.2, select([&ETHERTYPES[..], &TAGS[..]].concat())),
        weighted(0.4, select(&PROTOS[..])),
        weighted(0.3, prefix()),
        weighted(0.3, prefix()),
        weighted(0.3, port_range()),
        weighted(0.3, port_range()),
    );
    // A third of the rules asks for layer 2 only.
    (l2, weighted(0.7, deeper)).prop_map(|((in_port, src_mac, dst_mac, vlan), deeper)| {
        let (ethertype, ip_proto, src, dst, src_ports, dst_ports) = deeper.unwrap_or_default();
        Match { in_port, src_mac, dst_mac, vlan, ethertype, ip_proto, src, dst, src_ports, dst_ports }
    })
}

/// A match that passes [`Match::check`].
pub(crate) fn any_match() -> impl Strategy<Value = Match> {
    wild_match().prop_map(without_contradictions)
}

fn without_contradictions(mut rule: Match) -> Match {
    if rule.src_ports.is_some() || rule.dst_ports.is_some() {
        rule.ip_proto = rule.ip_proto.filter(|proto| [6, 17, 132].contains(proto)).or(Some(6));
    }
    rule.dst = rule.dst.filter(|dst| rule.src.is_none_or(|src| src.family() == dst.family()));
    let family = rule.src.or(rule.dst).map(|prefix| prefix.family());
    let is_of_tag = !rule.tag_kind().is_empty();
    rule.ethertype = rule.ethertype.filter(|ethertype| {
        let fits = |family: Family| family.ethertype() == *ethertype;
        is_of_tag || family.map_or(rule.ip_proto.is_none() || fits(Family::V4) || fits(Family::V6), fits)
    });
    rule
}

/// A packet that a match asks for, of layer 2 like the given one where it does not say.
pub(crate) fn wanted(rule: &Match, like: &Fields) -> Fields {
    let first = |range: Option<PortRange>| range.map_or(0, |range| range.first());
    let network = |family: Family| Network {
        family,
        src: rule.src.map_or(0, |prefix| prefix.number()),
        dst: rule.dst.map_or(0, |prefix| prefix.number()),
        proto: rule.ip_proto.unwrap_or(0),
        ports: Some((first(rule.src_ports), first(rule.dst_ports))),
    };
    let family = rule.src.or(rule.dst).map_or(Family::V4, |prefix| prefix.family());
    Fields {
        in_port: rule.in_port.unwrap_or(like.in_port),
        vlan: rule.vlan.unwrap_or(like.vlan),
        src_mac: rule.src_mac.unwrap_or(like.src_mac),
        dst_mac: rule.dst_mac.unwrap_or(like.dst_mac),
        ethertype: rule.ethertype.filter(|_| rule.tag_kind().is_empty()).unwrap_or(0xffff),
        tags: rule.tag_kind(),
        network: Some(network(family)),
        unread: Unread::Nothing,
    }
}

/// The same packet with nothing behind layer 2 that a rule asks for.
pub(crate) fn shallow(like: &Fields) -> Fields {
    Fields { ethertype: 0xfffe, tags: TagKinds::NONE, network: None, ..*like }
}
