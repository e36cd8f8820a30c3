//! A keyed hash of 64 bits.
//!
//! Two rounds of a 64 by 64 to 128 bit multiplication, both halves of the product folded together, each round with
//! its own half of the secret. Not cryptographic: it has to spread stations that a sender chooses without seeing the table.
//! What a success would buy is little: two full buckets, whose further stations are flooded and counted.

use super::slot::Key;

/// Odd constants with no structure (digits of the golden ratio and of pi), so that a secret of 0 still mixes.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
pub(crate) const PI: u64 = 0x2443_f6a8_885a_308d;

#[derive(Clone, Copy)]
pub(super) struct Hasher {
    secret: [u64; 2],
}

/// Does not show the secret.
impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    pub(super) const fn new(secret: [u64; 2]) -> Self {
        Hasher { secret }
    }

    #[inline]
    pub(super) const fn hash(&self, key: Key) -> u64 {
        let once = folded_product(key.0 ^ self.secret[0], GOLDEN ^ self.secret[1].rotate_left(32));
        folded_product(once ^ self.secret[1], PI ^ self.secret[0].rotate_left(32))
    }
}

/// The product of two words, both halves of it folded together.
#[inline]
pub(crate) const fn folded_product(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The fullest of 1024 bins after 8192 keys, by the upper and by the lower half of the hash.
    fn fullest(secret: [u64; 2], key: impl Fn(u64) -> Key) -> u32 {
        let hasher = Hasher::new(secret);
        let mut bins = [[0u32; 1024]; 2];
        for n in 0..8192 {
            let hash = hasher.hash(key(n));
            bins[0][(hash >> 54) as usize] += 1;
            bins[1][(hash as u32 >> 22) as usize] += 1;
        }
        bins.iter().flatten().copied().max().unwrap()
    }

    #[test]
    fn stations_in_a_row_in_one_byte_or_in_every_vlan_are_spread() {
        for seed in 0..64u64 {
            let secret = [seed.wrapping_mul(GOLDEN), seed.wrapping_mul(PI)];
            // 8 in each bin on average; at random the fullest of 2048 bins has some 20.
            assert!(fullest(secret, |n| Key::new(0, 0x0200_0000_0000 + n)) < 32, "in a row, seed {seed}");
            assert!(fullest(secret, |n| Key::new(0, n << 35)) < 32, "upper bytes, seed {seed}");
            assert!(fullest(secret, |n| Key::new((n % 4096) as u16, n / 4096)) < 32, "VLANs, seed {seed}");
        }
    }

    #[test]
    fn another_secret_is_another_hash() {
        let key = Key::new(1, 2);
        let hashes = [[0, 0], [1, 0], [0, 1], [1, 1]].map(|secret| Hasher::new(secret).hash(key));
        assert!((0..4).all(|i| (0..i).all(|j| hashes[i] != hashes[j])));
    }
}
