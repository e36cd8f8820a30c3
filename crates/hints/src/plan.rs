//! A plan: a layout compiled into offsets, so that reading a packet's hints follows no names and takes few branches.

use crate::layout::{Hint, Layout};

/// Bytes below a packet that a plan is given: what XDP leaves free there, of which metadata is at most 252.
pub const BELOW_BYTES: usize = 256;

/// A value's place, counted from the front of the bytes below a packet.
///
/// A hint that the layout lacks is read from where the id is, and its bit is never set.
#[derive(Clone, Copy, Debug)]
struct Place(u8);

/// The last four bytes.
const ID: Place = Place(252);

/// How to read one layout.
#[derive(Clone, Debug)]
pub struct Plan {
    bytes: u8,
    places: [Place; Hint::ALL.len()],
    /// Where the presence mask is.
    present: Place,
    /// Hints that every packet has that comes in this layout, where it has no mask.
    always: u32,
    /// Hints that the layout has.
    held: u32,
}

/// The values of one packet's hints, taken out of its metadata. What is absent is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// A bit for each hint that is there: [`Hint::bit`].
    pub present: u32,
    /// [`Hint::RxHash`].
    pub rx_hash: u32,
    /// [`Hint::RxHashType`].
    pub rx_hash_type: u32,
    /// [`Hint::RxVlanTci`].
    pub rx_vlan_tci: u16,
    /// [`Hint::RxVlanProto`], in this machine's byte order.
    pub rx_vlan_proto: u16,
    /// [`Hint::RxTimestamp`].
    pub rx_timestamp: u64,
    /// [`Hint::FlowId`].
    pub flow_id: u32,
    /// [`Hint::RxPort`].
    pub rx_port: u32,
}

impl Values {
    /// Whether a hint is there.
    #[inline]
    pub fn has(&self, hint: Hint) -> bool {
        self.present & hint.bit() != 0
    }
}

/// What one packet's metadata said.
#[derive(Clone, Copy, Debug)]
pub struct Hints<'a> {
    below: &'a [u8; BELOW_BYTES],
    plan: &'a Plan,
    present: u32,
}

impl Place {
    #[inline]
    fn read<const N: usize>(self, below: &[u8; BELOW_BYTES]) -> [u8; N] {
        // Never out of range: places are made by `Plan::compile` alone, from offsets that were checked.
        let start = usize::from(self.0).min(BELOW_BYTES - N);
        below[start..start + N].try_into().expect("a slice of N bytes")
    }
}

impl Plan {
    /// Compiles a layout.
    pub fn compile(layout: &Layout) -> Plan {
        let front = BELOW_BYTES as u32 - layout.bytes();
        let place = |offset: Option<u32>| offset.map_or(ID, |offset| Place((front + offset) as u8));
        let held = Hint::ALL.into_iter().filter(|hint| layout.offset(*hint).is_some());
        let held = held.map(Hint::bit).sum();
        let always = if layout.present().is_some() { 0 } else { held };
        Plan {
            bytes: layout.bytes() as u8,
            places: Hint::ALL.map(|hint| place(layout.offset(hint))),
            present: place(layout.present()),
            always,
            held,
        }
    }

    /// Bytes of the layout.
    pub fn bytes(&self) -> usize {
        self.bytes.into()
    }

    /// The hints of a packet with these bytes below it; packet path.
    #[inline]
    pub fn read<'a>(&'a self, below: &'a [u8; BELOW_BYTES]) -> Hints<'a> {
        let mask = u32::from_ne_bytes(self.present.read(below));
        // Without a mask, what was read is the id, and does not count.
        let present = if self.always == 0 { mask & self.held } else { self.always };
        Hints { below, plan: self, present }
    }
}

/// The id that the bytes below a packet end with; packet path.
#[inline]
pub fn id_of(below: &[u8; BELOW_BYTES]) -> u32 {
    u32::from_ne_bytes(ID.read(below))
}

