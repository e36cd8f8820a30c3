//! The internet checksum (RFC 1071).
//!
//! A ones-complement sum does not care in which order 16-bit words are added, nor whether their bytes are swapped
//! throughout, nor how wide the additions are as long as carries come back in. So it is taken eight bytes at a time
//! in the machine's own byte order, and turned into wire order at the end.

/// A ones-complement sum under way, over bytes that may come in pieces of any length, odd ones too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// In the machine's byte order; carries out of bit 63 have been added back.
    acc: u64,
    /// Whether the next byte is the second one of a 16-bit word.
    odd: bool,
}

impl Sum {
    /// The sum over nothing.
    pub const fn new() -> Self {
        Sum { acc: 0, odd: false }
    }

    /// Adds bytes, as the continuation of those added before.
    #[inline]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let sum = sum_of(bytes);
        let aligned = if self.odd { u64::from(fold(sum).swap_bytes()) } else { sum };
        self.acc = add_with_carry(self.acc, aligned);
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Adds a 16-bit word given by its value, as if it stood at an even place.
    #[inline]
    pub fn add_word(&mut self, word: u16) {
        self.acc = add_with_carry(self.acc, u64::from(word.to_be()));
    }

    /// The sum folded to 16 bits, not complemented. 0 only if nothing but zeros was added.
    #[inline]
    pub fn folded(self) -> u16 {
        u16::from_be(fold(self.acc))
    }

    /// The internet checksum: the complement of the folded sum.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// The internet checksum over one slice. 0 says that a checksum inside it is right.
pub fn over(bytes: &[u8]) -> u16 {
    over_chain(&[bytes])
}

/// The internet checksum over a chain of slices, as if they were one.
pub fn over_chain<F: AsRef<[u8]>>(fragments: &[F]) -> u16 {
    let mut sum = Sum::new();
    fragments.iter().for_each(|f| sum.add_bytes(f.as_ref()));
    sum.checksum()
}

#[inline]
fn sum_of(bytes: &[u8]) -> u64 {
    // 32-bit words into 64-bit lanes: no lane can overflow below 2^32 words, and a compiler makes vectors of it.
    let mut lanes = [0u64; 4];
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        lanes.iter_mut().zip(words).for_each(|(lane, word)| *lane += u64::from(u32::from_ne_bytes(*word)));
    }
    lanes.into_iter().fold(sum_of_tail(rest), add_with_carry)
}

/// The sum over fewer than 16 bytes; a last odd byte counts as if a zero followed.
#[inline]
fn sum_of_tail(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

#[inline]
fn add_with_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

#[cfg(test)]
mod tests;
