//! Finds the one transport segment that a frame carries, whole and unambiguous, or says that there is none.
//!
//! Everything here is a claim by the sender and is checked against the length of the frame; bytes behind the end
//! that the IP header claims are padding and belong to nobody. What makes a pseudo-header that cannot be told from
//! the IP header alone (source routes, segments left, a home address) counts as "not covered" rather than guessed.
//! Headers inside a tunnel (VXLAN, GRE, IP in IP) are payload: the outermost segment is the only one looked for.

use crate::chain::{Packet, Pieces};
use crate::checksum::Sum;
use crate::ethernet::{self, EthernetHeader, ethertype};
use crate::ipv4::{self, Ipv4Header};
use crate::ipv6::{self, ExtensionHeader, Ipv6Header, extension};
use crate::l4::{Transport, UdpHeader};
use crate::vlan::{TAG_LEN, VlanHeader};

/// VLAN tags (802.1Q and 802.1ad, in any order) that are looked behind.
pub const MAX_TAGS: usize = 4;

/// IPv6 extension headers that are walked across.
pub const MAX_EXTENSIONS: usize = 8;

/// Options that are looked at in one IPv4 header or IPv6 destination options header.
pub const MAX_OPTIONS: usize = 40;

/// A transport segment within a frame.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its protocol.
    pub transport: Transport,
    /// Byte of the frame that it begins at.
    pub start: usize,
    /// Its bytes, header included, padding excluded: at least the shortest header's, and all in the frame.
    pub len: usize,
    /// The sum over its pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1). Never folds to 0. SCTP does not use it.
    pub pseudo: Sum,
}

impl Segment {
    /// Byte of the frame that the checksum field begins at.
    pub const fn checksum_at(&self) -> usize {
        self.start + self.transport.checksum_offset()
    }
}

/// Why a frame has no segment for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoSegment {
    /// Another protocol, a fragment, or deeper than this module looks.
    NotCovered,
    /// A header is cut off, or contradicts itself or the frame's length.
    Malformed,
}

use NoSegment::{Malformed, NotCovered};

/// Finds the segment. Bounded, never allocates, may be called on the packet path.
#[inline]
pub fn segment<F: AsRef<[u8]>>(fragments: &[F]) -> Result<Segment, NoSegment> {
    match fragments {
        [whole] => in_frame(whole.as_ref()),
        pieces => in_frame(&Pieces(pieces)),
    }
}

/// The same in a packet that lies in any way.
#[inline]
pub(crate) fn in_frame<P: Packet + ?Sized>(packet: &P) -> Result<Segment, NoSegment> {
    let header = packet.header::<EthernetHeader>(0).ok_or(Malformed)?;
    let (ethertype, offset) = behind_tags(packet, header.ethertype.get())?;
    match ethertype {
        ethertype::IPV4 => in_ipv4(packet, offset),
        ethertype::IPV6 => in_ipv6(packet, offset),
        _ => Err(NotCovered),
    }
}

/// The first EtherType that is no VLAN tag's, and where its payload begins.
#[inline]
pub(crate) fn behind_tags<P: Packet + ?Sized>(packet: &P, outer: u16) -> Result<(u16, usize), NoSegment> {
    let (mut ethertype, mut offset) = (outer, ethernet::HEADER_LEN);
    for _ in 0..MAX_TAGS {
        if !matches!(ethertype, ethertype::VLAN | ethertype::SERVICE_VLAN) {
            break;
        }
        let tag = packet.header::<VlanHeader>(offset).ok_or(Malformed)?;
        (ethertype, offset) = (tag.ethertype.get(), offset + TAG_LEN);
    }
    Ok((ethertype, offset))
}

#[inline]
fn in_ipv4<P: Packet + ?Sized>(packet: &P, offset: usize) -> Result<Segment, NoSegment> {
    let ip = packet.header::<Ipv4Header>(offset).ok_or(Malformed)?;
    let (header_len, total_len) = (ip.header_len(), usize::from(ip.total_len.get()));
    let whole = header_len <= total_len && total_len <= packet.len_bytes() - offset;
    if ip.version() != 4 || header_len < ipv4::MIN_HEADER_LEN || !whole {
        return Err(Malformed);
    }
    if ip.is_fragment() || has_source_route(packet, offset + ipv4::MIN_HEADER_LEN, offset + header_len) {
        return Err(NotCovered);
    }
    let payload = Payload { start: offset + header_len, len: total_len - header_len, protocol: ip.protocol };
    in_payload(packet, payload, &ip.addresses)
}

/// With a source route the pseudo-header takes the last stop's address, which is not in the fixed header.
fn has_source_route<P: Packet + ?Sized>(packet: &P, start: usize, end: usize) -> bool {
    let list =
        Options { start, end, pad: ipv4::OPTION_NOP, terminator: Some(ipv4::OPTION_END), uncounted: 0 };
    list.any(packet, |kind| matches!(kind, ipv4::OPTION_LSRR | ipv4::OPTION_SSRR))
}

