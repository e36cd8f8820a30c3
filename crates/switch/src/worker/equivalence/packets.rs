//! Random packets out of few values, and what is in them as the one knows who put it there.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_wire::Unread;
use forebay_wire::ethernet::ethertype::{SERVICE_VLAN, VLAN};

use super::random::Random;

pub(super) const VIDS: [u16; 4] = [0, 10, 20, 30];
/// Stations, and addresses of groups: any, all, and one that no bridge forwards.
pub(super) const MACS: [u64; 8] = [
    0x0200_0000_0001,
    0x0200_0000_0002,
    0x0200_0000_0003,
    0x0e12_3456_789a,
    0x0200_0000_0101,
    0x0100_5e00_0001,
    0xffff_ffff_ffff,
    0x0180_c200_000e,
];
pub(super) const STATIONS: usize = 5;
pub(super) const V4: [[u8; 4]; 6] =
    [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 1, 1], [10, 1, 0, 1], [192, 168, 0, 1], [255, 255, 255, 255]];
pub(super) const V6: [u128; 4] = [1, 0xfd00 << 112 | 1, 0xfd00 << 112 | 1 << 64 | 2, u128::MAX];
pub(super) const PORTS: [u16; 6] = [0, 53, 80, 81, 1024, 65_535];
pub(super) const PROTOS: [u8; 5] = [1, 6, 17, 58, 132];
/// Those of tags too: rules ask for packets that have them.
pub(super) const ETHERTYPES: [u16; 6] = [0x0800, 0x86dd, 0x0806, 0x88cc, VLAN, SERVICE_VLAN];
const LENGTHS: [usize; 5] = [20, 21, 100, 560, 1460];

/// Further tags that rules look behind.
const MOST_TAGS: usize = 4;
/// Extension headers that rules look behind.
const MOST_EXTENSIONS: usize = 8;

/// A packet, and what it is.
#[derive(Clone)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) dst: u64,
    pub(super) src: u64,
    /// Of the outer 802.1Q tag.
    pub(super) tci: Option<u16>,
    /// EtherTypes of the tags behind that one.
    pub(super) further: Vec<u16>,
    /// Behind all of them.
    pub(super) ethertype: u16,
    pub(super) ip: Option<Ip>,
    /// What of it nobody is to know.
    pub(super) unread: Unread,
    /// Extension headers of IPv6, which the kernel programs do not walk across.
    pub(super) is_extended: bool,
    /// Looks like one whose checksum nobody has finished, or nobody can tell.
    pub(super) looks_unfinished: bool,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { bytes, tci, further, ethertype, ip, unread, .. } = self;
        write!(f, "{}, tag {tci:x?}, then {further:x?}, EtherType {ethertype:#06x}, ", hex(bytes))?;
        write!(f, "{ip:?}, unread {unread:?}")
    }
}

/// The headers, and how long all of it is.
pub(super) fn hex(bytes: &[u8]) -> String {
    let headers: String = bytes.iter().take(80).map(|byte| format!("{byte:02x}")).collect();
    format!("{headers} ({} bytes)", bytes.len())
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ip {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) proto: u8,
    pub(super) ports: Option<(u16, u16)>,
}

/// What lies behind the tags.
struct Inner {
    ethertype: u16,
    bytes: Vec<u8>,
    ip: Option<Ip>,
    unread: Unread,
    is_extended: bool,
    looks_unfinished: bool,
}

