//! Numbers by which a worker and the control side tell each other of one queue's calls: the worker writes what the queue has
//! done, the control side how it is to be moderated.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_policy::moderation::{Counts, Limits, Settings};

use crate::counters::Counter;

/// Of one queue of a guest.
#[derive(Debug, Default)]
pub(crate) struct CallCells {
    packets: Counter,
    bytes: Counter,
    acks: Counter,
    short: Counter,
    answers: Counter,
    batches: Counter,
    short_batches: Counter,
    calls: Counter,
    suppressed: Counter,
    saved: Counter,
    active_ns: Counter,
    holds: Counter,
    idle_holds: Counter,
    idle_last_ns: Counter,
    timed: Counter,
    late: Counter,
    moves: Counter,
    in_force: AtomicU64,
    /// What the queue is to obey, where the control side chooses.
    wanted: AtomicU64,
    /// What the guest asked for.
    asked: AtomicU64,
    /// The policy wants to know what packets are.
    looks: AtomicBool,
    /// The worker was told to read `wanted` and `asked` again, and has not yet.
    is_told: AtomicBool,
}

impl CallCells {
    /// Publishes what the queue has done; packet path, once a turn.
    #[inline]
    pub(crate) fn publish(&self, counts: &Counts) {
        let Counts { packets, bytes, acks, short, answers, batches, short_batches, .. } = *counts;
        let Counts { calls, suppressed, saved, active_ns, holds, idle_holds, idle_last_ns, .. } = *counts;
        let Counts { timed, late, .. } = *counts;
        self.packets.set(packets);
        self.bytes.set(bytes);
        self.acks.set(acks);
        self.short.set(short);
        self.answers.set(answers);
        self.batches.set(batches);
        self.short_batches.set(short_batches);
        self.calls.set(calls);
        self.suppressed.set(suppressed);
        self.saved.set(saved);
        self.active_ns.set(active_ns);
        self.holds.set(holds);
        self.idle_holds.set(idle_holds);
        self.idle_last_ns.set(idle_last_ns);
        self.timed.set(timed);
        self.late.set(late);
    }

    /// What the queue has done. Numbers may be of two turns.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            packets: self.packets.get(),
            bytes: self.bytes.get(),
            acks: self.acks.get(),
            short: self.short.get(),
            answers: self.answers.get(),
            batches: self.batches.get(),
            short_batches: self.short_batches.get(),
            calls: self.calls.get(),
            suppressed: self.suppressed.get(),
            saved: self.saved.get(),
            active_ns: self.active_ns.get(),
            holds: self.holds.get(),
            idle_holds: self.idle_holds.get(),
            idle_last_ns: self.idle_last_ns.get(),
            timed: self.timed.get(),
            late: self.late.get(),
        }
    }

    /// The worker has changed what the queue obeys.
    pub(crate) fn moved(&self, settings: Settings) {
        self.moves.add(1);
        self.in_force.store(bits(settings), Ordering::Relaxed);
    }

    /// How often that was.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.get()
    }

    pub(crate) fn in_force(&self) -> Settings {
        settings(self.in_force.load(Ordering::Relaxed))
    }

    pub(crate) fn wanted(&self) -> Settings {
        settings(self.wanted.load(Ordering::Relaxed))
    }

    /// What the guest asked for, if it did.
    pub(crate) fn asked(&self) -> Option<Limits> {
        let bits = self.asked.load(Ordering::Relaxed);
        (bits & IS_THERE != 0).then(|| settings(bits).limits)
    }

    /// Says what the queue is to obey. Whether the worker is to be told to look.
    #[must_use]
    pub(crate) fn want(&self, wanted: Settings) -> bool {
        self.wanted.store(bits(wanted), Ordering::Relaxed);
        !self.is_told.swap(true, Ordering::AcqRel)
    }

    /// Says what the guest asks for. Whether the worker is to be told to look.
    #[must_use]
    pub(crate) fn ask(&self, asked: Option<Limits>) -> bool {
        let bits = asked.map_or(0, |limits| bits(Settings::of(limits)) | IS_THERE);
        self.asked.store(bits, Ordering::Relaxed);
        !self.is_told.swap(true, Ordering::AcqRel)
    }

    /// The worker looks.
    pub(crate) fn hear(&self) {
        self.is_told.swap(false, Ordering::AcqRel);
    }

    /// Whether packets are to be told apart; packet path.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.looks.load(Ordering::Relaxed)
    }

    pub(crate) fn set_looks(&self, looks: bool) {
        self.looks.store(looks, Ordering::Relaxed);
    }
}

const SPARES_SHORT: u64 = 1 << 32;
const IS_THERE: u64 = 1 << 33;

/// Settings in one number, so that nobody reads one limit of these and one of those.
fn bits(settings: Settings) -> u64 {
    let Limits { usecs, packets } = settings.limits.bounded();
    u64::from(usecs) | u64::from(packets) << 16 | if settings.spares_short { SPARES_SHORT } else { 0 }
}

fn settings(bits: u64) -> Settings {
    let limits = Limits { usecs: bits as u32 & 0xffff, packets: (bits >> 16) as u32 & 0xffff };
    Settings { limits, spares_short: bits & SPARES_SHORT != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_through_whole_and_a_wish_for_none_is_a_wish() {
        let cells = CallCells::default();
        assert_eq!((cells.asked(), cells.wanted()), (None, Settings::default()));
        let limits = Limits { usecs: 65_535, packets: 1 };
        let wanted = Settings { limits, spares_short: true };
        assert!(cells.want(wanted) && !cells.ask(Some(Limits::OFF)), "it is told once");
        assert_eq!((cells.wanted(), cells.asked()), (wanted, Some(Limits::OFF)));
        cells.hear();
        assert!(cells.ask(Some(limits)));
        assert_eq!(cells.asked(), Some(limits));
    }
}
