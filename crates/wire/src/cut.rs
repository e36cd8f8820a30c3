//! Long packets ([`NetHeader::is_long`]) cut into those that they stand for, and checksums finished that a header names.
//!
//! A long packet has the headers of one packet and the payload of many: TCP segments, or the datagrams of one UDP flow.
//! Each of those gets a copy of the headers with what is its own: lengths, IPv4 id, sequence number, flags, checksums.
//!
//! A guest wrote both the header and the packet, so [`Cut::new`] takes neither's word: the kind must be the packet's, the
//! checksum where that kind has it, and the parts no more than [`MAX_PARTS`].

use std::ops::Range;

use crate::bytes::{be16_at, put16};
use crate::chain::{self, Front};
use crate::checksum::{self, Sum};
use crate::ethernet::{self, ethertype};
use crate::l4::Transport;
use crate::locate::{self, Segment, behind_tags};
use crate::net_header::{NetHeader, gso};

/// One packet stands for at most so many: a turn of a worker. 64 KB for the smallest MTU of IPv4 (576 bytes) are 122.
pub const MAX_PARTS: u32 = 128;

/// Headers of a packet that can be cut are at most this long: Ethernet with four tags, IPv6 with extensions, TCP with all
/// its options.
pub const MAX_HEADER_BYTES: usize = 256;

const FLAGS_AT: usize = 13;
const FLAG_FIN: u8 = 0x01;
const FLAG_PUSH: u8 = 0x08;
const FLAG_CWR: u8 = 0x80;

/// Why a long packet is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncuttable {
    /// The packet is not what its header says, or is cut off.
    Mismatch,
    /// It stands for more than [`MAX_PARTS`].
    TooMany,
}

/// How a long packet is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    ip: usize,
    l4: usize,
    /// Bytes of all headers.
    headers: usize,
    is_v6: bool,
    transport: Transport,
    part_bytes: u32,
    payload_bytes: u32,
    marks_first: bool,
}

impl Cut {
    /// Compares the header with the packet, given as its fragments in order. Reads headers alone; bounded, never allocates,
    /// may be called on the packet path.
    ///
    /// # Errors
    /// [`Uncuttable`]
    pub fn new<F: AsRef<[u8]>>(header: &NetHeader, fragments: &[F]) -> Result<Self, Uncuttable> {
        let segment = locate::segment(fragments).map_err(|_| Uncuttable::Mismatch)?;
        Self::of(header, segment, fragments[0].as_ref())
    }

    /// The same for a packet of which only the beginning is at hand.
    ///
    /// # Errors
    /// As [`Cut::new`].
    pub fn of_front(header: &NetHeader, packet: Front<'_>) -> Result<Self, Uncuttable> {
        let segment = locate::in_frame(&packet).map_err(|_| Uncuttable::Mismatch)?;
        Self::of(header, segment, packet.bytes)
    }

    fn of(header: &NetHeader, segment: Segment, head: &[u8]) -> Result<Self, Uncuttable> {
        let outer = be16_at(head, ethernet::HEADER_LEN - 2).ok_or(Uncuttable::Mismatch)?;
        let (ethertype, ip) = behind_tags(head, outer).map_err(|_| Uncuttable::Mismatch)?;
        let is_v6 = ethertype == ethertype::IPV6;
        let transport = segment.transport;
        let l4_bytes = match transport {
            Transport::Tcp => usize::from(head.get(segment.start + 12).map_or(0, |byte| byte >> 4)) * 4,
            Transport::Udp | Transport::Sctp => transport.min_header_len(),
        };
        let headers = segment.start + l4_bytes;
        let is_kind = match header.gso_type & !gso::ECN {
            gso::TCPV4 => transport == Transport::Tcp && !is_v6,
            gso::TCPV6 => transport == Transport::Tcp && is_v6,
            gso::UDP_L4 => transport == Transport::Udp && header.gso_type & gso::ECN == 0,
            _ => false,
        };
        let is_there = l4_bytes >= transport.min_header_len()
            && l4_bytes < segment.len
            && headers <= head.len().min(MAX_HEADER_BYTES);
        let names_checksum = header.needs_checksum()
            && usize::from(header.csum_start) == segment.start
            && usize::from(header.csum_offset) == transport.checksum_offset();
        if !(is_kind && is_there && names_checksum) || header.gso_size == 0 {
            return Err(Uncuttable::Mismatch);
        }
        let cut = Self {
            ip,
            l4: segment.start,
            headers,
            is_v6,
            transport,
            part_bytes: header.gso_size.into(),
            payload_bytes: (segment.len - l4_bytes) as u32,
            marks_first: header.gso_type & gso::ECN != 0,
        };
        if cut.parts() > MAX_PARTS { Err(Uncuttable::TooMany) } else { Ok(cut) }
    }

