//! The Ethernet header and the EtherTypes this crate looks behind.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an Ethernet header, and hence of the shortest frame that has one.
pub const HEADER_LEN: usize = 14;

/// EtherTypes, from the IEEE registration authority's list.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// 802.1Q customer tag: the one that selects a VLAN in this switch.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag: it selects no VLAN.
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// The 14 bytes that every frame begins with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    /// Destination address.
    pub dst: [u8; 6],
    /// Source address.
    pub src: [u8; 6],
    /// EtherType, or an 802.3 length when below 0x600.
    pub ethertype: U16,
}
