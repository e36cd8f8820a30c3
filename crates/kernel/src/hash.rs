//! The hash by which kernel programs and daemon find a flow's place.
//!
//! A sum of products alone (multiply-shift, Dietzfelbinger 1996) puts keys that follow each other in even steps, as
//! stations' addresses and ports do, and for some multipliers the steps are tiny: hundreds of keys in few buckets. Two
//! rounds of shift and product behind it break the steps. The multipliers are secret, so that nobody outside can make
//! packets whose flows share a place.

use std::hash::{BuildHasher as _, RandomState};

/// Secret and odd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multipliers(pub(crate) [u64; 5]);

impl Multipliers {
    /// Numbers that a sender of packets cannot guess: what the standard library seeds its hash maps with.
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self(std::array::from_fn(|index| random.hash_one(index) | 1))
    }

    /// The upper bits count.
    #[inline]
    pub(crate) fn hash(&self, key: [u64; 4]) -> u64 {
        let products = key.iter().zip(&self.0).map(|(word, multiplier)| word.wrapping_mul(*multiplier));
        let mix = |hash: u64| (hash ^ hash >> 32).wrapping_mul(self.0[4]);
        mix(mix(products.fold(0, u64::wrapping_add)))
    }

    /// The two buckets, of 2^`bits`, that a key may lie in.
    pub(crate) fn buckets(&self, key: [u64; 4], bits: u32) -> [usize; 2] {
        let hash = self.hash(key);
        [hash, hash << bits].map(|hash| (hash >> (64 - bits)) as usize)
    }
}

#[cfg(test)]
impl Multipliers {
    /// The same for the same number.
    pub(crate) fn seeded(seed: u64) -> Self {
        let word = |index: u64| {
            let mixed = (seed << 8 | index).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
        };
        Self(std::array::from_fn(|index| word(index as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowKey;

    const BITS: u32 = 9;
    const KEYS: u64 = 1024;

    /// Keys of 1000 tables, each with its own multipliers, that find both buckets of four full: half of all places are
    /// for keys.
    fn refused(key: impl Fn(u64) -> FlowKey) -> u64 {
        let mut refused = 0;
        for multipliers in (0..1000).map(Multipliers::seeded) {
            let mut taken = [0u8; 1 << BITS];
            for number in 0..KEYS {
                let [first, second] = multipliers.buckets(key(number).0, BITS);
                let emptier = if taken[second] < taken[first] { second } else { first };
                if taken[emptier] == 4 {
                    refused += 1;
                } else {
                    taken[emptier] += 1;
                }
            }
        }
        refused
    }

    /// Keys without a pattern: 11 in a million.
    const SELDOM: u64 = 30;

    #[test]
    fn stations_in_a_row_find_their_places() {
        assert!(refused(|n| FlowKey::new(1, None, n, 1)) < SELDOM);
        assert!(refused(|n| FlowKey::new(1, None, 1, 0x0200_0000_0000 | n << 8)) < SELDOM);
    }

    #[test]
    fn each_station_with_each_finds_its_place() {
        assert!(refused(|n| FlowKey::new((n / 32) as u16, None, n / 32, n % 32)) < SELDOM);
    }

    #[test]
    fn ports_in_a_row_find_their_places() {
        use forebay_flow::Class;

        let class = |n| Class { sport: n as u16, ..Class::default() };
        assert!(refused(|n| FlowKey::new(1, None, 1, 2).deeper(class(n))) < SELDOM);
    }

    #[test]
    fn the_two_buckets_are_not_the_same() {
        let same = |n: &u64| {
            let [first, second] = Multipliers::seeded(*n).buckets([1, 2, 0, 0], BITS);
            first == second
        };
        assert!((0..1000).filter(same).count() < 10);
    }
}
