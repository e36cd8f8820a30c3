//! What was shown to a guest in one turn.

/// A message of at most this many bytes is short, headers included.
pub const SHORT_BYTES: u32 = 512;

/// Packets of one queue that became visible to its guest together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Number of packets.
    pub packets: u32,
    /// Places of the ring that they took: used entries of a split ring, descriptors of a packed one.
    pub places: u32,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Pure TCP acknowledgements among them: segments without data that neither open nor close a connection.
    pub acks: u32,
    /// Packets of at most [`SHORT_BYTES`] among them that are no pure acknowledgements.
    pub short: u32,
}

impl Shown {
    /// Counts a packet that took so many places of the ring. Packet path.
    #[inline]
    pub fn add(&mut self, bytes: u32, places: u32, is_pure_ack: bool) {
        self.packets = self.packets.saturating_add(1);
        self.places = self.places.saturating_add(places);
        self.bytes += u64::from(bytes);
        self.acks += u32::from(is_pure_ack);
        self.short += u32::from(!is_pure_ack && bytes <= SHORT_BYTES);
    }

    /// So many packets of a length and in one place each, none of them an acknowledgement.
    pub fn of(packets: u32, bytes: u32) -> Self {
        let short = if bytes <= SHORT_BYTES { packets } else { 0 };
        Self { packets, places: packets, bytes: u64::from(packets) * u64::from(bytes), acks: 0, short }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_no_short_message() {
        let mut shown = Shown::default();
        shown.add(66, 1, true);
        shown.add(512, 1, false);
        shown.add(513, 2, false);
        assert_eq!(shown, Shown { packets: 3, places: 4, bytes: 1091, acks: 1, short: 1 });
        assert_eq!(Shown::of(2, 512), Shown { packets: 2, places: 2, bytes: 1024, acks: 0, short: 2 });
        assert_eq!(Shown::of(2, 513).short, 0);
    }
}
