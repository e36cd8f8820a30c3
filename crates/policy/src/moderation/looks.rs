//! A policy that looks at a queue from outside, every 10 ms and not after each call.
//!
//! All but [`Dim`](super::Dim) see the same at any distance between two looks. DIM is defined over windows of 64 calls: it
//! reckons with 64 of them whatever their number, so whole looks would all have the same rate of calls, and it would not
//! see what its limits do to interrupts. It is shown the part of each look that has 64 calls: so many packets, bytes and
//! so much time as they took on average. Looks with fewer calls are gathered until there are 64.
//!
//! The rule it keeps: where rates do not change within a look, DIM decides as it does after each call; but once a look,
//! because what comes after a decision is known only at the next.

use super::counts::Counts;
use super::dim::WINDOW;
use super::limits::Settings;
use super::policy::Policy;
use crate::Nanos;

/// What one queue's policy was shown.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    before: Option<(Counts, Nanos)>,
    /// Counts and time that no window has had.
    gathered: Part,
    /// Of all windows so far.
    shown: Part,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    packets: u64,
    bytes: u64,
    calls: u64,
    nanos: u64,
}

impl Looks {
    /// Lets a policy observe what the queue has counted by `now`; returns what the queue is to obey from now on.
    pub fn look(&mut self, policy: &mut Policy, counts: &Counts, now: Nanos) -> Settings {
        if !matches!(policy, Policy::Dim(_)) {
            return policy.observe(counts, now);
        }
        if let Some((before, then)) = self.before.replace((*counts, now)) {
            let new = counts.since(&before);
            let nanos = now.since(then);
            self.gathered.add(Part { packets: new.packets, bytes: new.bytes, calls: new.calls, nanos });
        }
        if let Some(window) = self.gathered.window() {
            self.gathered = Part::default();
            self.shown.add(window);
        }
        let Part { packets, bytes, calls, nanos } = self.shown;
        let shown = Counts { packets, bytes, calls, ..Counts::default() };
        policy.observe(&shown, Nanos(nanos));
        // After a decision the next window begins here.
        policy.observe(&shown, Nanos(nanos))
    }
}

impl Part {
    fn add(&mut self, more: Part) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.calls += more.calls;
        self.nanos += more.nanos;
    }

    /// The part of it that has as many calls as a window.
    fn window(&self) -> Option<Part> {
        let calls = u64::from(WINDOW);
        let part = |count: u64| {
            let part = u128::from(count) * u128::from(calls) / u128::from(self.calls);
            u64::try_from(part).unwrap_or(count)
        };
        let is_enough = self.calls >= calls;
        is_enough.then(|| Part {
            packets: part(self.packets),
            bytes: part(self.bytes),
            calls,
            nanos: part(self.nanos),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moderation::{Dim, Limits, Profile};

    const LOOK: u64 = 10_000_000;

    /// What a queue does in a second at a line of the table: packets, and calls.
    type Load = fn(line: u64) -> (u64, u64);

    fn dim() -> Policy {
        // A line's limits are its number.
        Policy::Dim(Dim::new(Profile::new([0, 1, 2, 3, 4].map(|usecs| Limits { usecs, packets: 0 }))))
    }

    fn line(policy: &Policy) -> u64 {
        policy.settings().limits.usecs.into()
    }

    fn counts(packets: u64, calls: u64) -> Counts {
        Counts { packets, bytes: 1000 * packets, calls, ..Counts::default() }
    }

    /// Lines after each window of 64 calls, with a look after each call.
    fn after_each_call(load: Load, windows: usize) -> Vec<u64> {
        let (mut policy, mut now, mut packets, mut calls) = (dim(), 0, 0, 0);
        let mut lines = Vec::new();
        while lines.len() < windows {
            // The call after a decision is the first of the next window, and nothing that is measured.
            policy.observe(&counts(packets, calls), Nanos(now));
            for _ in 0..WINDOW {
                let (packets_a_second, calls_a_second) = load(line(&policy));
                packets += packets_a_second / calls_a_second;
                calls += 1;
                now += Nanos::PER_SECOND / calls_a_second;
                policy.observe(&counts(packets, calls), Nanos(now));
            }
            lines.push(line(&policy));
        }
        lines
    }

    /// Lines after each look at the same.
    fn after_each_look(load: Load, looks: usize, apart: u64) -> Vec<u64> {
        let (mut policy, mut outside, mut packets, mut calls) = (dim(), Looks::default(), 0, 0);
        outside.look(&mut policy, &counts(0, 0), Nanos(0));
        let look = |number: usize| {
            let (packets_a_second, calls_a_second) = load(line(&policy));
            packets += packets_a_second * apart / Nanos::PER_SECOND;
            calls += calls_a_second * apart / Nanos::PER_SECOND;
            outside.look(&mut policy, &counts(packets, calls), Nanos((number as u64 + 1) * apart));
            line(&policy)
        };
        (0..looks).map(look).collect()
    }

    #[test]
    fn a_decision_from_outside_is_that_of_the_window() {
        let loads: [Load; 4] = [
            // Nothing changes.
            |_| (100_000, 50_000),
            // Nothing but calls, which get fewer.
            |line| (1_000_000, [200_000, 125_000, 50_000, 10_000, 8_000][line as usize]),
            // The third line is the best.
            |line| ([800_000, 900_000, 1_300_000, 1_100_000, 700_000][line as usize], 20_000),
            // A sender that waits for the guest.
            |line| ([400_000, 200_000, 100_000, 50_000, 25_000][line as usize], 25_000),
        ];
        for (number, load) in loads.into_iter().enumerate() {
            let expected = after_each_call(load, 40);
            assert_eq!(after_each_look(load, 40, LOOK), expected, "load {number}");
            assert!(expected.iter().any(|line| *line > 0), "load {number}");
        }
    }

    #[test]
    fn looks_with_few_calls_are_gathered_until_there_is_a_window() {
        // 50 calls a look, so a window is two looks.
        let load: Load = |line| ([800_000, 900_000, 1_300_000, 1_100_000, 700_000][line as usize], 5_000);
        let lines = after_each_look(load, 40, LOOK);
        let decided: Vec<u64> = lines.chunks(2).map(|looks| looks[1]).collect();
        assert_eq!(decided, after_each_call(load, 20));
    }

    #[test]
    fn other_policies_are_shown_everything() {
        let mut policy = Policy::Static(Limits { usecs: 8, packets: 64 });
        let settings = Looks::default().look(&mut policy, &counts(1, 1), Nanos(5));
        assert_eq!(settings, policy.settings());
    }
}
