//! A place in a packed ring, and how its descriptors lie there.

/// Flags that tell available descriptors from used ones.
pub(super) const AVAIL: u16 = 1 << 7;
pub(super) const USED: u16 = 1 << 15;
/// Offsets in a descriptor: length, id, flags.
pub(super) const LEN: usize = 8;
pub(super) const ID: usize = 12;
pub(super) const FLAGS: usize = 14;

/// The wrap counter in a position of 16 bits.
const WRAP: u16 = 1 << 15;

/// A place in the ring, and the lap's bit. It is one number of 32 bits, for the reason that [`super::split::Index`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(u32);

impl Position {
    /// `index` is less than 32,768.
    #[inline]
    pub(super) fn new(index: u16, wrap: bool) -> Self {
        Self(u32::from(index) | u32::from(wrap) << 15)
    }

    /// `None`: no ring has so many entries.
    pub(super) fn checked(index: u16, wrap: bool) -> Option<Self> {
        (index & WRAP == 0).then(|| Self::new(index, wrap))
    }

    #[inline]
    pub(super) fn from_bits(bits: u16) -> Self {
        Self(bits.into())
    }

    #[inline]
    pub(super) fn bits(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    pub(super) fn index(self) -> u16 {
        self.bits() & !WRAP
    }

    #[inline]
    pub(super) fn wrap(self) -> bool {
        self.bits() & WRAP != 0
    }

    #[inline]
    pub(super) fn after(self, slots: u16, size: u16) -> Self {
        let index = u32::from(self.index()) + u32::from(slots);
        match index.checked_sub(u32::from(size)) {
            Some(index) => Self::new(index as u16, !self.wrap()),
            None => Self::new(index as u16, self.wrap()),
        }
    }

    /// At most a lap back.
    pub(super) fn before(self, slots: u16, size: u16) -> Self {
        let a_lap_later = self.after(size - slots, size);
        Self::new(a_lap_later.index(), !a_lap_later.wrap())
    }

    /// Slots from the start of the last lap with a set bit, modulo two laps.
    pub(super) fn in_two_laps(self, size: u16) -> u32 {
        u32::from(self.index()) + if self.wrap() { 0 } else { u32::from(size) }
    }
}
