//! Building frames for tests: any addresses, any tags, a payload that can be told apart.

use crate::checksum;

/// EtherType of IEEE 802 local experiments: no host answers it.
pub const EXPERIMENTAL: u16 = 0x88b5;
/// Tag protocol identifier of a customer tag (802.1Q).
pub const TPID_C: u16 = 0x8100;
/// Tag protocol identifier of a service tag (802.1ad).
pub const TPID_S: u16 = 0x88a8;
/// The broadcast address.
pub const BROADCAST: [u8; 6] = [0xff; 6];
/// The shortest frame on a wire, without its check sequence.
pub const MIN_BYTES: usize = 60;

/// A frame under construction.
#[derive(Debug, Clone)]
pub struct Frame {
    destination: [u8; 6],
    source: [u8; 6],
    tags: Vec<(u16, u16)>,
    ethertype: u16,
    payload: Vec<u8>,
}

impl Frame {
    /// A frame that no host answers, whose payload begins with `mark`.
    pub fn marked(source: [u8; 6], destination: [u8; 6], mark: u32) -> Frame {
        let payload = mark.to_be_bytes().to_vec();
        Frame { destination, source, tags: Vec::new(), ethertype: EXPERIMENTAL, payload }
    }

    /// A frame with this packet.
    pub fn carrying(source: [u8; 6], destination: [u8; 6], ethertype: u16, packet: &[u8]) -> Frame {
        Frame { destination, source, tags: Vec::new(), ethertype, payload: packet.to_vec() }
    }

    /// An IPv4 UDP frame with correct checksums.
    pub fn udp4(
        (source, source_ip, source_port): ([u8; 6], [u8; 4], u16),
        (destination, destination_ip, destination_port): ([u8; 6], [u8; 4], u16),
        data: &[u8],
    ) -> Frame {
        let payload = ipv4_udp((source_ip, source_port), (destination_ip, destination_port), data);
        Frame { destination, source, tags: Vec::new(), ethertype: 0x0800, payload }
    }

    /// Adds a tag inside those already there.
    #[must_use]
    pub fn tag(mut self, protocol: u16, vid: u16) -> Frame {
        self.tags.push((protocol, vid));
        self
    }

    /// Gives the frame another EtherType.
    #[must_use]
    pub fn ethertype(mut self, ethertype: u16) -> Frame {
        self.ethertype = ethertype;
        self
    }

    /// Makes the payload exactly this long, with zeros.
    #[must_use]
    pub fn payload_bytes(mut self, length: usize) -> Frame {
        self.payload.resize(length, 0);
        self
    }

    /// The bytes, padded to the shortest frame on a wire.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = self.build_short();
        bytes.resize(bytes.len().max(MIN_BYTES), 0);
        bytes
    }

    /// The bytes without padding.
    pub fn build_short(&self) -> Vec<u8> {
        let mut bytes = [self.destination, self.source].concat();
        for (protocol, control) in &self.tags {
            bytes.extend(protocol.to_be_bytes());
            bytes.extend(control.to_be_bytes());
        }
        bytes.extend(self.ethertype.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

/// An IPv4 packet with a datagram, with correct checksums.
pub fn ipv4_udp(
    (source, source_port): ([u8; 4], u16),
    (to, to_port): ([u8; 4], u16),
    data: &[u8],
) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4(source, to, 64).udp(source_port, to_port);
    builder.write(&mut packet, data).expect("a Vec takes any number of bytes, and data fits a datagram");
    debug_assert!(checksum::verify_ip(&packet).is_good());
    packet
}

/// An IPv6 packet with a datagram, with a correct checksum.
pub fn ipv6_udp(
    (source, source_port): ([u8; 16], u16),
    (to, to_port): ([u8; 16], u16),
    data: &[u8],
) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv6(source, to, 64).udp(source_port, to_port);
    builder.write(&mut packet, data).expect("a Vec takes any number of bytes, and data fits a datagram");
    packet
}

/// The mark of a frame made by [`Frame::marked`], behind whatever tags it has.
pub fn mark_of(frame: &[u8]) -> Option<u32> {
    let (ethertype, payload) = skip_tags(frame)?;
    let mark = payload.get(..4)?;
    (ethertype == EXPERIMENTAL).then(|| u32::from_be_bytes([mark[0], mark[1], mark[2], mark[3]]))
}

/// The VLAN tags of a frame, outermost first: protocol identifier and VLAN number.
pub fn tags_of(frame: &[u8]) -> Vec<(u16, u16)> {
    let mut tags = Vec::new();
    let mut rest = frame.get(12..).unwrap_or_default();
    while let [a, b, c, d, after @ ..] = rest {
        let protocol = u16::from_be_bytes([*a, *b]);
        if protocol != TPID_C && protocol != TPID_S {
            break;
        }
        tags.push((protocol, u16::from_be_bytes([*c, *d]) & 0x0fff));
        rest = after;
    }
    tags
}

fn skip_tags(frame: &[u8]) -> Option<(u16, &[u8])> {
    let start = 12 + 4 * tags_of(frame).len();
    let ethertype = frame.get(start..start + 2)?;
    Some((u16::from_be_bytes([ethertype[0], ethertype[1]]), &frame[start + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_mark_are_read_back_as_they_were_built() {
        let frame = Frame::marked([2; 6], [4; 6], 77).tag(TPID_S, 100).tag(TPID_C, 7).build();
        assert_eq!(frame.len(), MIN_BYTES);
        assert_eq!(tags_of(&frame), [(TPID_S, 100), (TPID_C, 7)]);
        assert_eq!(mark_of(&frame), Some(77));
        assert_eq!(mark_of(&frame[..13]), None);
    }
}
