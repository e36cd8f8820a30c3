//! Rates of a window, and how two windows compare.

use super::Sample;

/// A difference counts from this many hundredths of the reference on.
const COUNTS: u64 = 11;

/// What a window was like, for each millisecond and rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rates {
    bytes: u64,
    packets: u64,
    calls: u64,
}

/// How a window compares with one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Better,
    Same,
    Worse,
}

impl Rates {
    /// Rates between two samples that are `usecs` microseconds apart; `None` if no time has passed.
    pub(super) fn between(start: Sample, end: Sample, usecs: u64) -> Option<Self> {
        let a_millisecond =
            |count: u64| (count * 1000).checked_add(usecs.checked_sub(1)?)?.checked_div(usecs);
        Some(Self {
            bytes: a_millisecond(end.bytes.wrapping_sub(start.bytes).into())?,
            packets: a_millisecond(end.packets.wrapping_sub(start.packets).into())?,
            // Linux takes the length of a window here, and not the calls in it.
            calls: a_millisecond(super::WINDOW.into())?,
        })
    }

    /// Bytes come first, then packets, then calls: of those the fewer the better.
    pub(super) fn against(&self, before: &Rates) -> Verdict {
        let gain = |now: u64, then: u64| match then {
            0 if now == 0 => Some(Verdict::Same),
            0 => Some(Verdict::Better),
            then if 100 * now.abs_diff(then) / then < COUNTS => None,
            then if now > then => Some(Verdict::Better),
            _ => Some(Verdict::Worse),
        };
        if let Some(verdict) = gain(self.bytes, before.bytes) {
            return verdict;
        }
        if let Some(verdict) = gain(self.packets, before.packets) {
            return verdict;
        }
        match gain(self.calls, before.calls) {
            _ if before.calls == 0 => Verdict::Same,
            Some(Verdict::Better) => Verdict::Worse,
            Some(Verdict::Worse) => Verdict::Better,
            Some(Verdict::Same) | None => Verdict::Same,
        }
    }
}
