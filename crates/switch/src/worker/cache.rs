//! Rulings of packets seen before: an exact-match table in front of the classifier.
//!
//! One worker's, asked only where rules look deeper than layer 2. A slot is found by the hash that the device computed
//! of the packet's flow where a hint tells it, else by one of our own, and holds the whole key.
//!
//! The rule it keeps: a hash says where to look, never what is found. Keys are compared in full, and a slot counts for one
//! generation of rules only; so whatever hints say, and however many packets share a hash, the ruling is the
//! classifier's, and a wrong hash costs a miss. What is older is not cleared but does not match.
//!
//! ```text
//!  key, rx_hash ─► set ─┬─ slot  key (7 words), generation, place of the rule   one cache line ─► hit
//!                       └─ slot  …                                                            └─► miss: classifier, fill
//! ```
//!
//! Where both slots of a set are taken, few misses take one over ([`TAKE_OVER`]): of more flows than there is room for, as
//! many as there is room for go on being found.
//!
//! Memory: [`SETS`] × 2 × 80 bytes, 1.25 MiB, all of it taken in [`RulingCache::new`].

use forebay_flow::Class;
use forebay_hints::{Hint, Values};
use forebay_pool::prefetch;

use super::key::{Key, WORDS};
use crate::fdb::{GOLDEN, PI, folded_product};
use crate::rules::{Place, RuleSet, Ruling};

/// Sets of two slots.
const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 13;
/// Slots in all.
#[cfg(test)]
const SLOTS: usize = 2 * SETS;
/// One of so many misses in a full set puts out what is there.
const TAKE_OVER: u64 = 8;
/// In `rx_hash_type`: the hash is of the ports too (`XDP_RSS_L4`, include/net/xdp.h, Linux 6.18).
const RSS_L4: u32 = 1 << 3;

/// One packet's ruling; a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot {
    key: Key,
    /// [`RulingCache::stamp`] when it was filled; 0 never was.
    stamp: u32,
    place: Place,
}

/// How many packets were found, and how many the classifier was asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) cached: u64,
    pub(super) classified: u64,
}

/// A worker's.
pub(crate) struct RulingCache {
    slots: Box<[[Slot; 2]]>,
    /// Beside the slots, because only those look who propose decisions to the kernel.
    classes: Box<[[Class; 2]]>,
    /// Of the rules that the stamp stands for.
    generation: u64,
    stamp: u32,
    secret: [u64; 2],
    /// Which misses take over a slot, and which.
    dice: u64,
}

impl RulingCache {
    /// An empty one. The seed must be random and secret: who knows it can choose packets that share a set.
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        let slot = Slot { key: Key([0; WORDS]), stamp: 0, place: Place::NONE };
        Self {
            slots: vec![[slot; 2]; SETS].into_boxed_slice(),
            classes: vec![[Class::default(); 2]; SETS].into_boxed_slice(),
            generation: 0,
            stamp: 1,
            secret,
            dice: secret[0] ^ secret[1],
        }
    }

    /// Forgets everything unless it is of this generation of rules.
    #[inline]
    pub(super) fn follow(&mut self, generation: u64) {
        if self.generation != generation {
            self.renew(generation);
        }
    }

    #[cold]
    fn renew(&mut self, generation: u64) {
        self.generation = generation;
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            // Once in 2^32 generations, so that a stamp of long ago does not come back.
            self.slots.iter_mut().flatten().for_each(|slot| slot.stamp = 0);
            self.stamp = 1;
        }
    }

    /// Where a packet's ruling is if it is there; on its way into the processor's cache from now on.
    #[inline]
    pub(super) fn seek(&self, key: &Key, hints: &Values) -> u32 {
        let set = self.set_of(key, hints);
        prefetch(&self.slots[set]);
        set as u32
    }

    /// The ruling of a packet that layer 2 does not decide for, under the rules that [`RulingCache::follow`] was told of.
    /// Its class is read where `asks_class`.
    #[inline]
    pub(super) fn find<'r>(
        &mut self,
        rules: &'r RuleSet,
        key: &Key,
        set: u32,
        asks_class: bool,
        tally: &mut Tally,
    ) -> Ruling<'r> {
        let set = set as usize;
        for way in 0..2 {
            let slot = &self.slots[set][way];
            if slot.has(key, self.stamp) {
                tally.cached += 1;
                let class = asks_class.then(|| self.classes[set][way]);
                return Ruling {
                    rule: rules.rule(slot.place),
                    place: slot.place,
                    class,
                    is_unread: key.is_unread(),
                };
            }
        }
        tally.classified += 1;
        self.fill(rules, key, set)
    }

    /// Asks the classifier.
    #[cold]
    #[inline(never)]
    fn fill<'r>(&mut self, rules: &'r RuleSet, key: &Key, set: usize) -> Ruling<'r> {
        let (place, class) = rules.find(&key.fields());
        let free = self.slots[set].iter().position(|slot| slot.stamp != self.stamp);
        if let Some(way) = free.or_else(|| self.taken_over()) {
            self.slots[set][way] = Slot { key: *key, stamp: self.stamp, place };
            self.classes[set][way] = class;
        }
        Ruling { rule: rules.rule(place), place, class: Some(class), is_unread: key.is_unread() }
    }

    /// The slot of a full set that a miss puts its packet in, if it is one of those that do.
    fn taken_over(&mut self) -> Option<usize> {
        self.dice = self.dice.wrapping_mul(GOLDEN).wrapping_add(PI | 1);
        let thrown = self.dice >> 32;
        (thrown.is_multiple_of(TAKE_OVER)).then_some((thrown / TAKE_OVER) as usize & 1)
    }

    #[inline]
    fn set_of(&self, key: &Key, hints: &Values) -> usize {
        let is_of_flow = hints.rx_hash_type & RSS_L4 != 0 && hints.has(Hint::RxHash);
        let hash = if is_of_flow { told(key, hints.rx_hash) } else { self.hash(key) };
        // The upper bits: of a device's hash the lower ones chose the queue, and are the same in all that comes by it.
        (hash >> (u64::BITS - SET_BITS)) as usize % SETS
    }

    /// Of a key, by three multiplications, two of them at a time.
    #[inline]
    fn hash(&self, key: &Key) -> u64 {
        let [a, b, c, d, e, f, g] = key.0;
        let [one, two] = self.secret;
        let inner = folded_product(a ^ one, b ^ two) ^ folded_product(c ^ two ^ GOLDEN, d ^ one ^ PI);
        let outer = if e | f | g == 0 {
            0
        } else {
            folded_product(e ^ one ^ PI, f ^ two) ^ folded_product(g ^ two ^ PI, one)
        };
        folded_product(inner ^ outer.rotate_left(32) ^ one, GOLDEN ^ two)
    }
}

impl Slot {
    /// All at once: packets that share a set are rare, and so are branches not taken.
    #[inline]
    fn has(&self, key: &Key, stamp: u32) -> bool {
        let differing = self.key.0.iter().zip(&key.0).fold(0, |sum, (own, other)| sum | (own ^ other));
        differing | u64::from(self.stamp ^ stamp) == 0
    }
}

/// The device's hash, which knows neither the port nor the VLAN.
#[inline]
fn told(key: &Key, rx_hash: u32) -> u64 {
    let outer = u64::from(key.0[0] as u32);
    (u64::from(rx_hash) ^ outer << 32).wrapping_mul(GOLDEN)
}

#[cfg(test)]
mod tests;
