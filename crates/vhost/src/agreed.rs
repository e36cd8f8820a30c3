//! Which offloads two ends agreed on, against what a packet's header asks.

use forebay_wire::net_header::{NetHeader, gso};

use crate::error::HeaderError;
use crate::features::Features;

/// Features that a sender and a receiver of long packets need, by kind: of the device, of the guest.
const KINDS: [(u8, Features, Features); 3] = [
    (gso::TCPV4, Features::HOST_TSO4, Features::GUEST_TSO4),
    (gso::TCPV6, Features::HOST_TSO6, Features::GUEST_TSO6),
    (gso::UDP_L4, Features::HOST_USO, Features::GUEST_USO4.with(Features::GUEST_USO6)),
];

impl Features {
    /// Checks the header of a packet of `len` bytes that a guest sends; `self` is what both ends agreed on.
    ///
    /// # Errors
    /// The packet is to be dropped.
    pub fn check(self, header: &NetHeader, len: u32) -> Result<(), HeaderError> {
        if header.needs_checksum() {
            if !self.has(Features::CSUM) {
                return Err(HeaderError::Checksum { is_there: true });
            }
            let end = u32::from(header.csum_start) + u32::from(header.csum_offset) + 2;
            if end > len {
                return Err(HeaderError::ChecksumOutside { end, len });
            }
        }
        if !header.is_long() {
            return Ok(());
        }
        if !self.has_kind(header.gso_type, |(_, of_device, _)| *of_device, Features::HOST_ECN) {
            return Err(HeaderError::Segmentation { kind: header.gso_type });
        }
        match (header.needs_checksum(), header.gso_size) {
            (false, _) => Err(HeaderError::Checksum { is_there: false }),
            (true, 0) => Err(HeaderError::NoSegmentSize),
            (true, _) => Ok(()),
        }
    }

    /// Whether a guest takes a packet with this header as it is. If not, its checksum is to be completed, or the packet
    /// to be cut, before.
    #[inline]
    pub fn takes(self, header: &NetHeader) -> bool {
        let checksum = !header.needs_checksum() || self.has(Features::GUEST_CSUM);
        let length = !header.is_long()
            || self.has_kind(header.gso_type, |(_, _, of_guest)| *of_guest, Features::GUEST_ECN);
        checksum && length
    }

    fn has_kind(
        self,
        gso_type: u8,
        needed: impl Fn(&(u8, Features, Features)) -> Features,
        marks: Features,
    ) -> bool {
        let kind = KINDS.iter().find(|(kind, ..)| *kind == gso_type & !gso::ECN);
        let has_marks = gso_type & gso::ECN != 0;
        kind.is_some_and(|kind| self.has(needed(kind))) && (!has_marks || self.has(marks))
    }
}

#[cfg(test)]
mod tests {
    use forebay_wire::net_header::NEEDS_CSUM;

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
        assert_eq!(Features::default().check(&NetHeader::default(), 0), Ok(()));
        for kind in [gso::TCPV4, gso::TCPV6, gso::UDP_L4, gso::TCPV4 | gso::ECN] {
            assert_eq!(ALL.check(&NetHeader { gso_type: kind, ..LONG }, 52), Ok(()));
        }
    }

    #[test]
    fn a_header_that_lies_is_refused_by_what_is_wrong() {
        assert_eq!(ALL.check(&LONG, 51), Err(HeaderError::ChecksumOutside { end: 52, len: 51 }));
        let far = NetHeader { csum_start: u16::MAX, csum_offset: u16::MAX, ..LONG };
        assert_eq!(ALL.check(&far, 100), Err(HeaderError::ChecksumOutside { end: 131_072, len: 100 }));
        assert_eq!(ALL.check(&NetHeader { gso_size: 0, ..LONG }, 52), Err(HeaderError::NoSegmentSize));
        assert_eq!(
            ALL.check(&NetHeader { flags: 0, ..LONG }, 52),
            Err(HeaderError::Checksum { is_there: false })
        );
        for kind in [gso::UDP, 2, 6, 0x7f, gso::ECN] {
            let header = NetHeader { gso_type: kind, ..LONG };
            assert_eq!(ALL.check(&header, 52), Err(HeaderError::Segmentation { kind }));
        }
    }

    #[test]
    fn what_was_not_agreed_on_is_refused() {
        let error = ALL.without(Features::CSUM).check(&LONG, 52);
        assert_eq!(error, Err(HeaderError::Checksum { is_there: true }));
        let error = ALL.without(Features::HOST_TSO4).check(&LONG, 52);
        assert_eq!(error, Err(HeaderError::Segmentation { kind: gso::TCPV4 }));
        let marked = NetHeader { gso_type: gso::TCPV4 | gso::ECN, ..LONG };
        assert!(ALL.without(Features::HOST_ECN).check(&marked, 52).is_err());
    }

    #[test]
    fn a_guest_takes_what_it_agreed_to() {
        assert!(ALL.takes(&LONG) && Features::default().takes(&NetHeader::default()));
        for missing in [Features::GUEST_CSUM, Features::GUEST_TSO4] {
            assert!(!ALL.without(missing).takes(&LONG));
        }
        let udp = NetHeader { gso_type: gso::UDP_L4, ..LONG };
        assert!(ALL.takes(&udp) && !ALL.without(Features::GUEST_USO6).takes(&udp));
    }
}
