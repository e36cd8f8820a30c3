//! Taking out many entries, bucket by bucket.

use std::sync::atomic::Ordering::Relaxed;

use super::slot::Key;
use super::table::{self, Bucket, Found, Slots as _};
use super::token::Held;
use super::{Entry, Fdb, Flush, is_over};

impl Fdb {
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
}
