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
//!                    └─► bucket b ─┴─ values v v v v v v v v          port, static, generation, last seen
//! ```
//!
//! Memory: 32 bytes for each entry of the capacity, and 256 KiB for the counts of 65,536 ports. All of it is there
//! when the table is; nothing allocates afterwards. Keys and values may lie in a map that outlives the daemon: a killed
//! daemon leaves each slot as before a change or after it.

mod census;
mod hash;
mod slot;
mod table;
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use forebay_kernel::{DatapathError, Generations, LeftStations, StationMemory};
use forebay_policy::{StationLimit, StationLimits};
use forebay_wire::mac::is_multicast;

pub(crate) use hash::{GOLDEN, PI, folded_product};

use census::Census;
use slot::{Key, Value};
use table::{Bucket, Found, Slots as _, Table};
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

/// What [`Fdb::learn`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Learned {
    /// Nothing to do: there, or static, on this port and seen within this second.
    Known,
    /// There, and its time was brought up to date.
    Refreshed,
    /// A new entry, or one that had expired on another port.
    New,
    /// The station was on port `from` and is here now.
    Moved {
        /// The port it was on.
        from: u16,
    },
    /// Not learned: the port has its limit of entries. A station that moves here stays where it was.
    LimitPort,
    /// Not learned: the port has as many entries as are free, and others need some too.
    LimitShare,
    /// Not learned: the table has its limit of entries.
    LimitTotal,
    /// Not learned: the caller lets no station move there now. It stays where it was.
    LimitMoves,
    /// Not learned: a static entry says another port.
    Static,
    /// Not learned now: another thread is changing the table.
    Busy,
    /// Not learned: both of the key's buckets are full. Below half load that takes bad luck beyond expectation.
    NoRoom,
    /// Never learned: a group has no place.
    Multicast,
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

/// An entry, as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    /// VLAN id.
    pub(crate) vid: u16,
    /// Station address, as [`forebay_wire::mac`] has it.
    pub(crate) mac: u64,
    /// The port it is behind.
    pub(crate) port: u16,
    /// Put in by request: neither moves nor ages.
    pub(crate) is_static: bool,
    /// When the station was last heard, in the caller's seconds; for a static entry, when it was put in.
    pub(crate) seen_s: u32,
}

