//! Tables of limits that DIM chooses from.

use crate::moderation::limits::{Direction, Limits};

/// Five limits, from little moderation to much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile([Limits; Profile::LINES]);

impl Default for Profile {
    fn default() -> Self {
        Self::RX_EQE
    }
}

impl Profile {
    /// Number of lines of a table.
    pub const LINES: usize = 5;

    /// For packets to the guest, with a timer that starts at the first packet. Linux's `virtio_net` uses it.
    pub const RX_EQE: Profile = Profile::table([(1, 256), (8, 256), (64, 256), (128, 256), (256, 256)]);
    /// For packets to the guest. Its timer is meant to start anew at each packet.
    pub const RX_CQE: Profile = Profile::table([(2, 256), (8, 128), (16, 64), (32, 64), (64, 64)]);
    /// For packets from the guest, with a timer that starts at the first packet.
    pub const TX_EQE: Profile = Profile::table([(1, 128), (8, 128), (32, 128), (64, 128), (128, 128)]);
    /// For packets from the guest. Its timer is meant to start anew at each packet.
    pub const TX_CQE: Profile = Profile::table([(5, 128), (8, 64), (16, 32), (32, 32), (64, 32)]);

    const fn table(lines: [(u32, u32); Profile::LINES]) -> Self {
        let mut table = [Limits::OFF; Profile::LINES];
        let mut line = 0;
        while line < lines.len() {
            table[line] = Limits { usecs: lines[line].0, packets: lines[line].1 };
            line += 1;
        }
        Profile(table)
    }

    /// A table of one's own; what is above [`Limits::MOST`] is cut to that.
    pub fn new(lines: [Limits; Profile::LINES]) -> Self {
        Profile(lines.map(Limits::bounded))
    }

    /// The usual table for a direction: that whose timer works as virtio's does.
    pub const fn usual(direction: Direction) -> Self {
        match direction {
            Direction::Receive => Profile::RX_EQE,
            Direction::Transmit => Profile::TX_EQE,
        }
    }

    /// All lines in order.
    pub const fn lines(&self) -> &[Limits; Profile::LINES] {
        &self.0
    }

    /// A line by its number; beyond the last one, the last one.
    pub fn line(&self, number: u8) -> Limits {
        self.0[usize::from(number).min(Profile::LINES - 1)]
    }
}
