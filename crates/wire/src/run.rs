//! TCP segments of one flow that follow each other, described as the one large packet they came from.
//!
//! A sender's stack hands 64 KB to its netdev as one packet; on the way into the switch it was cut into segments. When
//! segments leave through the same port one after the other, they can be handed to the kernel as one again, and it cuts
//! them the same way (or the receiving stack takes them whole). This module says which packets may be joined, and
//! writes the joint header.
//!
//! The rule it keeps: cutting the joint packet again gives the same packets, byte for byte. So everything that cutting
//! makes up must be what the segments have: sequence numbers in order, IPv4 ids counting up, equal options, a push flag
//! on the last segment only, all segments of one length but a shorter last one.

use crate::bytes::{be16_at, put16};
use crate::checksum::Sum;
use crate::ethernet::{HEADER_LEN, ethertype};
use crate::ipv4;
use crate::vlan::TAG_LEN;

/// Headers are at most this long: Ethernet with one tag, IPv6, TCP with all its options.
pub const MAX_HEADER_BYTES: usize = HEADER_LEN + TAG_LEN + 40 + 60;
/// A joint packet is at most this long behind its link header, for the 16-bit length fields.
pub const MAX_BYTES: u32 = 65_535;
/// Where the checksum lies in a TCP header.
pub const CHECKSUM_OFFSET: u16 = 16;

const IPV6_HEADER_LEN: usize = 40;
const TCP_MIN_HEADER_LEN: usize = 20;
const PROTOCOL_TCP: u8 = 6;
const FLAG_ACK: u8 = 0x10;
const FLAG_PUSH: u8 = 0x08;

/// Where the headers of a packet lie; all numbers are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    ip: usize,
    tcp: usize,
    payload: usize,
    is_v6: bool,
}

/// Segments that can leave as one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    shape: Shape,
    segment_bytes: u32,
    payload_bytes: u32,
    segments: u32,
    next_sequence: u32,
    next_id: u16,
    is_open: bool,
}

impl Run {
    /// A run of one, if the packet can be the first of one: a TCP segment with payload and no flag but ACK (and PSH),
    /// not fragmented, without IP options. `head` is its first fragment, with all headers; `len_bytes` its length.
    pub fn start(head: &[u8], len_bytes: u32) -> Option<Self> {
        let shape = shape(head, len_bytes)?;
        let payload = len_bytes - shape.payload as u32;
        let sequence = be32(head, shape.tcp + 4);
        Some(Self {
            shape,
            segment_bytes: payload,
            payload_bytes: payload,
            segments: 1,
            next_sequence: sequence.wrapping_add(payload),
            next_id: be16(head, shape.ip + 4).wrapping_add(1),
            is_open: head[shape.tcp + 13] & FLAG_PUSH == 0,
        })
    }

    /// Adds the packet that begins with `next` if it goes on where the run ends; `head` is the run's first packet.
    pub fn take(&mut self, head: &[u8], next: &[u8], len_bytes: u32) -> bool {
        if !self.is_open || shape(next, len_bytes) != Some(self.shape) {
            return false;
        }
        let payload = len_bytes - self.shape.payload as u32;
        let ip_bytes = self.shape.payload - self.shape.ip;
        if payload > self.segment_bytes || ip_bytes as u32 + self.payload_bytes + payload > MAX_BYTES {
            return false;
        }
        if be32(next, self.shape.tcp + 4) != self.next_sequence || !self.same_headers(head, next) {
            return false;
        }
        self.payload_bytes += payload;
        self.segments += 1;
        self.next_sequence = self.next_sequence.wrapping_add(payload);
        self.next_id = self.next_id.wrapping_add(1);
        self.is_open = payload == self.segment_bytes && next[self.shape.tcp + 13] & FLAG_PUSH == 0;
        true
    }

    /// Packets in the run.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Payload of each segment but the last.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// Length of the headers that every segment has.
    pub fn header_bytes(&self) -> usize {
        self.shape.payload
    }

    /// Where the TCP header starts.
    pub fn tcp_at(&self) -> usize {
        self.shape.tcp
    }

    /// Whether it is IPv6.
    pub fn is_v6(&self) -> bool {
        self.shape.is_v6
    }

    /// Length of all segments on the wire together.
    pub fn wire_bytes(&self) -> u32 {
        self.segments * self.shape.payload as u32 + self.payload_bytes
    }

