//! NetDIM: dynamic interrupt moderation as Linux has it, for comparison and for those who are used to it.
//!
//! It climbs a table of five limits as long as each step makes things better: more bytes, then more packets, then fewer
//! calls. It looks at windows of 64 calls and remembers one earlier window. Where nothing depends on the limits it never
//! settles: it makes ten steps back and forth, rests for ten windows, and begins anew.
//!
//! The rule it keeps: it decides as Linux 6.12 does (`lib/dim`), window by window. Two things of C are left out, because
//! no queue reaches them: rates do not wrap at 31 bits, and a window may last for longer than 71 minutes.
//!
//! ```text
//!              other than before                   ┌──────────────────────────┐
//!  ParkedTop ────────────────────► Left or Right ──┤ at the edge, or back at  ├─► ParkedTop
//!                                    │      ▲      │ the best of three        │
//!                       ten steps    ▼      │ ten  └──────────────────────────┘
//!                                  ParkedTired windows
//! ```

mod notation;
mod profile;
mod rates;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub use notation::ProfileError;
pub use profile::Profile;

use self::rates::{Rates, Verdict};
use super::limits::Limits;
use crate::Nanos;

/// Calls that make a window.
pub(super) const WINDOW: u16 = 64;
/// Steps until it is tired: two for each line of the table.
const TIRED: u8 = 2 * Profile::LINES as u8;

/// Counts of one queue up to now. They may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Packets shown.
    pub packets: u32,
    /// Bytes of these packets.
    pub bytes: u32,
    /// Calls made.
    pub calls: u16,
}

/// What a window is waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The first sample, to measure from.
    #[default]
    Start,
    /// 64 calls.
    Measuring,
    /// The caller, to apply the new limits.
    Applying,
}

/// Where the search is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tune {
    /// At the best line, until the load changes.
    #[default]
    ParkedTop,
    /// At some line, for as many windows as it made steps.
    ParkedTired,
    /// On the way to more moderation.
    Right,
    /// On the way to less.
    Left,
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Made,
    Edge,
    TooTired,
}

/// The policy for one queue.
#[derive(Clone, Debug, Default)]
pub struct Dim {
    profile: Profile,
    phase: Phase,
    tune: Tune,
    line: u8,
    steps_right: u8,
    steps_left: u8,
    tired: u8,
    /// The window that the next one is compared with.
    before: Rates,
    start: (Sample, Nanos),
}

impl Dim {
    /// Begins at the first line of a table.
    pub fn new(profile: Profile) -> Self {
        Self { profile, ..Self::default() }
    }

    /// Limits of the line in force.
    pub fn limits(&self) -> Limits {
        self.profile.line(self.line)
    }

    /// Number of the line in force, from 0 to 4.
    pub fn line(&self) -> u8 {
        self.line
    }

    /// Takes another table. Like Linux, it stays at its line and goes on as it was.
    pub fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    /// Learns the counts after a call. Says whether the line is another one now: then the caller applies it and says so
    /// by [`Dim::applied`]; until then nothing more is learned.
    pub fn observe(&mut self, sample: Sample, now: Nanos) -> bool {
        match self.phase {
            Phase::Applying => return false,
            Phase::Measuring => {
                let (start, since) = self.start;
                if sample.calls.wrapping_sub(start.calls) < WINDOW {
                    return false;
                }
                let Some(rates) = Rates::between(start, sample, now.since(since) / 1000) else {
                    return false;
                };
                if self.decide(rates) {
                    self.phase = Phase::Applying;
                    return true;
                }
            }
            Phase::Start => {}
        }
        self.start = (sample, now);
        self.phase = Phase::Measuring;
        false
    }

    /// The limits of the new line are in force.
    pub fn applied(&mut self) {
        self.phase = Phase::Start;
    }

    /// Says whether the line changed.
    fn decide(&mut self, rates: Rates) -> bool {
        let (tune, line) = (self.tune, self.line);
        match tune {
            Tune::ParkedTop => {
                if rates.against(&self.before) != Verdict::Same {
                    self.leave_park();
                }
            }
            Tune::ParkedTired => {
                self.tired = self.tired.wrapping_sub(1);
                if self.tired == 0 {
                    self.leave_park();
                }
            }
            Tune::Right | Tune::Left => {
                if rates.against(&self.before) != Verdict::Better {
                    self.turn();
                }
                self.go_on();
            }
        }
        // While it stays parked the reference stays too, so that a slow drift adds up.
        if tune != Tune::ParkedTop || self.tune != Tune::ParkedTop {
            self.before = rates;
        }
        self.line != line
    }

    fn go_on(&mut self) {
        if self.is_on_top() {
            return self.park_on_top();
        }
        match self.step() {
            Step::Made => {}
            Step::Edge => self.park_on_top(),
            Step::TooTired => {
                (self.steps_right, self.steps_left) = (0, 0);
                self.tune = Tune::ParkedTired;
            }
        }
    }

    /// It went on for two steps or more, and turned, and made one step back.
    fn is_on_top(&self) -> bool {
        match self.tune {
            Tune::Right => self.steps_left > 1 && self.steps_right == 1,
            Tune::Left => self.steps_right > 1 && self.steps_left == 1,
            Tune::ParkedTop | Tune::ParkedTired => true,
        }
    }

    fn turn(&mut self) {
        match self.tune {
            Tune::Right => (self.tune, self.steps_left) = (Tune::Left, 0),
            Tune::Left => (self.tune, self.steps_right) = (Tune::Right, 0),
            Tune::ParkedTop | Tune::ParkedTired => {}
        }
    }

    fn step(&mut self) -> Step {
        if self.tired == TIRED {
            return Step::TooTired;
        }
        match self.tune {
            Tune::Right if usize::from(self.line) + 1 == Profile::LINES => return Step::Edge,
            Tune::Left if self.line == 0 => return Step::Edge,
            Tune::Right => (self.line, self.steps_right) = (self.line + 1, self.steps_right + 1),
            Tune::Left => (self.line, self.steps_left) = (self.line - 1, self.steps_left + 1),
            Tune::ParkedTop | Tune::ParkedTired => {}
        }
        self.tired += 1;
        Step::Made
    }

    fn leave_park(&mut self) {
        self.tune = if self.line > 0 { Tune::Left } else { Tune::Right };
        self.step();
    }

    fn park_on_top(&mut self) {
        (self.steps_right, self.steps_left, self.tired) = (0, 0, 0);
        self.tune = Tune::ParkedTop;
    }
}
