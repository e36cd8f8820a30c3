//! Random packets out of few values, and what is in them as the one knows who put it there.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
pub(super) const ETHERTYPES: [u16; 4] = [0x0800, 0x86dd, 0x0806, 0x88cc];
const LENGTHS: [usize; 5] = [20, 21, 100, 560, 1460];

/// A packet, and what it is.
#[derive(Clone)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) dst: u64,
    pub(super) src: u64,
    /// Of the outer 802.1Q tag.
    pub(super) tci: Option<u16>,
    /// Behind it.
    pub(super) ethertype: u16,
    pub(super) ip: Option<Ip>,
    /// Extension headers of IPv6, which the kernel programs do not walk across.
    pub(super) is_extended: bool,
    /// Looks like one whose checksum nobody has finished, or nobody can tell.
    pub(super) looks_unfinished: bool,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { bytes, tci, ethertype, ip, .. } = self;
        write!(f, "{}, tag {tci:x?}, EtherType {ethertype:#06x}, {ip:?}", hex(bytes))
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

/// What lies behind the tag.
struct Inner {
    ethertype: u16,
    bytes: Vec<u8>,
    ip: Option<Ip>,
    is_extended: bool,
    looks_unfinished: bool,
}

pub(super) fn packet(random: &mut Random) -> Packet {
    let dst = random.one(&MACS);
    let src = if random.once_in(50) { random.one(&MACS) } else { MACS[random.below(STATIONS)] };
    let vid = if random.once_in(40) { 4095 } else { random.one(&VIDS) };
    let tci = random.maybe(2, |random| vid | random.one(&[0, 0, 0x6000, 0xf000]));
    let inner = inner(random);
    let mut bytes = [&dst.to_be_bytes()[2..], &src.to_be_bytes()[2..]].concat();
    if let Some(tci) = tci {
        bytes.extend([0x81, 0x00]);
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend(inner.ethertype.to_be_bytes());
    bytes.extend(inner.bytes);
    let Inner { ethertype, ip, is_extended, looks_unfinished, .. } = inner;
    Packet { bytes, dst, src, tci, ethertype, ip, is_extended, looks_unfinished }
}

fn inner(random: &mut Random) -> Inner {
    match random.below(20) {
        0 => other(0x0806, vec![1; 46], false),
        1 => other(0x88cc, vec![2; 60], false),
        // An outer tag only counts if it is there.
        2 => other(0x88a8, vec![0, 10, 8, 0, 0x45, 0, 0, 0], true),
        3..9 => v6(random),
        _ => v4(random),
    }
}

fn other(ethertype: u16, bytes: Vec<u8>, looks_unfinished: bool) -> Inner {
    Inner { ethertype, bytes, ip: None, is_extended: false, looks_unfinished }
}

fn has_ports(proto: u8) -> bool {
    [6, 17, 132].contains(&proto)
}

fn v4(random: &mut Random) -> Inner {
    let [src, dst] = [random.one(&V4), random.one(&V4)];
    let proto = random.one(&PROTOS);
    let fragment = if random.once_in(8) { random.one(&[0x2000, 0x2001, 1, 0x1fff]) } else { 0x4000 };
    let options = if random.once_in(10) { random.one(&[4, 40]) } else { 0 };
    let (l4, ports, is_unfinished) = segment(random, proto, &[src, dst].concat());
    let mut bytes = vec![0; 20 + options];
    bytes[0] = 0x45 + (options / 4) as u8;
    bytes[2..4].copy_from_slice(&((20 + options + l4.len()) as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&u16::to_be_bytes(fragment));
    bytes[9] = proto;
    bytes[12..16].copy_from_slice(&src);
    bytes[16..20].copy_from_slice(&dst);
    bytes.extend(l4);
    let ports = ports.filter(|_| fragment & 0x1fff == 0);
    let ip = Ip { src: Ipv4Addr::from(src).into(), dst: Ipv4Addr::from(dst).into(), proto, ports };
    let looks_unfinished = fragment & 0x3fff == 0 && (options > 0 || is_unfinished || proto == 132);
    Inner { ethertype: 0x0800, bytes, ip: Some(ip), is_extended: false, looks_unfinished }
}

fn v6(random: &mut Random) -> Inner {
    let [src, dst] = [random.one(&V6), random.one(&V6)];
    let proto = random.one(&PROTOS);
    let (l4, ports, is_unfinished) = segment(random, proto, &[src.to_be_bytes(), dst.to_be_bytes()].concat());
    let extension = random.maybe(8, |random| random.one(&[0u8, 43, 60]));
    let rest = match extension {
        Some(_) => [&[proto, 0, 0, 0, 0, 0, 0, 0][..], &l4].concat(),
        None => l4,
    };
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((rest.len() as u16).to_be_bytes());
    bytes.extend([extension.unwrap_or(proto), 64]);
    bytes.extend(src.to_be_bytes().into_iter().chain(dst.to_be_bytes()).chain(rest));
    let ip = Ip { src: Ipv6Addr::from(src).into(), dst: Ipv6Addr::from(dst).into(), proto, ports };
    let is_other = ![6, 17, 58].contains(&proto);
    let looks_unfinished = extension.is_some() || is_other || is_unfinished;
    let is_extended = extension.is_some();
    Inner { ethertype: 0x86dd, bytes, ip: Some(ip), is_extended, looks_unfinished }
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
