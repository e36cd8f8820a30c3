//! Whether short messages make a call due at once: while they are few, or one side of exchanges.
//!
//! In an exchange the guest answers each message, or has asked for it, so it sends about as many packets with data as it
//! gets, however many there are. A flood of short packets is answered by nothing, and is held like all others.

use crate::Nanos;
use crate::moderation::counts::Counts;

/// Short messages a second that are few.
const FEW: u64 = 4_000;
/// Windows with short messages more than windows without: then there are short messages.
const SEEN: u8 = 3;
/// Time without any after which there are none, in nanoseconds: a guest may do something else for a timer tick, which is up to
/// 10 ms.
const GONE: u64 = 12_000_000;
/// For so long after they were last known, in nanoseconds, one window is enough to know them again: TCP sends lost data again
/// after 200 ms.
const RECALLED: u64 = 300_000_000;

/// Whether it spares them now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sparing {
    is_flood: bool,
    /// The last window said otherwise.
    is_in_doubt: bool,
    /// Windows with short messages, less windows without.
    windows: u8,
    has_seen: bool,
    /// The end of the last window with short messages.
    last: Nanos,
    /// End of the last window at which [`SEEN`] was reached.
    seen: Option<Nanos>,
}

impl Sparing {
    pub(super) fn spares(&self) -> bool {
        !self.is_flood
    }

    /// Whether there are short messages.
    pub(super) fn has_seen(&self) -> bool {
        self.has_seen
    }

    /// A window is over at `now`, which took `wall` nanoseconds. Two of them that agree change it.
    pub(super) fn observe(&mut self, window: &Counts, wall: u64, now: Nanos) {
        let are_exchanges = 2 * window.answers >= window.short;
        // What is spared comes back at half the rate.
        let limit = if self.is_flood { FEW / 2 } else { FEW };
        let allowed = u128::from(limit) * u128::from(wall);
        let are_many = u128::from(window.short) * u128::from(Nanos::PER_SECOND) > allowed;
        let is_flood = are_many && !are_exchanges;
        let differs = is_flood != self.is_flood;
        if std::mem::replace(&mut self.is_in_doubt, differs) && differs {
            (self.is_flood, self.is_in_doubt) = (is_flood, false);
        }
        if window.short > 0 {
            (self.windows, self.last) = ((self.windows + 1).min(SEEN), now);
            if self.windows == SEEN {
                self.seen = Some(now);
            }
            self.has_seen |= self.seen.is_some_and(|seen| now.since(seen) < RECALLED);
        } else {
            self.windows = self.windows.saturating_sub(1);
            self.has_seen &= now.since(self.last) < GONE;
        }
    }
}
