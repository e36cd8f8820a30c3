//! The limit on flooding: one broadcast at a thousand ports is a thousand transmissions.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_policy::TokenBucket;

use crate::worker::Channel;

/// The setting, as workers see it. A channel makes its bucket anew when the generation has moved on.
#[derive(Debug)]
pub(crate) struct FloodLimit {
    generation: AtomicU64,
    copies_per_second: AtomicU64,
    burst_copies: AtomicU64,
}

impl FloodLimit {
    pub(crate) fn new(copies_per_second: u64, burst_copies: u64) -> Self {
        Self {
            generation: 1.into(),
            copies_per_second: copies_per_second.into(),
            burst_copies: burst_copies.into(),
        }
    }

    /// Changes the limit under traffic.
    pub(crate) fn set(&self, copies_per_second: u64, burst_copies: u64) {
        self.copies_per_second.store(copies_per_second, Ordering::Relaxed);
        self.burst_copies.store(burst_copies, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// A full bucket of today's size.
    pub(crate) fn bucket(&self) -> (TokenBucket, u64) {
        let generation = self.generation.load(Ordering::Acquire);
        let rate = self.copies_per_second.load(Ordering::Relaxed);
        (TokenBucket::new(rate, self.burst_copies.load(Ordering::Relaxed)), generation)
    }

    /// Gives `channel` a new bucket if the setting has changed; packet path.
    #[inline]
    pub(crate) fn refresh(&self, channel: &mut Channel) {
        if channel.flood_generation != self.generation.load(Ordering::Relaxed) {
            (channel.flood_bucket, channel.flood_generation) = self.bucket();
        }
    }
}
