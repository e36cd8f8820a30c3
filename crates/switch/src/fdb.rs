//! The forwarding database: which port a station was last heard on.
//!
//! Every packet asks twice, from every worker at once: where is the destination, and is the source still where it
//! was? Both answers come without a lock and without a store: [`Fdb::lookup`] is wait-free, and [`Fdb::learn`] writes
//! only when something has changed, one compare-and-swap a second for a station that stays.
//!
//! The rule it keeps: whoever puts in, moves or takes out an entry holds the one *learn token*. A worker tries for
//! it and goes on without ([`Learned::Busy`]) when another has it, since the station's next packet learns as well;
//! only the control thread waits. Hence counts and limits are exact, and there is never a second entry for a key.
//!
//! ```text
//!            lookup, refresh: no token                learn, move, expire, flush, static: token
//!                   │                                                 │
//!  (vid, mac) ─► hash ─► bucket a ─┬─ keys   k k k k k k k k          8 slots a bucket, a key in one of two buckets
//!                    └─► bucket b ─┴─ values v v v v v v v v          port, static, version, last seen
//! ```
//!
//! Memory: 32 bytes for each entry of the capacity, and 256 KiB for the counts of 65,536 ports. All of it is there
//! when the table is; nothing allocates afterwards. Keys and values may lie in a map that outlives the daemon: a killed
//! daemon leaves each slot as before a change or after it.

mod census;
mod entry;
mod hash;
mod learn;
mod slot;
#[cfg(test)]
mod stress;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use forebay_kernel::{DatapathError, Generations, StationMemory};
use forebay_wire::mac::is_multicast;

pub(crate) use entry::{Entry, Flush, left_entries};
pub(crate) use hash::{GOLDEN, PI, folded_product};
pub(crate) use learn::Learned;

use census::Census;
use slot::{Key, Value};
use table::{Found, Slots as _, Table};
use token::{Held, Token};

/// How many entries there may be and how long a learned one lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Nothing is learned once this many entries exist, static ones included. Static entries may go beyond, so that
    /// a MAC flood cannot keep an operator from adding one: up to this many are static.
    pub(crate) total: u32,
    /// Learned entries of one port.
    pub(crate) per_port: u32,
    /// A learned entry is forgotten when its station was silent for this many seconds. 0 makes the switch a hub.
    pub(crate) ageing_s: u32,
}

/// Why a request about the table was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FdbError {
    /// Ask for fewer, or make a new table.
    #[error("an FDB of {asked} entries does not fit a table made for {capacity}")]
    OverCapacity {
        /// The limit asked for.
        asked: u32,
        /// Entries the table was made for.
        capacity: u32,
    },
    /// Remove some, or raise the limit.
    #[error("there are {limit} static entries already, which is the limit")]
    TooManyStatic {
        /// Static entries there may be.
        limit: u32,
    },
    /// Remove an entry; the table is close to full, or the hash unlucky.
    #[error("both buckets that {mac:#014x} in VLAN {vid} could lie in are full")]
    NoRoom {
        /// The VLAN.
        vid: u16,
        /// The station.
        mac: u64,
    },
    /// A group address belongs to no port.
    #[error("{mac:#014x} is a group address, which no one port has")]
    Multicast {
        /// The address.
        mac: u64,
    },
}

/// The table. Shared by all threads; see the module's documentation for who may call what when.
#[derive(Debug)]
pub(crate) struct Fdb {
    table: Table,
    token: Token,
    census: Census,
    capacity: u32,
    total: AtomicU32,
    per_port: AtomicU32,
    ageing_s: AtomicU32,
    /// Bucket that the next [`Fdb::expire`] begins with.
    sweep: AtomicUsize,
    /// Who must know when a station moves or goes.
    generations: Option<Arc<Generations>>,
}

impl Fdb {
    /// Buckets of memory that [`Fdb::new`] wants for these limits.
    pub(crate) fn buckets_for(limits: Limits) -> usize {
        table::buckets_for(limits.total)
    }

    /// An empty table whose capacity is `limits.total`, in memory of [`Fdb::buckets_for`] that is all zero. The seed must be
    /// random and secret: who knows it can make stations that share a bucket.
    pub(crate) fn new(memory: StationMemory, limits: Limits, seed: [u64; 2]) -> Self {
        Fdb {
            table: Table::new(memory, seed),
            token: Token::default(),
            census: Census::default(),
            capacity: limits.total,
            total: limits.total.into(),
            per_port: limits.per_port.into(),
            ageing_s: limits.ageing_s.into(),
            sweep: 0.into(),
            generations: None,
        }
    }

