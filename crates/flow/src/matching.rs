//! What a rule asks of a packet.
//!
//! Every field is optional, and a field that is absent asks nothing. A rule matches a packet that has everything it
//! asks for ([`Match::matches`], which is the definition; lookups are faster and agree with it).
//!
//! The rule it keeps: a match that no packet can fulfil is refused where it is made ([`Match::check`]), because it
//! would stand in a list of rules and look like protection.

use std::fmt;

use forebay_wire::l4::Transport;
use forebay_wire::{TagKinds, Unread, mac};

use crate::{Family, Fields, Network, PortRange, Prefix};

/// The VLANs a rule can name; 0 is that of packets without a tag on ports that carry every VLAN, 4095 is reserved by
/// IEEE 802.1Q.
const VLANS: std::ops::RangeInclusive<u16> = 0..=4094;
const MAC_BITS: u32 = 48;

/// What a rule asks; the default asks nothing and matches all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// The port a packet comes in by.
    pub in_port: Option<u32>,
    /// Source address, as in `forebay_wire::mac`.
    pub src_mac: Option<u64>,
    /// Destination address.
    pub dst_mac: Option<u64>,
    /// The VLAN a packet is classified to, whatever its tag says; 1 to 4094.
    pub vlan: Option<u16>,
    /// EtherType behind all tags; or 0x8100 or 0x88a8, which ask that a tag of this kind be there, besides the outer
    /// 802.1Q tag.
    pub ethertype: Option<u16>,
    /// Protocol number of IPv4 or IPv6; asks that the packet be one of these.
    pub ip_proto: Option<u8>,
    /// Network of the source address; asks for its version of IP.
    pub src: Option<Prefix>,
    /// Network of the destination address; asks for its version of IP.
    pub dst: Option<Prefix>,
    /// Source port of TCP, UDP or SCTP, one of which `ip_proto` has to name. Not matched by fragments but the first.
    pub src_ports: Option<PortRange>,
    /// Destination port, likewise.
    pub dst_ports: Option<PortRange>,
}

/// Why no packet can match: drop or correct the field that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchError {
    /// A MAC address has more than six bytes.
    #[error("{field} {value:#x} has more than 48 bits")]
    Mac {
        /// `src_mac` or `dst_mac`.
        field: &'static str,
        /// What was given.
        value: u64,
    },
    /// There is no such VLAN.
    #[error("vlan {value} is not one of {} to {}", VLANS.start(), VLANS.end())]
    Vlan {
        /// What was given.
        value: u16,
    },
    /// A packet's addresses are of one version of IP.
    #[error("src {src} and dst {dst} are of different versions of IP")]
    Families {
        /// The source network.
        src: Prefix,
        /// The destination network.
        dst: Prefix,
    },
    /// The EtherType is another one than the address's.
    #[error("{field} {prefix} is not found behind ethertype {ethertype:#06x}")]
    Address {
        /// `src` or `dst`.
        field: &'static str,
        /// The network.
        prefix: Prefix,
        /// The EtherType beside it.
        ethertype: u16,
    },
    /// The EtherType is not that of IP.
    #[error("ip_proto {proto} is not found behind ethertype {ethertype:#06x}, which is not IP")]
    Proto {
        /// The protocol number.
        proto: u8,
        /// The EtherType beside it.
        ethertype: u16,
    },
    /// The protocol has no ports, or none is named.
    #[error("{field} {ports} need ip_proto 6 (TCP), 17 (UDP) or 132 (SCTP), not {}", or_none(*.proto))]
    Ports {
        /// `src_ports` or `dst_ports`.
        field: &'static str,
        /// The ports.
        ports: PortRange,
        /// The protocol number beside them.
        proto: Option<u8>,
    },
}

fn or_none(proto: Option<u8>) -> String {
    proto.map_or_else(|| "none".to_owned(), |proto| proto.to_string())
}

impl Match {
    /// Whether a packet can match at all; says the first thing that stands in the way.
    pub fn check(&self) -> Result<(), MatchError> {
        self.check_l2()?;
        self.check_ports()?;
        self.check_network()
    }

    fn check_l2(&self) -> Result<(), MatchError> {
        for (field, value) in [("src_mac", self.src_mac), ("dst_mac", self.dst_mac)] {
            if let Some(value) = value.filter(|value| value >> MAC_BITS != 0) {
                return Err(MatchError::Mac { field, value });
            }
        }
        match self.vlan {
            Some(value) if !VLANS.contains(&value) => Err(MatchError::Vlan { value }),
            _ => Ok(()),
        }
    }

    fn check_ports(&self) -> Result<(), MatchError> {
        if self.ip_proto.and_then(Transport::from_protocol).is_some() {
            return Ok(());
        }
        for (field, ports) in [("src_ports", self.src_ports), ("dst_ports", self.dst_ports)] {
            if let Some(ports) = ports {
                return Err(MatchError::Ports { field, ports, proto: self.ip_proto });
            }
        }
        Ok(())
    }

