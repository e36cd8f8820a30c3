//! The IP header that a frame carries, and the ports behind it, for rules that ask for them.
//!
//! The kernel programs read the same for most packets (`bpf/classes.h`) and leave the rest to user space; so what
//! counts here counts there: lengths that the header claims are not looked at, only what bytes there are.
//!
//! The rule it keeps: what cannot be read is said to be unread ([`Unread`]), and never passes for absent. Otherwise a
//! sender could hide a packet from a rule behind one extension header more than anybody looks behind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::FromBytes as _;

use crate::ethernet::ethertype;
use crate::ipv4::{self, Ipv4Header};
use crate::ipv6::{self, ExtensionHeader, Ipv6Header, extension};
use crate::l4::Transport;
use crate::locate::MAX_EXTENSIONS;

/// The answer of [`network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkInfo {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// IPv4's protocol; of IPv6, the next header behind all extension headers.
    pub proto: u8,
    /// Source and destination port of TCP, UDP and SCTP, if they are there: later fragments have none.
    pub ports: Option<(u16, u16)>,
    /// What of this a receiver may see and we do not: [`Unread::Ports`] or [`Unread::Transport`] at most.
    pub unread: Unread,
}

/// What of a packet could not be read, though the packet may have it. Each step includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unread {
    /// All was read that there is.
    #[default]
    Nothing,
    /// The ports: the packet, or its first fragment, ends before them.
    Ports,
    /// Protocol and ports: there are more IPv6 extension headers than [`MAX_EXTENSIONS`], or one is cut off.
    Transport,
    /// All that is behind layer 2: there are more tags than [`crate::stack::MAX_FURTHER_TAGS`], or one is cut off.
    Everything,
}

impl Unread {
    /// Every step, [`Unread::Nothing`] first.
    pub const ALL: [Unread; 4] = [Unread::Nothing, Unread::Ports, Unread::Transport, Unread::Everything];
}

/// Bits of an IPv4 header's fragment word, and of an IPv6 fragment header's, that are its offset.
const IPV4_OFFSET: u16 = 0x1fff;
const IPV6_OFFSET: u16 = 0xfff8;
/// Bits that say that more fragments come.
const IPV4_MORE: u16 = 0x2000;
const IPV6_MORE: u16 = 1;

/// Reads the IP packet that `ethertype` says `bytes` begin with. `None`: it says something else, or no such header is
/// there. Bounded, never allocates, may be called on the packet path.
pub fn network(ethertype: u16, bytes: &[u8]) -> Option<NetworkInfo> {
    match ethertype {
        ethertype::IPV4 => in_ipv4(bytes),
        ethertype::IPV6 => in_ipv6(bytes),
        _ => None,
    }
}

/// What most packets are: IPv4 without options, not a fragment, with ports. As words, because it is read of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainIpv4 {
    /// Source address, and below it the destination's.
    pub addresses: u64,
    /// Protocol number.
    pub proto: u8,
    /// Source port, and below it the destination's.
    pub ports: u32,
}

/// Version and header length of IPv4 without options.
const PLAIN: u8 = 0x45;
/// Header and ports.
const PLAIN_LEN: usize = ipv4::MIN_HEADER_LEN + 4;

/// Reads such a packet; `None`: it is another, for [`network`] to read, which says the same of this. Packet path.
#[inline]
pub fn plain_ipv4(bytes: &[u8]) -> Option<PlainIpv4> {
    let head: &[u8; PLAIN_LEN] = bytes.first_chunk()?;
    let (ip, ports) = head.split_first_chunk::<{ ipv4::MIN_HEADER_LEN }>()?;
    let fragment = u16::from_be_bytes([ip[6], ip[7]]);
    let is_plain = ip[0] == PLAIN && fragment & (IPV4_OFFSET | IPV4_MORE) == 0;
    if !is_plain || Transport::from_protocol(ip[9]).is_none() {
        return None;
    }
    Some(PlainIpv4 {
        addresses: u64::from_be_bytes(*ip[12..].first_chunk()?),
        proto: ip[9],
        ports: u32::from_be_bytes(*ports.first_chunk()?),
    })
}

