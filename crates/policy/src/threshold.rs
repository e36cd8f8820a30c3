//! Thresholds: how much of a shared pool one queue may hold.
//!
//! *Dynamic Threshold* (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998): a queue may take another
//! frame while it holds less than α times what is free. N saturated queues then hold αB/(1+αN) each of a pool of B
//! frames, and B/(1+αN) stays free for the next one. α is a power of two, written as devlink-sb does:
//! α = 2^(th−10).
//!
//! *Headroom* is that rule with a part of the pool kept from it: α times what is free above the headroom H. Below a first
//! burst, α times what is free at all counts, and α no more than 1. So the burst of a quiet queue finds room in a pool that
//! others have saturated, and no queue holds more than by the plain rule. N saturated queues hold α(B−H)/(1+αN) each, if
//! that is more than a first burst.
//!
//! A packet is let in whole or not at all, and all frames that it takes have to fit: into what its queue may hold, into
//! the ring and into the pool. The one exception is an empty queue, which takes a packet of up to [`ONE_PACKET`] frames
//! where it may hold any. So no ordinary packet is one that could never pass, and what a packet claims to be cut into
//! costs other queues nothing.
//!
//! The kernel programs decide by the same rule (bpf/account.h); this is the rule as one can test it, and what
//! `forebay pool show` computes limits from.

/// devlink-sb's `th`: α = 2^(th−10), from 2^−7 to 2^6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Th(u8);

impl Th {
    /// The least.
    pub const MIN: Th = Th(3);
    /// The greatest.
    pub const MAX: Th = Th(16);
    /// α = 1: a queue may hold as much as is free.
    pub const ONE: Th = Th(10);
    /// α = 1/8.
    pub const EIGHTH: Th = Th(7);

    /// `None` outside of 3 to 16.
    pub const fn new(th: u8) -> Option<Th> {
        if th < Self::MIN.0 || th > Self::MAX.0 { None } else { Some(Th(th)) }
    }

    /// The number itself.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// α · `frames`, rounded down.
    pub const fn of(self, frames: u64) -> u64 {
        if self.0 >= Self::ONE.0 {
            frames << (self.0 - Self::ONE.0)
        } else {
            frames >> (Self::ONE.0 - self.0)
        }
    }
}

/// Frames that one packet may take of an empty queue whatever its limit is, if that is not 0: 64 KB of TCP in parts of
/// 1 KB.
pub const ONE_PACKET: u64 = 64;

/// How much one queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// α times what is free.
    Dynamic(Th),
    /// So many frames, whatever the others hold.
    Static(u32),
}

/// What is known when a packet asks for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Frames the queue holds.
    pub used: u64,
    /// Frames that all queues together hold.
    pub pool_used: u64,
    /// Frames that they may hold together.
    pub pool_size: u64,
    /// Of these, frames that thresholds leave alone.
    pub headroom: u64,
    /// Frames up to which a queue may use the headroom.
    pub first_burst: u64,
}

impl Occupancy {
    /// Frames that nobody holds.
    fn free(&self) -> u64 {
        self.pool_size.saturating_sub(self.pool_used)
    }
}

/// One queue's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// How much it may hold.
    pub threshold: Threshold,
    /// Frames it may hold even above its threshold, as long as the pool has any: a quiet queue's first burst.
    pub reserve: u32,
    /// Frames its ring has room for.
    pub depth: u32,
}

impl Admission {
    /// Frames the queue may hold at this moment.
    pub fn limit(&self, seen: Occupancy) -> u64 {
        let free = seen.free();
        let shared = free.saturating_sub(seen.headroom);
        let (limit, burst) = match self.threshold {
            Threshold::Dynamic(th) => (th.of(shared), th.min(Th::ONE).of(free)),
            Threshold::Static(frames) if shared > 0 => (frames.into(), 0),
            Threshold::Static(frames) => (0, free.min(frames.into())),
        };
        let limit = limit.max(seen.first_burst.min(burst));
        limit.max(u64::from(self.reserve).min(seen.used + free)).min(self.depth.into())
    }

