//! First verb: move packets from a port's RX ring into the burst.

use super::{Channel, Worker};

impl Worker {
    /// Takes up to a budget of packets and the port's credit of bytes; says whether more are waiting.
    pub(super) fn receive(&mut self, channel: &mut Channel) -> bool {
        channel.gauge.set(u64::from(channel.ring.occupancy()));
        let allowed = channel.deficit.begin();
        channel.ring.receive(&mut self.burst, allowed);
        let bytes = (0..self.burst.len()).map(|index| u64::from(self.burst.len_bytes(index))).sum();
        let more = channel.ring.occupancy() > 0;
        channel.deficit.end(bytes, more);
        more
    }
}
