//! Netdevs under a policy: what they count, as counts of a queue, and limits as a NAPI instance has them.
//!
//! A worker sees each batch and each hold. From outside of a device there are packets, bytes and perhaps interrupts, every
//! 10 ms. The rest is made up from these, so that it errs towards less moderation: what may be an idle hold is one.

use super::counts::Counts;
use super::limits::{Limits, Settings};
use super::looks::Looks;
use super::policy::Policy;
use crate::Nanos;

/// Packets that a NAPI instance takes in one poll at most (NAPI_POLL_WEIGHT, include/linux/netdevice.h, Linux 6.18).
const POLL_PACKETS: u32 = 64;

/// What one direction of a netdev has counted. The numbers may begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Interrupts, if somebody counts them.
    pub interrupts: Option<u64>,
}

/// Less is no time at all for a NAPI instance: a timer that is set and rings takes as long.
const NAPI_SHORTEST_USECS: u32 = 4;

/// Makes counts that a policy observes of what a netdev counts.
#[derive(Clone, Debug, Default)]
pub struct Device {
    counts: Counts,
    looks: Looks,
    before: Option<(Seen, Nanos)>,
    /// Somebody counts interrupts.
    is_counted: bool,
}

impl Device {
    /// Lets a policy observe what the netdev has counted by `now`. `has_packets`: the netdev has a limit for packets too.
    pub fn look(&mut self, policy: &mut Policy, seen: Seen, has_packets: bool, now: Nanos) -> Settings {
        let mut limits = policy.settings().limits;
        if limits.holds() && !has_packets {
            limits.packets = Limits::MOST;
        }
        self.observe(seen, limits, now);
        let now = match policy {
            // Of a netdev, time in which no packets came is no part of a window.
            Policy::Dim(_) => Nanos(self.counts.active_ns),
            Policy::Off | Policy::Static(_) | Policy::Adaptive(_) => now,
        };
        self.looks.look(policy, &self.counts, now)
    }

