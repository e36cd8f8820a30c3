//! Bulk: few packets that are large, as joined TCP segments are, and that the guest does not answer with data.
//!
//! Nobody waits for one of them, so a hold may be longer than others. Bytes bound it: TCP has a window of bytes under way,
//! and a hold that waits for more than the window would wait for nothing.

use super::load::Load;
use crate::moderation::counts::Counts;

/// Mean bytes of a packet: from `[1]` on it is large, below `[0]` it is not.
const LARGE: [u64; 2] = [4_096, 8_192];
/// Batches a second: from `[1]` on they are not few, below `[0]` they are. A usual hold serves four of 12,000 by one call.
const FEW: [u64; 2] = [12_000, 32_000];
/// Packets of bulk for each that the guest sends with data.
const UNANSWERED: u64 = 16;
/// Bytes that wait for one call: five of the longest packets. Linux's receive window begins at 64 KB and has grown to more
/// than this by the time that a stream is fast.
const HOLD_BYTES: u64 = 327_680;
/// Bytes that wait beside short messages, which the guest takes after them.
const BESIDE_BYTES: u64 = 8_192;
/// Packets that wait beside short messages at most.
const BESIDE_PACKETS: u32 = 4;

/// What the packets of a queue are like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bulk {
    is_bulk: bool,
    /// The last window said otherwise.
    is_in_doubt: bool,
    /// Mean bytes of a packet, when it last changed by half.
    mean: u64,
}

impl Bulk {
    /// Learns a window in which there were packets that are held. Two that agree change it.
    pub(super) fn observe(&mut self, window: &Counts, load: &Load) {
        let mean = window.bytes / window.packets.max(1);
        if 2 * mean.max(self.mean) >= 3 * mean.min(self.mean) {
            self.mean = mean;
        }
        let is_large = mean >= LARGE[usize::from(!self.is_bulk)];
        let are_few = load.batches_a_second < FEW[usize::from(self.is_bulk)];
        let is_bulk = is_large && are_few && UNANSWERED * window.answers <= window.packets;
        let differs = is_bulk != self.is_bulk;
        if std::mem::replace(&mut self.is_in_doubt, differs) && differs {
            (self.is_bulk, self.is_in_doubt) = (is_bulk, false);
        }
    }

    pub(super) fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// Packets that wait for one call at most.
    pub(super) fn packets(&self) -> u32 {
        (HOLD_BYTES / self.mean.max(1)).clamp(2, u32::MAX.into()) as u32
    }

    /// The same beside short messages; with one, none waits.
    pub(super) fn packets_beside(&self) -> u32 {
        (BESIDE_BYTES / self.mean.max(1)).clamp(1, BESIDE_PACKETS.into()) as u32
    }
}
