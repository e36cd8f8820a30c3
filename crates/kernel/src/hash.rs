//! The hash by which kernel programs and daemon find a flow's place: multiply-shift (Dietzfelbinger 1996).
//!
//! The multipliers are secret, so that nobody outside can make packets whose flows share a place.

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
        products.fold(0, u64::wrapping_add)
    }

    /// The two buckets, of 2^`bits`, that a key may lie in.
    pub(crate) fn buckets(&self, key: [u64; 4], bits: u32) -> [usize; 2] {
        let hash = self.hash(key);
        let second = (hash ^ hash >> 32).wrapping_mul(self.0[4]);
        [hash, second].map(|hash| (hash >> (64 - bits)) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_little_lie_apart() {
        let multipliers = Multipliers::random();
        let mut taken = vec![0u32; 1 << 10];
        for station in 0..1u64 << 10 {
            let [first, _] = multipliers.buckets([station, 0x1234 << 32, 0, 0], 10);
            taken[first] += 1;
        }
        let fullest = taken.iter().max().copied();
        assert!(fullest < Some(12), "{fullest:?} of 1024 keys in one of 1024 buckets");
    }
}
