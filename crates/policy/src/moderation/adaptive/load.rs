//! What a window was like, as far as it could be held.

use crate::Nanos;
use crate::moderation::counts::Counts;

/// How many times larger batches say that packets come in clusters, made by the holds themselves.
const CLUSTERS: u128 = 4;
/// Rates are averages over this much time, in nanoseconds.
const AVERAGED_NS: u64 = 50_000_000;

/// Packets of a window that are held, and rates while there was something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) packets: u64,
    pub(super) packets_a_second: u64,
    pub(super) batches_a_second: u64,
    pub(super) calls_a_second: u64,
    /// Time that rates were measured for.
    pub(super) active_ns: u64,
}

impl Load {
    pub(super) fn of(window: &Counts, spares_short: bool) -> Self {
        let (short, short_batches) = if spares_short { (window.short, window.short_batches) } else { (0, 0) };
        let packets = window.packets.saturating_sub(short);
        if window.active_ns == 0 {
            // One batch that nothing came after has no rate.
            return Self { packets, ..Self::default() };
        }
        let a_second = |count: u64| {
            let rate = u128::from(count) * u128::from(Nanos::PER_SECOND) / u128::from(window.active_ns);
            u64::try_from(rate).unwrap_or(u64::MAX).min(Nanos::PER_SECOND)
        };
        Self {
            packets,
            packets_a_second: a_second(packets),
            batches_a_second: a_second(window.batches.saturating_sub(short_batches)),
            calls_a_second: a_second(window.calls),
            active_ns: window.active_ns,
        }
    }

    /// Averages with one more window, which counts the more the less was known. A load that differs by `other` hundredths is
    /// another one.
    pub(super) fn learn(&mut self, window: &Load, other: u64) {
        if self.active_ns == 0 || window.differs(self) >= other {
            *self = *window;
            return;
        }
        let (before, more) = (u128::from(self.active_ns.min(AVERAGED_NS)), u128::from(window.active_ns));
        let average = |here: u64, there: u64| {
            let sum = u128::from(here) * before + u128::from(there) * more;
            u64::try_from(sum / (before + more)).unwrap_or(u64::MAX)
        };
        *self = Self {
            packets: self.packets.saturating_add(window.packets),
            packets_a_second: average(self.packets_a_second, window.packets_a_second),
            batches_a_second: average(self.batches_a_second, window.batches_a_second),
            calls_a_second: average(self.calls_a_second, window.calls_a_second),
            active_ns: self.active_ns.saturating_add(window.active_ns),
        };
    }

    /// Fewer packets come than without holds, and in larger batches: the sender waits for the guest.
    pub(super) fn is_clustered(&self, free: &Load) -> bool {
        let [here, there] = [(self, free), (free, self)]
            .map(|(one, other)| u128::from(one.packets_a_second) * u128::from(other.batches_a_second));
        self.packets_a_second < free.packets_a_second && here > there * CLUSTERS
    }

    /// Both windows together.
    pub(super) fn and(&self, other: &Load) -> Self {
        Self {
            packets: self.packets + other.packets,
            packets_a_second: self.packets_a_second + other.packets_a_second,
            batches_a_second: self.batches_a_second + other.batches_a_second,
            calls_a_second: self.calls_a_second + other.calls_a_second,
            active_ns: self.active_ns + other.active_ns,
        }
    }

    /// How much a rate differs, in hundredths of that of `other`: the larger difference of two.
    pub(super) fn differs(&self, other: &Load) -> u64 {
        let hundredths = |here: u64, there: u64| 100 * here.max(there) / here.min(there).max(1) - 100;
        let packets = hundredths(self.packets_a_second, other.packets_a_second);
        packets.max(hundredths(self.batches_a_second, other.batches_a_second))
    }
}
