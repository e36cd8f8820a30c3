//! Verifying the checksums of captured packets.

use etherparse::{IpNumber, NetSlice, SlicedPacket};

/// What the checksums of one packet are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All checksums it has are right.
    Good,
    /// The TCP or UDP checksum is not computed yet: its field holds the sum of the pseudo-header, from which the
    /// receiving kernel, or whoever cuts a long packet into segments, would go on.
    Unfinished,
    /// Both: the rest of the packet sums to zero, so that the sum of the pseudo-header is also the right checksum. By
    /// chance this holds for one packet in 65,536.
    GoodOrUnfinished,
    /// Nothing to verify: not IP, or a fragment.
    Unverified,
    /// The IPv4 header's is wrong.
    BadIpv4Header,
    /// The TCP, UDP or ICMP checksum is wrong.
    BadTransport,
    /// It claims to be IP and can't be read as such.
    Malformed,
}

impl Verdict {
    /// Whether it was verified and found right.
    pub fn is_good(self) -> bool {
        matches!(self, Verdict::Good | Verdict::GoodOrUnfinished)
    }

    /// Whether something is wrong with it.
    pub fn is_bad(self) -> bool {
        !matches!(self, Verdict::Unfinished | Verdict::Unverified) && !self.is_good()
    }
}

/// Verifies an Ethernet frame.
pub fn verify(frame: &[u8]) -> Verdict {
    match SlicedPacket::from_ethernet(frame) {
        Ok(packet) => packet.net.map_or(Verdict::Unverified, |net| verify_net(&net)),
        Err(_) => Verdict::Malformed,
    }
}

/// Verifies a packet that begins with its IP header.
pub fn verify_ip(packet: &[u8]) -> Verdict {
    match SlicedPacket::from_ip(packet) {
        Ok(packet) => packet.net.map_or(Verdict::Unverified, |net| verify_net(&net)),
        Err(_) => Verdict::Malformed,
    }
}

fn verify_net(net: &NetSlice<'_>) -> Verdict {
    match net {
        NetSlice::Ipv4(ip) if sum([ip.header().slice()]) != 0xffff => Verdict::BadIpv4Header,
        NetSlice::Ipv4(ip) if ip.is_payload_fragmented() => Verdict::Unverified,
        NetSlice::Ipv6(ip) if ip.is_payload_fragmented() => Verdict::Unverified,
        NetSlice::Ipv4(ip) => {
            let addresses = [ip.header().source(), ip.header().destination()].concat();
            verify_transport(&addresses, ip.payload().ip_number, ip.payload().payload)
        }
        NetSlice::Ipv6(ip) => {
            let addresses = [ip.header().source(), ip.header().destination()].concat();
            verify_transport(&addresses, ip.payload().ip_number, ip.payload().payload)
        }
        NetSlice::Arp(_) => Verdict::Unverified,
    }
}

fn verify_transport(addresses: &[u8], protocol: IpNumber, payload: &[u8]) -> Verdict {
    let has_no_checksum = protocol == IpNumber::UDP && payload.get(6..8) == Some(&[0, 0]);
    let total = match protocol {
        IpNumber::UDP if has_no_checksum => return Verdict::Unverified,
        IpNumber::TCP | IpNumber::UDP | IpNumber::IPV6_ICMP => sum_with_pseudo(addresses, protocol, payload),
        IpNumber::ICMP => sum([payload]),
        _ => return Verdict::Unverified,
    };
    match (total == 0xffff, is_unfinished(addresses, protocol, payload)) {
        (true, false) => Verdict::Good,
        (true, true) => Verdict::GoodOrUnfinished,
        (false, true) => Verdict::Unfinished,
        (false, false) => Verdict::BadTransport,
    }
}

fn is_unfinished(addresses: &[u8], protocol: IpNumber, payload: &[u8]) -> bool {
    let offset = if protocol == IpNumber::UDP { 6 } else { 16 };
    let is_tcp_or_udp = matches!(protocol, IpNumber::TCP | IpNumber::UDP);
    let field = payload.get(offset..offset + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    is_tcp_or_udp && field == Some(pseudo_header_sum(addresses, protocol, payload.len()))
}

/// The pseudo-headers of RFC 793 and RFC 8200 sum alike: addresses, length and protocol, whatever their width.
fn pseudo_header_sum(addresses: &[u8], protocol: IpNumber, length: usize) -> u16 {
    let length = u32::try_from(length).expect("a packet is shorter than 4 GiB").to_be_bytes();
    sum([addresses, &length, &[0, protocol.0]])
}

fn sum_with_pseudo(addresses: &[u8], protocol: IpNumber, payload: &[u8]) -> u16 {
    sum([&pseudo_header_sum(addresses, protocol, payload.len()).to_be_bytes(), payload])
}

/// The folded ones' complement sum (RFC 1071); every part but the last has an even length.
fn sum<const N: usize>(parts: [&[u8]; N]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let total: u64 =
        words.map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |b| u64::from(*b))).sum();
    let mut folded = total;
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    u16::try_from(folded).expect("folded to 16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(v6: bool) -> Vec<u8> {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
        let builder = if v6 {
            builder.ipv6([1; 16], [2; 16], 64).tcp(1, 2, 3, 4)
        } else {
            builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4)
        };
        let mut bytes = Vec::new();
        builder.write(&mut bytes, b"odd").unwrap();
        bytes
    }

    #[test]
    fn right_checksums_are_good_and_any_flipped_payload_byte_is_found() {
        for v6 in [false, true] {
            let good = packet(v6);
            assert_eq!(verify(&good), Verdict::Good);
            let mut bad = good.clone();
            *bad.last_mut().unwrap() ^= 1;
            assert_eq!(verify(&bad), Verdict::BadTransport);
        }
    }

    #[test]
    fn a_checksum_left_to_hardware_is_told_from_a_wrong_one() {
        let mut frame = packet(false);
        // 10.0.0.1, 10.0.0.2, protocol 6, 23 bytes: 0x0a00 + 1 + 0x0a00 + 2 + 6 + 23.
        frame[50..52].copy_from_slice(&[0x14, 0x20]);
        assert_eq!(verify(&frame), Verdict::Unfinished);
        frame[51] += 1;
        assert_eq!(verify(&frame), Verdict::BadTransport);
    }

    #[test]
    fn a_checksum_that_is_right_by_chance_before_it_is_finished_counts_as_either() {
        let mut frame = packet(false);
        frame[50..52].copy_from_slice(&[0x14, 0x20]);
        let left = sum_with_pseudo(&[10, 0, 0, 1, 10, 0, 0, 2], IpNumber::TCP, &frame[34..]);
        // The urgent pointer takes up what is missing to a sum of zero.
        frame[52..54].copy_from_slice(&(0xffff - left).to_be_bytes());
        assert_eq!(verify(&frame), Verdict::GoodOrUnfinished);
    }

    #[test]
    fn padding_behind_the_packet_does_not_count() {
        let mut frame = packet(false);
        frame.resize(80, 0xee);
        assert_eq!(verify(&frame), Verdict::Good);
    }

    #[test]
    fn a_wrong_ipv4_header_is_told_apart() {
        let mut frame = packet(false);
        frame[24] ^= 1;
        assert_eq!(verify(&frame), Verdict::BadIpv4Header);
    }
}