    /// Learns what the netdev has counted by `now` under `limits`. Counts begin with the second look.
    fn observe(&mut self, seen: Seen, limits: Limits, now: Nanos) {
        let begun = self.before.replace((seen, now));
        self.is_counted = seen.interrupts.is_some();
        let Some((before, then)) = begun.filter(|(before, then)| {
            *then <= now && before.packets <= seen.packets && before.bytes <= seen.bytes
        }) else {
            return;
        };
        let (packets, nanos) = (seen.packets - before.packets, now.since(then));
        if packets == 0 {
            // No time in which packets came.
            return;
        }
        let counted = seen.interrupts.zip(before.interrupts).map(|(now, then)| now.saturating_sub(then));
        let calls = counted.unwrap_or_else(|| guess(packets, nanos, limits)).clamp(1, packets);
        let bytes = seen.bytes - before.bytes;
        self.counts.packets += packets;
        self.counts.bytes += bytes;
        self.counts.batches += packets;
        self.counts.calls += calls;
        self.counts.saved += packets - calls;
        self.counts.active_ns += nanos;
        if limits.holds() {
            self.counts.holds += calls;
            // With fewer than two packets for each interrupt, so many at least were for one packet that none came after.
            self.counts.idle_holds += (2 * calls).saturating_sub(packets);
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Interrupts that were counted; `None`: nobody counts them.
    pub fn interrupts(&self) -> Option<u64> {
        self.is_counted.then_some(self.counts.calls)
    }
}

/// The most interrupts that a device makes which keeps its limits.
fn guess(packets: u64, nanos: u64, limits: Limits) -> u64 {
    if !limits.holds() {
        return packets;
    }
    let by_time = nanos.div_ceil(limits.nanos());
    by_time.max(packets / u64::from(limits.packets))
}

/// Limits as a NAPI instance has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NapiLimits {
    /// Nanoseconds until it polls again while interrupts are off.
    pub gro_flush_timeout_ns: u64,
    /// How often it polls for nothing before interrupts are on again.
    pub defer_hard_irqs: u32,
}

impl Limits {
    /// The same for a NAPI instance. It polls after so much time whether packets wait or not, and has no limit for their
    /// number: more of them keep interrupts off for longer, one poll for each 64.
    pub fn of_napi(self) -> NapiLimits {
        if !self.holds() || self.usecs < NAPI_SHORTEST_USECS {
            return NapiLimits::default();
        }
        let Limits { usecs, packets } = self.bounded();
        NapiLimits {
            gro_flush_timeout_ns: u64::from(usecs) * 1000,
            defer_hard_irqs: packets.div_ceil(POLL_PACKETS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moderation::{Adaptive, Dim, Direction, Policy, Profile};

    const LOOK: u64 = 10_000_000;
    const LONG: Limits = Limits { usecs: 250, packets: 100 };

    fn seen(packets: u64, interrupts: Option<u64>) -> Seen {
        Seen { packets, bytes: 1500 * packets, interrupts }
    }

    fn looks(limits: Limits, seen: &[Seen]) -> Counts {
        let mut device = Device::default();
        for (number, seen) in seen.iter().enumerate() {
            device.observe(*seen, limits, Nanos(number as u64 * LOOK));
        }
        *device.counts()
    }

    #[test]
    fn counts_are_differences_and_begin_anew_with_the_netdevs() {
        let counts = looks(Limits::OFF, &[seen(1000, Some(70)), seen(1100, Some(90)), seen(1100, Some(95))]);
        assert_eq!((counts.packets, counts.bytes, counts.batches), (100, 150_000, 100));
        assert_eq!((counts.calls, counts.saved, counts.holds), (20, 80, 0));
        assert_eq!(counts.active_ns, LOOK, "nothing came in the second half");
        let counts = looks(Limits::OFF, &[seen(1000, None), seen(10, None), seen(30, None)]);
        assert_eq!(counts.packets, 20);
    }

    #[test]
    fn interrupts_that_nobody_counts_are_as_many_as_the_limits_allow() {
        let calls = |limits, packets| looks(limits, &[seen(0, None), seen(packets, None)]).calls;
        assert_eq!(calls(Limits::OFF, 500), 500);
        assert_eq!([calls(LONG, 20), calls(LONG, 500), calls(LONG, 50_000)], [20, 40, 500]);
    }

    #[test]
    fn holds_with_one_packet_are_idle() {
        let idle = |packets, calls| {
            let counts = looks(LONG, &[seen(0, Some(0)), seen(packets, Some(calls))]);
            (counts.holds, counts.idle_holds)
        };
        assert_eq!(idle(100, 100), (100, 100));
        assert_eq!(idle(100, 60), (60, 20));
        assert_eq!(idle(100, 50), (50, 0));
        assert_eq!(idle(100, 900), (100, 100), "some were for something else");
    }

    #[test]
    fn a_napi_instance_polls_by_time_and_once_more_for_each_64_packets() {
        let napi = |usecs, packets| {
            let limits = Limits { usecs, packets }.of_napi();
            (limits.gro_flush_timeout_ns, limits.defer_hard_irqs)
        };
        assert_eq!([napi(0, 8), napi(8, 0), napi(3, 8)], [(0, 0); 3]);
        assert_eq!(napi(4, 8), (4_000, 1));
        assert_eq!([napi(20, 1), napi(20, 64), napi(20, 65)], [(20_000, 1), (20_000, 1), (20_000, 2)]);
        assert_eq!(napi(u32::MAX, u32::MAX), (65_535_000, 1024));
    }

    /// Plays looks at a netdev whose packets `rate` makes of the limits in force; returns the limits after each.
    fn play(mut policy: Policy, looks: usize, rate: impl Fn(Limits) -> u64) -> Vec<Limits> {
        let (mut device, mut packets) = (Device::default(), 0);
        let mut found = Vec::new();
        for look in 0..looks {
            let now = Nanos(look as u64 * LOOK);
            found.push(device.look(&mut policy, seen(packets, None), true, now).limits);
            packets += rate(found[look]) / 100;
        }
        found
    }

    fn adaptive() -> Policy {
        Policy::Adaptive(Box::new(Adaptive::new(Direction::Receive, 1024)))
    }

    #[test]
    fn adaptive_holds_a_stream_for_as_long_as_it_may() {
        let limits = play(adaptive(), 100, |_| 100_000);
        assert_eq!(limits[10..], [Limits { usecs: 256, packets: 256 }; 90]);
    }

    #[test]
    fn adaptive_lets_an_exchange_go_that_its_holds_slow_down() {
        // 50 µs for each without moderation, and the hold besides.
        let limits = play(adaptive(), 500, |limits| 1_000_000 / (50 + u64::from(limits.usecs)));
        let held = limits.iter().filter(|limits| limits.holds()).count();
        assert!((1..10).contains(&held), "{held} of 500 looks");
        assert!(limits[20..].iter().all(|limits| !limits.holds()));
    }

    #[test]
    fn dim_comes_to_the_end_of_its_table_where_nothing_changes_but_interrupts() {
        let limits = play(Policy::Dim(Dim::new(Profile::RX_EQE)), 200, |_| 500_000);
        assert_eq!(limits[12], Limits { usecs: 256, packets: 256 });
    }

    #[test]
    fn a_netdev_without_a_limit_for_packets_interrupts_by_time_alone() {
        let mut policy = Policy::Static(Limits { usecs: 250, packets: 1 });
        let calls = [true, false].map(|has_packets| {
            let mut device = Device::default();
            for (look, packets) in [0, 500].into_iter().enumerate() {
                device.look(&mut policy, seen(packets, None), has_packets, Nanos(look as u64 * LOOK));
            }
            device.counts().calls
        });
        assert_eq!(calls, [500, 40]);
    }
}
