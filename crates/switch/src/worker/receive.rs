//! First verb: move packets from a port's RX ring into the burst.

use super::{Channel, Worker};

impl Worker {
    /// Takes up to a budget of packets; says whether more are waiting.
    pub(super) fn receive(&mut self, channel: &mut Channel) -> bool {
        channel.gauge.set(u64::from(channel.ring.occupancy()));
        channel.ring.receive(&mut self.burst);
        self.burst.is_full()
    }
}
