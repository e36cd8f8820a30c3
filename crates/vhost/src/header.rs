//! The header in front of each packet in a virtqueue (`virtio_net_hdr`, virtio 1.3, 5.1.6).

use crate::error::HeaderError;
use crate::features::Features;

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

/// Features that a sender and a receiver of long packets need, by kind: of the device, of the guest.
const KINDS: [(u8, Features, Features); 3] = [
    (gso::TCPV4, Features::HOST_TSO4, Features::GUEST_TSO4),
    (gso::TCPV6, Features::HOST_TSO6, Features::GUEST_TSO6),
    (gso::UDP_L4, Features::HOST_USO, Features::GUEST_USO4.with(Features::GUEST_USO6)),
];

impl NetHeader {
    /// Checks the header of a packet of `len` bytes that a guest sends. `agreed` are the features of both ends.
    ///
    /// # Errors
    /// The packet is to be dropped.
    pub fn check(&self, len: u32, agreed: Features) -> Result<(), HeaderError> {
        let is_unfinished = self.flags & NEEDS_CSUM != 0;
        if is_unfinished {
            if !agreed.has(Features::CSUM) {
                return Err(HeaderError::Checksum { is_there: true });
            }
            let end = u32::from(self.csum_start) + u32::from(self.csum_offset) + 2;
            if end > len {
                return Err(HeaderError::ChecksumOutside { end, len });
            }
        }
        if self.gso_type == gso::NONE {
            return Ok(());
        }
        if !self.is_agreed(|(_, of_device, _)| *of_device, Features::HOST_ECN, agreed) {
            return Err(HeaderError::Segmentation { kind: self.gso_type });
        }
        match (is_unfinished, self.gso_size) {
            (false, _) => Err(HeaderError::Checksum { is_there: false }),
            (true, 0) => Err(HeaderError::NoSegmentSize),
            (true, _) => Ok(()),
        }
    }

    /// Whether a guest takes a packet with this header as it is. If not, its checksum is to be completed, or the packet
    /// to be cut, before.
    #[inline]
    pub fn is_taken(&self, agreed: Features) -> bool {
        let checksum = self.flags & NEEDS_CSUM == 0 || agreed.has(Features::GUEST_CSUM);
        let length = self.gso_type == gso::NONE
            || self.is_agreed(|(_, _, of_guest)| *of_guest, Features::GUEST_ECN, agreed);
        checksum && length
    }

    fn is_agreed(
        &self,
        needed: impl Fn(&(u8, Features, Features)) -> Features,
        marks: Features,
        agreed: Features,
    ) -> bool {
        let kind = KINDS.iter().find(|(kind, ..)| *kind == self.gso_type & !gso::ECN);
        let has_marks = self.gso_type & gso::ECN != 0;
        kind.is_some_and(|kind| agreed.has(needed(kind))) && (!has_marks || agreed.has(marks))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: NetHeader = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: gso::TCPV4,
        hdr_len: 54,
        gso_size: 1460,
        csum_start: 34,
        csum_offset: 16,
    };
    const ALL: Features = Features::ALL;

    #[test]
    fn a_header_that_keeps_to_what_was_agreed_on_passes() {
        assert_eq!(NetHeader::default().check(0, Features::default()), Ok(()));
        for kind in [gso::TCPV4, gso::TCPV6, gso::UDP_L4, gso::TCPV4 | gso::ECN] {
            assert_eq!(NetHeader { gso_type: kind, ..LONG }.check(52, ALL), Ok(()));
        }
    }

    #[test]
    fn a_header_that_lies_is_refused_by_what_is_wrong() {
        assert_eq!(LONG.check(51, ALL), Err(HeaderError::ChecksumOutside { end: 52, len: 51 }));
        let far = NetHeader { csum_start: u16::MAX, csum_offset: u16::MAX, ..LONG };
        assert_eq!(far.check(100, ALL), Err(HeaderError::ChecksumOutside { end: 131_072, len: 100 }));
        assert_eq!(NetHeader { gso_size: 0, ..LONG }.check(52, ALL), Err(HeaderError::NoSegmentSize));
        assert_eq!(
            NetHeader { flags: 0, ..LONG }.check(52, ALL),
            Err(HeaderError::Checksum { is_there: false })
        );
        for kind in [gso::UDP, 2, 6, 0x7f, gso::ECN] {
            let header = NetHeader { gso_type: kind, ..LONG };
            assert_eq!(header.check(52, ALL), Err(HeaderError::Segmentation { kind }));
        }
    }

    #[test]
    fn what_was_not_agreed_on_is_refused() {
        let error = LONG.check(52, ALL.without(Features::CSUM));
        assert_eq!(error, Err(HeaderError::Checksum { is_there: true }));
        let error = LONG.check(52, ALL.without(Features::HOST_TSO4));
        assert_eq!(error, Err(HeaderError::Segmentation { kind: gso::TCPV4 }));
        let marked = NetHeader { gso_type: gso::TCPV4 | gso::ECN, ..LONG };
        assert!(marked.check(52, ALL.without(Features::HOST_ECN)).is_err());
    }

    #[test]
    fn a_guest_takes_what_it_agreed_to() {
        assert!(LONG.is_taken(ALL) && NetHeader::default().is_taken(Features::default()));
        for missing in [Features::GUEST_CSUM, Features::GUEST_TSO4] {
            assert!(!LONG.is_taken(ALL.without(missing)));
        }
        let udp = NetHeader { gso_type: gso::UDP_L4, ..LONG };
        assert!(udp.is_taken(ALL) && !udp.is_taken(ALL.without(Features::GUEST_USO6)));
    }
}
