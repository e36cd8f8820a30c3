//! Bulk: few packets that are large, as joined TCP segments are, and that the guest does not answer with data.
//!
//! Nobody waits for one of them, so a hold may be longer than others. Bytes bound it: TCP has a window of bytes under way. A
//! hold that waits for more than the window waits for nothing, and one for more than half of it lets the guest wait. Nobody
//! tells the window, which depends on the guest's memory and on the sender. So the bytes are doubled while that costs no
//! throughput, and halved where it does. Rates of TCP change by themselves. So where less comes than without holds, these end
//! until the rate without them is known once more.

use super::load::Load;
use crate::moderation::counts::Counts;

/// Mean bytes of a packet: from `[1]` on it is large, below `[0]` it is not.
const LARGE: [u64; 2] = [4_096, 8_192];
/// Batches a second: from `[1]` on they are not few, below `[0]` they are. A usual hold serves four of 12,000 by one call.
const FEW: [u64; 2] = [12_000, 32_000];
/// Mean bytes of joined segments, which need not be few.
const JOINED: u64 = 32_768;
/// Packets of bulk for each that the guest sends with data.
const UNANSWERED: u64 = 16;
/// Bytes that wait for one call: two of the longest packets at least, sixteen at most, and at first.
const LEAST_BYTES: u64 = 131_072;
const MOST_BYTES: u64 = 8 * LEAST_BYTES;
const FIRST_BYTES: u64 = 2 * LEAST_BYTES;
/// Bytes that wait beside short messages, which the guest takes after them.
const BESIDE_BYTES: u64 = 8_192;
/// Packets that wait beside short messages at most.
const BESIDE_PACKETS: u32 = 4;

/// What the packets of a queue are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bulk {
    is_bulk: bool,
    /// The last window said otherwise.
    is_in_doubt: bool,
    /// Mean bytes of a packet, when it last changed by half.
    mean: u64,
    /// Bytes that wait for one call.
    hold_bytes: u64,
    /// What came under such holds, in packets a second, if it was less than without them. That is being looked at again.
    doubted: Option<u64>,
    /// Holds of so many bytes are known to cost nothing, although it once looked as if.
    is_cleared: bool,
}

impl Default for Bulk {
    fn default() -> Self {
        Self {
            is_bulk: false,
            is_in_doubt: false,
            mean: 0,
            hold_bytes: FIRST_BYTES,
            doubted: None,
            is_cleared: false,
        }
    }
}

impl Bulk {
    /// Learns a window in which there were packets that are held. Two that agree change it.
    pub(super) fn observe(&mut self, window: &Counts, load: &Load) {
        let mean = window.bytes / window.packets.max(1);
        if 2 * mean.max(self.mean) >= 3 * mean.min(self.mean) {
            self.mean = mean;
        }
        let is_large = mean >= LARGE[usize::from(!self.is_bulk)];
        let are_few = load.batches_a_second < FEW[usize::from(self.is_bulk)] || mean >= JOINED;
        let is_bulk = is_large && are_few && UNANSWERED * window.answers <= window.packets;
        let differs = is_bulk != self.is_bulk;
        if std::mem::replace(&mut self.is_in_doubt, differs) && differs {
            *self = Self { is_bulk, mean: self.mean, ..Self::default() };
        }
    }

    pub(super) fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// The next window decides whether it is bulk from now on.
    pub(super) fn begins(&self) -> bool {
        self.is_in_doubt && !self.is_bulk
    }

    /// Twice as much may wait from now on. False if it is the most already.
    pub(super) fn grow(&mut self) -> bool {
        let grows = self.hold_bytes < MOST_BYTES;
        if grows {
            *self = Self { hold_bytes: 2 * self.hold_bytes, is_cleared: false, ..*self };
        }
        grows
    }

    /// Half as much may wait from now on. False if it is the least already.
    pub(super) fn shrink(&mut self) -> bool {
        let shrinks = self.hold_bytes > LEAST_BYTES;
        if shrinks {
            *self = Self { hold_bytes: self.hold_bytes / 2, is_cleared: false, ..*self };
        }
        shrinks
    }

    /// This is another load: as much waits as at first.
    pub(super) fn forget(&mut self) {
        *self = Self { is_bulk: self.is_bulk, mean: self.mean, ..Self::default() };
    }

    /// Less came under holds than without them: so many packets a second.
    pub(super) fn doubt(&mut self, rate: u64) {
        self.doubted = Some(rate);
    }

    pub(super) fn doubted(&self) -> Option<u64> {
        self.doubted
    }

    /// Whether holds have made it slower is known.
    pub(super) fn judged(&mut self, is_slower: bool) {
        (self.doubted, self.is_cleared) = (None, !is_slower);
    }

    pub(super) fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    /// Packets that wait for one call at most.
    pub(super) fn packets(&self) -> u32 {
        (self.hold_bytes / self.mean.max(1)).clamp(2, u32::MAX.into()) as u32
    }

    /// The same beside short messages; with one, none waits.
    pub(super) fn packets_beside(&self) -> u32 {
        (BESIDE_BYTES / self.mean.max(1)).clamp(1, BESIDE_PACKETS.into()) as u32
    }
}
