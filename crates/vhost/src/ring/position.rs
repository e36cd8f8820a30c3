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

/// A place in the ring, and the lap's bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) index: u16,
    pub(super) wrap: bool,
}

impl Position {
    pub(super) fn from_bits(bits: u16) -> Self {
        Self { index: bits & !WRAP, wrap: bits & WRAP != 0 }
    }

    pub(super) fn bits(self) -> u16 {
        self.index | if self.wrap { WRAP } else { 0 }
    }

    #[inline]
    pub(super) fn after(self, slots: u16, size: u16) -> Self {
        let index = u32::from(self.index) + u32::from(slots);
        match index.checked_sub(u32::from(size)) {
            Some(index) => Self { index: index as u16, wrap: !self.wrap },
            None => Self { index: index as u16, wrap: self.wrap },
        }
    }

    /// Slots from the start of the last lap with a set bit, modulo two laps.
    pub(super) fn in_two_laps(self, size: u16) -> u32 {
        u32::from(self.index) + if self.wrap { 0 } else { u32::from(size) }
    }
}
