//! The IPv4 header (RFC 791), as far as finding the transport segment needs it.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;

/// "More fragments" and the 13 bits of fragment offset; either one set makes the packet a fragment.
const FRAGMENT_BITS: u16 = 0x3fff;

/// Option numbers that end and pad the option list.
pub const OPTION_END: u8 = 0;
/// One byte of padding between options.
pub const OPTION_NOP: u8 = 1;
/// Loose source and record route.
pub const OPTION_LSRR: u8 = 131;
/// Strict source and record route.
pub const OPTION_SSRR: u8 = 137;

/// The fixed part of an IPv4 header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version in the upper, header length in 32-bit words in the lower half.
    pub version_ihl: u8,
    /// Differentiated services and congestion notification.
    pub tos: u8,
    /// Bytes of header and payload together.
    pub total_len: U16,
    /// Identification of the packet that a fragment belongs to.
    pub id: U16,
    /// Flags and fragment offset.
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Checksum over the header.
    pub checksum: U16,
    /// Source, then destination address: both go into the pseudo-header.
    pub addresses: [u8; 8],
}

impl Ipv4Header {
    /// The IP version the header claims.
    pub const fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Bytes of the header with its options, as the header claims.
    pub const fn header_len(&self) -> usize {
        (self.version_ihl & 0xf) as usize * 4
    }

    /// Whether the packet is one part of a larger one.
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & FRAGMENT_BITS != 0
    }
}