    /// Packets that it stands for, at least one.
    #[inline]
    pub fn parts(&self) -> u32 {
        self.payload_bytes.div_ceil(self.part_bytes)
    }

    /// Bytes of the headers that each part has.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        self.headers
    }

    /// The bytes of the long packet that are a part's payload.
    pub fn payload(&self, part: u32) -> Range<usize> {
        let (from, to) = (part * self.part_bytes, (part + 1) * self.part_bytes);
        self.headers + from as usize..self.headers + to.min(self.payload_bytes) as usize
    }

    /// The header with nothing in it but what [`Cut::new`] has found right.
    pub fn net_header(&self, header: NetHeader) -> NetHeader {
        let (flags, hdr_len) = (crate::net_header::NEEDS_CSUM, self.headers as u16);
        NetHeader { flags, hdr_len, ..header }
    }

    /// Writes a part's headers into `out`, given those of the long packet in `head` and the part's `payload`, whose
    /// checksum goes with them. Returns their length, [`Cut::header_bytes`].
    ///
    /// # Panics
    /// When `out` or `head` is shorter than the headers: a bug of the caller.
    pub fn write_header<'a>(
        &self,
        part: u32,
        head: &[u8],
        payload: impl IntoIterator<Item = &'a [u8]>,
        out: &mut [u8],
    ) -> usize {
        let Self { ip, l4, headers, is_v6, .. } = *self;
        let out = &mut out[..headers];
        out.copy_from_slice(&head[..headers]);
        let l4_len = headers - l4 + self.payload(part).len();
        if is_v6 {
            put16(out, ip + 4, (l4 + l4_len - ip - crate::ipv6::HEADER_LEN) as u16);
        } else {
            put16(out, ip + 2, (l4 + l4_len - ip) as u16);
            let id = u16::from_be_bytes([head[ip + 4], head[ip + 5]]);
            put16(out, ip + 4, id.wrapping_add(part as u16));
            put16(out, ip + 10, 0);
            let checksum = checksum::over(&out[ip..l4]);
            put16(out, ip + 10, checksum);
        }
        match self.transport {
            Transport::Tcp => self.write_tcp(part, head, out),
            Transport::Udp | Transport::Sctp => put16(out, l4 + 4, l4_len as u16),
        }
        let at = l4 + self.transport.checksum_offset();
        put16(out, at, 0);
        let addresses = if is_v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
        let mut sum = Sum::new();
        sum.add_bytes(&out[addresses]);
        sum.add_word(u16::from(self.transport.protocol()));
        sum.add_word(l4_len as u16);
        sum.add_bytes(&out[l4..]);
        payload.into_iter().for_each(|piece| sum.add_bytes(piece));
        put16(out, at, written(sum.checksum()));
        headers
    }

    fn write_tcp(&self, part: u32, head: &[u8], out: &mut [u8]) {
        let at = self.l4 + 4;
        let sequence = u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let sequence = sequence.wrapping_add(part * self.part_bytes);
        out[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        let flags = &mut out[self.l4 + FLAGS_AT];
        if part + 1 < self.parts() {
            *flags &= !(FLAG_FIN | FLAG_PUSH);
        }
        if part > 0 && self.marks_first {
            *flags &= !FLAG_CWR;
        }
    }
}

/// Finishes the checksum that the header names in a packet, given as its fragments in order. Reads the packet from there
/// on. What lies outside the packet is left alone.
pub fn finish_checksum(header: &NetHeader, fragments: &mut [&mut [u8]]) {
    if let Some((at, checksum)) = finished(header, fragments) {
        chain::write(fragments, at, &checksum);
    }
}

/// The checksum that the header names, finished, and at which byte of the packet it belongs. `None`: it lies outside.
pub fn finished<F: AsRef<[u8]>>(header: &NetHeader, fragments: &[F]) -> Option<(usize, [u8; 2])> {
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    if start + offset + 2 > chain::len(fragments) {
        return None;
    }
    let (mut sum, mut skip) = (Sum::new(), start);
    for fragment in fragments {
        let fragment = fragment.as_ref();
        let skipped = skip.min(fragment.len());
        sum.add_bytes(&fragment[skipped..]);
        skip -= skipped;
    }
    Some((start + offset, written(sum.checksum()).to_be_bytes()))
}

/// A checksum of 0 means none in UDP, and is the same as 0xffff elsewhere.
fn written(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests;