#[inline]
fn in_ipv6<P: Packet + ?Sized>(packet: &P, offset: usize) -> Result<Segment, NoSegment> {
    let ip = packet.header::<Ipv6Header>(offset).ok_or(Malformed)?;
    let start = offset + ipv6::HEADER_LEN;
    let end = start + usize::from(ip.payload_len.get());
    if ip.version() != 6 || end > packet.len_bytes() {
        return Err(Malformed);
    }
    let payload = behind_extensions(packet, Payload { start, len: end - start, protocol: ip.next_header })?;
    in_payload(packet, payload, &ip.addresses)
}

/// What an IP header carries: its place in the frame, and whose it is.
#[derive(Clone, Copy)]
struct Payload {
    start: usize,
    len: usize,
    protocol: u8,
}

#[inline]
fn behind_extensions<P: Packet + ?Sized>(packet: &P, mut at: Payload) -> Result<Payload, NoSegment> {
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(at.protocol) {
            return Ok(at);
        }
        at = behind_extension(packet, at)?;
    }
    Err(NotCovered)
}

const fn is_extension(protocol: u8) -> bool {
    use extension::{AUTHENTICATION, DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION)
}

fn behind_extension<P: Packet + ?Sized>(packet: &P, at: Payload) -> Result<Payload, NoSegment> {
    let header = packet.header::<ExtensionHeader>(at.start).ok_or(Malformed)?;
    let header_len = header.byte_len(at.protocol);
    let len = at.len.checked_sub(header_len).ok_or(Malformed)?;
    let end = at.start + header_len;
    let hidden = match at.protocol {
        extension::ROUTING => header.segments_left() != 0,
        extension::FRAGMENT => header.is_fragment(),
        extension::DESTINATION => has_home_address(packet, at.start + 2, end),
        _ => false,
    };
    if hidden { Err(NotCovered) } else { Ok(Payload { start: end, len, protocol: header.next_header }) }
}

fn has_home_address<P: Packet + ?Sized>(packet: &P, start: usize, end: usize) -> bool {
    let list = Options { start, end, pad: ipv6::OPTION_PAD1, terminator: None, uncounted: 2 };
    list.any(packet, |kind| kind == ipv6::OPTION_HOME_ADDRESS)
}

/// A list of options between two bytes of the frame, in IPv4's or IPv6's form.
struct Options {
    start: usize,
    end: usize,
    /// The kind that is a single byte.
    pad: u8,
    /// The kind that ends the list early.
    terminator: Option<u8>,
    /// Bytes of an option that its length byte leaves out.
    uncounted: usize,
}

impl Options {
    /// Whether `wanted` holds for any option. A list that is broken or longer than [`MAX_OPTIONS`] counts as a hit:
    /// the caller then leaves the packet alone.
    fn any<P: Packet + ?Sized>(&self, packet: &P, wanted: impl Fn(u8) -> bool) -> bool {
        let mut at = self.start;
        for _ in 0..MAX_OPTIONS {
            if at >= self.end {
                return at > self.end;
            }
            let kind = packet.header::<u8>(at).map_or(0, |kind| *kind);
            if Some(kind) == self.terminator {
                return false;
            }
            let len = self.option_len(packet, at, kind);
            if len == 0 || wanted(kind) {
                return true;
            }
            at += len;
        }
        at != self.end
    }

    /// Bytes of one option, 0 if it claims to be shorter than its own kind and length.
    fn option_len<P: Packet + ?Sized>(&self, packet: &P, at: usize, kind: u8) -> usize {
        if kind == self.pad {
            return 1;
        }
        let claimed = usize::from(packet.header::<u8>(at + 1).map_or(0, |len| *len)) + self.uncounted;
        if claimed < 2 { 0 } else { claimed }
    }
}

#[inline]
fn in_payload<P: Packet + ?Sized, const N: usize>(
    packet: &P,
    at: Payload,
    addresses: &[u8; N],
) -> Result<Segment, NoSegment> {
    let transport = Transport::from_protocol(at.protocol).ok_or(NotCovered)?;
    let len = match transport {
        Transport::Udp => udp_len(packet, at)?,
        Transport::Tcp | Transport::Sctp => at.len,
    };
    if len < transport.min_header_len() {
        return Err(Malformed);
    }
    Ok(Segment { transport, start: at.start, len, pseudo: pseudo_header(addresses, transport, len) })
}

/// UDP has its own idea of its length, which may be shorter than what IP carries.
#[inline]
fn udp_len<P: Packet + ?Sized>(packet: &P, at: Payload) -> Result<usize, NoSegment> {
    let udp = packet.header::<UdpHeader>(at.start).ok_or(Malformed)?;
    let len = usize::from(udp.len.get());
    if len <= at.len { Ok(len) } else { Err(Malformed) }
}

#[inline]
fn pseudo_header<const N: usize>(addresses: &[u8; N], transport: Transport, len: usize) -> Sum {
    let mut sum = Sum::new();
    sum.add_bytes(addresses);
    sum.add_word(u16::from(transport.protocol()));
    // A segment within one IP packet is at most 65,535 bytes, so the upper half of RFC 8200's 32-bit length is 0.
    sum.add_word(len as u16);
    sum
}

#[cfg(test)]
mod tests;
