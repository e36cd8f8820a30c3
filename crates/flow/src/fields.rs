//! What was read from one packet.
//!
//! The rule it keeps: what a packet does not have is absent, not zero. A packet that is not IP has no network, and
//! one whose transport header it does not carry has no ports, so that no rule that asks for these matches it by
//! accident.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_wire::{TagKinds, Unread};

use crate::Family;
use crate::family::from_v4;

/// What rules can ask of a packet. The first four are layer 2: what the kernel's first lookup goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fields {
    /// The port it came in by.
    pub in_port: u32,
    /// The VLAN it was classified to, whatever its tag says.
    pub vlan: u16,
    /// Source address, as in `forebay_wire::mac`.
    pub src_mac: u64,
    /// Destination address.
    pub dst_mac: u64,
    /// EtherType behind all tags. It counts as deeper than layer 2.
    pub ethertype: u16,
    /// Kinds of its tags besides the outer 802.1Q tag. They count as deeper too.
    pub tags: TagKinds,
    /// Its IP header, if it has one that can be read.
    pub network: Option<Network>,
    /// What of all this could not be read: [`crate::UnreadClassifier`] says what rules say then.
    pub unread: Unread,
}

/// What was read from an IP header and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    pub(crate) family: Family,
    pub(crate) src: u128,
    pub(crate) dst: u128,
    /// Protocol number: IPv4's protocol; of IPv6, the next header behind all extension headers.
    pub proto: u8,
    /// Source and destination port of TCP, UDP and SCTP. The first fragment of a packet has them, for it carries the
    /// transport header; later fragments do not, and other protocols have none.
    pub ports: Option<(u16, u16)>,
}

impl Network {
    /// Of an IPv4 packet.
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, ports: Option<(u16, u16)>) -> Network {
        Network { family: Family::V4, src: from_v4(src), dst: from_v4(dst), proto, ports }
    }

    /// Of an IPv6 packet.
    pub fn v6(src: Ipv6Addr, dst: Ipv6Addr, proto: u8, ports: Option<(u16, u16)>) -> Network {
        Network { family: Family::V6, src: src.to_bits(), dst: dst.to_bits(), proto, ports }
    }

    /// The version of IP.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Source address.
    pub fn src(&self) -> IpAddr {
        self.family.address(self.src)
    }

    /// Destination address.
    pub fn dst(&self) -> IpAddr {
        self.family.address(self.dst)
    }
}

impl Fields {
    /// Source and destination port, if the packet has them.
    pub fn ports(&self) -> Option<(u16, u16)> {
        self.network.and_then(|network| network.ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_gives_back_its_addresses() {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 7));
        let v4 = Network::v4(src, dst, 6, Some((1, 2)));
        assert_eq!((v4.src(), v4.dst(), v4.family()), (src.into(), dst.into(), Family::V4));
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let v6 = Network::v6(src, dst, 58, None);
        assert_eq!((v6.src(), v6.dst(), v6.family()), (src.into(), dst.into(), Family::V6));
    }
}
