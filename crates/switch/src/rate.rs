//! A limit that the control side sets, and buckets on the packet path that follow it.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_policy::{Nanos, TokenBucket};

/// The setting, as workers see it. A bucket is made anew when the revision has moved on.
#[derive(Debug)]
pub(crate) struct Rate {
    revision: AtomicU64,
    per_second: AtomicU64,
    burst: AtomicU64,
}

/// A bucket, and the setting it was made from.
#[derive(Debug)]
pub(crate) struct RatedBucket {
    tokens: TokenBucket,
    revision: u64,
}

impl Rate {
    /// 0 tokens a second: no limit.
    pub(crate) fn new(per_second: u64, burst: u64) -> Self {
        Self { revision: 1.into(), per_second: per_second.into(), burst: burst.into() }
    }

    /// Changes the limit under traffic.
    pub(crate) fn set(&self, per_second: u64, burst: u64) {
        self.per_second.store(per_second, Ordering::Relaxed);
        self.burst.store(burst, Ordering::Relaxed);
        self.revision.fetch_add(1, Ordering::Release);
    }

    /// A full bucket.
    pub(crate) fn bucket(&self) -> RatedBucket {
        let revision = self.revision();
        let (per_second, burst) = self.get();
        RatedBucket { tokens: TokenBucket::new(per_second, burst), revision }
    }

    /// Takes `tokens` from a bucket of this rate, if there are as many; packet path.
    #[inline]
    pub(crate) fn take(&self, bucket: &mut RatedBucket, now: Nanos, tokens: u64) -> bool {
        if bucket.revision != self.revision() {
            *bucket = self.bucket();
        }
        bucket.tokens.take(now, tokens)
    }

    /// Changes with the setting.
    #[inline]
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Tokens a second, and in a full bucket.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.per_second.load(Ordering::Relaxed), self.burst.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_limit_holds_from_the_next_packet_on() {
        let rate = Rate::new(1000, 10);
        let mut bucket = rate.bucket();
        rate.set(1000, 20);
        assert!(rate.take(&mut bucket, Nanos(0), 20) && !rate.take(&mut bucket, Nanos(0), 1));
    }

    #[test]
    fn no_limit_is_no_limit() {
        let rate = Rate::new(0, 0);
        assert!(rate.take(&mut rate.bucket(), Nanos(0), u64::MAX));
    }
}
