//! What packets of a flow have in common, as words of the table.

use forebay_flow::Class;

/// The tags' part of a key: there is an outer 802.1Q tag, and there are further tags.
const TAGGED: u64 = 0x1000;
const STACKED: u64 = 0x2000;
const TAG_SHIFT: u32 = 48;

/// Odd, and otherwise without a pattern (the golden ratio's first bits).
const DIGEST: u64 = 0x9e37_79b9_7f4a_7c15;

/// What the packets of a flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey(pub(crate) [u64; 4]);

impl FlowKey {
    /// Of packets that came in at a port with these addresses, and with an outer 802.1Q tag of this VLAN or without one.
    #[inline]
    pub fn new(port_id: u16, tag: Option<u16>, src: u64, dst: u64) -> Self {
        let tag = tag.map_or(0, |vid| TAGGED | u64::from(vid));
        Self([address_word(dst) | u64::from(port_id) << 48, address_word(src) | tag << 48, 0, 0])
    }

    /// Of those among them that have further tags, or of those that have none.
    #[inline]
    #[must_use]
    pub fn stacked(mut self, is_stacked: bool) -> Self {
        let bit = STACKED << TAG_SHIFT;
        self.0[1] = if is_stacked { self.0[1] | bit } else { self.0[1] & !bit };
        self
    }

    /// Of those among them that have this class.
    #[inline]
    pub fn deeper(self, class: Class) -> Self {
        let Class { ethertype, src, dst, sport, dport, proto, tags } = class;
        let [to, from, ..] = self.0;
        let words = |low: [u16; 4]| low.iter().rev().fold(0, |word, part| word << 16 | u64::from(*part));
        Self([
            to,
            from,
            words([src, dst, sport, dport]),
            words([proto.into(), ethertype, 1, tags.bits().into()]),
        ])
    }

    /// A number that two keys seldom share, for small tables of recent ones; packet path.
    #[inline]
    pub fn digest(&self) -> u64 {
        let mixed = (self.0[0] ^ self.0[2].rotate_left(17)).wrapping_mul(DIGEST) ^ self.0[1] ^ self.0[3];
        mixed.wrapping_mul(DIGEST) ^ mixed >> 29
    }

    /// The input port.
    pub fn port_id(&self) -> u16 {
        (self.0[0] >> 48) as u16
    }

    /// The VLAN id in the packets' tag.
    pub fn tag(&self) -> Option<u16> {
        let tag = self.0[1] >> 48;
        (tag & TAGGED != 0).then_some((tag & 0xfff) as u16)
    }

    /// Whether the packets have further tags.
    pub fn is_stacked(&self) -> bool {
        self.0[1] >> TAG_SHIFT & STACKED != 0
    }

    /// The destination address.
    pub fn dst(&self) -> u64 {
        address_of(self.0[0])
    }

    /// The source address.
    pub fn src(&self) -> u64 {
        address_of(self.0[1])
    }
}

/// An address as programs read it from a packet: four bytes as one number, then two.
#[inline]
fn address_word(mac: u64) -> u64 {
    let [_, _, a, b, c, d, e, f] = mac.to_be_bytes();
    u64::from(u32::from_ne_bytes([a, b, c, d])) | u64::from(u16::from_ne_bytes([e, f])) << 32
}

fn address_of(word: u64) -> u64 {
    let ([a, b, c, d], [e, f]) = ((word as u32).to_ne_bytes(), ((word >> 32) as u16).to_ne_bytes());
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