    /// The same table, which tells `generations` of each station that moves or goes, once it has.
    pub(crate) fn telling(self, generations: Arc<Generations>) -> Self {
        Self { generations: Some(generations), ..self }
    }

    /// The port that a station is behind, if the table knows. Wait-free; may be called on the packet path.
    ///
    /// `vid` is taken modulo 4096 and `mac` modulo 2^48. While the entry is being put in, moved or taken out the answer
    /// is that of before or after.
    #[inline]
    pub(crate) fn lookup(&self, vid: u16, mac: u64, now_s: u32) -> Option<u16> {
        let Found { value, .. } = self.table.get(Key::new(vid, mac))?;
        (!self.has_expired(value, now_s)).then_some(value.port())
    }

    /// Puts in a static entry, in place of whatever the station had: that is returned. Waits for the token: control
    /// thread only.
    pub(crate) fn add_static(
        &self,
        vid: u16,
        mac: u64,
        port: u16,
        now_s: u32,
    ) -> Result<Option<Entry>, FdbError> {
        if is_multicast(mac) {
            return Err(FdbError::Multicast { mac });
        }
        let (key, value) = (Key::new(vid, mac), Value::fixed(port, now_s));
        let held = self.token.hold();
        let before = self.table.get(key);
        let limit = self.total.load(Relaxed);
        if !before.is_some_and(|b| b.value.is_static()) && self.census.statics() >= limit {
            return Err(FdbError::TooManyStatic { limit });
        }
        match before {
            Some(found) => self.change(&held, key, found, value),
            None if self.insert(&held, key, value) => {}
            None => return Err(FdbError::NoRoom { vid, mac }),
        }
        Ok(before.map(|found| Entry::of(key, found.value)))
    }

    /// Takes out a station's entry, static or learned, and returns it. Waits for the token: control thread only.
    pub(crate) fn remove(&self, vid: u16, mac: u64) -> Option<Entry> {
        let key = Key::new(vid, mac);
        let held = self.token.hold();
        let found = self.table.get(key)?;
        found.erase(&held);
        self.census.remove(&held, found.value);
        self.tell(key);
        Some(Entry::of(key, found.value))
    }

    /// All entries, expired ones included, bucket by bucket, each as it is when its turn comes. Takes no token.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.table
            .buckets()
            .iter()
            .flat_map(|bucket| bucket.found())
            .map(|(key, found)| Entry::of(key, found.value))
    }

    /// A daemon that comes after this one finds the table as it is now and will be.
    pub(crate) fn publish(&self) -> Result<(), DatapathError> {
        self.table.memory().publish()
    }

    /// Entries in the table, expired ones included that no sweep has met yet.
    pub(crate) fn len(&self) -> u32 {
        self.census.learned() + self.census.statics()
    }

    /// Changes the limits. Entries beyond lowered ones stay until they age; a total above that of [`Fdb::new`] is
    /// refused, and nothing changed.
    pub(crate) fn set_limits(&self, limits: Limits) -> Result<(), FdbError> {
        if limits.total > self.capacity {
            return Err(FdbError::OverCapacity { asked: limits.total, capacity: self.capacity });
        }
        self.total.store(limits.total, Relaxed);
        self.per_port.store(limits.per_port, Relaxed);
        self.ageing_s.store(limits.ageing_s, Relaxed);
        Ok(())
    }

    #[inline]
    fn has_expired(&self, value: Value, now_s: u32) -> bool {
        !value.is_static() && is_over(value.seen_s(), now_s, self.ageing_s.load(Relaxed))
    }

    fn tell(&self, key: Key) {
        if let Some(generations) = &self.generations {
            generations.station_changed(key.vid(), key.mac());
        }
    }

    fn insert(&self, held: &Held<'_>, key: Key, value: Value) -> bool {
        let done = self.table.insert(held, key, value);
        // Nobody need be told: a flow relies on stations that are in the table.
        if done {
            self.census.add(held, value);
        }
        done
    }

    fn change(&self, held: &Held<'_>, key: Key, found: Found<'_>, value: Value) {
        found.overwrite(held, value);
        self.census.remove(held, found.value);
        self.census.add(held, value);
        self.tell(key);
    }
}

/// A `now_s` before the station was heard (clocks of two threads may disagree by one) is no silence at all.
#[inline]
const fn is_over(seen_s: u32, now_s: u32, ageing_s: u32) -> bool {
    now_s.saturating_sub(seen_s) >= ageing_s
}

/// A table in memory of the test's own.
#[cfg(test)]
pub(crate) fn fdb_of(limits: Limits, seed: [u64; 2]) -> Fdb {
    let memory = StationMemory::own(Fdb::buckets_for(limits)).expect("a test has memory");
    Fdb::new(memory, limits, seed)
}
