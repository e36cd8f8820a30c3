//! A key and a value, each packed into the 64 bits that are read and written at once.

/// VLAN id and station address; 0 is "no key", so an occupied bit tells the station 0 in VLAN 0 from that.
///
/// ```text
///  63        60 59     48 47                                   0
/// ┌──┬─────────┬─────────┬──────────────────────────────────────┐
/// │ 1│    0    │   vid   │                 mac                  │
/// └──┴─────────┴─────────┴──────────────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(pub(super) u64);

const OCCUPIED: u64 = 1 << 63;
const MAC_BITS: u32 = 48;
const MAC_MASK: u64 = (1 << MAC_BITS) - 1;
const VID_MASK: u64 = 0xfff;

impl Key {
    /// What an empty slot holds.
    pub(super) const EMPTY: Key = Key(0);

    #[inline]
    pub(super) const fn new(vid: u16, mac: u64) -> Self {
        Key(OCCUPIED | (vid as u64 & VID_MASK) << MAC_BITS | mac & MAC_MASK)
    }

    /// Whether these are bits that [`Key::new`] makes.
    pub(super) const fn is_station(self) -> bool {
        self.0 == Key::new(self.vid(), self.mac()).0
    }

    pub(super) const fn vid(self) -> u16 {
        (self.0 >> MAC_BITS & VID_MASK) as u16
    }

    pub(super) const fn mac(self) -> u64 {
        self.0 & MAC_MASK
    }
}

/// What is known about a station. The version belongs to the slot: it is odd while the slot has an owner, even
/// while it has none, and so changes whenever the slot changes hands. That is how a reader notices that the value it read is
/// not the key's, or no longer (see [`super::table`]).
///
/// ```text
///  63      48 47 46        32 31             0
/// ┌──────────┬──┬────────────┬────────────────┐
/// │   port   │st│  version   │   last seen    │
/// └──────────┴──┴────────────┴────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value(pub(super) u64);

const PORT_SHIFT: u32 = 48;
const STATIC: u64 = 1 << 47;
const VERSION_SHIFT: u32 = 32;
const VERSION_MASK: u64 = 0x7fff << VERSION_SHIFT;
const OWNED: u64 = 1 << VERSION_SHIFT;
const SEEN_MASK: u64 = 0xffff_ffff;

impl Value {
    /// A station just heard on `port`; version 0.
    pub(super) const fn learned(port: u16, now_s: u32) -> Self {
        Value((port as u64) << PORT_SHIFT | now_s as u64)
    }

    /// A static entry; version 0.
    pub(super) const fn fixed(port: u16, now_s: u32) -> Self {
        Value(Value::learned(port, now_s).0 | STATIC)
    }

    #[inline]
    pub(super) const fn port(self) -> u16 {
        (self.0 >> PORT_SHIFT) as u16
    }

    #[inline]
    pub(super) const fn is_static(self) -> bool {
        self.0 & STATIC != 0
    }

    #[inline]
    pub(super) const fn seen_s(self) -> u32 {
        (self.0 & SEEN_MASK) as u32
    }

    #[inline]
    pub(super) const fn seen_at(self, now_s: u32) -> Self {
        Value(self.0 & !SEEN_MASK | now_s as u64)
    }

    pub(super) const fn on_port(self, port: u16) -> Self {
        Value(self.0 << 16 >> 16 | (port as u64) << PORT_SHIFT)
    }

    #[inline]
    pub(super) const fn is_same_version(self, other: Value) -> bool {
        (self.0 ^ other.0) & VERSION_MASK == 0
    }

    /// Whether the slot had an owner when this was its value.
    #[inline]
    pub(super) const fn is_owned(self) -> bool {
        self.0 & OWNED != 0
    }

    /// This value, but of the version of `other`.
    pub(super) const fn in_version_of(self, other: Value) -> Self {
        Value(self.0 & !VERSION_MASK | other.0 & VERSION_MASK)
    }

    /// This value one version later; after 32,768 of them they start again.
    pub(super) const fn next_version(self) -> Self {
        let next = (self.0 & VERSION_MASK).wrapping_add(1 << VERSION_SHIFT) & VERSION_MASK;
        Value(self.0 & !VERSION_MASK | next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_what_it_was_made_of_and_is_never_empty() {
        for (vid, mac) in [(0, 0), (4095, MAC_MASK), (1, 0x0200_0000_0001)] {
            let key = Key::new(vid, mac);
            assert_eq!((key.vid(), key.mac()), (vid, mac));
            assert_ne!(key, Key::EMPTY);
        }
        assert_eq!(Key::new(0x1001, 5), Key::new(1, 5), "the vid is taken modulo 4096");
    }

    #[test]
    fn each_field_of_a_value_changes_alone() {
        let value = Value::fixed(u16::MAX, u32::MAX);
        let moved = value.on_port(7);
        assert_eq!((moved.port(), moved.is_static(), moved.seen_s()), (7, true, u32::MAX));
        let seen = Value::learned(7, 9).seen_at(u32::MAX);
        assert_eq!((seen.port(), seen.is_static(), seen.seen_s()), (7, false, u32::MAX));
        assert!(seen.is_same_version(Value::learned(1, 1)));
    }

    #[test]
    fn versions_go_round_without_touching_their_neighbours() {
        let start = Value::fixed(0x1234, 0x5678);
        let mut value = start;
        for _ in 0..0x7fff {
            value = value.next_version();
            assert!(!value.is_same_version(start));
            assert_ne!(value.is_owned(), value.next_version().is_owned());
            assert_eq!(value.in_version_of(start), start);
        }
        assert_eq!(value.next_version(), start);
    }
}
