//! A switch as one would write it without haste: all rules in order, and a map of stations.

use std::collections::HashMap;
use std::net::IpAddr;

use super::packets::{Ip, Packet};

/// A port's VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    All,
    Access(u16),
    Trunk(Vec<u16>, Option<u16>),
}

#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) mode: Mode,
    pub(super) is_isolated: bool,
    pub(super) is_up: bool,
    pub(super) mtu: usize,
    /// What the kernel may not do by itself, and what it must be careful with.
    pub(super) is_captured: bool,
    pub(super) takes_frames: bool,
    pub(super) leaves_checksums: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Drop,
    Output(Vec<u16>),
    Normal,
    Mark(u32),
    Mirror(u16),
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) id: u64,
    pub(super) priority: u32,
    pub(super) in_port: Option<u16>,
    pub(super) src_mac: Option<u64>,
    pub(super) dst_mac: Option<u64>,
    pub(super) vlan: Option<u16>,
    pub(super) ethertype: Option<u16>,
    pub(super) proto: Option<u8>,
    pub(super) src: Option<(IpAddr, u8)>,
    pub(super) dst: Option<(IpAddr, u8)>,
    pub(super) src_ports: Option<(u16, u16)>,
    pub(super) dst_ports: Option<(u16, u16)>,
    pub(super) action: Action,
}

/// Where a packet leaves, and how; in order of ports.
pub(super) type Copies = Vec<(u16, Vec<u8>)>;

pub(super) struct Oracle {
    pub(super) ports: Vec<Port>,
    pub(super) rules: Vec<Rule>,
    pub(super) stations: HashMap<(u16, u64), u16>,
}

impl Mode {
    fn untagged(&self) -> Option<u16> {
        match self {
            Mode::All => Some(0),
            Mode::Access(vid) => Some(*vid),
            Mode::Trunk(_, native) => *native,
        }
    }

    fn carries(&self, vid: u16) -> bool {
        match self {
            Mode::All => true,
            Mode::Access(own) => *own == vid,
            Mode::Trunk(vids, native) => vids.contains(&vid) || *native == Some(vid),
        }
    }

    pub(super) fn vlan_of(&self, tci: Option<u16>) -> Option<u16> {
        match tci.unwrap_or(0) & 0xfff {
            0 => self.untagged(),
            4095 => None,
            vid => Some(vid).filter(|vid| self.carries(*vid)),
        }
    }

    /// The tag that a packet leaves with.
    fn tag_of(&self, vid: u16, tci: Option<u16>) -> Option<u16> {
        if *self == Mode::All && vid == 0 {
            tci
        } else if self.untagged() == Some(vid) {
            None
        } else {
            Some(tci.unwrap_or(0) & 0xf000 | vid)
        }
    }
}

impl Rule {
    fn matches(&self, packet: &Packet, input: u16, vid: u16) -> bool {
        let ip = packet.ip;
        let has = |wanted: Option<u8>, found: Option<u8>| wanted.is_none() || wanted == found;
        let ports = ip.and_then(|ip| ip.ports);
        self.in_port.is_none_or(|port| port == input)
            && self.src_mac.is_none_or(|mac| mac == packet.src)
            && self.dst_mac.is_none_or(|mac| mac == packet.dst)
            && self.vlan.is_none_or(|vlan| vlan == vid)
            && self.ethertype.is_none_or(|ethertype| ethertype == packet.ethertype)
            && has(self.proto, ip.map(|ip: Ip| ip.proto))
            && self.src.is_none_or(|network| ip.is_some_and(|ip| is_in(ip.src, network)))
            && self.dst.is_none_or(|network| ip.is_some_and(|ip| is_in(ip.dst, network)))
            && self.src_ports.is_none_or(|range| ports.is_some_and(|ports| within(ports.0, range)))
            && self.dst_ports.is_none_or(|range| ports.is_some_and(|ports| within(ports.1, range)))
    }
}

fn within(port: u16, (first, last): (u16, u16)) -> bool {
    first <= port && port <= last
}

/// Bit by bit.
fn is_in(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    let octets = |address| match address {
        IpAddr::V4(address) => std::net::Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (address, network) = (octets(address), octets(network));
    let bit = |of: &[u8], number: usize| of[number / 8] >> (7 - number % 8) & 1;
    address.len() == network.len()
        && (0..usize::from(bits)).all(|number| bit(&address, number) == bit(&network, number))
}

impl Oracle {
    /// Where a packet goes that comes in at a port, which is remembered.
    pub(super) fn decide(&mut self, packet: &Packet, input: u16) -> Copies {
        // A group sends nothing (IEEE 802.3 clause 3.2.3).
        if packet.src >> 40 & 1 == 1 {
            return Vec::new();
        }
        let Some(vid) = self.ports[usize::from(input)].mode.vlan_of(packet.tci) else { return Vec::new() };
        self.stations.insert((vid, packet.src), input);
        let matching = self.rules.iter().filter(|rule| rule.matches(packet, input, vid));
        let rule = matching.min_by_key(|rule| (std::cmp::Reverse(rule.priority), rule.id));
        let mut outputs = match rule.map(|rule| &rule.action) {
            Some(Action::Drop) => Vec::new(),
            Some(Action::Output(ports)) => {
                ports.iter().copied().filter(|port| *port != input && self.carries(*port, vid)).collect()
            }
            Some(Action::Normal | Action::Mark(_) | Action::Mirror(_)) | None => {
                self.normal(packet, input, vid)
            }
        };
        if let Some(Action::Mirror(to)) = rule.map(|rule| &rule.action)
            && *to != input
            && !outputs.contains(to)
        {
            outputs.push(*to);
        }
        outputs.sort_unstable();
        outputs.retain(|port| self.ports[usize::from(*port)].is_up);
        outputs.into_iter().map(|port| (port, self.leaving(packet, vid, port))).collect()
    }

    fn carries(&self, port: u16, vid: u16) -> bool {
        self.ports[usize::from(port)].mode.carries(vid)
    }

    fn normal(&self, packet: &Packet, input: u16, vid: u16) -> Vec<u16> {
        if packet.dst & !0xf == 0x0180_c200_0000 {
            return Vec::new();
        }
        let is_group = packet.dst >> 40 & 1 == 1;
        let known = self.stations.get(&(vid, packet.dst)).filter(|_| !is_group);
        let all = (0..self.ports.len() as u16).collect::<Vec<_>>();
        let may = |port: &u16| {
            let [from, to] = [input, *port].map(|port| &self.ports[usize::from(port)]);
            *port != input && to.mode.carries(vid) && !(from.is_isolated && to.is_isolated)
        };
        known.map_or(all, |port| vec![*port]).into_iter().filter(may).collect()
    }

    fn leaving(&self, packet: &Packet, vid: u16, port: u16) -> Vec<u8> {
        let tci = self.ports[usize::from(port)].mode.tag_of(vid, packet.tci);
        let rest = &packet.bytes[if packet.tci.is_some() { 16 } else { 12 }..];
        let tag = tci.map(|tci| [&[0x81, 0x00][..], &tci.to_be_bytes()].concat()).unwrap_or_default();
        [&packet.bytes[..12], &tag, rest].concat()
    }
}
