//! The hash by which kernel programs and daemon find a flow's place.
//!
//! Words are taken in pairs, each word plus a secret, and the two multiplied (NH: Black and others 1999). A sum of words
//! times a secret each would put keys that follow each other in even steps, as stations' addresses and ports do, and for
//! some secrets the steps are tiny: hundreds of keys in few buckets. It would take two rounds of shift and product to break
//! them, one after the other, while a packet waits; after pairs one round is enough. The words are secret so that nobody
//! outside can make packets whose flows share a place.

use std::hash::{BuildHasher as _, RandomState};

use forebay_control::memory::FLOW_WAYS;

/// Odd numbers that nobody outside knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret(pub(crate) [u64; 5]);

impl Secret {
    /// Numbers that a sender of packets cannot guess: what the standard library seeds its hash maps with.
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self(std::array::from_fn(|index| random.hash_one(index) | 1))
    }

    /// The last word is 0 only where the one before it is.
    #[inline]
    pub(crate) fn hash(&self, key: [u64; 4]) -> u64 {
        let pair = |at: usize| {
            let words = [at, at + 1].map(|word| key[word].wrapping_add(self.0[word]));
            words[0].wrapping_mul(words[1])
        };
        let sum = if key[3] == 0 { pair(0) } else { pair(0).wrapping_add(pair(2)) };
        (sum ^ sum >> 32).wrapping_mul(self.0[4])
    }

    /// The two buckets of all that a key may lie in, and the way in each that programs look at first. Each half of the hash
    /// names one of them: as a fraction of 2^32 it says which bucket, and what is left of it which way.
    pub(crate) fn buckets(&self, key: [u64; 4], buckets: u32) -> [(usize, usize); 2] {
        let hash = self.hash(key);
        [(hash >> 32) as u32, hash as u32].map(|part| {
            let place = u64::from(part) * u64::from(buckets);
            ((place >> 32) as usize, (place as u32 >> (32 - FLOW_WAYS.ilog2())) as usize)
        })
    }
}

impl Secret {
    /// The same for the same number: for tests, and for tables that no stranger's packet reaches.
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
    use forebay_control::memory::FlowShape;

    use super::*;
    use crate::FlowKey;

    const KEYS: u64 = 1024;

    /// Keys of 1000 tables, each with its own secret, that find both buckets full.
    fn refused(key: impl Fn(u64) -> FlowKey) -> u64 {
        (0..1000).map(|seed| refused_of(&Secret::seeded(seed), KEYS, &key)).sum()
    }

    fn refused_of(secret: &Secret, keys: u64, key: impl Fn(u64) -> FlowKey) -> u64 {
        let buckets = FlowShape::new(keys as u32, 1).buckets;
        let mut taken = vec![0u8; buckets as usize];
        let mut refused = 0;
        for number in 0..keys {
            let [first, second] = secret.buckets(key(number).0, buckets).map(|(bucket, _)| bucket);
            let chosen = if taken[first] > 2 && taken[second] < taken[first] { second } else { first };
            if taken[chosen] == 4 {
                refused += 1;
            } else {
                taken[chosen] += 1;
            }
        }
        refused
    }

    #[test]
    fn in_the_largest_table_keys_find_their_places_too() {
        let key = |n| FlowKey::new((n / 65_536) as u16, None, n % 65_536, 0x0200_0000_0000 | n);
        assert!(refused_of(&Secret::seeded(3), 1 << 20, key) < SELDOM);
    }

    /// Keys without a pattern: 5,100 in a million.
    const SELDOM: u64 = 6000;

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
            let [first, second] = Secret::seeded(*n).buckets([1, 2, 0, 0], 512);
            first.0 == second.0
        };
        assert!((0..1000).filter(same).count() < 10);
    }
}