fn in_ipv4(bytes: &[u8]) -> Option<NetworkInfo> {
    let (ip, _) = Ipv4Header::read_from_prefix(bytes).ok()?;
    if ip.version() != 4 || ip.header_len() < ipv4::MIN_HEADER_LEN {
        return None;
    }
    let [a, b, c, d, e, f, g, h] = ip.addresses;
    let is_first = ip.fragment.get() & IPV4_OFFSET == 0;
    let carried = claimed(bytes, ip.fragment.get() & IPV4_MORE != 0, ip.total_len.get().into());
    let (ports, unread) = ports(ip.protocol, carried, is_first.then_some(ip.header_len()));
    Some(NetworkInfo {
        src: Ipv4Addr::new(a, b, c, d).into(),
        dst: Ipv4Addr::new(e, f, g, h).into(),
        proto: ip.protocol,
        ports,
        unread,
    })
}

fn in_ipv6(bytes: &[u8]) -> Option<NetworkInfo> {
    let (ip, _) = Ipv6Header::read_from_prefix(bytes).ok()?;
    if ip.version() != 6 {
        return None;
    }
    let (src, dst) = ip.addresses.split_first_chunk::<16>()?;
    let Behind { proto, at, is_read, has_more } = behind_extensions(bytes, ip.next_header);
    let carried = claimed(bytes, has_more, ipv6::HEADER_LEN + usize::from(ip.payload_len.get()));
    let (ports, unread) = if is_read { ports(proto, carried, at) } else { (None, Unread::Transport) };
    let dst: [u8; 16] = dst.try_into().ok()?;
    Some(NetworkInfo {
        src: Ipv6Addr::from(*src).into(),
        dst: Ipv6Addr::from(dst).into(),
        proto,
        ports,
        unread,
    })
}

/// What comes behind the extension headers, as far as they are there.
struct Behind {
    proto: u8,
    /// `None`: a later fragment has not got it.
    at: Option<usize>,
    /// The extension headers end within the packet, and within what is looked at.
    is_read: bool,
    /// It is a fragment, and more of them come.
    has_more: bool,
}

/// Of a fragment, the bytes that its header claims: padding behind them would pass for ports that the receiver takes from
/// elsewhere. Of other packets all bytes, because there the receiver finds no ports if the header claims fewer.
fn claimed(bytes: &[u8], has_more: bool, len: usize) -> &[u8] {
    if has_more { &bytes[..len.min(bytes.len())] } else { bytes }
}

fn behind_extensions(bytes: &[u8], first: u8) -> Behind {
    let (mut proto, mut at, mut has_more) = (first, ipv6::HEADER_LEN, false);
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(proto) {
            break;
        }
        let header = bytes.get(at..).and_then(|rest| ExtensionHeader::read_from_prefix(rest).ok());
        let Some((header, _)) = header else { return Behind { proto, at: None, is_read: false, has_more } };
        at += header.byte_len(proto);
        let fragment = if proto == extension::FRAGMENT { header.rest.get() } else { 0 };
        has_more |= fragment & IPV6_MORE != 0;
        proto = header.next_header;
        if fragment & IPV6_OFFSET != 0 {
            // Its first fragment says what it is, and rules see that one too.
            return Behind { proto, at: None, is_read: true, has_more };
        }
    }
    let is_read = !is_extension(proto) && at <= bytes.len();
    Behind { proto, at: Some(at), is_read, has_more }
}

fn is_extension(proto: u8) -> bool {
    use extension::{AUTHENTICATION, DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};
    matches!(proto, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION)
}

