//! How little of a packet has to be told apart.
//!
//! A flow in the kernel whose key were whole addresses and ports would need an entry for every address and port
//! that somebody scans. But rules tell few of them apart: with one rule about ports 80 to 90, a port is in that
//! range or it is not. Two packets that are equal on layer 2 and of equal [`Class`] fall under the same rule; so a
//! class is all that a flow's key needs of what lies deeper.
//!
//! The rule it keeps: in every dimension class 0 is what no rule names: an address in no network, a port in no
//! range, and what a packet does not have, as a packet that is not IP has no address. So a dimension that no rule
//! asks for is 0 in all packets, and no flags are needed: networks of both families are numbered in one row, and a
//! packet without ports is like one whose ports no rule names.

use forebay_wire::TagKinds;

use crate::{Fields, Match, PortRange, Prefix};

mod limit;
mod numbers;
mod ports;
mod prefixes;

pub use limit::{MAX_CLASSES, TooManyClasses};

use numbers::NumberClasses;
use ports::PortClasses;
use prefixes::PrefixClasses;

/// All protocol numbers but one.
const MAX_PROTO_CLASSES: usize = u8::MAX as usize;

/// What rules can tell of a packet behind layer 2, 12 bytes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    /// Of the EtherType.
    pub ethertype: u16,
    /// Of the source address.
    pub src: u16,
    /// Of the destination address.
    pub dst: u16,
    /// Of the source port.
    pub sport: u16,
    /// Of the destination port.
    pub dport: u16,
    /// Of the protocol.
    pub proto: u8,
    /// Kinds of further tags, of those that rules ask for.
    pub tags: TagKinds,
}

/// The classes that a set of rules makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    tags: TagKinds,
    ethertypes: NumberClasses,
    protos: NumberClasses,
    src: PrefixClasses,
    dst: PrefixClasses,
    sports: PortClasses,
    dports: PortClasses,
}

impl Classes {
    /// The classes of these rules; in proportion to the rules, not to what they match.
    pub fn new<'a>(rules: impl IntoIterator<Item = &'a Match>) -> Result<Classes, TooManyClasses> {
        let rules: Vec<&Match> = rules.into_iter().collect();
        let rules = || rules.iter();
        let ethertype = |rule: &&Match| rule.ethertype.filter(|_| rule.tag_kind().is_empty());
        Ok(Classes {
            tags: rules().fold(TagKinds::NONE, |tags, rule| tags.with(rule.tag_kind())),
            // Without those of tags there are fewer than `MAX_CLASSES`.
            ethertypes: NumberClasses::new(rules().filter_map(ethertype)),
            protos: NumberClasses::new(rules().filter_map(|rule| rule.ip_proto.map(u16::from)))
                .within("IP protocols", MAX_PROTO_CLASSES)?,
            src: PrefixClasses::new(rules().filter_map(|rule| rule.src), "source networks")?,
            dst: PrefixClasses::new(rules().filter_map(|rule| rule.dst), "destination networks")?,
            sports: PortClasses::new(rules().filter_map(|rule| rule.src_ports), "source ports")?,
            dports: PortClasses::new(rules().filter_map(|rule| rule.dst_ports), "destination ports")?,
        })
    }

    /// The packet's class. Allocates nothing; may be called on the packet path.
    pub fn of(&self, fields: &Fields) -> Class {
        let (ethertype, tags) = (self.ethertypes.of(fields.ethertype), self.tags.among(fields.tags));
        let mut class = Class { ethertype, tags, ..Class::default() };
        if let Some(network) = &fields.network {
            class.proto = self.protos.of(network.proto.into()) as u8;
            class.src = self.src.of(network.family, network.src);
            class.dst = self.dst.of(network.family, network.dst);
        }
        if let Some((sport, dport)) = fields.ports() {
            class.sport = self.sports.of(sport);
            class.dport = self.dports.of(dport);
        }
        class
    }

    /// The EtherTypes that have a class of their own, with it; all others are class 0.
    pub fn ethertypes(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.ethertypes.iter()
    }

    /// The kinds of further tags that rules ask for.
    pub fn tags(&self) -> TagKinds {
        self.tags
    }

    /// The class of every protocol number. A packet that is not IP is class 0.
    pub fn protos(&self) -> [u8; 256] {
        let mut classes = [0; 256];
        for (proto, class) in self.protos.iter() {
            classes[usize::from(proto)] = class as u8;
        }
        classes
    }

    /// Source networks with their classes: an address is of the class of the longest that it is in, else of class 0.
    /// A class belongs to one network, so that families need not be told apart by anything else.
    pub fn src_prefixes(&self) -> impl Iterator<Item = (Prefix, u16)> + '_ {
        self.src.iter()
    }

    /// Destination networks with their classes, likewise.
    pub fn dst_prefixes(&self) -> impl Iterator<Item = (Prefix, u16)> + '_ {
        self.dst.iter()
    }

    /// Source ports with their classes, in order and without gaps from 0 to 65535. A packet without ports is class 0.
    pub fn src_ports(&self) -> &[(PortRange, u16)] {
        self.sports.runs()
    }

    /// Destination ports with their classes, likewise.
    pub fn dst_ports(&self) -> &[(PortRange, u16)] {
        self.dports.runs()
    }
}

#[cfg(test)]
mod tests;
