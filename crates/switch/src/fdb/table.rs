//! Buckets of slots, and the protocol by which readers read them while one writer writes.
//!
//! A slot's version is odd while it has an owner and even while it has none: it goes up before the slot loses its
//! key, and again before it gets another. A reader has the right value for its key if it reads *value, key, value* and
//! finds its key in between two values of one odd version. The writer, who holds the token, does
//!
//! ```text
//!  erase:   value := next (even) version    key := empty
//!  insert:  value := next (odd) version     key := the key      (into an empty slot only)
//! ```
//!
//! with release stores in this order, and readers load in theirs with acquire. A reader that meets a change takes
//! the slot as not its own and goes on: it never retries, hence never waits. To be fooled it would have to sleep between
//! two loads while its slot changes hands a multiple of 16,384 times and holds its key again at the end.
//!
//! Refreshing (`last seen`) needs no token: it is a compare-and-swap on the whole value, which fails if the slot has
//! lost its owner or its station has moved.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_kernel::{StationBucket, StationMemory};

use super::hash::Hasher;
use super::slot::{Key, Value};
use super::token::Held;

/// Slots in a bucket: their keys fill one cache line, their values another.
pub(super) const WAYS: usize = 8;

/// Slots for each entry of the capacity. At half load a bucket pair that is full is beyond expectation.
const SLOTS_PER_ENTRY: usize = 2;

/// Keys and values, in memory that may outlive the process.
pub(super) type Bucket = StationBucket;

/// A slot whose key was found in it, with the value it had then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    bucket: &'a Bucket,
    way: usize,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) struct Table {
    memory: StationMemory,
    hasher: Hasher,
}

impl Table {
    /// An empty table in this memory, which is all zero.
    pub(super) fn new(memory: StationMemory, seed: [u64; 2]) -> Self {
        Table { memory, hasher: Hasher::new(seed) }
    }

    #[inline]
    pub(super) fn buckets(&self) -> &[Bucket] {
        self.memory.buckets()
    }

    pub(super) fn memory(&self) -> &StationMemory {
        &self.memory
    }

    /// Where a key is. Wait-free.
    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<Found<'_>> {
        let [first, second] = self.candidates(key);
        first.get(key).or_else(|| second.get(key))
    }

    /// Puts a key that is not in the table into the emptier of its buckets; false if both are full.
    pub(super) fn insert(&self, held: &Held<'_>, key: Key, value: Value) -> bool {
        let [first, second] = self.candidates(key);
        let emptier = if second.occupied() < first.occupied() { second } else { first };
        emptier.insert(held, key, value)
    }

    /// The two buckets that a key may lie in; once in a while they are the same.
    #[inline]
    fn candidates(&self, key: Key) -> [&Bucket; 2] {
        let hash = self.hasher.hash(key);
        [self.bucket_at(hash >> 32), self.bucket_at(hash & 0xffff_ffff)]
    }

    /// Maps 32 random bits to a bucket, evenly and without a division.
    #[inline]
    fn bucket_at(&self, random: u64) -> &Bucket {
        let buckets = self.buckets();
        &buckets[((random * buckets.len() as u64) >> 32) as usize]
    }
}

/// Buckets that a table of this capacity has.
pub(super) fn buckets_for(capacity: u32) -> usize {
    (capacity as usize * SLOTS_PER_ENTRY).div_ceil(WAYS).max(2)
}

/// What is done with a bucket.
pub(super) trait Slots {
    /// Where a key is.
    fn get(&self, key: Key) -> Option<Found<'_>>;
    /// The value of a slot if, all the while it was read, it was `key`'s.
    fn read(&self, way: usize, key: Key) -> Option<Found<'_>>;
    /// All that is in the bucket.
    fn found(&self) -> impl Iterator<Item = (Key, Found<'_>)>;
    /// Slots that have a key.
    fn occupied(&self) -> usize;
    /// Puts in a key that is in neither bucket; false if this one is full.
    fn insert(&self, held: &Held<'_>, key: Key, value: Value) -> bool;
}

impl Slots for Bucket {
    #[inline]
    fn get(&self, key: Key) -> Option<Found<'_>> {
        let way = self.keys.iter().position(|k| k.load(Ordering::Relaxed) == key.0)?;
        self.read(way, key)
    }

    #[inline]
    fn read(&self, way: usize, key: Key) -> Option<Found<'_>> {
        let before = Value(self.values[way].load(Ordering::Acquire));
        let is_mine = self.keys[way].load(Ordering::Acquire) == key.0;
        let value = Value(self.values[way].load(Ordering::Acquire));
        (is_mine && value.is_owned() && value.is_same_version(before)).then_some(Found {
            bucket: self,
            way,
            value,
        })
    }