    /// Writes the joint packet's headers into `out`, given those of the first (`head`) and the last segment. The TCP
    /// checksum is left unfinished, as the kernel wants it of a packet that it is to cut. Returns the headers' length.
    ///
    /// # Panics
    /// When `out` is shorter than [`MAX_HEADER_BYTES`].
    pub fn write_header(&self, head: &[u8], last: &[u8], out: &mut [u8]) -> usize {
        let Shape { ip, tcp, payload, is_v6 } = self.shape;
        out[..payload].copy_from_slice(&head[..payload]);
        let tcp_bytes = (payload - tcp) as u32 + self.payload_bytes;
        if is_v6 {
            put16(out, ip + 4, tcp_bytes as u16);
        } else {
            put16(out, ip + 2, (tcp - ip) as u16 + tcp_bytes as u16);
            put16(out, ip + 10, 0);
            let mut sum = Sum::new();
            sum.add_bytes(&out[ip..tcp]);
            put16(out, ip + 10, sum.checksum());
        }
        out[tcp + 13] = last[tcp + 13];
        put16(out, tcp + usize::from(CHECKSUM_OFFSET), self.pseudo_sum(out, tcp_bytes));
        payload
    }

    /// The folded sum of the pseudo header (RFC 9293, section 3.1), not complemented.
    fn pseudo_sum(&self, header: &[u8], tcp_bytes: u32) -> u16 {
        let Shape { ip, is_v6, .. } = self.shape;
        let addresses = if is_v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
        let mut sum = Sum::new();
        sum.add_bytes(&header[addresses]);
        sum.add_word(u16::from(PROTOCOL_TCP));
        // A joint packet has at most `MAX_BYTES`, so the upper half of RFC 8200's 32-bit length is 0.
        sum.add_word(tcp_bytes as u16);
        sum.folded()
    }

    /// Whether the headers differ only in what cutting makes up.
    fn same_headers(&self, head: &[u8], next: &[u8]) -> bool {
        let Shape { ip, tcp, payload, is_v6 } = self.shape;
        let same = |from: usize, to: usize| head[from..to] == next[from..to];
        let same_ip = if is_v6 {
            same(ip, ip + 4) && same(ip + 6, ip + 40)
        } else {
            same(ip, ip + 2)
                && be16(next, ip + 4) == self.next_id
                && same(ip + 6, ip + 10)
                && same(ip + 12, ip + 20)
        };
        // Ports; acknowledgement and header length; window; urgent pointer and options.
        let same_tcp = same(tcp, tcp + 4)
            && same(tcp + 8, tcp + 13)
            && same(tcp + 14, tcp + 16)
            && same(tcp + 18, payload);
        same(0, ip) && same_ip && same_tcp
    }
}

/// Where the headers lie, if the packet can be part of a run at all.
fn shape(head: &[u8], len_bytes: u32) -> Option<Shape> {
    let (ethertype, ip) = match be16_at(head, HEADER_LEN - 2)? {
        ethertype::VLAN => (be16_at(head, HEADER_LEN - 2 + TAG_LEN)?, HEADER_LEN + TAG_LEN),
        other => (other, HEADER_LEN),
    };
    let is_v6 = ethertype == ethertype::IPV6;
    let tcp = if is_v6 {
        ipv6_tcp(head, ip, len_bytes)?
    } else if ethertype == ethertype::IPV4 {
        ipv4_tcp(head, ip, len_bytes)?
    } else {
        return None;
    };
    let header = head.get(tcp..tcp + TCP_MIN_HEADER_LEN)?;
    let payload = tcp + usize::from(header[12] >> 4) * 4;
    let only_ack = header[12] & 0x0f == 0 && header[13] & !FLAG_PUSH == FLAG_ACK;
    let fits = payload >= tcp + TCP_MIN_HEADER_LEN && payload <= head.len() && (payload as u32) < len_bytes;
    (only_ack && fits).then_some(Shape { ip, tcp, payload, is_v6 })
}

/// Where TCP starts behind an IPv4 header without options, not fragmented, with Don't Fragment set (so that nobody
/// needs the id), whose length is the packet's (so that there is no padding) and whose checksum is right.
fn ipv4_tcp(head: &[u8], ip: usize, len_bytes: u32) -> Option<usize> {
    let header = head.get(ip..ip + ipv4::MIN_HEADER_LEN)?;
    let fits = header[0] == 0x45
        && u32::from(be16(header, 2)) + ip as u32 == len_bytes
        && be16(header, 6) == 0x4000
        && header[9] == PROTOCOL_TCP;
    (fits && crate::checksum::over(header) == 0).then_some(ip + ipv4::MIN_HEADER_LEN)
}

/// Where TCP starts directly behind an IPv6 header whose length is the packet's.
fn ipv6_tcp(head: &[u8], ip: usize, len_bytes: u32) -> Option<usize> {
    let header = head.get(ip..ip + IPV6_HEADER_LEN)?;
    let behind = ip + IPV6_HEADER_LEN;
    let fits = header[0] >> 4 == 6
        && u32::from(be16(header, 4)) + behind as u32 == len_bytes
        && header[6] == PROTOCOL_TCP;
    fits.then_some(behind)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
