//! A packet that lies in several fragments, read as if it were one.
//!
//! A jumbo frame arrives as a chain of descriptors, and a header may begin in one and end in the next. These
//! functions copy out (never reference) what they read, so a header is whole wherever the cut falls. Generic over
//! `&[u8]` and `&mut [u8]` fragments. Most packets lie in one piece, of which headers are read in place: [`Packet`] is
//! either.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of all fragments together.
pub fn len<F: AsRef<[u8]>>(fragments: &[F]) -> usize {
    fragments.iter().map(|f| f.as_ref().len()).sum()
}

/// What any bytes are, wherever they lie.
pub trait Header: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned> Header for T {}

/// A packet that headers are read from, in one piece or in several.
pub trait Packet {
    /// A header where it lies, or a copy of what may be cut.
    type Header<'a, T: 'a>: std::ops::Deref<Target = T>
    where
        Self: 'a;

    /// The header at byte `offset`, or nothing if the packet ends before it does.
    fn header<T: Header>(&self, offset: usize) -> Option<Self::Header<'_, T>>;

    /// Bytes of the packet.
    fn len_bytes(&self) -> usize;
}

/// A header that was copied out.
#[derive(Clone, Copy, Debug)]
pub struct Copied<T>(T);

impl<T> std::ops::Deref for Copied<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl Packet for [u8] {
    type Header<'a, T: 'a> = &'a T;

    #[inline]
    fn header<T: Header>(&self, offset: usize) -> Option<&T> {
        T::ref_from_prefix(self.get(offset..)?).ok().map(|(header, _)| header)
    }

    #[inline]
    fn len_bytes(&self) -> usize {
        <[u8]>::len(self)
    }
}

/// A packet in several pieces.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'p, F>(pub &'p [F]);

impl<F: AsRef<[u8]>> Packet for Pieces<'_, F> {
    type Header<'a, T: 'a>
        = Copied<T>
    where
        Self: 'a;

    fn header<T: Header>(&self, offset: usize) -> Option<Copied<T>> {
        read(self.0, offset).map(Copied)
    }

    fn len_bytes(&self) -> usize {
        len(self.0)
    }
}

/// A packet of which only the beginning can be read.
#[derive(Clone, Copy, Debug)]
pub struct Front<'p> {
    /// Its first bytes. A header that they do not hold is not there.
    pub bytes: &'p [u8],
    /// Bytes of the packet, not less.
    pub len: usize,
}

impl Packet for Front<'_> {
    type Header<'a, T: 'a>
        = &'a T
    where
        Self: 'a;

    #[inline]
    fn header<T: Header>(&self, offset: usize) -> Option<&T> {
        self.bytes.header(offset)
    }

    fn len_bytes(&self) -> usize {
        self.len
    }
}

/// Copies out the `T` at byte `offset`, or nothing if the packet ends before it does.
#[inline]
pub fn read<T: FromBytes + IntoBytes, F: AsRef<[u8]>>(fragments: &[F], offset: usize) -> Option<T> {
    if let Some(bytes) = fragments.first().and_then(|f| f.as_ref().get(offset..))
        && let Ok((value, _)) = T::read_from_prefix(bytes)
    {
        return Some(value);
    }
    read_across(fragments, offset)
}

#[cold]
fn read_across<T: FromBytes + IntoBytes, F: AsRef<[u8]>>(fragments: &[F], offset: usize) -> Option<T> {
    let mut value = T::new_zeroed();
    let mut missing = value.as_mut_bytes();
    for part in parts(fragments, offset, missing.len()) {
        let (now, later) = missing.split_at_mut(part.len());
        now.copy_from_slice(part);
        missing = later;
    }
    missing.is_empty().then_some(value)
}

/// The slices that hold `len` bytes from byte `offset` on, one of each fragment, in order. Together they are shorter if
/// the packet ends early.
pub fn parts<F: AsRef<[u8]>>(fragments: &[F], offset: usize, len: usize) -> impl Iterator<Item = &[u8]> {
    let (mut skip, mut left) = (offset, len);
    fragments.iter().map(move |fragment| {
        let bytes = fragment.as_ref();
        let start = skip.min(bytes.len());
        let end = start + left.min(bytes.len() - start);
        skip -= start;
        left -= end - start;
        &bytes[start..end]
    })
}

/// Writes `bytes` at byte `offset`; what would lie beyond the packet's end is not written.
pub fn write(fragments: &mut [&mut [u8]], offset: usize, bytes: &[u8]) {
    let (mut skip, mut missing) = (offset, bytes);
    for fragment in fragments {
        let start = skip.min(fragment.len());
        let room = &mut fragment[start..];
        let (now, later) = missing.split_at(room.len().min(missing.len()));
        room[..now.len()].copy_from_slice(now);
        skip -= start;
        missing = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_check::{cut, cut_mut};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reading_and_writing_do_not_notice_where_the_cuts_are(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            cuts in proptest::collection::vec(0usize..64, 0..6),
            offset in 0usize..70,
        ) {
            let whole = bytes.get(offset..offset + 4).map(|b| <[u8; 4]>::try_from(b).unwrap());
            prop_assert_eq!(read::<[u8; 4], _>(&cut(&bytes, &cuts), offset), whole);
            prop_assert_eq!(len(&cut(&bytes, &cuts)), bytes.len());

            let mut expected = bytes.clone();
            expected.iter_mut().skip(offset).zip([1, 2, 3, 4]).for_each(|(b, new)| *b = new);
            let mut written = bytes.clone();
            write(&mut cut_mut(&mut written, &cuts), offset, &[1, 2, 3, 4]);
            prop_assert_eq!(written, expected);
        }

        #[test]
        fn parts_joined_are_the_range_asked_for(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            cuts in proptest::collection::vec(0usize..64, 0..6),
            offset in 0usize..70,
            len in 0usize..70,
        ) {
            let joined: Vec<u8> = parts(&cut(&bytes, &cuts), offset, len).flatten().copied().collect();
            let expected: Vec<u8> = bytes.iter().skip(offset).take(len).copied().collect();
            prop_assert_eq!(joined, expected);
        }
    }
}
