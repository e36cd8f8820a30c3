//! Packets to test with: built by etherparse, so that nothing of ours vouches for itself.

use etherparse::PacketBuilder;
use proptest::prelude::*;

use crate::ethernet::ethertype;
use crate::l4::Transport;

/// A recipe for a correct packet; proptest makes them up and shrinks them.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) transport: Transport,
    pub(crate) v6: bool,
    /// Outer tags first; true for a service tag.
    pub(crate) tags: Vec<(bool, u16)>,
    /// IPv6 only: extension headers without consequence, by protocol number and number of extra 8-byte units.
    pub(crate) extensions: Vec<(u8, u8)>,
    pub(crate) addresses: [u8; 32],
    pub(crate) payload: Vec<u8>,
    pub(crate) padding: usize,
}

/// A correct packet, and where its transport segment lies.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) recipe: Recipe,
}

pub(crate) fn recipes() -> impl Strategy<Value = Recipe> {
    let transport = prop_oneof![Just(Transport::Tcp), Just(Transport::Udp), Just(Transport::Sctp)];
    let tags = proptest::collection::vec(any::<(bool, u16)>(), 0..=crate::locate::MAX_TAGS);
    let extension = (prop_oneof![Just(0u8), Just(43), Just(60), Just(51), Just(44)], 0u8..3);
    let extensions = proptest::collection::vec(extension, 0..crate::locate::MAX_EXTENSIONS);
    let payload = proptest::collection::vec(any::<u8>(), 0..1600);
    (transport, any::<bool>(), tags, extensions, any::<[u8; 32]>(), payload, 0usize..40).prop_map(
        |(transport, v6, tags, extensions, addresses, payload, padding)| Recipe {
            transport,
            v6,
            tags,
            extensions: if v6 { extensions } else { Vec::new() },
            addresses,
            payload,
            padding,
        },
    )
}

pub(crate) fn packets() -> impl Strategy<Value = Built> {
    recipes().prop_map(Recipe::build)
}

/// A small correct packet, for tests that look at one thing.
pub(crate) fn simple(transport: Transport, v6: bool) -> Built {
    let addresses = std::array::from_fn(|i| i as u8 * 7 + 1);
    let payload = b"water runs downhill".to_vec();
    Recipe { transport, v6, tags: vec![], extensions: vec![], addresses, payload, padding: 0 }.build()
}

impl Recipe {
    pub(crate) fn build(self) -> Built {
        let mut bytes = self.plain();
        let (ip_len, len) = (if self.v6 { 40 } else { 20 }, bytes.len() - 14 - if self.v6 { 40 } else { 20 });
        let mut start = 14 + ip_len;
        start += insert_extensions(&mut bytes, &self.extensions);
        start += insert_tags(&mut bytes, &self.tags);
        bytes.extend((0..self.padding).map(|i| i as u8));
        Built { bytes, start, len, recipe: self }
    }

    fn plain(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (src, dst) = self.addresses.split_at(16);
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = if self.v6 {
            ethernet.ipv6(src.try_into().unwrap(), dst.try_into().unwrap(), 64)
        } else {
            ethernet.ipv4(src[..4].try_into().unwrap(), dst[..4].try_into().unwrap(), 64)
        };
        match self.transport {
            Transport::Tcp => ip.tcp(80, 4242, 7, 1000).psh().write(&mut bytes, &self.payload).unwrap(),
            Transport::Udp => ip.udp(53, 4242).write(&mut bytes, &self.payload).unwrap(),
            Transport::Sctp => ip.write(&mut bytes, 132.into(), &sctp(&self.payload)).unwrap(),
        }
        bytes
    }
}

fn sctp(payload: &[u8]) -> Vec<u8> {
    let mut segment = [&[0, 80, 0x10, 0x92, 1, 2, 3, 4, 0, 0, 0, 0], payload].concat();
    let crc = slow_crc32c(&segment);
    segment[8..12].copy_from_slice(&crc.to_le_bytes());
    segment
}

/// CRC32c bit by bit: reflected polynomial 0x82f63b78.
pub(crate) fn slow_crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// The folded sum as a textbook has it: 16-bit words one after the other.
pub(crate) fn slow_sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
    bytes.chunks(2).map(word).fold(0, |sum, w| (sum + w) % 0x10000 + (sum + w) / 0x10000) as u16
}

fn insert_extensions(bytes: &mut Vec<u8>, extensions: &[(u8, u8)]) -> usize {
    let mut inserted = Vec::new();
    let mut next = bytes[20];
    for (kind, units) in extensions.iter().rev() {
        inserted.splice(0..0, extension(*kind, *units, next));
        next = *kind;
    }
    if !inserted.is_empty() {
        bytes[20] = next;
        let payload_len = u16::from_be_bytes([bytes[18], bytes[19]]) + inserted.len() as u16;
        bytes[18..20].copy_from_slice(&payload_len.to_be_bytes());
        bytes.splice(54..54, inserted.iter().copied());
    }
    inserted.len()
}

/// An extension header that hides nothing: options of zeros (PadN of 0 bytes, Pad1), no segments left, an atomic
/// fragment.
fn extension(kind: u8, units: u8, next: u8) -> Vec<u8> {
    let (field, len) = match kind {
        44 => (0, 8),
        51 => (units * 2, 8 + usize::from(units) * 8),
        _ => (units, 8 + usize::from(units) * 8),
    };
    let mut header = vec![0; len];
    header[..2].copy_from_slice(&[next, field]);
    header
}

pub(crate) fn insert_tags(bytes: &mut Vec<u8>, tags: &[(bool, u16)]) -> usize {
    for (service, tci) in tags.iter().rev() {
        let kind = if *service { ethertype::SERVICE_VLAN } else { ethertype::VLAN };
        bytes.splice(12..12, [kind.to_be_bytes(), tci.to_be_bytes()].concat());
    }
    tags.len() * 4
}

impl Built {
    /// Where the checksum field lies.
    pub(crate) fn field(&self) -> std::ops::Range<usize> {
        let at = self.start + self.recipe.transport.checksum_offset();
        at..at + if self.recipe.transport == Transport::Sctp { 4 } else { 2 }
    }

    /// The packet as Linux leaves it with CHECKSUM_PARTIAL.
    pub(crate) fn unfinished(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[self.field()].fill(0);
        if self.recipe.transport != Transport::Sctp {
            bytes[self.field()].copy_from_slice(&self.pseudo().to_be_bytes());
        }
        bytes
    }

    /// The pseudo-header's folded sum, by the textbook.
    pub(crate) fn pseudo(&self) -> u16 {
        let (src, dst) = self.recipe.addresses.split_at(16);
        let address_len = if self.recipe.v6 { 16 } else { 4 };
        let tail = [(self.len as u32).to_be_bytes(), [0, 0, 0, self.recipe.transport.protocol()]].concat();
        slow_sum(&[&src[..address_len], &dst[..address_len], &tail].concat())
    }
}
