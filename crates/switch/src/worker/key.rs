//! All that rules can ask of a packet, in words that are compared and hashed.
//!
//! The rule it keeps: two packets have the same key exactly if rules cannot tell them apart by any field. So a key
//! gives back the [`Fields`] that the classifier is asked with, and a packet is read once.
//!
//! ```text
//!        63     56 55    48 47          32 31          16 15           0
//!   0   │ flags   │ proto  │ ethertype    │ VLAN         │ in port      │    EtherType behind all tags
//!   1   │ source port      │ source MAC                                 │
//!   2   │ destination port │ destination MAC                            │
//!   3   │ IPv4: source address           │ destination address          │    IPv6: source, upper half
//!   4–6 │ IPv4: 0                                                       │    source, lower half; destination
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_control::PortId;
use forebay_flow::{Fields, Network, TagKinds, Unread};
use forebay_wire::ethernet::ethertype;
use forebay_wire::{FrameInfo, NetworkInfo, PlainIpv4};

use super::classify::Headers;

/// Words of a key.
pub(super) const WORDS: usize = 7;

/// Bits of an address, and where the port above it is.
const MAC_BITS: u32 = 48;
const MAC: u64 = (1 << MAC_BITS) - 1;

/// Flags: it has an IP header; that is of version 6; it has ports. Above them the kinds of its further tags, and what of
/// it is unread.
const HAS_IP: u64 = 1 << 56;
const IS_V6: u64 = 1 << 57;
const HAS_PORTS: u64 = 1 << 58;
const TAGS_SHIFT: u32 = 59;
const UNREAD_SHIFT: u32 = 61;
const UNREAD: u64 = 3 << UNREAD_SHIFT;
const ETHERTYPE_SHIFT: u32 = 32;

/// What rules can ask of a packet that came in at a port; `None`, where not all of it can be read. The VLAN is left out:
/// it is not what lies deeper.
pub(crate) fn deeper_fields(input: PortId, frame: &FrameInfo, bytes: &[u8]) -> Option<Fields> {
    let FrameInfo { dst, src, tag, ethertype, .. } = *frame;
    let headers = Headers { input, dst, src, vid: 0, tag, tag_is_out: false, ethertype, mark: 0 };
    let key = Key::read(&headers, bytes);
    (!key.is_unread()).then(|| key.fields())
}

/// One packet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(pub(super) [u64; WORDS]);

impl Key {
    /// Reads a packet whose first bytes are `bytes`.
    #[inline]
    pub(super) fn read(headers: &Headers, bytes: &[u8]) -> Key {
        let behind = bytes.get(headers.network_at()..).unwrap_or_default();
        if headers.ethertype == ethertype::IPV4
            && let Some(plain) = forebay_wire::plain_ipv4(behind)
        {
            return Key::outer(headers).with_plain(plain);
        }
        Key::read_other(headers, behind)
    }

    /// Reads what is not just an IPv4 header and ports.
    #[inline(never)]
    fn read_other(headers: &Headers, behind: &[u8]) -> Key {
        let outer = Key::outer(headers);
        match headers.ethertype {
            ethertype::VLAN | ethertype::SERVICE_VLAN => outer.with_tags(headers.ethertype, behind),
            other => outer.with(forebay_wire::network(other, behind)),
        }
    }

    /// What is behind further tags, of which `ethertype` announces the first.
    #[cold]
    fn with_tags(mut self, ethertype: u16, behind: &[u8]) -> Key {
        let Some(inner) = forebay_wire::behind_tags(ethertype, behind) else {
            return self.with_unread(Unread::Everything);
        };
        self.0[0] &= !(u64::from(u16::MAX) << ETHERTYPE_SHIFT);
        self.0[0] |= u64::from(inner.ethertype) << ETHERTYPE_SHIFT;
        self.0[0] |= u64::from(inner.kinds.bits()) << TAGS_SHIFT;
        self.with(forebay_wire::network(inner.ethertype, &behind[inner.at..]))
    }

    fn with_unread(mut self, unread: Unread) -> Key {
        self.0[0] |= (unread as u64) << UNREAD_SHIFT;
        self
    }

    /// Whether not all of the packet could be read.
    #[inline]
    pub(super) fn is_unread(&self) -> bool {
        self.0[0] & UNREAD != 0
    }

