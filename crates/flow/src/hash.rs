//! The hash of the lookup tables: a multiplication a word.
//!
//! The tables hold rules, and lookups take packets. Whoever sends packets may choose keys, but a lookup walks only
//! rules that lie where its key does; so a hash that could be foreseen gives a sender nothing, and need not cost
//! what the standard library's does.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from rules' keys.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Folding>>;

/// Odd, with its bits spread evenly: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies every word into 128 bits and folds these to 64, so that each bit of a word reaches all bits of the
/// hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct Folding(u64);

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ word ^ MULTIPLIER) * u128::from(MULTIPLIER);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    use super::*;

    fn hash(value: impl Hash) -> u64 {
        BuildHasherDefault::<Folding>::default().hash_one(value)
    }

    /// What the standard library's table looks at: the low bits for the place, the top seven for the first
    /// comparison.
    fn spread(hashes: impl Iterator<Item = u64>) -> (usize, usize) {
        let hashes: Vec<u64> = hashes.collect();
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
        let top: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        (low.len(), top.len())
    }

    #[test]
    fn neighbours_in_any_word_and_byte_are_spread() {
        for word in 0..8 {
            for shift in [0, 16, 32, 48] {
                let key = |value: u64| {
                    let mut words = [0u64; 8];
                    words[word] = value << shift;
                    words
                };
                let (low, top) = spread((0..4096).map(|value| hash(key(value))));
                // 4096 balls in as many bins leave about 63 % of them hit.
                assert!(low > 2200 && top == 128, "word {word} shift {shift}: {low} places, {top} tops");
            }
        }
    }

    #[test]
    fn the_order_of_words_counts() {
        assert_ne!(hash([1u64, 2]), hash([2u64, 1]));
    }

    #[test]
    fn bytes_that_fill_no_word_count() {
        assert_ne!(hash([1u8; 3]), hash([2u8; 3]));
        assert_ne!(hash([1u8; 9]), hash([1, 1, 1, 1, 1, 1, 1, 1, 2u8]));
    }
}
