//! Ceilings: where longer holds gained nothing, and when that is forgotten.
//!
//! A load that is another one may gain by longer holds, so the ceiling is lifted then. Loads that only look different now
//! and then would be tried again and again; so after each try that fails soon there is more patience.

use super::load::Load;
use crate::Nanos;

/// Windows that are looked at together: a loop that takes longer than a window is as fast as several are on average.
const TOGETHER: u8 = 3;
/// Looks until the reference stands: a load takes some time until it is itself again.
const ITSELF: u8 = 8;
/// From this difference on, in hundredths, a load is another one.
pub(super) const OTHER: u64 = 50;
/// How long a ceiling stands at least: at first, and at most. In nanoseconds.
const PATIENCE: [u64; 2] = [10_000_000, 60_000_000_000];
/// A try that fails within so much time after a ceiling was lifted has failed soon.
const SOON: u64 = 1_000_000_000;
/// How long a ceiling stands at most, so that no mistake stays for ever.
const LONGEST: u64 = 120_000_000_000;

/// A length in microseconds that holds are not to exceed.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    usecs: u32,
    since: Nanos,
    /// Windows that were not looked at yet, and what they were like together.
    windows: u8,
    sum: Load,
    looks: u8,
    /// What the load is like under the ceiling. Holds of several windows were useful.
    load: Option<Load>,
}

/// The ceiling, if there is one, and the memory of earlier ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceilings {
    ceiling: Option<Ceiling>,
    lifted: Option<Nanos>,
    patience: u64,
}

impl Default for Ceilings {
    fn default() -> Self {
        Self { ceiling: None, lifted: None, patience: PATIENCE[0] }
    }
}

impl Ceilings {
    pub(super) fn usecs(&self) -> Option<u32> {
        self.ceiling.map(|ceiling| ceiling.usecs)
    }

    pub(super) fn set(&mut self, usecs: u32, now: Nanos) {
        if self.ceiling.is_none() {
            let is_soon = self.lifted.is_some_and(|lifted| now.since(lifted) < SOON);
            self.patience = if is_soon { (2 * self.patience).min(PATIENCE[1]) } else { PATIENCE[0] };
        }
        self.ceiling =
            Some(Ceiling { usecs, since: now, windows: 0, sum: Load::default(), looks: 0, load: None });
    }

    /// Learns a window's load. Lifts the ceiling if this is another one, and says so.
    pub(super) fn observe(&mut self, load: Load, now: Nanos) -> bool {
        let Some(ceiling) = &mut self.ceiling else { return false };
        (ceiling.windows, ceiling.sum) = (ceiling.windows + 1, ceiling.sum.and(&load));
        if ceiling.windows < TOGETHER {
            return false;
        }
        let load = std::mem::take(&mut ceiling.sum);
        (ceiling.windows, ceiling.looks) = (0, ceiling.looks.saturating_add(1));
        let is_other = load.differs(ceiling.load.get_or_insert(load)) >= OTHER;
        let age = now.since(ceiling.since);
        if (is_other && age >= self.patience) || age >= LONGEST {
            self.lift(now);
            return true;
        } else if !is_other && ceiling.looks <= ITSELF {
            ceiling.load = Some(load);
        }
        false
    }

    /// Holds were useful under the ceiling for some windows, and are no more. Lifts the ceiling then, and says so.
    pub(super) fn lift_if_proven(&mut self, now: Nanos) -> bool {
        let is_over = self
            .ceiling
            .is_some_and(|ceiling| ceiling.load.is_some() && now.since(ceiling.since) >= self.patience);
        if is_over {
            self.lift(now);
        }
        is_over
    }

    fn lift(&mut self, now: Nanos) {
        (self.ceiling, self.lifted) = (None, Some(now));
    }
}