impl Hints<'_> {
    #[inline]
    fn get<const N: usize>(&self, hint: Hint) -> Option<[u8; N]> {
        (self.present & hint.bit() != 0).then(|| self.plan.places[hint as usize].read(self.below))
    }

    /// A hash of the packet's flow.
    #[inline]
    pub fn rx_hash(&self) -> Option<u32> {
        self.get(Hint::RxHash).map(u32::from_ne_bytes)
    }

    /// What the hash is of.
    #[inline]
    pub fn rx_hash_type(&self) -> Option<u32> {
        self.get(Hint::RxHashType).map(u32::from_ne_bytes)
    }

    /// The VLAN tag that the device took off.
    #[inline]
    pub fn rx_vlan_tci(&self) -> Option<u16> {
        self.get(Hint::RxVlanTci).map(u16::from_ne_bytes)
    }

    /// Its ethertype.
    #[inline]
    pub fn rx_vlan_proto(&self) -> Option<u16> {
        self.get(Hint::RxVlanProto).map(u16::from_be_bytes)
    }

    /// When the packet arrived, in ns.
    #[inline]
    pub fn rx_timestamp(&self) -> Option<u64> {
        self.get(Hint::RxTimestamp).map(u64::from_ne_bytes)
    }

    /// What a kernel program found out.
    #[inline]
    pub fn flow_id(&self) -> Option<u32> {
        self.get(Hint::FlowId).map(u32::from_ne_bytes)
    }

    /// The source port's id.
    #[inline]
    pub fn rx_port(&self) -> Option<u32> {
        self.get(Hint::RxPort).map(u32::from_ne_bytes)
    }

    /// All of them, to be kept when the packet is gone.
    #[inline]
    pub fn values(&self) -> Values {
        Values {
            present: self.present,
            rx_hash: self.rx_hash().unwrap_or_default(),
            rx_hash_type: self.rx_hash_type().unwrap_or_default(),
            rx_vlan_tci: self.rx_vlan_tci().unwrap_or_default(),
            rx_vlan_proto: self.rx_vlan_proto().unwrap_or_default(),
            rx_timestamp: self.rx_timestamp().unwrap_or_default(),
            flow_id: self.flow_id().unwrap_or_default(),
            rx_port: self.rx_port().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Btf;
    use crate::builder::{Builder, BuiltMember};

    /// A layout of these hints in this order, each behind so many bytes of the program's own.
    fn layout(order: &[(Hint, u32)], with_mask: bool) -> Layout {
        let mut types = Builder::new();
        let sizes = [2, 4, 8].map(|bytes| (bytes, types.int("unsigned", bytes, false)));
        let of = |bytes| sizes.iter().find(|(size, _)| *size == bytes).unwrap().1;
        let (mut at, mut members): (u32, Vec<BuiltMember<'_>>) = (0, Vec::new());
        for (hint, gap) in order {
            at += gap;
            members.push((hint.name(), of(hint.bytes()), at * 8, 0));
            at += hint.bytes();
        }
        at = at.next_multiple_of(4);
        for name in [with_mask.then_some("hints_present"), Some("layout_id")].into_iter().flatten() {
            members.push((name, of(4), at * 8, 0));
            at += 4;
        }
        let id = types.composite("s", false, at, &members);
        Layout::of(&Btf::parse(&types.build()).unwrap(), id).unwrap()
    }

    fn values(hints: &Hints<'_>) -> [Option<u64>; 7] {
        [
            hints.rx_hash().map(u64::from),
            hints.rx_hash_type().map(u64::from),
            hints.rx_vlan_tci().map(u64::from),
            hints.rx_vlan_proto().map(|proto| u64::from(proto.to_be())),
            hints.rx_timestamp(),
            hints.flow_id().map(u64::from),
            hints.rx_port().map(u64::from),
        ]
    }

    #[test]
    fn the_id_is_the_last_four_bytes() {
        let mut below = [0xff; BELOW_BYTES];
        below[252..].copy_from_slice(&0x0102_0304_u32.to_ne_bytes());
        assert_eq!(id_of(&below), 0x0102_0304);
    }

    proptest! {
        #[test]
        fn a_plan_reads_what_was_written_wherever_it_is(
            order in prop::sample::subsequence(Hint::ALL.to_vec(), 0..=7).prop_shuffle(),
            gaps in prop::collection::vec(0..20u32, 7),
            with_mask: bool,
            mask: u32,
            junk in prop::collection::vec(any::<u8>(), BELOW_BYTES),
        ) {
            let placed: Vec<(Hint, u32)> = order.iter().copied().zip(gaps).collect();
            let layout = layout(&placed, with_mask);
            let mut below: [u8; BELOW_BYTES] = junk.try_into().unwrap();
            let front = BELOW_BYTES - layout.bytes() as usize;
            if let Some(present) = layout.present() {
                let at = front + present as usize;
                below[at..at + 4].copy_from_slice(&mask.to_ne_bytes());
            }
            let expected = Hint::ALL.map(|hint| {
                let at = front + layout.offset(hint)? as usize;
                let mut bytes = [0; 8];
                bytes[..hint.bytes() as usize].copy_from_slice(&below[at..at + hint.bytes() as usize]);
                (!with_mask || mask & hint.bit() != 0).then(|| u64::from_le_bytes(bytes))
            });
            let plan = Plan::compile(&layout);
            let hints = plan.read(&below);
            prop_assert_eq!(values(&hints), expected);
            let kept = hints.values();
            prop_assert_eq!(Hint::ALL.map(|hint| kept.has(hint)), expected.map(|value| value.is_some()));
            prop_assert_eq!(u64::from(kept.rx_hash), expected[0].unwrap_or_default());
            prop_assert_eq!(kept.rx_timestamp, expected[4].unwrap_or_default());
            prop_assert_eq!(plan.bytes(), layout.bytes() as usize);
        }
    }
}
