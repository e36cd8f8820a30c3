//! Transport protocols whose checksum a sender may leave to hardware.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A transport protocol with a checksum that this crate can finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RFC 9293; internet checksum.
    Tcp,
    /// RFC 768; internet checksum, where 0 means "none".
    Udp,
    /// RFC 9260; CRC32c without a pseudo-header.
    Sctp,
}

impl Transport {
    /// The protocol of an IP protocol number, if it is one of ours.
    pub const fn from_protocol(number: u8) -> Option<Self> {
        match number {
            6 => Some(Transport::Tcp),
            17 => Some(Transport::Udp),
            132 => Some(Transport::Sctp),
            _ => None,
        }
    }

    /// The IP protocol number.
    pub const fn protocol(self) -> u8 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
            Transport::Sctp => 132,
        }
    }

    /// Bytes of the shortest header; a shorter segment is malformed.
    pub const fn min_header_len(self) -> usize {
        match self {
            Transport::Tcp => 20,
            Transport::Udp => 8,
            Transport::Sctp => 12,
        }
    }

    /// Where in the header the checksum lies: two bytes, four for SCTP.
    pub const fn checksum_offset(self) -> usize {
        match self {
            Transport::Tcp => 16,
            Transport::Udp => 6,
            Transport::Sctp => 8,
        }
    }
}

/// The UDP header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// Source and destination port.
    pub ports: [U16; 2],
    /// Bytes of header and payload; may be less than what IP carries.
    pub len: U16,
    /// Checksum, 0 for none.
    pub checksum: U16,
}
