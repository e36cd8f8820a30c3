//! Learning where stations are.

use std::sync::atomic::Ordering::Relaxed;

use forebay_policy::{StationLimit, StationLimits};
use forebay_wire::mac::is_multicast;

use super::Fdb;
use super::slot::{Key, Value};
use super::table::Found;
use super::token::Held;

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

impl Fdb {
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
}
