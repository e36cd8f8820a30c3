//! Which VLAN a packet is in, and what its tag looks like on the way out.
//!
//! A *transparent* port (the default) carries every VLAN: a packet with an 802.1Q tag is in the tag's VLAN, one
//! without is in VLAN 0, and both leave another transparent port as they came. An access port's packets are untagged
//! and in one VLAN; a trunk's are tagged, but for those of its native VLAN. An 802.1ad tag is payload everywhere.

use forebay_control::vlan::VlanMode;
use forebay_wire::Tag;
use forebay_xsk::TagEdit;

/// IEEE 802.1Q reserves VLAN 4095.
const RESERVED: u16 = 4095;
const TPID: [u8; 2] = [0x81, 0x00];

/// One port's VLANs in the form the packet path asks for.
#[derive(Clone, Debug)]
pub(crate) struct PortVlans {
    /// VLAN of packets without a tag; such packets of this VLAN leave without one.
    untagged: Option<u16>,
    tagged: Tagged,
}

#[derive(Clone, Debug)]
enum Tagged {
    All,
    Some(Box<[u64; 64]>),
}

impl PortVlans {
    pub(crate) fn new(mode: &VlanMode) -> Self {
        match mode {
            VlanMode::All => Self { untagged: Some(0), tagged: Tagged::All },
            VlanMode::Access(vid) => {
                Self { untagged: Some(vid.get()), tagged: Tagged::Some(Box::new([0; 64])) }
            }
            VlanMode::Trunk { vids, native } => {
                let mut bits = Box::new([0; 64]);
                for vid in vids {
                    bits[usize::from(vid.get() / 64)] |= 1 << (vid.get() % 64);
                }
                Self { untagged: native.map(|vid| vid.get()), tagged: Tagged::Some(bits) }
            }
        }
    }

    /// The VLAN of a packet that comes in with `tag`, or `None` where the port does not carry it.
    #[inline]
    pub(crate) fn ingress(&self, tag: Option<Tag>) -> Option<u16> {
        match tag.map_or(0, |tag| tag.vid) {
            0 => self.untagged,
            RESERVED => None,
            vid => self.carries(vid).then_some(vid),
        }
    }

    /// Whether packets of VLAN `vid` may leave here.
    #[inline]
    pub(crate) fn carries(&self, vid: u16) -> bool {
        self.untagged == Some(vid) || self.carries_tagged(vid)
    }

    /// How a packet of VLAN `vid` that came with `tag` leaves here.
    #[inline]
    pub(crate) fn egress(&self, vid: u16, tag: Option<Tag>) -> TagEdit {
        let transparent = matches!(self.tagged, Tagged::All);
        match (self.untagged == Some(vid), tag) {
            (true, Some(_)) if !transparent => TagEdit::Pop,
            (true, _) => TagEdit::Keep,
            (false, Some(tag)) if tag.vid == vid => TagEdit::Keep,
            (false, Some(tag)) => TagEdit::Replace(tag_bytes(tag.tci() & 0xf000 | vid)),
            (false, None) => TagEdit::Push(tag_bytes(vid)),
        }
    }

    #[inline]
    fn carries_tagged(&self, vid: u16) -> bool {
        match &self.tagged {
            Tagged::All => true,
            Tagged::Some(bits) => bits[usize::from(vid / 64)] & (1 << (vid % 64)) != 0,
        }
    }
}

/// A tag as it lies in a packet.
pub(crate) fn tag_bytes(tci: u16) -> [u8; 4] {
    let [high, low] = tci.to_be_bytes();
    [TPID[0], TPID[1], high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(mode: &str) -> PortVlans {
        PortVlans::new(&mode.parse().expect("a VLAN mode"))
    }

    fn tag(tci: u16) -> Option<Tag> {
        Some(Tag::from_tci(tci))
    }

    #[test]
    fn a_transparent_port_changes_nothing() {
        let all = port("all");
        for tci in [None, tag(0), tag(0xe000), tag(1), tag(0x6000 | 4094)] {
            let vid = all.ingress(tci).expect("every VLAN");
            assert_eq!(all.egress(vid, tci), TagEdit::Keep);
        }
    }

    #[test]
    fn an_access_port_is_in_one_vlan_and_never_tagged() {
        let access = port("access:10");
        assert_eq!(access.ingress(None), Some(10));
        assert_eq!(access.ingress(tag(0xe000)), Some(10), "a priority tag names no VLAN");
        assert_eq!(access.ingress(tag(10)), Some(10));
        assert_eq!(access.ingress(tag(11)), None);
        assert_eq!(access.egress(10, tag(10)), TagEdit::Pop);
        assert_eq!(access.egress(10, None), TagEdit::Keep);
    }

    #[test]
    fn a_trunk_tags_all_but_its_native_vlan() {
        let trunk = port("trunk:10,20,native:1");
        assert_eq!(trunk.ingress(None), Some(1));
        assert_eq!(trunk.ingress(tag(20)), Some(20));
        assert_eq!(trunk.ingress(tag(30)), None);
        assert_eq!(trunk.egress(20, None), TagEdit::Push([0x81, 0, 0, 20]));
        assert_eq!(
            trunk.egress(20, tag(0xe000)),
            TagEdit::Replace([0x81, 0, 0xe0, 20]),
            "the priority stays"
        );
        assert_eq!(trunk.egress(1, tag(1)), TagEdit::Pop);
    }

    #[test]
    fn a_trunk_without_native_vlan_takes_no_untagged_packet() {
        assert_eq!(port("trunk:10").ingress(None), None);
    }

    #[test]
    fn the_reserved_vlan_is_carried_nowhere() {
        for mode in ["all", "access:10", "trunk:10"] {
            assert_eq!(port(mode).ingress(tag(4095)), None);
        }
    }
}