pub(super) fn packet(random: &mut Random) -> Packet {
    let dst = random.one(&MACS);
    let src = if random.once_in(50) { random.one(&MACS) } else { MACS[random.below(STATIONS)] };
    let vid = if random.once_in(40) { 4095 } else { random.one(&VIDS) };
    let tci = random.maybe(2, |random| vid | random.one(&[0, 0, 0x6000, 0xf000]));
    let further = further(random, tci.is_some());
    let inner = inner(random);
    let mut bytes = [&dst.to_be_bytes()[2..], &src.to_be_bytes()[2..]].concat();
    let outer = tci.map(|tci| (VLAN, tci));
    let behind = further.iter().map(|tpid| (*tpid, random.one(&VIDS)));
    for (tpid, tci) in outer.into_iter().chain(behind) {
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend(inner.ethertype.to_be_bytes());
    let headers = bytes.len();
    bytes.extend(inner.bytes);
    let Inner { ethertype, mut ip, mut unread, is_extended, mut looks_unfinished, .. } = inner;
    if !further.is_empty() {
        looks_unfinished = true;
        // Within the last tag; before it there is a whole header.
        let cut = random.once_in(12).then(|| headers - 1 - random.below(4));
        bytes.truncate(cut.unwrap_or(bytes.len()));
        if further.len() > MOST_TAGS || cut.is_some() {
            (ip, unread) = (None, Unread::Everything);
        }
    }
    Packet { bytes, dst, src, tci, further, ethertype, ip, unread, is_extended, looks_unfinished }
}

/// EtherTypes of tags behind the outer 802.1Q tag, which the first of them is if there is none.
fn further(random: &mut Random, has_outer: bool) -> Vec<u16> {
    if !random.once_in(3) {
        return Vec::new();
    }
    let count = random.one(&[1, 1, 1, 1, 2, 2, 2, 3, 3, MOST_TAGS, MOST_TAGS + 1, MOST_TAGS + 3]);
    let mut tags: Vec<u16> = (0..count).map(|_| random.one(&[VLAN, SERVICE_VLAN])).collect();
    if !has_outer {
        tags[0] = SERVICE_VLAN;
    }
    tags
}

fn inner(random: &mut Random) -> Inner {
    match random.below(20) {
        0 => other(0x0806, vec![1; 46]),
        1 => other(0x88cc, vec![2; 60]),
        2..8 => v6(random),
        _ => v4(random),
    }
}

fn other(ethertype: u16, bytes: Vec<u8>) -> Inner {
    let (unread, is_extended) = (Unread::Nothing, false);
    Inner { ethertype, bytes, ip: None, unread, is_extended, looks_unfinished: false }
}

fn has_ports(proto: u8) -> bool {
    [6, 17, 132].contains(&proto)
}

/// Cuts bytes behind the IP header off: a few of the first four, where the ports are.
fn cut(random: &mut Random, l4: &mut Vec<u8>) -> bool {
    let is_cut = random.once_in(15);
    if is_cut {
        l4.truncate(random.below(4));
    }
    is_cut
}

fn v4(random: &mut Random) -> Inner {
    let [src, dst] = [random.one(&V4), random.one(&V4)];
    let proto = random.one(&PROTOS);
    let fragment = if random.once_in(8) { random.one(&[0x2000, 0x2000, 0x2001, 1, 0x1fff]) } else { 0x4000 };
    let options = if random.once_in(10) { random.one(&[4, 40]) } else { 0 };
    let (mut l4, ports, is_unfinished) = segment(random, proto, &[src, dst].concat());
    let is_cut = cut(random, &mut l4);
    // Behind what a first fragment claims to have there is padding.
    let is_padded = fragment == 0x2000 && random.once_in(3);
    let claimed = if is_padded { random.below(4) } else { l4.len() };
    let mut bytes = vec![0; 20 + options];
    bytes[0] = 0x45 + (options / 4) as u8;
    bytes[2..4].copy_from_slice(&((20 + options + claimed) as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&u16::to_be_bytes(fragment));
    bytes[9] = proto;
    bytes[12..16].copy_from_slice(&src);
    bytes[16..20].copy_from_slice(&dst);
    bytes.extend(l4);
    let is_first = fragment & 0x1fff == 0;
    let is_hidden = (is_cut || is_padded) && is_first && has_ports(proto);
    let ports = ports.filter(|_| is_first && !is_hidden);
    let ip = Ip { src: Ipv4Addr::from(src).into(), dst: Ipv4Addr::from(dst).into(), proto, ports };
    let is_odd = options > 0 || is_unfinished || proto == 132 || (is_cut && has_ports(proto));
    let looks_unfinished = fragment & 0x3fff == 0 && is_odd;
    let unread = if is_hidden { Unread::Ports } else { Unread::Nothing };
    Inner { ethertype: 0x0800, bytes, ip: Some(ip), unread, is_extended: false, looks_unfinished }
}

/// Extension headers in a row.
struct Chain {
    /// Number of the first, or of what follows if there is none.
    first: u8,
    bytes: Vec<u8>,
    /// What a later fragment says that it is a part of.
    later: Option<u8>,
    is_extended: bool,
    is_cut: bool,
    is_long: bool,
}

fn chain(random: &mut Random, proto: u8) -> Chain {
    let counts = [1, 1, 1, 2, 3, MOST_EXTENSIONS, MOST_EXTENSIONS + 1, MOST_EXTENSIONS + 4];
    let count = if random.once_in(6) { random.one(&counts) } else { 0 };
    let kinds: Vec<u8> = (0..count).map(|_| random.one(&[0, 43, 44, 51, 60])).collect();
    let next: Vec<u8> = kinds.iter().copied().chain([proto]).collect();
    let (mut bytes, mut later) = (Vec::new(), None);
    for (kind, next) in kinds.iter().zip(&next[1..]) {
        // Neither more fragments nor an offset, but for later fragments.
        let is_later = *kind == 44 && random.once_in(3);
        bytes.extend([*next, 0, 0, if is_later { 8 } else { 0 }, 0, 0, 0, 0]);
        if is_later && later.is_none() && bytes.len() / 8 <= MOST_EXTENSIONS {
            later = Some(*next);
        }
    }
    let is_cut = count > 0 && later.is_none() && random.once_in(6);
    if is_cut {
        bytes.truncate(bytes.len() - 1 - random.below(8));
    }
    let is_long = count > MOST_EXTENSIONS && later.is_none();
    Chain { first: next[0], bytes, later, is_extended: count > 0, is_cut, is_long }
}

fn v6(random: &mut Random) -> Inner {
    let [src, dst] = [random.one(&V6), random.one(&V6)];
    let proto = random.one(&PROTOS);
    let (mut l4, ports, is_unfinished) =
        segment(random, proto, &[src.to_be_bytes(), dst.to_be_bytes()].concat());
    let chain = chain(random, proto);
    let is_cut = cut(random, &mut l4);
    let rest = if chain.is_cut { chain.bytes } else { [chain.bytes, l4].concat() };
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((rest.len() as u16).to_be_bytes());
    bytes.extend([chain.first, 64]);
    bytes.extend(src.to_be_bytes().into_iter().chain(dst.to_be_bytes()).chain(rest));
    let unread = match chain.later {
        Some(_) => Unread::Nothing,
        None if chain.is_cut || chain.is_long => Unread::Transport,
        None if is_cut && has_ports(proto) => Unread::Ports,
        None => Unread::Nothing,
    };
    let ports = ports.filter(|_| unread == Unread::Nothing && chain.later.is_none());
    let seen = chain.later.unwrap_or(proto);
    let ip = Ip { src: Ipv6Addr::from(src).into(), dst: Ipv6Addr::from(dst).into(), proto: seen, ports };
    let is_other = ![6, 17, 58].contains(&proto);
    let is_odd = is_other || is_unfinished || (is_cut && has_ports(proto));
    let looks_unfinished = chain.is_extended || is_odd;
    let is_extended = chain.is_extended;
    Inner { ethertype: 0x86dd, bytes, ip: Some(ip), unread, is_extended, looks_unfinished }
}

/// What follows the IP header, its ports, and whether its checksum is the pseudo-header's sum.
fn segment(random: &mut Random, proto: u8, addresses: &[u8]) -> (Vec<u8>, Option<(u16, u16)>, bool) {
    let mut bytes = vec![0; random.one(&LENGTHS)];
    let ports = [random.one(&PORTS), random.one(&PORTS)];
    bytes[..2].copy_from_slice(&ports[0].to_be_bytes());
    bytes[2..4].copy_from_slice(&ports[1].to_be_bytes());
    let length = bytes.len() as u16;
    let is_unfinished = random.once_in(6);
    let at = match proto {
        6 => 16,
        17 => 6,
        _ => return (bytes, has_ports(proto).then_some(ports.into()), false),
    };
    if proto == 6 {
        bytes[12] = 0x50;
    } else {
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
    }
    let pseudo = [addresses, &length.to_be_bytes(), &[0, proto]].concat();
    let words = pseudo.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.fold(0, |sum, word| (sum + word) % 0x10000 + (sum + word) / 0x10000) as u16;
    let sum = if is_unfinished { sum } else { sum ^ 0x0100 };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    (bytes, Some(ports.into()), is_unfinished)
}
