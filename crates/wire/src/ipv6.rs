//! The IPv6 header and its extension headers (RFC 8200), as far as finding the transport segment needs them.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

/// Protocol numbers of extension headers that are walked across.
pub mod extension {
    /// Hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing header.
    pub const ROUTING: u8 = 43;
    /// Fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Authentication header (RFC 4302); its length is in other units than everyone else's.
    pub const AUTHENTICATION: u8 = 51;
    /// Destination options.
    pub const DESTINATION: u8 = 60;
}

/// Padding option of one byte.
pub const OPTION_PAD1: u8 = 0;
/// Home address option (RFC 6275, 6.3): the pseudo-header then takes another source than the header says.
pub const OPTION_HOME_ADDRESS: u8 = 0xc9;

/// The fixed header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version, traffic class and flow label.
    pub version_class_flow: [u8; 4],
    /// Bytes that follow this header.
    pub payload_len: U16,
    /// Protocol number of what follows.
    pub next_header: u8,
    /// Time to live by another name.
    pub hop_limit: u8,
    /// Source, then destination address: both go into the pseudo-header.
    pub addresses: [u8; 32],
}

impl Ipv6Header {
    /// The IP version the header claims.
    pub const fn version(&self) -> u8 {
        self.version_class_flow[0] >> 4
    }
}

/// The first four bytes of every extension header; for a routing header the fourth is the number of segments left,
/// for a fragment header the last two are its offset and its "more" bit.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExtensionHeader {
    /// Protocol number of what follows this header.
    pub next_header: u8,
    /// Length, in units that depend on the header: see [`ExtensionHeader::byte_len`].
    pub len_field: u8,
    /// Bytes 2 and 3.
    pub rest: U16,
}

impl ExtensionHeader {
    /// Bytes of this whole header, of which `kind` is the protocol number.
    pub const fn byte_len(&self, kind: u8) -> usize {
        let field = self.len_field as usize;
        match kind {
            extension::FRAGMENT => 8,
            extension::AUTHENTICATION => (field + 2) * 4,
            _ => (field + 1) * 8,
        }
    }

    /// For a routing header: how many stops lie ahead. When not 0, the header's destination is not the final one.
    pub fn segments_left(&self) -> u8 {
        self.rest.get().to_be_bytes()[1]
    }

    /// For a fragment header: whether there is more than this one fragment (an "atomic" fragment has no siblings,
    /// RFC 6946).
    pub fn is_fragment(&self) -> bool {
        self.rest.get() & 0xfff9 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_headers_count_their_length_each_in_its_own_way() {
        let header = ExtensionHeader { next_header: 6, len_field: 3, rest: U16::new(0) };
        let kinds = [extension::HOP_BY_HOP, extension::AUTHENTICATION, extension::FRAGMENT];
        assert_eq!(kinds.map(|kind| header.byte_len(kind)), [32, 20, 8], "a fragment header has no length");
    }
}
