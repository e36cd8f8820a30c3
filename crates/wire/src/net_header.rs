//! The header that says what a packet's sender left undone (`virtio_net_hdr`, virtio 1.3, 5.1.6): to finish a checksum, to
//! cut the packet. It stands in front of each packet in a virtqueue, and in a packet socket with PACKET_VNET_HDR.
//!
//! Whoever wrote it may have written anything: [`crate::cut`] compares it with the packet.

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
    /// Added to a TCP kind: the mark that the window was reduced (CWR) stays on the first segment alone.
    pub const ECN: u8 = 0x80;
}

/// Bytes of the longest header, with a hash.
pub const MAX_HEADER_BYTES: usize = 20;

/// What a header says. All zero: nothing is left undone.
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
    /// Whether the checksum is unfinished.
    #[inline]
    pub fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// Whether the packet is to be cut.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.gso_type != gso::NONE
    }

    /// Whether nothing is left undone.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.needs_checksum() && !self.is_long()
    }

    /// The header of the same packet with so many bytes more in front of its network header.
    #[inline]
    #[must_use]
    pub fn moved_by(self, bytes: i16) -> Self {
        if self.is_plain() {
            return self;
        }
        let csum_start = self.csum_start.wrapping_add_signed(bytes);
        Self { csum_start, hdr_len: self.hdr_len.wrapping_add_signed(bytes), ..self }
    }

    /// Reads the ten bytes that all headers begin with.
    #[inline]
    pub fn from_bytes(bytes: &[u8; MAX_HEADER_BYTES]) -> Self {
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

    /// The usual header of 12 bytes as two numbers, the first byte lowest. `buffers` is the number of chains that the packet
    /// lies in.
    #[inline]
    pub fn to_numbers(self, buffers: u16) -> (u64, u32) {
        let kind = u16::from_le_bytes([self.flags, self.gso_type]);
        let parts = [self.csum_start, self.gso_size, self.hdr_len, kind];
        let low = parts.into_iter().fold(0, |number, part| number << 16 | u64::from(part));
        (low, u32::from(buffers) << 16 | u32::from(self.csum_offset))
    }

    /// Writes the longest header. `buffers` is the number of chains that the packet lies in; it has a hash of no kind.
    #[inline]
    pub fn to_bytes(self, buffers: u16) -> [u8; MAX_HEADER_BYTES] {
        let mut bytes = [0; MAX_HEADER_BYTES];
        let (low, high) = self.to_numbers(buffers);
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..12].copy_from_slice(&high.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = NetHeader {
            flags: NEEDS_CSUM,
            gso_type: gso::TCPV4 | gso::ECN,
            hdr_len: 0x1234,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        };
        let bytes = header.to_bytes(3);
        assert_eq!(bytes[..12], [1, 0x81, 0x34, 0x12, 0xa8, 5, 34, 0, 16, 0, 3, 0]);
        assert_eq!(NetHeader::from_bytes(&bytes), header);
    }

    #[test]
    fn a_tag_moves_what_a_header_points_at() {
        let header = NetHeader { flags: NEEDS_CSUM, hdr_len: 54, csum_start: 34, ..NetHeader::default() };
        let moved = header.moved_by(4);
        assert_eq!((moved.csum_start, moved.hdr_len), (38, 58));
        assert_eq!(moved.moved_by(-4), header);
        assert_eq!(NetHeader::default().moved_by(4), NetHeader::default());
    }
}
