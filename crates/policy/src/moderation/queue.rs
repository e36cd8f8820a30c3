//! One queue: when a call is due for what was shown to its guest.
//!
//! ```text
//!            packets                      usecs over, packets reached, limits changed,
//!  ┌───────┐ ─────────────► ┌─────────┐   or a short message                           ┌───────┐
//!  │ empty │                │ waiting │ ─────────────────────────────────────────────► │  due  │
//!  └───────┘ ◄───────┐      └─────────┘                                                └───┬───┘
//!                    └────────── called, or the guest does not want to be ─────────────────┘
//! ```

use super::counts::{Counts, LATE, LULL};
use super::limits::Settings;
use super::shown::Shown;
use crate::Nanos;

/// Packets that no call was due for yet.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// When the first of them was shown.
    since: Nanos,
    /// When the last of them was shown.
    last: Nanos,
    packets: u64,
    places: u64,
    batches: u64,
    /// The clock went back meanwhile, so nobody knows how long they have waited.
    is_overdue: bool,
}

impl Wait {
    const fn since(now: Nanos) -> Self {
        Self { since: now, last: now, packets: 0, places: 0, batches: 0, is_overdue: false }
    }
}

/// Why a call is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The first packet has waited for long enough.
    Time,
    /// There are as many packets as may wait.
    Packets,
    /// Anything else, which says nothing about the limits.
    Other,
}

/// State of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    settings: Settings,
    /// Entries of the ring.
    entries: u16,
    counts: Counts,
    wait: Option<Wait>,
    /// When packets were shown last.
    shown: Option<Nanos>,
}

impl Queue {
    pub(super) fn start(&mut self, entries: u16) {
        self.entries = entries;
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(super) fn answered(&mut self, packets: u32) {
        self.counts.answers += u64::from(packets);
    }

    /// When a call is due for what waits; `None` if nothing does.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.wait.map(|wait| Nanos(wait.since.0.saturating_add(self.settings.limits.nanos())))
    }

    /// Packets were shown to the guest. `call` calls it if it wants that, and says whether it did.
    #[inline]
    pub(super) fn show(&mut self, shown: &Shown, now: Nanos, call: impl FnOnce() -> bool) {
        if shown.packets == 0 {
            return;
        }
        self.count(shown, now);
        let late = self.reason(now);
        let wait = self.wait.get_or_insert(Wait::since(now));
        if late.is_none() {
            wait.last = now;
        }
        wait.packets += u64::from(shown.packets);
        wait.places += u64::from(shown.places);
        wait.batches += 1;
        let is_spared = self.settings.spares_short && shown.short > 0;
        let spared = is_spared.then_some(Reason::Other);
        if let Some(reason) = late.or(spared).or_else(|| self.reason(now)) {
            self.end(reason, now, call);
        }
    }

    /// The settings are others. What waits is looked at again at once.
    pub(super) fn set(&mut self, settings: Settings, now: Nanos, call: impl FnOnce() -> bool) {
        self.settings = Settings { limits: settings.limits.bounded(), ..settings };
        if self.reason(now).is_some() {
            self.end(Reason::Other, now, call);
        }
    }

    /// The clock went back: a call is due for what waits as soon as anybody looks.
    pub(super) fn clock_went_back(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.is_overdue = true;
        }
    }

    /// The timer says that the first packet has waited for long enough.
    pub(super) fn expire(&mut self, now: Nanos, call: impl FnOnce() -> bool) {
        self.end(Reason::Time, now, call);
    }

    /// Whatever the limits are, nothing waits any more.
    pub(super) fn flush(&mut self, now: Nanos, call: impl FnOnce() -> bool) {
        self.end(Reason::Other, now, call);
    }

    /// Why a call is due now for what waits, if one is.
    #[inline]
    fn reason(&self, now: Nanos) -> Option<Reason> {
        let (wait, limits) = (self.wait.as_ref()?, self.settings.limits);
        // Whether the guest wants a call is a comparison modulo two rounds of the ring, or 65,536 entries. And a guest that
        // sleeps gives no new buffers.
        let is_much = 2 * wait.places >= u64::from(self.entries);
        if !limits.holds() || wait.is_overdue || is_much {
            return Some(Reason::Other);
        }
        if wait.packets >= u64::from(limits.packets) {
            return Some(Reason::Packets);
        }
        (now.since(wait.since) >= limits.nanos()).then_some(Reason::Time)
    }

    fn end(&mut self, reason: Reason, now: Nanos, call: impl FnOnce() -> bool) {
        let Some(wait) = self.wait.take() else { return };
        let counts = &mut self.counts;
        if call() {
            counts.calls += 1;
        } else {
            counts.suppressed += 1;
        }
        counts.saved += wait.batches - 1;
        if reason == Reason::Other {
            return;
        }
        counts.holds += 1;
        if reason != Reason::Time {
            return;
        }
        let due = Nanos(wait.since.0.saturating_add(self.settings.limits.nanos()));
        counts.timed += 1;
        counts.late += u64::from(now.since(due) > LATE);
        let last = wait.last.since(wait.since);
        if last < self.settings.limits.nanos() / 2 {
            counts.idle_holds += 1;
            counts.idle_last_ns += last;
        }
    }

    #[inline]
    fn count(&mut self, shown: &Shown, now: Nanos) {
        let counts = &mut self.counts;
        counts.packets += u64::from(shown.packets);
        counts.bytes += shown.bytes;
        counts.acks += u64::from(shown.acks);
        counts.short += u64::from(shown.short);
        counts.batches += 1;
        counts.short_batches += u64::from(shown.short > 0);
        // Who waits for the guest is silent until the end of a hold.
        let lull = LULL + self.settings.limits.nanos();
        let gap = self.shown.replace(now).map_or(lull, |before| now.since(before));
        if gap < lull {
            counts.active_ns += gap;
        }
    }
}