    /// Decides whether a packet may take `frames` frames, all of them at once.
    pub fn take(&self, seen: Occupancy, frames: u64) -> Taking {
        let (limit, depth) = (self.limit(seen), u64::from(self.depth));
        let is_first = seen.used == 0 && frames <= ONE_PACKET;
        let asked = seen.used + frames;
        if seen.used >= depth {
            Taking::RingFull
        } else if frames > depth {
            Taking::TooBig
        } else if asked > depth {
            Taking::RingFull
        } else if seen.used >= limit || frames > seen.free() || (asked > limit && !is_first) {
            Taking::OverThreshold
        } else {
            Taking::Taken
        }
    }

    /// Whether a packet of `frames` frames may come in.
    pub fn admits(&self, seen: Occupancy, frames: u64) -> bool {
        self.take(seen, frames) == Taking::Taken
    }
}

/// What becomes of a packet that asks for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Taking {
    /// It has them.
    Taken,
    /// The queue's share of the pool has no room for it.
    OverThreshold,
    /// The ring has no room left for it.
    RingFull,
    /// The ring never has room for it, not even when it is empty.
    TooBig,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEEP: u32 = u32::MAX;

    fn alpha(th: u8) -> f64 {
        f64::from(th).exp2() / 1024.0
    }

    /// What each of `saturated` queues holds in the end: αB/(1+αN).
    fn fixed_point(th: u8, pool_size: u64, saturated: usize) -> f64 {
        alpha(th) * pool_size as f64 / (1.0 + alpha(th) * saturated as f64)
    }

    fn dynamic(th: u8) -> Admission {
        Admission { threshold: Threshold::Dynamic(Th::new(th).unwrap()), reserve: 0, depth: DEEP }
    }

    /// Offers a frame to each queue in turn until nobody takes one.
    fn saturate(rules: &[Admission], pool_size: u64, (headroom, first_burst): (u64, u64)) -> Vec<u64> {
        let mut held = vec![0; rules.len()];
        loop {
            let before = held.clone();
            for (queue, rule) in rules.iter().enumerate() {
                let seen = Occupancy {
                    used: held[queue],
                    pool_used: held.iter().sum(),
                    pool_size,
                    headroom,
                    first_burst,
                };
                held[queue] += u64::from(rule.admits(seen, 1));
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn th_counts_as_in_devlink() {
        let alphas = [(3, 8), (8, 256), (10, 1024), (13, 8192), (16, 65_536)];
        for (th, of_1024) in alphas {
            assert_eq!(Th::new(th).unwrap().of(1024), of_1024, "{th}");
        }
        assert_eq!((Th::new(2), Th::new(17)), (None, None));
        assert_eq!(
            (3..=16).map(|th| Th::new(th).unwrap().get()).collect::<Vec<u8>>(),
            (3..=16).collect::<Vec<_>>()
        );
        assert_eq!((Th::new(8).unwrap().of(1001), Th::new(13).unwrap().of(1001)), (250, 8008));
    }

    #[test]
    fn saturated_queues_hold_what_choudhury_and_hahne_say() {
        const POOL: u64 = 12_288;
        for th in [8, 10, 13] {
            for queues in [1, 2, 4, 8] {
                let held = saturate(&vec![dynamic(th); queues], POOL, (0, 0));
                let expected = fixed_point(th, POOL, queues);
                for frames in &held {
                    let off = (*frames as f64 - expected).abs();
                    assert!(off <= 0.01 * expected + 1.0, "th {th}, {queues}: {held:?}, {expected}");
                }
            }
        }
    }

    #[test]
    fn a_reserve_is_there_when_the_others_have_taken_the_rest() {
        const POOL: u64 = 1000;
        let held = saturate(&[dynamic(16); 4], POOL, (0, 0));
        let seen =
            Occupancy { used: 0, pool_used: held.iter().sum(), pool_size: POOL, headroom: 0, first_burst: 0 };
        let quiet = Admission { reserve: 3, threshold: Threshold::Static(0), depth: DEEP };
        assert_eq!(quiet.limit(seen), 3);
        assert!(quiet.admits(seen, 1));
        assert!(!quiet.admits(Occupancy { used: 3, pool_used: seen.pool_used + 3, ..seen }, 1));
    }

    #[test]
    fn a_fixed_limit_may_not_use_the_headroom_beyond_a_first_burst() {
        let rule = Admission { threshold: Threshold::Static(100), reserve: 0, depth: DEEP };
        let limit = |pool_used| {
            rule.limit(Occupancy { used: 0, pool_used, pool_size: 1000, headroom: 200, first_burst: 30 })
        };
        assert_eq!([799, 800, 980].map(limit), [100, 30, 20]);
    }

    #[test]
    fn a_packet_is_let_in_whole_or_not_at_all() {
        let taking = |limit, used, free, frames| {
            let rule = Admission { threshold: Threshold::Static(limit), reserve: 0, depth: DEEP };
            let (pool_used, pool_size) = (used, used + free);
            rule.take(Occupancy { used, pool_used, pool_size, headroom: 0, first_burst: 0 }, frames)
        };
        assert_eq!(taking(20, 5, 10, 10), Taking::Taken, "the last frames of the pool");
        assert_eq!(taking(20, 5, 10, 11), Taking::OverThreshold, "more than the pool has");
        assert_eq!(taking(2, 1, 100, 10), Taking::OverThreshold, "the queue is not empty");
        assert_eq!(taking(2, 0, 100, 10), Taking::Taken, "the queue is empty");
        assert_eq!(taking(0, 0, 100, 1), Taking::OverThreshold, "the queue may hold nothing");
    }

    #[test]
    fn a_full_pool_has_no_reserve() {
        let rule = Admission { threshold: Threshold::Dynamic(Th::ONE), reserve: 64, depth: DEEP };
        assert!(
            !rule.admits(
                Occupancy { used: 5, pool_used: 100, pool_size: 100, headroom: 0, first_burst: 0 },
                1
            )
        );
    }

    /// Of a quiet queue's burst, packets refused in a pool that others have saturated.
    fn refused(th: u8, saturated: usize, burst: u64, (headroom, first_burst): (u64, u64)) -> usize {
        const POOL: u64 = 4096;
        let held = saturate(&vec![dynamic(th); saturated], POOL, (headroom, first_burst));
        let mut seen =
            Occupancy { used: 0, pool_used: held.iter().sum(), pool_size: POOL, headroom, first_burst };
        let mut refuses = |_: &u64| {
            let admitted = dynamic(th).admits(seen, 1);
            seen.used += u64::from(admitted);
            seen.pool_used += u64::from(admitted);
            !admitted
        };
        (0..burst).filter(|packet| refuses(packet)).count()
    }

    /// The experiment that headroom is for.
    #[test]
    fn a_quiet_queues_burst_finds_room_where_plain_thresholds_leave_none() {
        const HEADROOM: (u64, u64) = (512, 256);
        let row = |th, sharing| [1, 2, 4, 8, 16].map(|queues| refused(th, queues, 256, sharing));
        assert_eq!(row(13, (0, 0)), [0, 42, 145, 200, 228], "α = 8, plain");
        assert_eq!(row(13, HEADROOM), [0, 0, 0, 0, 136], "α = 8, with headroom");
        for th in [8, 10, 13] {
            for (plain, headroom) in row(th, (0, 0)).into_iter().zip(row(th, HEADROOM)) {
                assert!(headroom <= plain, "th {th}: {headroom} refused, {plain} without headroom");
            }
        }
    }

    #[test]
    fn saturated_queues_leave_the_headroom() {
        const POOL: u64 = 12_288;
        const HEADROOM: u64 = POOL / 8;
        for (th, queues) in [(8, 1), (10, 4), (13, 8)] {
            let held = saturate(&vec![dynamic(th); queues], POOL, (HEADROOM, 64));
            let expected = fixed_point(th, POOL - HEADROOM, queues);
            for frames in &held {
                assert!((*frames as f64 - expected).abs() <= 0.01 * expected + 1.0, "{held:?}, {expected}");
            }
        }
    }

    proptest! {
        #[test]
        fn nobody_holds_more_than_threshold_ring_and_pool_allow(
            rules in prop::collection::vec((3..=16u8, 0..64u32, 1..2000u32, prop::option::of(0..5000u32)), 1..8),
            pool_size in 0..5000u64,
            headroom in 0..1000u64,
            first_burst in 0..300u64,
        ) {
            let rules: Vec<_> = rules
                .into_iter()
                .map(|(th, reserve, depth, fixed)| {
                    let dynamic = Threshold::Dynamic(Th::new(th).unwrap());
                    Admission { threshold: fixed.map_or(dynamic, Threshold::Static), reserve, depth }
                })
                .collect();
            let held = saturate(&rules, pool_size, (headroom, first_burst));
            for (rule, frames) in rules.iter().zip(&held) {
                prop_assert!(*frames <= u64::from(rule.depth));
                if let Threshold::Static(most) = rule.threshold {
                    prop_assert!(*frames <= u64::from(most.max(rule.reserve)));
                }
            }
            let unbounded = rules.iter().any(|rule| matches!(rule.threshold, Threshold::Static(_)));
            prop_assert!(unbounded || held.iter().sum::<u64>() <= pool_size);
        }

        /// What one packet can do to the others, whatever it claims to be.
        #[test]
        fn a_packet_takes_what_the_limit_the_ring_and_the_pool_have_room_for_or_one_packet(
            (used, others, pool_size) in (0..3000u64, 0..3000u64, 0..5000u64),
            (headroom, first_burst) in (0..1000u64, 0..300u64),
            (th, fixed, reserve) in (3..=16u8, prop::option::of(0..5000u32), 0..64u32),
            frames in 1..70_000u64,
            depth in 64..4096u32,
        ) {
            let dynamic = Threshold::Dynamic(Th::new(th).unwrap());
            let rule = Admission { threshold: fixed.map_or(dynamic, Threshold::Static), reserve, depth };
            let seen = Occupancy { used, pool_used: used + others, pool_size, headroom, first_burst };
            if rule.admits(seen, frames) {
                prop_assert!(used + frames <= rule.limit(seen).max(ONE_PACKET));
                prop_assert!(used + frames <= u64::from(depth));
                prop_assert!(seen.pool_used + frames <= pool_size);
            }
        }

        #[test]
        fn an_empty_queue_takes_an_ordinary_packet_whatever_its_threshold(
            frames in 1..=ONE_PACKET,
            most in 1..100u32,
            depth in 64..4096u32,
        ) {
            let rule = Admission { threshold: Threshold::Static(most), reserve: 0, depth };
            let seen = Occupancy { used: 0, pool_used: 0, pool_size: 100_000, headroom: 0, first_burst: 0 };
            prop_assert!(rule.admits(seen, frames));
        }
    }

    #[test]
    fn a_packet_that_takes_more_than_the_ring_has_is_told_from_a_ring_that_is_full() {
        let rule = Admission { threshold: Threshold::Static(u32::MAX), reserve: 0, depth: 64 };
        let seen = |used| Occupancy { used, pool_used: used, pool_size: 1000, headroom: 0, first_burst: 0 };
        for (used, frames, taking) in [
            (0, 64, Taking::Taken),
            (0, 65, Taking::TooBig),
            (1, 65, Taking::TooBig),
            (1, 64, Taking::RingFull),
            (1, 63, Taking::Taken),
            (64, 1, Taking::RingFull),
            (64, 65, Taking::RingFull),
        ] {
            assert_eq!(rule.take(seen(used), frames), taking, "{frames} more than {used}");
        }
    }
}