    fn check_network(&self) -> Result<(), MatchError> {
        if let (Some(src), Some(dst)) = (self.src, self.dst)
            && src.family() != dst.family()
        {
            return Err(MatchError::Families { src, dst });
        }
        // Anything can be behind a tag.
        let Some(ethertype) = self.ethertype.filter(|_| self.tag_kind().is_empty()) else { return Ok(()) };
        for (field, prefix) in [("src", self.src), ("dst", self.dst)] {
            if let Some(prefix) = prefix.filter(|prefix| prefix.family().ethertype() != ethertype) {
                return Err(MatchError::Address { field, prefix, ethertype });
            }
        }
        let is_ip = [Family::V4, Family::V6].iter().any(|family| family.ethertype() == ethertype);
        match self.ip_proto {
            Some(proto) if !is_ip => Err(MatchError::Proto { proto, ethertype }),
            _ => Ok(()),
        }
    }

    /// Whether the packet has everything that is asked.
    pub fn matches(&self, fields: &Fields) -> bool {
        self.matches_l2(fields)
            && self.matches_ethertype(fields)
            && self.matches_network(fields.network.as_ref())
    }

    /// Whether the packet has what is asked of layer 2: port, VLAN, addresses.
    pub fn matches_l2(&self, fields: &Fields) -> bool {
        self.in_port.is_none_or(|port| port == fields.in_port)
            && self.vlan.is_none_or(|vlan| vlan == fields.vlan)
            && self.src_mac.is_none_or(|address| address == fields.src_mac)
            && self.dst_mac.is_none_or(|address| address == fields.dst_mac)
    }

    fn matches_ethertype(&self, fields: &Fields) -> bool {
        let kind = self.tag_kind();
        if kind.is_empty() {
            self.ethertype.is_none_or(|ethertype| ethertype == fields.ethertype)
        } else {
            !kind.among(fields.tags).is_empty()
        }
    }

    /// The kind of further tag that it asks for, if its EtherType is a tag's.
    pub(crate) fn tag_kind(&self) -> TagKinds {
        self.ethertype.map_or(TagKinds::NONE, TagKinds::announced_by)
    }

    /// What is left of it where this much of a packet is unread: it matches the packets that it might match if they were
    /// read. Equal to itself if it does not ask for what is unread.
    #[must_use]
    pub fn without(&self, unread: Unread) -> Match {
        let mut left = *self;
        if unread >= Unread::Ports {
            (left.src_ports, left.dst_ports) = (None, None);
        }
        if unread >= Unread::Transport {
            left.ip_proto = None;
        }
        if unread >= Unread::Everything {
            (left.ethertype, left.src, left.dst) = (None, None, None);
        }
        left
    }

    fn matches_network(&self, network: Option<&Network>) -> bool {
        let Some(network) = network else { return !self.asks_network() };
        self.ip_proto.is_none_or(|proto| proto == network.proto)
            && self.src.is_none_or(|prefix| prefix.covers(network.family, network.src))
            && self.dst.is_none_or(|prefix| prefix.covers(network.family, network.dst))
            && self.matches_ports(network.ports)
    }

    fn matches_ports(&self, ports: Option<(u16, u16)>) -> bool {
        let Some((src, dst)) = ports else { return !self.asks_ports() };
        self.src_ports.is_none_or(|range| range.contains(src))
            && self.dst_ports.is_none_or(|range| range.contains(dst))
    }

    pub(crate) fn asks_ports(&self) -> bool {
        self.src_ports.is_some() || self.dst_ports.is_some()
    }

    fn asks_network(&self) -> bool {
        self.ip_proto.is_some() || self.src.is_some() || self.dst.is_some() || self.asks_ports()
    }

    /// Whether it asks for nothing deeper than layer 2. The EtherType is deeper.
    pub fn is_l2_only(&self) -> bool {
        self.ethertype.is_none() && !self.asks_network()
    }
}

/// A MAC address as people write it.
struct Mac(u64);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = mac::to_bytes(self.0);
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The fields that are asked, in the order of the headers, as in `vlan 10 ethertype 0x0800 src 10.0.0.0/8`; or `any`.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("in_port", self.in_port.map(|port| port.to_string())),
            ("src_mac", self.src_mac.map(|address| Mac(address).to_string())),
            ("dst_mac", self.dst_mac.map(|address| Mac(address).to_string())),
            ("vlan", self.vlan.map(|vlan| vlan.to_string())),
            ("ethertype", self.ethertype.map(|ethertype| format!("{ethertype:#06x}"))),
            ("ip_proto", self.ip_proto.map(|proto| proto.to_string())),
            ("src", self.src.map(|prefix| prefix.to_string())),
            ("dst", self.dst.map(|prefix| prefix.to_string())),
            ("src_ports", self.src_ports.map(|ports| ports.to_string())),
            ("dst_ports", self.dst_ports.map(|ports| ports.to_string())),
        ];
        let asked = fields.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        let asked: Vec<String> = asked.collect();
        f.pad(if asked.is_empty() { "any".to_owned() } else { asked.join(" ") }.as_str())
    }
}

#[cfg(test)]
mod tests;