/// Which entries [`Fdb::flush`] takes out: those that match all that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flush {
    /// Only this port's.
    pub(crate) port: Option<u16>,
    /// Only this VLAN's.
    pub(crate) vid: Option<u16>,
    /// Static entries too, as when a port is deleted.
    pub(crate) with_static: bool,
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

    /// As [`Fdb::learn_if`], whatever moves.
    pub(crate) fn learn(&self, vid: u16, mac: u64, port: u16, now_s: u32) -> Learned {
        self.learn_if(vid, mac, port, now_s, || true)
    }

    /// Notes that a packet from this station came in on `port`. If that takes the station from another port, `may_move`
    /// is asked. Never waits; may be called on the packet path.
    #[inline]
    pub(crate) fn learn_if(
        &self,
        vid: u16,
        mac: u64,
        port: u16,
        now_s: u32,
        may_move: impl FnOnce() -> bool,
    ) -> Learned {
        let key = Key::new(vid, mac);
        if let Some(found) = self.table.get(key)
            && let Some(learned) = self.learn_in_place(found, port, now_s)
        {
            return learned;
        }
        if is_multicast(mac) {
            return Learned::Multicast;
        }
        match self.token.try_hold() {
            Some(held) => self.learn_held(&held, key, port, now_s, may_move),
            None => Learned::Busy,
        }
    }

    /// Notes that packets from this station came in on `port`, if that is where the table has it.
    pub(crate) fn refresh(&self, vid: u16, mac: u64, port: u16, now_s: u32) {
        if let Some(found) = self.table.get(Key::new(vid, mac)).filter(|found| found.value.port() == port) {
            self.learn_in_place(found, port, now_s);
        }
    }

    /// All that can be done about a known station without the token; nothing if it has moved.
    #[inline]
    fn learn_in_place(&self, found: Found<'_>, port: u16, now_s: u32) -> Option<Learned> {
        let value = found.value;
        match (value.port() == port, value.is_static()) {
            (false, true) => Some(Learned::Static),
            (false, false) => None,
            (true, true) => Some(Learned::Known),
            (true, false) if value.seen_s() >= now_s => Some(Learned::Known),
            // When this fails another thread has just refreshed, moved or removed it: as good as not having tried.
            (true, false) if found.replace(value.seen_at(now_s)) => Some(Learned::Refreshed),
            (true, false) => Some(Learned::Busy),
        }
    }

    #[cold]
    fn learn_held(
        &self,
        held: &Held<'_>,
        key: Key,
        port: u16,
        now_s: u32,
        may_move: impl FnOnce() -> bool,
    ) -> Learned {
        match self.table.get(key) {
            Some(found) => self
                .learn_in_place(found, port, now_s)
                .unwrap_or_else(|| self.relocate(held, key, found, port, now_s, may_move)),
            None => self.learn_new(held, key, port, now_s),
        }
    }

    /// Whether one more station may be learned on `port`.
    fn admit(&self, port: u16) -> Result<(), Learned> {
        let limits = StationLimits { total: self.total.load(Relaxed), per_port: self.per_port.load(Relaxed) };
        limits.admit(self.census.learned_on(port), self.len()).map_err(|limit| match limit {
            StationLimit::Port => Learned::LimitPort,
            StationLimit::Share => Learned::LimitShare,
            StationLimit::Total => Learned::LimitTotal,
        })
    }

    fn relocate(
        &self,
        held: &Held<'_>,
        key: Key,
        found: Found<'_>,
        port: u16,
        now_s: u32,
        may_move: impl FnOnce() -> bool,
    ) -> Learned {
        // A move takes no entry. But ports that work together could take entries in turn and pile them up at others.
        if let Err(limit @ (Learned::LimitPort | Learned::LimitShare)) = self.admit(port) {
            return limit;
        }
        // Each move makes flows of others void, too: those whose stations share the slot.
        if !may_move() {
            return Learned::LimitMoves;
        }
        let from = found.value;
        self.change(held, key, found, from.on_port(port).seen_at(now_s));
        if self.has_expired(from, now_s) { Learned::New } else { Learned::Moved { from: from.port() } }
    }

    fn learn_new(&self, held: &Held<'_>, key: Key, port: u16, now_s: u32) -> Learned {
        if let Err(limit) = self.admit(port) {
            return limit;
        }
        if self.insert(held, key, Value::learned(port, now_s)) { Learned::New } else { Learned::NoRoom }
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

    /// Puts in what an earlier process had learned, unless the station was heard since: that counts. Waits for the token:
    /// control thread only.
    pub(crate) fn take_up(&self, vid: u16, mac: u64, port: u16, seen_s: u32) -> Learned {
        let key = Key::new(vid, mac);
        if is_multicast(mac) {
            return Learned::Multicast;
        }
        let held = self.token.hold();
        match self.table.get(key) {
            Some(_) => Learned::Known,
            None => self.learn_new(&held, key, port, seen_s),
        }
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

    /// Takes out all entries that match, and returns how many. Takes the token bucket by bucket, so that workers can
    /// learn meanwhile (what they learn behind the sweep stays). Control thread only.
    pub(crate) fn flush(&self, which: Flush) -> usize {
        let take = |held: &Held<'_>, found: Found<'_>| {
            found.erase(held);
            true
        };
        self.table.buckets().iter().map(|bucket| self.sweep_bucket(bucket, |e| which.matches(e), take)).sum()
    }

    /// Takes out learned entries whose station was silent for too long, looking at `max_slots` slots (rounded up to
    /// whole buckets of 8, at most the whole table) from where the last call ended. Returns how many. Control thread only.
    pub(crate) fn expire(&self, now_s: u32, max_slots: usize) -> usize {
        let buckets = self.table.buckets();
        let count = max_slots.div_ceil(table::WAYS).min(buckets.len());
        let start = self.sweep.load(Relaxed);
        self.sweep.store((start + count) % buckets.len(), Relaxed);
        let ageing_s = self.ageing_s.load(Relaxed);
        let expired = |e: Entry| !e.is_static && is_over(e.seen_s, now_s, ageing_s);
        let from_start = buckets[start..].iter().chain(&buckets[..start]).take(count);
        from_start.map(|bucket| self.sweep_bucket(bucket, expired, |held, f| f.erase_if_unheard(held))).sum()
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

    /// Erases with `erase` what is `wanted` of one bucket, and returns how many that were.
    fn sweep_bucket(
        &self,
        bucket: &Bucket,
        wanted: impl Fn(Entry) -> bool,
        erase: impl Fn(&Held<'_>, Found<'_>) -> bool,
    ) -> usize {
        let is_wanted = |(key, found): &(Key, Found<'_>)| wanted(Entry::of(*key, found.value));
        if !bucket.found().any(|item| is_wanted(&item)) {
            return 0;
        }
        let held = self.token.hold();
        let erased = bucket.found().filter(is_wanted).filter(|(_, found)| erase(&held, *found));
        let forget = |(key, found): (Key, Found<'_>)| {
            self.census.remove(&held, found.value);
            self.tell(key);
        };
        erased.map(forget).count()
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

/// The entries of a table that an earlier process left, in that table's seconds. A slot that was being changed is nobody's.
pub(crate) fn left_entries(left: &LeftStations) -> impl Iterator<Item = Entry> + '_ {
    let slots = left.slots.iter().map(|(key, value)| (Key(*key), Value(*value)));
    slots
        .filter(|(key, value)| key.is_station() && value.is_owned())
        .map(|(key, value)| Entry::of(key, value))
}

impl Entry {
    fn of(key: Key, value: Value) -> Self {
        let (port, is_static, seen_s) = (value.port(), value.is_static(), value.seen_s());
        Entry { vid: key.vid(), mac: key.mac(), port, is_static, seen_s }
    }
}

impl Flush {
    fn matches(&self, entry: Entry) -> bool {
        self.port.is_none_or(|port| port == entry.port)
            && self.vid.is_none_or(|vid| vid == entry.vid)
            && (self.with_static || !entry.is_static)
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

#[cfg(test)]
mod stress;
#[cfg(test)]
mod tests;