    #[inline]
    fn outer(headers: &Headers) -> Key {
        let [port, vid, ethertype] = [headers.input.0, headers.vid, headers.ethertype].map(u64::from);
        Key([
            port | vid << 16 | ethertype << ETHERTYPE_SHIFT,
            headers.src & MAC,
            headers.dst & MAC,
            0,
            0,
            0,
            0,
        ])
    }

    #[inline]
    fn with_plain(mut self, plain: PlainIpv4) -> Key {
        self.0[0] |= HAS_IP | HAS_PORTS | u64::from(plain.proto) << 48;
        self.0[1] |= u64::from(plain.ports >> 16) << MAC_BITS;
        self.0[2] |= u64::from(plain.ports) << MAC_BITS;
        self.0[3] = plain.addresses;
        self
    }

    fn with(mut self, info: Option<NetworkInfo>) -> Key {
        let Some(info) = info else { return self };
        let halves = |address: Ipv6Addr| [(address.to_bits() >> 64) as u64, address.to_bits() as u64];
        self.0[0] |= HAS_IP | u64::from(info.proto) << 48;
        match (info.src, info.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                self.0[0] |= IS_V6;
                [self.0[3], self.0[4]] = halves(src);
                [self.0[5], self.0[6]] = halves(dst);
            }
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.0[3] = u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits());
            }
            // They are of one family.
            _ => return self,
        }
        self = self.with_unread(info.unread);
        if let Some((src, dst)) = info.ports {
            self.0[0] |= HAS_PORTS;
            self.0[1] |= u64::from(src) << MAC_BITS;
            self.0[2] |= u64::from(dst) << MAC_BITS;
        }
        self
    }

    /// What the classifier is asked with.
    pub(super) fn fields(&self) -> Fields {
        let first = self.0[0];
        Fields {
            in_port: u32::from(first as u16),
            vlan: (first >> 16) as u16,
            src_mac: self.0[1] & MAC,
            dst_mac: self.0[2] & MAC,
            ethertype: (first >> ETHERTYPE_SHIFT) as u16,
            tags: TagKinds::from_bits((first >> TAGS_SHIFT) as u8),
            network: self.network(),
            unread: Unread::ALL[(first >> UNREAD_SHIFT & 3) as usize],
        }
    }

    fn network(&self) -> Option<Network> {
        let [first, src, dst, ..] = self.0;
        if first & HAS_IP == 0 {
            return None;
        }
        let ports = ((src >> MAC_BITS) as u16, (dst >> MAC_BITS) as u16);
        let (proto, ports) = ((first >> 48) as u8, (first & HAS_PORTS != 0).then_some(ports));
        let v4 = |at: u32| Ipv4Addr::from_bits((self.0[3] >> at) as u32);
        let v6 = |at| Ipv6Addr::from_bits(u128::from(self.0[at]) << 64 | u128::from(self.0[at + 1]));
        Some(match first & IS_V6 {
            0 => Network::v4(v4(32), v4(0), proto, ports),
            _ => Network::v6(v6(3), v6(5), proto, ports),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use forebay_control::PortId;
    use forebay_wire::Tag;
    use forebay_wire::ethernet::HEADER_LEN;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// A packet: what was classified of it, and its bytes.
    pub(in super::super) type Packet = (Headers, Vec<u8>);

    fn headers() -> impl Strategy<Value = Headers> {
        let macs = || select(vec![2u64, 4, 0xffff_ffff_fffe]);
        let tag = || prop_oneof![2 => Just(None), 1 => Just(Some(Tag::from_tci(7)))];
        let ethertypes = select(vec![0x0800u16, 0x0800, 0x86dd, 0x86dd, 0x0806, 0]);
        (0u16..3, macs(), macs(), select(vec![0u16, 7, 4094]), tag(), any::<bool>(), ethertypes).prop_map(
            |(port, src, dst, vid, tag, tag_is_out, ethertype)| Headers {
                input: PortId(port),
                dst,
                src,
                vid,
                tag,
                tag_is_out: tag_is_out && tag.is_some(),
                ethertype,
                mark: 0,
            },
        )
    }

    fn v4() -> impl Strategy<Value = Vec<u8>> {
        let protos = select(vec![1u8, 6, 17, 17, 132]);
        let fragments = select(vec![0u16, 0, 0x4000, 0x2000, 0x2005, 0x1fff]);
        (protos, fragments, 0u8..3, 0u8..3, 0u16..5, 0u16..5, 4u8..8, any::<u8>()).prop_map(
            |(proto, fragment, src, dst, sport, dport, ihl, id)| {
                let mut ip = vec![0; usize::from(ihl.max(5)) * 4];
                ip[0] = 0x40 | ihl;
                ip[5] = id;
                ip[6..8].copy_from_slice(&fragment.to_be_bytes());
                ip[9] = proto;
                ip[12..20].copy_from_slice(&[10, 0, 0, src, 10, 1, 0, dst]);
                [&ip[..], &sport.to_be_bytes(), &dport.to_be_bytes(), &[9; 4]].concat()
            },
        )
    }

    fn v6() -> impl Strategy<Value = Vec<u8>> {
        let first = select(vec![6u8, 17, 44, 0, 58]);
        (first, 0u8..3, 0u8..3, 0u16..5, select(vec![0u8, 1, 9])).prop_map(
            |(next, src, dst, dport, fragment)| {
                let mut ip = [0; 40];
                (ip[0], ip[6], ip[8], ip[23], ip[24], ip[39]) = (0x60, next, 0xfd, src, 0xfd, dst);
                let extension = [17, 0, 0, fragment, 0, 0, 0, 0];
                let extension = if matches!(next, 44 | 0) { &extension[..] } else { &[] };
                [&ip[..], extension, &[0, 3], &dport.to_be_bytes()].concat()
            },
        )
    }

    /// Packets out of so few values that many are alike, some cut off.
    pub(in super::super) fn packet() -> impl Strategy<Value = Packet> {
        let cut = prop_oneof![5 => Just(usize::MAX), 1 => 0usize..70];
        let tags = proptest::collection::vec(select(vec![0x8100u16, 0x88a8]), 1..7);
        let tags = prop_oneof![3 => Just(Vec::new()), 1 => tags];
        (headers(), prop_oneof![2 => v4(), 1 => v6()], tags, cut).prop_map(
            |(mut headers, network, tags, cut)| {
                let outer = vec![0xee; headers.network_at().max(HEADER_LEN)];
                let announced: Vec<u16> = tags.into_iter().chain([headers.ethertype]).collect();
                let stack =
                    announced[1..].iter().flat_map(|ethertype| [[0, 9], ethertype.to_be_bytes()].concat());
                let mut bytes: Vec<u8> = outer.into_iter().chain(stack).chain(network).collect();
                headers.ethertype = announced[0];
                bytes.truncate(cut);
                (headers, bytes)
            },
        )
    }

    /// What was read from the packet, as rules ask for it.
    fn network_of(info: NetworkInfo) -> Option<Network> {
        use IpAddr::{V4, V6};
        match (info.src, info.dst) {
            (V4(src), V4(dst)) => Some(Network::v4(src, dst, info.proto, info.ports)),
            (V6(src), V6(dst)) => Some(Network::v6(src, dst, info.proto, info.ports)),
            _ => None,
        }
    }

    /// What the classifier was asked with before there were keys.
    pub(in super::super) fn fields_of(packet: &Packet) -> Fields {
        let (headers, bytes) = packet;
        let behind = bytes.get(headers.network_at()..);
        let inner = forebay_wire::behind_tags(headers.ethertype, behind.unwrap_or_default());
        let read = inner.zip(behind);
        let info = read.and_then(|(inner, bytes)| forebay_wire::network(inner.ethertype, &bytes[inner.at..]));
        let unread = info.map_or(Unread::Nothing, |info| info.unread);
        Fields {
            in_port: headers.input.0.into(),
            vlan: headers.vid,
            src_mac: headers.src,
            dst_mac: headers.dst,
            ethertype: inner.map_or(headers.ethertype, |inner| inner.ethertype),
            tags: inner.map_or(TagKinds::NONE, |inner| inner.kinds),
            network: info.and_then(network_of),
            unread: if inner.is_none() { Unread::Everything } else { unread },
        }
    }

    proptest! {
        #[test]
        fn a_key_gives_back_every_field(packet in packet()) {
            prop_assert_eq!(Key::read(&packet.0, &packet.1).fields(), fields_of(&packet));
        }

        #[test]
        fn keys_are_equal_when_fields_are(one in packet(), other in packet()) {
            let keys = [&one, &other].map(|(headers, bytes)| Key::read(headers, bytes));
            prop_assert_eq!(keys[0] == keys[1], fields_of(&one) == fields_of(&other));
        }
    }
}
