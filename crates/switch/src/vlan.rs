//! Which VLAN a packet is in, and what its tag looks like on the way out.
//!
//! A *transparent* port (the default) carries every VLAN: a packet with an 802.1Q tag is in the tag's VLAN, one
//! without is in VLAN 0, and both leave another transparent port as they came. An access port's packets are untagged
//! and in one VLAN; a trunk's are tagged, but for those of its native VLAN. An 802.1ad tag chooses no VLAN.
//!
//! The rule it keeps: no sender chooses a packet's VLAN in the next switch by a second tag. Where the outer tag is taken
//! off, the tag behind it becomes the outer one. So an access port takes no further tags, and a trunk takes the tag of
//! its native VLAN off only where none is behind it.

use forebay_control::DropReason;
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
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Transparent,
    /// Refuses tags but a single priority tag.
    Access,
    AccessTagged,
    Trunk,
}

#[derive(Clone, Debug)]
enum Tagged {
    All,
    Some(Box<[u64; 64]>),
}

impl PortVlans {
    pub(crate) fn new(mode: &VlanMode) -> Self {
        match mode {
            VlanMode::All => Self { untagged: Some(0), tagged: Tagged::All, role: Role::Transparent },
            VlanMode::Access(vid) => Self::access(vid.get(), Role::Access),
            VlanMode::AccessTagged(vid) => Self::access(vid.get(), Role::AccessTagged),
            VlanMode::Trunk { vids, native } => {
                let mut bits = Box::new([0; 64]);
                for vid in vids {
                    bits[usize::from(vid.get() / 64)] |= 1 << (vid.get() % 64);
                }
                let untagged = native.map(|vid| vid.get());
                Self { untagged, tagged: Tagged::Some(bits), role: Role::Trunk }
            }
        }
    }

    fn access(vid: u16, role: Role) -> Self {
        Self { untagged: Some(vid), tagged: Tagged::Some(Box::new([0; 64])), role }
    }

    /// The VLAN of a packet that comes in with `tag`, and with further tags if it `is_stacked`; or why it goes no further.
    #[inline]
    pub(crate) fn ingress(&self, tag: Option<Tag>, is_stacked: bool) -> Result<u16, DropReason> {
        let vid = tag.map_or(0, |tag| tag.vid);
        if self.role == Role::Access && (vid != 0 || is_stacked) {
            return Err(DropReason::TaggedAtAccess);
        }
        let vlan = match vid {
            0 => self.untagged,
            RESERVED => None,
            vid => self.carries(vid).then_some(vid),
        };
        vlan.ok_or(DropReason::VlanNotAllowed)
    }

    /// Whether packets of VLAN `vid` may leave here.
    #[inline]
    pub(crate) fn carries(&self, vid: u16) -> bool {
        self.untagged == Some(vid) || self.carries_tagged(vid)
    }

    /// How a packet of VLAN `vid` that came with `tag`, and with further tags if it `is_stacked`, leaves here.
    #[inline]
    pub(crate) fn egress(&self, vid: u16, tag: Option<Tag>, is_stacked: bool) -> TagEdit {
        let is_untagged = self.untagged == Some(vid) && !(is_stacked && self.role == Role::Trunk);
        match (is_untagged, tag) {
            (true, Some(_)) if self.role != Role::Transparent => TagEdit::Pop,
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

    /// As `ingress`, of a packet without further tags.
    fn vlan(port: &PortVlans, tag: Option<Tag>) -> Result<u16, DropReason> {
        port.ingress(tag, false)
    }

    #[test]
    fn a_transparent_port_changes_nothing() {
        let all = port("all");
        for (tci, is_stacked) in [None, tag(0), tag(0xe000), tag(1), tag(0x6000 | 4094)]
            .into_iter()
            .flat_map(|tci| [(tci, false), (tci, true)])
        {
            let vid = all.ingress(tci, is_stacked).expect("every VLAN");
            assert_eq!(all.egress(vid, tci, is_stacked), TagEdit::Keep);
        }
    }

    #[test]
    fn an_access_port_is_in_one_vlan_and_never_tagged() {
        let access = port("access:10");
        assert_eq!(vlan(&access, None), Ok(10));
        assert_eq!(vlan(&access, tag(0xe000)), Ok(10), "a priority tag names no VLAN");
        for tci in [10, 11, 0xe00a, RESERVED] {
            assert_eq!(vlan(&access, tag(tci)), Err(DropReason::TaggedAtAccess), "{tci:#x}");
        }
        assert_eq!(access.egress(10, tag(10), false), TagEdit::Pop);
        assert_eq!(access.egress(10, None, false), TagEdit::Keep);
    }

    #[test]
    fn an_access_port_takes_no_further_tags() {
        for tci in [None, tag(0), tag(10)] {
            assert_eq!(port("access:10").ingress(tci, true), Err(DropReason::TaggedAtAccess), "{tci:?}");
        }
    }

    #[test]
    fn an_access_port_takes_its_own_tag_and_further_ones_where_it_is_told_to() {
        let access = port("access:10,tagged");
        for (tci, is_stacked) in [(None, true), (tag(0), true), (tag(10), false), (tag(10), true)] {
            assert_eq!(access.ingress(tci, is_stacked), Ok(10), "{tci:?} {is_stacked}");
        }
        for tci in [11, RESERVED] {
            assert_eq!(vlan(&access, tag(tci)), Err(DropReason::VlanNotAllowed));
        }
        assert_eq!(access.egress(10, tag(10), true), TagEdit::Pop);
    }

    #[test]
    fn a_trunk_tags_all_but_its_native_vlan() {
        let trunk = port("trunk:10,20,native:1");
        assert_eq!(vlan(&trunk, None), Ok(1));
        assert_eq!(vlan(&trunk, tag(20)), Ok(20));
        assert_eq!(vlan(&trunk, tag(30)), Err(DropReason::VlanNotAllowed));
        assert_eq!(trunk.egress(20, None, false), TagEdit::Push([0x81, 0, 0, 20]));
        assert_eq!(
            trunk.egress(20, tag(0xe000), false),
            TagEdit::Replace([0x81, 0, 0xe0, 20]),
            "the priority stays"
        );
        assert_eq!(trunk.egress(1, tag(1), false), TagEdit::Pop);
    }

    #[test]
    fn a_trunk_tags_packets_of_its_native_vlan_that_carry_further_tags() {
        let trunk = port("trunk:10,native:1");
        assert_eq!(trunk.egress(1, tag(0xe001), true), TagEdit::Keep, "as it came");
        assert_eq!(trunk.egress(1, tag(0xe000), true), TagEdit::Replace([0x81, 0, 0xe0, 1]));
        assert_eq!(trunk.egress(1, None, true), TagEdit::Push([0x81, 0, 0, 1]), "a service tag");
        assert_eq!(vlan(&trunk, tag(1)), Ok(1), "the other end of the trunk takes it");
    }

    #[test]
    fn a_trunk_without_native_vlan_takes_no_untagged_packet() {
        assert_eq!(vlan(&port("trunk:10"), None), Err(DropReason::VlanNotAllowed));
    }

    #[test]
    fn the_reserved_vlan_is_carried_nowhere() {
        for mode in ["all", "access:10,tagged", "trunk:10"] {
            assert_eq!(vlan(&port(mode), tag(4095)), Err(DropReason::VlanNotAllowed));
        }
    }
}
