//! Packets of the two guests.

use etherparse::PacketBuilder;

use crate::frame::{Frame, mark_of};

/// The lowest byte of a stream's mark. The others are the stream's number.
const STREAM: u8 = 1;
const REQUEST: u32 = 2;
/// Bytes of a request and of its response.
const REQUEST_BYTES: usize = 100;
/// Where the acknowledged number is, behind Ethernet's and IPv4's headers (RFC 9293, 3.1).
const ACK_AT: usize = 14 + 20 + 8;
const IPV4: [u8; 2] = [8, 0];

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Part of the stream with this number, modulo 2²⁴.
    Stream(u32),
    /// A request, or the response, which is the same.
    Request,
    /// The receiver has so many packets of the stream, modulo 2³².
    Ack(u32),
    Other,
}

pub(super) fn kind_of(packet: &[u8]) -> Kind {
    match mark_of(packet) {
        Some(REQUEST) => Kind::Request,
        Some(mark) if mark.to_le_bytes()[0] == STREAM => Kind::Stream(mark >> 8),
        _ => ack_of(packet).map_or(Kind::Other, Kind::Ack),
    }
}

fn ack_of(packet: &[u8]) -> Option<u32> {
    let number = packet.get(ACK_AT..)?.first_chunk()?;
    (packet.get(12..14)? == IPV4).then(|| u32::from_be_bytes(*number))
}

/// A packet of the stream with this number.
pub(super) fn stream(from: [u8; 6], to: [u8; 6], bytes: usize, number: u32) -> Vec<u8> {
    Frame::marked(from, to, number << 8 | u32::from(STREAM)).payload_bytes(bytes - 14).build()
}

pub(super) fn request(from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    Frame::marked(from, to, REQUEST).payload_bytes(REQUEST_BYTES - 14).build()
}

/// The response to a request.
pub(super) fn response(mut request: Vec<u8>) -> Vec<u8> {
    let (to, rest) = request.split_at_mut(6);
    to.swap_with_slice(&mut rest[..6]);
    request
}

/// A TCP segment that acknowledges and does nothing else. Nobody here looks at its checksum.
pub(super) fn ack(from: [u8; 6], to: [u8; 6], number: u32) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(from, to).ipv4([10, 66, 200, 1], [10, 66, 200, 2], 64);
    let mut packet = Vec::new();
    let written = builder.tcp(5001, 5001, 0, 1024).ack(number).write(&mut packet, &[]);
    written.expect("a Vec takes any number of bytes");
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::EXPERIMENTAL;

    const HERE: [u8; 6] = [2; 6];
    const THERE: [u8; 6] = [4; 6];

    #[test]
    fn each_packet_is_told_apart_and_a_response_goes_back() {
        for number in [0, 1, 2, 0xff_ffff] {
            assert_eq!(kind_of(&stream(HERE, THERE, 1000, number)), Kind::Stream(number));
        }
        assert_eq!(stream(HERE, THERE, 1000, 1).len(), 1000);
        assert_eq!(kind_of(&ack(HERE, THERE, 0x1234_5678)), Kind::Ack(0x1234_5678));
        let response = response(request(HERE, THERE));
        assert_eq!((kind_of(&response), response), (Kind::Request, request(THERE, HERE)));
        let other = Frame::marked(HERE, THERE, 99).ethertype(EXPERIMENTAL).build();
        assert_eq!([kind_of(&other), kind_of(&[])], [Kind::Other; 2]);
    }
}
