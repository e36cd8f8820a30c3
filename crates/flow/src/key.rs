//! Packets and rules as words that a mask lays over each other.
//!
//! Everything that a rule asks exactly, ports aside, is some bits of eight words; which bits those are is its mask.
//! A packet has what is asked if its words under the mask are the rule's. That a packet has an IP header, and of
//! which version, are bits like others, so that a packet without one matches no rule that asks for protocol 0 or
//! network 0.0.0.0/0.
//!
//! ```text
//!   0  in_port, vlan     1  src_mac     2  dst_mac                             layer 2
//!   3  ethertype, ip_proto, has IP, is IPv6, tags     4 5  src     6 7  dst    deeper
//! ```

use forebay_wire::TagKinds;

use crate::{Family, Fields, Match, Prefix};

/// Words that are compared as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Words<const N: usize>([u64; N]);

/// All that a packet is looked up by, or the bits of it that a rule asks for.
pub(crate) type Key = Words<8>;
/// The part of a [`Key`] that is layer 2.
pub(crate) type L2Key = Words<3>;

const DEEPER: usize = 3;
const SRC: usize = 4;
const DST: usize = 6;

const IN_PORT_SHIFT: u32 = 16;
const PROTO_SHIFT: u32 = 16;
const HAS_IP: u64 = 1 << 24;
const IS_V6: u64 = 1 << 25;
const TAGS_SHIFT: u32 = 26;

impl<const N: usize> Words<N> {
    /// What is left under the mask.
    #[inline]
    pub(crate) fn under(&self, mask: &Words<N>) -> Words<N> {
        Words(std::array::from_fn(|word| self.0[word] & mask.0[word]))
    }
}

impl Key {
    /// The words of a packet.
    #[inline]
    pub(crate) fn of(fields: &Fields) -> Key {
        let l2 = L2Key::of(fields).0;
        let mut words = [l2[0], l2[1], l2[2], u64::from(fields.ethertype) | tags(fields.tags), 0, 0, 0, 0];
        if let Some(network) = &fields.network {
            words[DEEPER] |= HAS_IP | version(network.family) | u64::from(network.proto) << PROTO_SHIFT;
            [words[SRC], words[SRC + 1]] = halves(network.src);
            [words[DST], words[DST + 1]] = halves(network.dst);
        }
        Words(words)
    }

    /// The first words.
    pub(crate) fn l2(&self) -> L2Key {
        let [a, b, c, ..] = self.0;
        Words([a, b, c])
    }
}

impl L2Key {
    /// The words of a packet's layer 2.
    #[inline]
    pub(crate) fn of(fields: &Fields) -> L2Key {
        let first = u64::from(fields.in_port) << IN_PORT_SHIFT | u64::from(fields.vlan);
        Words([first, fields.src_mac, fields.dst_mac])
    }
}

/// What a match asks, ports aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The bits that are asked for.
    pub(crate) mask: Key,
    /// What they have to be; zero outside the mask.
    pub(crate) key: Key,
}

impl Asked {
    pub(crate) fn by(rule: &Match) -> Asked {
        let mut asked = Asked { mask: Words([0; 8]), key: Words([0; 8]) };
        asked.word(
            0,
            u64::from(u32::MAX) << IN_PORT_SHIFT,
            rule.in_port.map(|id| u64::from(id) << IN_PORT_SHIFT),
        );
        asked.word(0, u64::from(u16::MAX), rule.vlan.map(u64::from));
        asked.word(1, u64::MAX, rule.src_mac);
        asked.word(2, u64::MAX, rule.dst_mac);
        let kind = rule.tag_kind();
        asked.word(DEEPER, tags(kind), Some(tags(kind)));
        let ethertype = rule.ethertype.filter(|_| kind.is_empty());
        asked.word(DEEPER, u64::from(u16::MAX), ethertype.map(u64::from));
        let proto = rule.ip_proto.map(|proto| HAS_IP | u64::from(proto) << PROTO_SHIFT);
        asked.word(DEEPER, HAS_IP | u64::from(u8::MAX) << PROTO_SHIFT, proto);
        asked.network(SRC, rule.src);
        asked.network(DST, rule.dst);
        asked
    }

    fn network(&mut self, at: usize, prefix: Option<Prefix>) {
        let Some(prefix) = prefix else { return };
        self.word(DEEPER, HAS_IP | IS_V6, Some(HAS_IP | version(prefix.family())));
        for (half, (mask, value)) in
            halves(prefix.mask()).into_iter().zip(halves(prefix.number())).enumerate()
        {
            self.word(at + half, mask, Some(value));
        }
    }

    fn word(&mut self, at: usize, mask: u64, value: Option<u64>) {
        if let Some(value) = value {
            self.mask.0[at] |= mask;
            self.key.0[at] |= value;
        }
    }
}

const fn tags(kinds: TagKinds) -> u64 {
    (kinds.bits() as u64) << TAGS_SHIFT
}

const fn version(family: Family) -> u64 {
    match family {
        Family::V4 => 0,
        Family::V6 => IS_V6,
    }
}

const fn halves(number: u128) -> [u64; 2] {
    [(number >> 64) as u64, number as u64]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{any_match, packet};

    proptest! {
        #[test]
        fn a_packets_words_under_the_mask_are_the_rules_exactly_when_it_matches(rule in any_match(), packet in packet()) {
            let rule = Match { src_ports: None, dst_ports: None, ..rule };
            let Asked { mask, key } = Asked::by(&rule);
            prop_assert_eq!(Key::of(&packet).under(&mask) == key, rule.matches(&packet));
            let same_l2 = L2Key::of(&packet).under(&mask.l2()) == key.l2();
            prop_assert_eq!(same_l2, rule.matches_l2(&packet));
            prop_assert_eq!(Key::of(&packet).l2(), L2Key::of(&packet));
        }
    }
}