    fn found(&self) -> impl Iterator<Item = (Key, Found<'_>)> {
        let occupied = self.keys.iter().map(|k| Key(k.load(Ordering::Relaxed))).enumerate();
        occupied
            .filter(|(_, key)| *key != Key::EMPTY)
            .filter_map(|(way, key)| Some((key, self.read(way, key)?)))
    }

    fn occupied(&self) -> usize {
        self.keys.iter().filter(|k| k.load(Ordering::Relaxed) != Key::EMPTY.0).count()
    }

    fn insert(&self, _held: &Held<'_>, key: Key, value: Value) -> bool {
        let Some(way) = self.keys.iter().position(|k| k.load(Ordering::Relaxed) == Key::EMPTY.0) else {
            return false;
        };
        let last = Value(self.values[way].load(Ordering::Relaxed)).next_version();
        self.values[way].store(value.in_version_of(last).0, Ordering::Release);
        self.keys[way].store(key.0, Ordering::Release);
        true
    }
}

impl Found<'_> {
    /// Sets the value if it is still the one that was found. Needs no token: only the time may differ.
    #[inline]
    pub(super) fn replace(&self, value: Value) -> bool {
        debug_assert!(
            value.seen_at(0) == self.value.seen_at(0),
            "only the token's holder changes more than the time"
        );
        self.word().compare_exchange(self.value.0, value.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Sets port, time and kind of the entry, whatever time a refresh may have written meanwhile.
    pub(super) fn overwrite(&self, _held: &Held<'_>, value: Value) {
        self.word().store(value.in_version_of(self.value).0, Ordering::Release);
    }

    /// Empties the slot.
    pub(super) fn erase(&self, _held: &Held<'_>) {
        self.word().store(self.value.next_version().0, Ordering::Release);
        self.bucket.keys[self.way].store(Key::EMPTY.0, Ordering::Release);
    }

    /// Empties the slot, unless its station was heard since it was found: then false, and nothing is done.
    pub(super) fn erase_if_unheard(&self, held: &Held<'_>) -> bool {
        let gone = self.value.next_version();
        let unheard = self.word().compare_exchange(self.value.0, gone.0, Ordering::AcqRel, Ordering::Relaxed);
        if unheard.is_ok() {
            self.erase(held);
        }
        unheard.is_ok()
    }

    fn word(&self) -> &AtomicU64 {
        &self.bucket.values[self.way]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::token::Token;
    use super::*;

    const KEY: Key = Key::new(1, 2);

    fn table() -> Table {
        Table::new(StationMemory::own(buckets_for(1)).unwrap(), [0, 0])
    }

    #[test]
    fn halfway_through_erasing_the_station_is_gone_and_cannot_be_refreshed() {
        let (table, token) = (table(), Token::default());
        assert!(table.insert(&token.hold(), KEY, Value::learned(7, 0)));
        let found = table.get(KEY).unwrap();
        // The first of the two stores of `erase`; the second is still to come.
        found.word().store(found.value.next_version().0, Ordering::Release);
        assert!(table.get(KEY).is_none());
        assert!(!found.replace(found.value.seen_at(1)));
    }

    #[test]
    fn what_was_found_before_a_slot_changed_hands_changes_nothing_after() {
        let (table, token) = (table(), Token::default());
        let held = token.hold();
        assert!(table.insert(&held, KEY, Value::learned(7, 0)));
        let old = table.get(KEY).unwrap();
        old.erase(&held);
        assert!(table.insert(&held, KEY, Value::learned(7, 0)));
        assert!(!old.replace(old.value.seen_at(1)));
        assert!(!old.erase_if_unheard(&held));
        assert_eq!(table.get(KEY).unwrap().value.seen_s(), 0);
    }
}
