//! What a policy sets, and what a queue obeys.

/// Limits for the calls of one queue. If either is zero, a call is due after every packet (virtio 1.3, 5.1.6.5.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Microseconds after the first packet that no call was due for yet. Ethtool's `rx-usecs` and `tx-usecs`.
    pub usecs: u32,
    /// Number of packets that makes a call due. Ethtool's `rx-frames` and `tx-frames`.
    pub packets: u32,
}

impl Limits {
    /// A call is due after every packet.
    pub const OFF: Limits = Limits { usecs: 0, packets: 0 };
    /// The most of either that is obeyed: guests may ask for 32 bits, and a packet would wait for an hour. To call more
    /// often than was asked is allowed.
    pub const MOST: u32 = u16::MAX as u32;

    /// Whether packets wait at all.
    pub const fn holds(self) -> bool {
        self.usecs > 0 && self.packets > 0
    }

    /// The same, with nothing above [`Limits::MOST`].
    pub fn bounded(self) -> Self {
        Self { usecs: self.usecs.min(Self::MOST), packets: self.packets.min(Self::MOST) }
    }

    /// The tighter of both in each respect: what a guest asked for is a limit that a policy keeps.
    pub fn within(self, asked: Limits) -> Self {
        if !self.holds() || !asked.holds() {
            return Self::OFF;
        }
        Self { usecs: self.usecs.min(asked.usecs), packets: self.packets.min(asked.packets) }
    }

    /// Nanoseconds that a packet waits at most.
    pub(super) fn nanos(self) -> u64 {
        u64::from(self.usecs) * 1000
    }
}

/// What a queue obeys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// When calls are due.
    pub limits: Limits,
    /// A short message makes a call due at once, and for all packets before it.
    pub spares_short: bool,
}

impl Settings {
    /// Limits for all packets alike.
    pub const fn of(limits: Limits) -> Self {
        Self { limits, spares_short: false }
    }
}

/// Which way a queue's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the guest: its receive queue.
    Receive,
    /// From the guest: its transmit queue, whose calls say that buffers are free again.
    Transmit,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn limits(usecs: u32, packets: u32) -> Limits {
        Limits { usecs, packets }
    }

    #[test]
    fn either_limit_of_zero_holds_nothing() {
        let holds = [(0, 0), (0, 9), (9, 0), (9, 9)].map(|(usecs, packets)| limits(usecs, packets).holds());
        assert_eq!(holds, [false, false, false, true]);
    }

    #[test]
    fn what_a_guest_asked_for_is_a_limit_on_both() {
        assert_eq!(limits(64, 8).within(limits(32, 256)), limits(32, 8));
        assert_eq!(limits(64, 8).within(limits(32, 0)), Limits::OFF);
        assert_eq!(limits(64, 0).within(limits(32, 8)), Limits::OFF);
    }

    #[test]
    fn an_hour_is_cut_to_a_fifteenth_of_a_second() {
        assert_eq!(limits(u32::MAX, u32::MAX).bounded(), limits(65_535, 65_535));
        assert_eq!(limits(7, 9).bounded(), limits(7, 9));
        assert_eq!(limits(65_535, 1).nanos(), 65_535_000);
    }
}