/// The ports of a segment that begins at `at`, if it is in the packet: all three protocols begin with them.
fn ports(proto: u8, bytes: &[u8], at: Option<usize>) -> (Option<(u16, u16)>, Unread) {
    let (Some(_), Some(at)) = (Transport::from_protocol(proto), at) else { return (None, Unread::Nothing) };
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(&[a, b, c, d]) => {
            (Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))), Unread::Nothing)
        }
        None => (None, Unread::Ports),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet with this word of fragment bits and so many bytes of options.
    fn v4(proto: u8, fragment: u16, options: usize) -> Vec<u8> {
        let mut bytes = vec![0; 20 + options];
        bytes[0] = 0x40 | ((20 + options) / 4) as u8;
        bytes[3] = 24 + options as u8;
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[9] = proto;
        bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x12, 0x34, 0, 80]);
        bytes
    }

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        (bytes[0], bytes[5], bytes[6]) = (0x60, rest.len() as u8, next);
        (bytes[23], bytes[39]) = (1, 2);
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn ports_are_read_behind_options() {
        for options in [0, 4, 40] {
            let info = network(ethertype::IPV4, &v4(6, 0x4000, options)).unwrap();
            assert_eq!((info.proto, info.ports), (6, Some((0x1234, 80))));
            assert_eq!(info.dst, IpAddr::from([10, 0, 0, 2]));
        }
    }

    #[test]
    fn only_the_first_fragment_has_ports() {
        let ports = |fragment| network(ethertype::IPV4, &v4(17, fragment, 0)).unwrap().ports;
        assert!(ports(0x2000).is_some(), "more fragments, offset 0");
        assert_eq!(ports(0x2001), None);
        assert_eq!(ports(0x0100), None);
        let v6_ports = |offset: u8| {
            network(ethertype::IPV6, &v6(44, &[17, 0, 0, offset, 0, 0, 0, 0, 0, 7, 0, 9])).unwrap()
        };
        assert_eq!((v6_ports(1).proto, v6_ports(1).ports), (17, Some((7, 9))), "more fragments, offset 0");
        assert_eq!((v6_ports(9).proto, v6_ports(9).ports), (17, None));
    }

    #[test]
    fn a_plain_packet_is_read_as_any_other_is() {
        let mut plain = 0;
        for proto in 0..=255 {
            for fragment in [0, 0x2000, 0x4000, 0x8000, 1, 0x2001, 0x1fff] {
                for (options, cut) in [(0, 0), (0, 1), (0, 4), (0, 5), (4, 0), (40, 0)] {
                    let bytes = v4(proto, fragment, options);
                    let bytes = &bytes[..bytes.len() - cut];
                    let Some(read) = plain_ipv4(bytes) else { continue };
                    let info = network(ethertype::IPV4, bytes).unwrap();
                    let (src, dst) = ((read.addresses >> 32) as u32, read.addresses as u32);
                    assert_eq!(
                        (info.src, info.dst),
                        (Ipv4Addr::from(src).into(), Ipv4Addr::from(dst).into())
                    );
                    let ports = ((read.ports >> 16) as u16, read.ports as u16);
                    assert_eq!((info.proto, info.ports), (read.proto, Some(ports)));
                    plain += 1;
                }
            }
        }
        assert_eq!(
            plain,
            3 * 3,
            "three protocols have ports; three of the fragment words are of no fragment"
        );
        assert_eq!(plain_ipv4(&v6(17, &[0; 8])), None);
    }

    #[test]
    fn protocols_without_ports_have_none() {
        assert_eq!(network(ethertype::IPV4, &v4(1, 0, 0)).unwrap().ports, None);
        assert_eq!(network(ethertype::IPV6, &v6(58, &[0; 8])).unwrap().ports, None);
    }

    #[test]
    fn extension_headers_are_walked_across() {
        let info =
            network(ethertype::IPV6, &v6(0, &[60, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]));
        let info = info.unwrap();
        assert_eq!((info.proto, info.ports), (6, Some((0x0102, 0x0304))));
        assert_eq!((info.src, info.dst), ("::1".parse().unwrap(), "::2".parse().unwrap()));
    }

    #[test]
    fn what_is_cut_off_or_claims_to_be_something_else_is_no_packet() {
        assert_eq!(network(ethertype::IPV4, &v4(6, 0, 0)[..19]), None);
        assert_eq!(network(ethertype::IPV6, &v4(6, 0, 40)), None);
        assert_eq!(network(ethertype::IPV4, &[0x44; 60]), None, "a header of 16 bytes");
        assert_eq!(network(0x0806, &v4(6, 0, 0)), None);
    }

    /// Ports and what is unread of an IPv4 packet.
    fn of_v4(bytes: &[u8]) -> (Option<(u16, u16)>, Unread) {
        let info = network(ethertype::IPV4, bytes).unwrap();
        (info.ports, info.unread)
    }

    #[test]
    fn ports_that_are_cut_off_are_unread_and_those_of_later_fragments_are_not_there() {
        for (fragment, cut) in [(0x2000, 20), (0x2000, 23), (0, 22)] {
            assert_eq!(of_v4(&v4(17, fragment, 0)[..cut]), (None, Unread::Ports), "{fragment:#x}, {cut}");
        }
        assert_eq!(of_v4(&v4(17, 0x2000, 0)), (Some((0x1234, 80)), Unread::Nothing));
        assert_eq!(of_v4(&v4(17, 0x2001, 0)[..20]), (None, Unread::Nothing), "a later fragment");
        assert_eq!(of_v4(&v4(1, 0, 0)[..20]), (None, Unread::Nothing), "a protocol without ports");
        assert_eq!(of_v4(&v4(17, 0, 4)[..24]), (None, Unread::Ports), "behind options");
        let v6 = network(ethertype::IPV6, &v6(17, &[0, 7, 0])).unwrap();
        assert_eq!((v6.proto, v6.ports, v6.unread), (17, None, Unread::Ports));
    }

    #[test]
    fn padding_behind_a_fragment_is_no_ports() {
        let mut fragment = v4(17, 0x2000, 0);
        fragment[3] = 22;
        assert_eq!(of_v4(&fragment), (None, Unread::Ports));
        fragment[6] = 0;
        assert_eq!(of_v4(&fragment).1, Unread::Nothing, "the receiver finds no datagram there");
        let mut fragment = v6(44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 9, 0, 7]);
        fragment[5] = 11;
        assert_eq!(network(ethertype::IPV6, &fragment).unwrap().unread, Unread::Ports);
        fragment[5] = 12;
        assert_eq!(network(ethertype::IPV6, &fragment).unwrap().ports, Some((9, 7)));
        let mut whole = chain(1);
        whole[5] = 10;
        assert_eq!(network(ethertype::IPV6, &whole).unwrap().unread, Unread::Nothing, "it is no fragment");
    }

    /// So many headers of destination options, then UDP.
    fn chain(extensions: usize) -> Vec<u8> {
        let kinds = vec![60; extensions];
        let next = kinds.iter().skip(1).copied().chain([17]).flat_map(|next| [next, 0, 0, 0, 0, 0, 0, 0]);
        let rest: Vec<u8> = if extensions == 0 { Vec::new() } else { next.collect() };
        v6(kinds.first().copied().unwrap_or(17), &[&rest[..], &[0, 9, 0, 7]].concat())
    }

    #[test]
    fn behind_more_extension_headers_than_are_looked_at_nothing_is_guessed() {
        for extensions in 0..=MAX_EXTENSIONS {
            let info = network(ethertype::IPV6, &chain(extensions)).unwrap();
            assert_eq!((info.proto, info.ports, info.unread), (17, Some((9, 7)), Unread::Nothing));
        }
        let info = network(ethertype::IPV6, &chain(MAX_EXTENSIONS + 1)).unwrap();
        assert_eq!((info.ports, info.unread), (None, Unread::Transport));
        assert_eq!(info.src, "::1".parse::<IpAddr>().unwrap(), "the addresses are known");
    }

    #[test]
    fn an_extension_header_that_is_cut_off_hides_the_protocol() {
        let whole = chain(2);
        for len in 40..40 + 16 {
            let info = network(ethertype::IPV6, &whole[..len]).unwrap();
            assert_eq!((info.ports, info.unread), (None, Unread::Transport), "{len} bytes");
        }
        assert_eq!(network(ethertype::IPV6, &whole[..56]).unwrap().unread, Unread::Ports);
        // The first fragment of a packet whose options reach into the second.
        let first = v6(44, &[60, 0, 0, 1, 0, 0, 0, 1, 17, 30, 0, 0, 0, 0, 0, 0]);
        assert_eq!(network(ethertype::IPV6, &first).unwrap().unread, Unread::Transport);
        let later = v6(44, &[17, 0, 0, 9, 0, 0, 0, 1]);
        let info = network(ethertype::IPV6, &later).unwrap();
        assert_eq!((info.proto, info.ports, info.unread), (17, None, Unread::Nothing));
    }

    #[test]
    fn what_is_encrypted_or_unknown_is_a_protocol_without_ports() {
        for proto in [50, 59, 135, 253] {
            let info = network(ethertype::IPV6, &v6(proto, &[17, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 7])).unwrap();
            assert_eq!((info.proto, info.ports, info.unread), (proto, None, Unread::Nothing));
        }
        // An authentication header's length is in words of four bytes.
        let info = network(ethertype::IPV6, &v6(51, &[17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 7]));
        assert_eq!(info.unwrap().ports, Some((9, 7)));
    }
}
