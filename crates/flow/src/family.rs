//! The two versions of IP, and their addresses as one kind of number.
//!
//! An address is the first bits of a `u128`: an IPv4 address fills the upper 32 and leaves the rest zero, as in the
//! 16 bytes of a kernel map's key. So one mask, one comparison and one order serve both; the family tells them
//! apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_wire::ethernet::ethertype;

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Bits of an address.
    pub const fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// The EtherType that carries it.
    pub const fn ethertype(self) -> u16 {
        match self {
            Family::V4 => ethertype::IPV4,
            Family::V6 => ethertype::IPV6,
        }
    }

    /// The family and the number of an address.
    pub(crate) fn split(address: IpAddr) -> (Family, u128) {
        match address {
            IpAddr::V4(address) => (Family::V4, from_v4(address)),
            IpAddr::V6(address) => (Family::V6, address.to_bits()),
        }
    }

    /// The address of this family that a number stands for.
    pub(crate) fn address(self, number: u128) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::from_bits((number >> 96) as u32).into(),
            Family::V6 => Ipv6Addr::from_bits(number).into(),
        }
    }
}

/// The number of an IPv4 address.
pub(crate) fn from_v4(address: Ipv4Addr) -> u128 {
    u128::from(address.to_bits()) << 96
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_through_numbers() {
        for text in ["0.0.0.0", "192.0.2.1", "255.255.255.255", "::", "fd00::1", "::ffff:192.0.2.1"] {
            let address: IpAddr = text.parse().unwrap();
            let (family, number) = Family::split(address);
            assert_eq!(family.address(number), address);
            assert_eq!(family == Family::V4, address.is_ipv4());
        }
    }

    #[test]
    fn an_ipv4_address_comes_first_in_the_bytes() {
        let (_, number) = Family::split("192.0.2.1".parse().unwrap());
        assert_eq!(number.to_be_bytes(), [192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn each_family_has_its_ethertype() {
        assert_eq!((Family::V4.ethertype(), Family::V4.bits()), (0x0800, 32));
        assert_eq!((Family::V6.ethertype(), Family::V6.bits()), (0x86dd, 128));
    }
}
