//! The header in front of each packet in a virtqueue (`virtio_net_hdr`, virtio 1.3, 5.1.6).

/// The checksum from `csum_start` on is unfinished; it belongs at `csum_start + csum_offset`.
pub const NEEDS_CSUM: u8 = 1;
/// Checksums of the packet are known to be right.
pub const DATA_VALID: u8 = 2;

/// How a long packet is to be cut into segments.
pub mod gso {
    /// Not at all.
    pub const NONE: u8 = 0;
    /// TCP over IPv4.
    pub const TCPV4: u8 = 1;
    /// UDP fragments.
    pub const UDP: u8 = 3;
    /// TCP over IPv6.
    pub const TCPV6: u8 = 4;
    /// UDP segments.
    pub const UDP_L4: u8 = 5;
    /// Added to a TCP kind: the congestion mark is kept on the first segment alone.
    pub const ECN: u8 = 0x80;
}

/// Bytes of the longest header, with a hash.
pub(crate) const MAX_HEADER_BYTES: usize = 20;

/// What a header says, copied. A guest wrote it: each number may be anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// A number of [`gso`].
    pub gso_type: u8,
    /// Bytes of all headers of a packet to be cut; a hint.
    pub hdr_len: u16,
    /// Payload of each segment.
    pub gso_size: u16,
    /// Where the unfinished checksum begins, from the start of the packet.
    pub csum_start: u16,
    /// Where it is to be written, from `csum_start`.
    pub csum_offset: u16,
}

impl NetHeader {
    /// Reads the ten bytes that all headers begin with.
    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8; MAX_HEADER_BYTES]) -> Self {
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: number(2),
            gso_size: number(4),
            csum_start: number(6),
            csum_offset: number(8),
        }
    }

    /// Writes the longest header. `buffers` is the number of chains that the packet lies in; it has a hash of no kind.
    #[inline]
    pub(crate) fn to_bytes(self, buffers: u16) -> [u8; MAX_HEADER_BYTES] {
        let mut bytes = [0; MAX_HEADER_BYTES];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let numbers = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset, buffers];
        for (index, number) in numbers.into_iter().enumerate() {
            bytes[2 + 2 * index..4 + 2 * index].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}
