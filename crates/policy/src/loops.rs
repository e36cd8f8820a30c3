//! Loops: which port is blocked when what the switch sends out of one port comes back in at another.
//!
//! The switch sends small probes out of every port. Each has a nonce that nobody knows before it is sent, and the port
//! remembers its last two. A probe that comes in at another port, in the VLAN that it was sent in, has found a loop.
//!
//! The rule it keeps: only the port that *receives* a probe is blocked. A station sees the probes that leave by its own
//! port, and can send them into its own port only; so a tenant who replays probes blocks its own port,
//! or that of an accomplice who was given the probe.
//! At least one port of a loop stays open, because a probe of a blocked port blocks nobody.
//!
//! ```text
//!               a probe of another port, of a lower one at once
//!    ┌──────┐ ─────────────────────────────────────────────────► ┌─────────┐
//!    │ open │                                                    │ blocked │◄─┐ a probe of a port
//!    └──────┘ ◄───────────────────────────────────────────────── └─────────┘──┘ that is open
//!               no such probe for the hold time: 3 intervals, and
//!               twice as long after each release that was too early
//! ```

use crate::Nanos;

/// How long after it was sent a probe counts. A loop brings it back in well under a second.
const LIFETIME: Nanos = Nanos(2_000_000_000);
/// Time between two probes of a port whose stations move.
const HURRY: Nanos = Nanos(100_000_000);
/// Intervals without a probe after which a loop is taken for gone.
const HOLD: u64 = 3;
/// A port that is blocked again this many hold times after its release was released too early.
const TRUST: u64 = 10;
/// Doublings of the hold time.
const MOST_STRIKES: u32 = 4;

/// A probe that a port sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    nonce: u64,
    vid: u16,
    at: Nanos,
}

/// A probe that came in.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// What it says to be known by.
    pub nonce: u64,
    /// The VLAN it came in, by the receiving port's settings.
    pub vid: u16,
    /// The sender's port id is lower than the receiver's. So of two ports that hear each other it is always the same
    /// one that is blocked.
    pub sender_is_lower: bool,
}

/// One port's part in finding loops. All calls are constant-time.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopGuard {
    /// When the next probe is to be sent; `None` while the port carries no packets.
    due: Option<Nanos>,
    sent: [Option<Sent>; 2],
    /// When a probe of a higher port was heard first, whose sender should have been blocked since.
    waits_since: Option<Nanos>,
    /// When a probe was heard last that keeps the port blocked.
    blocked: Option<Nanos>,
    released: Option<Nanos>,
    strikes: u32,
}

impl LoopGuard {
    /// The port carries packets; a port that begins to is probed at once.
    pub fn starts(&mut self, now: Nanos) {
        self.due.get_or_insert(now);
    }

    /// The port's netdev carries no packets. The loop may be another one when it does again.
    pub fn stops(&mut self) {
        *self = Self { released: self.released, strikes: self.strikes, ..Self::default() };
    }

    /// Stations move to the port, back and forth: it is probed soon.
    pub fn hurry(&mut self, now: Nanos) {
        let last = self.sent.iter().flatten().map(|sent| sent.at).max();
        let soon = last.map_or(now, |last| now.max(Nanos(last.0.saturating_add(HURRY.0))));
        self.due = self.due.map(|due| due.min(soon));
    }

    /// When the next probe is to be sent, if any.
    pub fn due(&self) -> Option<Nanos> {
        self.due.filter(|_| self.blocked.is_none())
    }

    /// Whether a probe is to be sent now, or within `slack` nanoseconds and the last one has had its time.
    pub fn is_due(&self, now: Nanos, slack: u64) -> bool {
        let last = self.sent[0].map(|sent| sent.at);
        let is_fresh = last.is_some_and(|last| now.since(last) < HURRY.0);
        self.due().is_some_and(|due| due <= now || (!is_fresh && due.since(now) <= slack))
    }

    /// When there is something to do next: to send a probe, or to release the port.
    pub fn next(&self, interval: Nanos) -> Option<Nanos> {
        self.due().or(self.ends(interval))
    }

    /// A probe with this nonce leaves now, in VLAN `vid`.
    pub fn sends(&mut self, nonce: u64, vid: u16, now: Nanos, interval: Nanos) {
        self.sent = [Some(Sent { nonce, vid, at: now }), self.sent[0]];
        self.due = Some(Nanos(now.0.saturating_add(interval.0)));
    }

    /// Whether a probe that would tell nothing is to be skipped now: it is due, or will be within half an interval. So ports
    /// that rest are soon looked at all at once, whenever each began.
    pub fn may_skip(&self, now: Nanos, interval: Nanos) -> bool {
        self.due().is_some_and(|due| due.since(now) <= interval.0 / 2)
    }

    /// The next probe would tell nothing; the one after that is due in an interval.
    pub fn skips(&mut self, now: Nanos, interval: Nanos) {
        self.due = self.due.map(|_| Nanos(now.0.saturating_add(interval.0)));
    }

    /// Whether this port sent the probe lately, in that VLAN.
    pub fn knows(&self, heard: Heard, now: Nanos) -> bool {
        self.sent
            .iter()
            .flatten()
            .any(|sent| sent.nonce == heard.nonce && sent.vid == heard.vid && now.since(sent.at) < LIFETIME.0)
    }

    /// The port receives a probe that says to be from `sender`, another port. Says whether it is to be blocked now.
    pub fn hears(&mut self, sender: &LoopGuard, heard: Heard, now: Nanos, interval: Nanos) -> bool {
        if self.due.is_none() || sender.blocked.is_some() || !sender.knows(heard, now) {
            return false;
        }
        if self.blocked.is_some() {
            self.blocked = Some(now);
            return false;
        }
        if !heard.sender_is_lower && !self.has_waited(now, interval) {
            return false;
        }
        let trusted = hold(interval, self.strikes).saturating_mul(TRUST);
        let was_early = self.released.is_some_and(|released| now.since(released) < trusted);
        self.strikes = if was_early { (self.strikes + 1).min(MOST_STRIKES) } else { 0 };
        (self.blocked, self.waits_since) = (Some(now), None);
        true
    }

    /// Whether the sender, which should be blocked by this port's probe, had half an interval for it. It has not
    /// received one then: the loop goes one way only.
    fn has_waited(&mut self, now: Nanos, interval: Nanos) -> bool {
        let memory = interval.0.saturating_mul(HOLD);
        let since = self.waits_since.filter(|since| now.since(*since) < memory);
        let since = *self.waits_since.insert(since.unwrap_or(now));
        now.since(since) >= interval.0 / 2
    }

    /// Whether the port is blocked.
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// When the port is to be released unless another probe comes in.
    pub fn ends(&self, interval: Nanos) -> Option<Nanos> {
        self.blocked.map(|heard| Nanos(heard.0.saturating_add(hold(interval, self.strikes))))
    }

    /// Releases the port if its time has come, and has it probed at once. Says whether it did.
    pub fn release(&mut self, now: Nanos, interval: Nanos) -> bool {
        let is_over = self.ends(interval).is_some_and(|end| end <= now);
        if is_over {
            (self.blocked, self.released, self.due) = (None, Some(now), Some(now));
        }
        is_over
    }
}

fn hold(interval: Nanos, strikes: u32) -> u64 {
    interval.0.saturating_mul(HOLD << strikes)
}

#[cfg(test)]
mod tests;
