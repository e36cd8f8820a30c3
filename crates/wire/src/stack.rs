//! VLAN tags behind the one that chooses a packet's VLAN.
//!
//! A Linux receiver takes off any number of tags with VLAN id 0, of both kinds, and hands the rest to its IP
//! (`__netif_receive_skb_core`, net/core/dev.c, 6.18); behind a VLAN netdev it does so for tags of that VLAN. So rules
//! look behind all tags, whatever VLAN these name, or a sender could hide a packet from a rule behind a tag.
//!
//! The rule it keeps: what lies deeper than [`MAX_FURTHER_TAGS`] is not guessed. The kernel programs count the same
//! tags (`bpf/classes.h`).

use crate::ethernet::ethertype;
use crate::vlan::TAG_LEN;

/// Tags that are looked behind, besides the outer 802.1Q tag.
pub const MAX_FURTHER_TAGS: usize = 4;

/// Kinds of further tags that a packet has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TagKinds(u8);

impl TagKinds {
    /// No tag.
    pub const NONE: TagKinds = TagKinds(0);
    /// 802.1Q tags.
    pub const CUSTOMER: TagKinds = TagKinds(1);
    /// 802.1ad tags.
    pub const SERVICE: TagKinds = TagKinds(2);
    /// Bits that [`TagKinds::bits`] can have.
    pub const MASK: u8 = 3;

    /// The kind of tag that an EtherType announces, or [`TagKinds::NONE`].
    #[inline]
    pub const fn announced_by(ethertype: u16) -> TagKinds {
        match ethertype {
            ethertype::VLAN => TagKinds::CUSTOMER,
            ethertype::SERVICE_VLAN => TagKinds::SERVICE,
            _ => TagKinds::NONE,
        }
    }

    /// One bit a kind, as the kernel programs have them.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The kinds that these bits stand for; others are cut off.
    #[inline]
    pub const fn from_bits(bits: u8) -> TagKinds {
        TagKinds(bits & TagKinds::MASK)
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: TagKinds) -> TagKinds {
        TagKinds(self.0 | other.0)
    }

    /// The kinds that are in both sets.
    #[must_use]
    pub const fn among(self, other: TagKinds) -> TagKinds {
        TagKinds(self.0 & other.0)
    }

    /// Whether there is no tag.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What comes behind the tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Innermost {
    /// The first EtherType that announces no tag.
    pub ethertype: u16,
    /// Bytes of the tags.
    pub at: usize,
    /// Kinds of the tags.
    pub kinds: TagKinds,
}

/// Looks behind the tags that `ethertype` announces and `bytes` begin with. `None`: there are more than
/// [`MAX_FURTHER_TAGS`], or a tag is cut off. Bounded, never allocates, may be called on the packet path.
pub fn behind_tags(mut ethertype: u16, bytes: &[u8]) -> Option<Innermost> {
    let (mut at, mut kinds) = (0, TagKinds::NONE);
    for _ in 0..=MAX_FURTHER_TAGS {
        let kind = TagKinds::announced_by(ethertype);
        if kind.is_empty() {
            return Some(Innermost { ethertype, at, kinds });
        }
        let [_, _, high, low] = *bytes.get(at..)?.first_chunk::<TAG_LEN>()?;
        (ethertype, at, kinds) = (u16::from_be_bytes([high, low]), at + TAG_LEN, kinds.with(kind));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of these tags, behind an EtherType that announces the first, and that EtherType.
    fn stack(tags: &[u16], inner: u16) -> (u16, Vec<u8>) {
        let announced: Vec<u16> = tags.iter().copied().chain([inner]).collect();
        let bytes = announced[1..].iter().flat_map(|ethertype| [[0, 7], ethertype.to_be_bytes()].concat());
        (announced[0], bytes.collect())
    }

    fn behind(tags: &[u16]) -> Option<Innermost> {
        let (outer, bytes) = stack(tags, ethertype::IPV4);
        behind_tags(outer, &bytes)
    }

    #[test]
    fn tags_of_both_kinds_are_looked_behind_up_to_the_limit() {
        let found = |at, kinds| Some(Innermost { ethertype: ethertype::IPV4, at, kinds });
        assert_eq!(behind(&[]), found(0, TagKinds::NONE));
        assert_eq!(behind(&[0x8100]), found(4, TagKinds::CUSTOMER));
        assert_eq!(behind(&[0x88a8]), found(4, TagKinds::SERVICE));
        assert_eq!(behind(&[0x88a8, 0x8100]), found(8, TagKinds::from_bits(3)));
        assert_eq!(behind(&[0x8100; MAX_FURTHER_TAGS]), found(16, TagKinds::CUSTOMER));
        assert_eq!(behind(&[0x8100; MAX_FURTHER_TAGS + 1]), None);
    }

    #[test]
    fn kinds_of_tags_are_sets_of_two_bits() {
        let both = TagKinds::CUSTOMER.with(TagKinds::SERVICE);
        let sets = [TagKinds::NONE, TagKinds::CUSTOMER, TagKinds::SERVICE, both];
        assert_eq!(sets.map(TagKinds::bits), [0, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(TagKinds::from_bits), sets);
        assert_eq!(TagKinds::from_bits(0xfd), TagKinds::CUSTOMER, "other bits are cut off");
        for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))) {
            let [first, second] = [a, b].map(TagKinds::from_bits);
            assert_eq!((first.with(second).bits(), first.among(second).bits()), (a | b, a & b));
        }
    }

    #[test]
    fn a_tag_that_is_cut_off_hides_what_is_behind_it() {
        let (outer, bytes) = stack(&[0x88a8, 0x8100], ethertype::IPV4);
        for len in 0..bytes.len() {
            assert_eq!(behind_tags(outer, &bytes[..len]), None, "{len} bytes");
        }
        assert!(behind_tags(outer, &bytes).is_some());
    }

    #[test]
    fn what_other_numbers_announce_is_no_tag() {
        assert_eq!(behind(&[0x9100]).map(|found| found.ethertype), Some(0x9100));
    }
}
