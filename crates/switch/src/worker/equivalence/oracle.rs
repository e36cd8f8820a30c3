//! A switch as one would write it without haste: all rules in order, and a map of stations.

use std::collections::HashMap;
use std::net::IpAddr;

use forebay_wire::Unread;
use forebay_wire::ethernet::ethertype::{SERVICE_VLAN, VLAN};

use super::packets::{Ip, Packet};

/// A port's VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    All,
    Access(u16),
    AccessTagged(u16),
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
            Mode::Access(vid) | Mode::AccessTagged(vid) => Some(*vid),
            Mode::Trunk(_, native) => *native,
        }
    }

    fn carries(&self, vid: u16) -> bool {
        match self {
            Mode::All => true,
            Mode::Access(own) | Mode::AccessTagged(own) => *own == vid,
            Mode::Trunk(vids, native) => vids.contains(&vid) || *native == Some(vid),
        }
    }

    /// The VLAN of a packet, if the port takes it: an access port takes no tags, but for a single priority tag.
    fn vlan_of(&self, packet: &Packet) -> Option<u16> {
        let vid = packet.tci.unwrap_or(0) & 0xfff;
        if matches!(self, Mode::Access(_)) && (vid != 0 || !packet.further.is_empty()) {
            return None;
        }
        match vid {
            0 => self.untagged(),
            4095 => None,
            vid => Some(vid).filter(|vid| self.carries(*vid)),
        }
    }

    /// The outer tag that a packet leaves with. In a trunk's native VLAN, a tag behind it would pass for the outer one.
    fn tag_of(&self, vid: u16, packet: &Packet) -> Option<u16> {
        let tci = packet.tci;
        let shields = matches!(self, Mode::Trunk(..)) && !packet.further.is_empty();
        if *self == Mode::All && vid == 0 {
            tci
        } else if self.untagged() == Some(vid) && !shields {
            None
        } else {
            Some(tci.unwrap_or(0) & 0xf000 | vid)
        }
    }
}

/// Whether a packet has what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    No,
    /// Nobody knows.
    Maybe,
    Yes,
}

fn known(has: bool) -> Answer {
    if has { Answer::Yes } else { Answer::No }
}

impl Rule {
    /// The worst answer to what it asks.
    fn matches(&self, packet: &Packet, input: u16, vid: u16) -> Answer {
        let ip = packet.ip;
        // What is read says no or yes; else, whoever hides that much gets the answer that nobody knows.
        let read = |hidden: Unread, is_asked: bool, has: bool| match is_asked {
            false => Answer::Yes,
            true if packet.unread >= hidden => Answer::Maybe,
            true => known(has),
        };
        let network = |wanted: Option<(IpAddr, u8)>, address: fn(Ip) -> IpAddr| {
            let has = wanted.is_some_and(|network| ip.is_some_and(|ip| is_in(address(ip), network)));
            read(Unread::Everything, wanted.is_some(), has)
        };
        let port = |wanted: Option<(u16, u16)>, port: fn((u16, u16)) -> u16| {
            let found = ip.and_then(|ip| ip.ports).map(port);
            let has = wanted.zip(found).is_some_and(|(range, found)| within(found, range));
            read(Unread::Ports, wanted.is_some(), has)
        };
        let ethertype = self.ethertype.is_some_and(|ethertype| match ethertype {
            VLAN | SERVICE_VLAN => packet.further.contains(&ethertype),
            other => other == packet.ethertype,
        });
        let answers = [
            known(self.in_port.is_none_or(|port| port == input)),
            known(self.src_mac.is_none_or(|mac| mac == packet.src)),
            known(self.dst_mac.is_none_or(|mac| mac == packet.dst)),
            known(self.vlan.is_none_or(|vlan| vlan == vid)),
            read(Unread::Everything, self.ethertype.is_some(), ethertype),
            read(Unread::Transport, self.proto.is_some(), self.proto == ip.map(|ip| ip.proto)),
            network(self.src, |ip| ip.src),
            network(self.dst, |ip| ip.dst),
            port(self.src_ports, |ports| ports.0),
            port(self.dst_ports, |ports| ports.1),
        ];
        answers.into_iter().min().unwrap_or(Answer::Yes)
    }

    /// A packet that might fall under it and does not must not get away.
    fn restricts(&self) -> bool {
        matches!(self.action, Action::Drop | Action::Output(_))
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
        let Some(vid) = self.ports[usize::from(input)].mode.vlan_of(packet) else { return Vec::new() };
        self.stations.insert((vid, packet.src), input);
        let mut rules: Vec<&Rule> = self.rules.iter().collect();
        rules.sort_by_key(|rule| (std::cmp::Reverse(rule.priority), rule.id));
        let answers = rules.into_iter().map(|rule| (rule, rule.matches(packet, input, vid)));
        let decides = |(rule, answer): &(&Rule, Answer)| match answer {
            Answer::No => false,
            Answer::Maybe => rule.restricts(),
            Answer::Yes => true,
        };
        let rule = match answers.into_iter().find(decides) {
            Some((_, Answer::Maybe)) => return Vec::new(),
            found => found.map(|(rule, _)| rule),
        };
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
        let tci = self.ports[usize::from(port)].mode.tag_of(vid, packet);
        let rest = &packet.bytes[if packet.tci.is_some() { 16 } else { 12 }..];
        let tag = tci.map(|tci| [&[0x81, 0x00][..], &tci.to_be_bytes()].concat()).unwrap_or_default();
        [&packet.bytes[..12], &tag, rest].concat()
    }
}
