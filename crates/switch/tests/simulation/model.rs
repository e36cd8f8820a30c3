//! What a switch may do with a packet: a plain model of its settings, all of them that were in force lately.

use std::collections::{BTreeMap, BTreeSet};

use forebay_control::PortId;
use forebay_control::vlan::VlanMode;

/// A packet of the simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub number: u32,
    pub src: u64,
    pub dst: u64,
    /// VLAN id of its 802.1Q tag.
    pub tag: Option<u16>,
    /// UDP destination port.
    pub dport: u16,
}

/// To all stations.
pub const BROADCAST: u64 = 0xffff_ffff_ffff;

const UDP_AT: usize = 14 + 20;
const NUMBER_AT: usize = UDP_AT + 8;
/// Bytes of the shortest packet, without a tag.
const SHORTEST: usize = NUMBER_AT + 4;

impl Packet {
    /// The packet on the wire, with another tag than its own if asked for, and as long as its number says.
    pub fn bytes(&self, tag: Option<u16>) -> Vec<u8> {
        let len = SHORTEST + if self.number.is_multiple_of(97) { 1400 } else { 18 };
        let mut bytes = vec![0; len];
        bytes[..6].copy_from_slice(&self.dst.to_be_bytes()[2..]);
        bytes[6..12].copy_from_slice(&self.src.to_be_bytes()[2..]);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14] = 0x45;
        bytes[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
        bytes[23] = 17;
        bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        bytes[UDP_AT + 2..UDP_AT + 4].copy_from_slice(&self.dport.to_be_bytes());
        bytes[UDP_AT + 4..UDP_AT + 6].copy_from_slice(&((len - UDP_AT) as u16).to_be_bytes());
        bytes[NUMBER_AT..SHORTEST].copy_from_slice(&self.number.to_be_bytes());
        if let Some(vid) = tag {
            bytes.splice(12..12, [0x81, 0x00, (vid >> 8) as u8, vid as u8]);
        }
        bytes
    }

    /// The number in a packet's bytes.
    pub fn number_in(bytes: &[u8]) -> Option<u32> {
        let at = NUMBER_AT + if bytes.get(12..14)? == [0x81, 0x00] { 4 } else { 0 };
        Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    }
}

/// One port's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    pub vlan: VlanMode,
    pub isolated: bool,
    pub is_up: bool,
}

impl PortSettings {
    /// The VLAN of a packet that comes in here with this tag.
    fn vlan_of(&self, tag: Option<u16>) -> Option<u16> {
        match (tag.filter(|vid| *vid != 0), &self.vlan) {
            (None, VlanMode::All) => Some(0),
            (None, VlanMode::Access(own) | VlanMode::AccessTagged(own)) => Some(own.get()),
            (None, VlanMode::Trunk { native, .. }) => native.map(|vid| vid.get()),
            (Some(_), VlanMode::Access(_)) => None,
            (Some(vid), _) => self.carries(vid).then_some(vid),
        }
    }

    fn carries(&self, vid: u16) -> bool {
        match &self.vlan {
            VlanMode::All => true,
            VlanMode::Access(own) | VlanMode::AccessTagged(own) => own.get() == vid,
            VlanMode::Trunk { vids, native } => vids.iter().chain(native).any(|carried| carried.get() == vid),
        }
    }

    /// The tag that a packet of this VLAN leaves with.
    fn tag_out(&self, vid: u16) -> Option<u16> {
        let untagged = match &self.vlan {
            VlanMode::All => vid == 0,
            VlanMode::Access(_) | VlanMode::AccessTagged(_) => true,
            VlanMode::Trunk { native, .. } => native.is_some_and(|native| native.get() == vid),
        };
        (!untagged).then_some(vid)
    }
}

/// All settings between two changes.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub ports: BTreeMap<PortId, PortSettings>,
    /// UDP destination ports whose packets a rule drops.
    pub dropped: BTreeSet<u16>,
}

impl Settings {
    /// How the packet leaves at `output`, if it may at all: the tag that it has then.
    pub fn leaves(&self, packet: &Packet, input: PortId, output: PortId) -> Option<Option<u16>> {
        let (from, to) = (self.ports.get(&input)?, self.ports.get(&output)?);
        let vid = from.vlan_of(packet.tag)?;
        let may = input != output && to.is_up && to.carries(vid) && !(from.isolated && to.isolated);
        let is_dropped = self.dropped.contains(&packet.dport);
        (may && !is_dropped).then(|| to.tag_out(vid))
    }

    /// The VLAN that a packet is in.
    pub fn vlan_of(&self, packet: &Packet, input: PortId) -> Option<u16> {
        self.ports.get(&input)?.vlan_of(packet.tag)
    }
}

/// Where stations may be, as the switch may know it.
#[derive(Clone, Debug, Default)]
pub struct Stations {
    places: BTreeMap<(u16, u64), Place>,
}

#[derive(Clone, Debug, Default)]
struct Place {
    /// Ports that the switch may believe it at; none of them, if it may have forgotten it.
    ports: BTreeSet<PortId>,
    may_be_unknown: bool,
}

impl Stations {
    /// A packet of the station is under way from this port.
    pub fn speaks(&mut self, vid: u16, mac: u64, port: PortId) {
        let fresh = Place { ports: BTreeSet::new(), may_be_unknown: true };
        self.places.entry((vid, mac)).or_insert(fresh).ports.insert(port);
    }

    /// Nothing is under way, and this was the station's last packet.
    pub fn is_at(&mut self, vid: u16, mac: u64, port: PortId) {
        self.places.insert((vid, mac), Place { ports: BTreeSet::from([port]), may_be_unknown: false });
    }

    /// All stations, or those at a port, may be forgotten.
    pub fn forget(&mut self, port: Option<PortId>) {
        let concerned = self.places.values_mut();
        concerned
            .filter(|place| port.is_none_or(|port| place.ports.contains(&port)))
            .for_each(|place| place.may_be_unknown = true);
    }

    /// Whether a packet for the station may go to this port.
    pub fn may_reach(&self, vid: u16, dst: u64, port: PortId) -> bool {
        let place = self.places.get(&(vid, dst));
        dst == BROADCAST || place.is_none_or(|place| place.may_be_unknown || place.ports.contains(&port))
    }

    /// The port that the switch must know the station at.
    pub fn known_at(&self, vid: u16, mac: u64) -> Option<PortId> {
        let place = self.places.get(&(vid, mac)).filter(|place| !place.may_be_unknown)?;
        place.ports.first().copied().filter(|_| place.ports.len() == 1)
    }
}
