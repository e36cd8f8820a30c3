//! The limit on flooding: one broadcast at a thousand ports is a thousand transmissions.
//!
//! Every port has a bucket of copies, and so has every worker: many ports that flood at once leave the worker time for
//! known destinations.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_policy::{Nanos, TokenBucket};

/// A worker may flood as much as this many ports.
const PORTS_PER_WORKER: u64 = 4;

/// The setting, as workers see it. A bucket is made anew when the generation has moved on.
#[derive(Debug)]
pub(crate) struct FloodLimit {
    generation: AtomicU64,
    copies_per_second: AtomicU64,
    burst_copies: AtomicU64,
}

/// A bucket, and the setting it was made from.
#[derive(Debug)]
pub(crate) struct FloodBucket {
    tokens: TokenBucket,
    ports: u64,
    generation: u64,
}

impl FloodBucket {
    /// Takes `copies` tokens if there are as many; packet path.
    #[inline]
    pub(crate) fn take(&mut self, now: Nanos, copies: u64) -> bool {
        self.tokens.take(now, copies)
    }
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

    /// A full bucket for one port.
    pub(crate) fn port_bucket(&self) -> FloodBucket {
        self.bucket(1)
    }

    /// A full bucket for one worker.
    pub(crate) fn worker_bucket(&self) -> FloodBucket {
        self.bucket(PORTS_PER_WORKER)
    }

    fn bucket(&self, ports: u64) -> FloodBucket {
        let generation = self.generation.load(Ordering::Acquire);
        let rate = self.copies_per_second.load(Ordering::Relaxed).saturating_mul(ports);
        let burst = self.burst_copies.load(Ordering::Relaxed).saturating_mul(ports);
        FloodBucket { tokens: TokenBucket::new(rate, burst), ports, generation }
    }

    /// Makes `bucket` anew if the setting has changed; packet path.
    #[inline]
    pub(crate) fn refresh(&self, bucket: &mut FloodBucket) {
        if bucket.generation != self.generation.load(Ordering::Relaxed) {
            *bucket = self.bucket(bucket.ports);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_floods_as_much_as_four_ports() {
        let limit = FloodLimit::new(1000, 10);
        let (mut port, mut worker) = (limit.port_bucket(), limit.worker_bucket());
        assert!(port.take(Nanos(0), 10) && !port.take(Nanos(0), 1));
        assert!(worker.take(Nanos(0), 40) && !worker.take(Nanos(0), 1));
    }

    #[test]
    fn a_changed_limit_holds_from_the_next_packet_on() {
        let limit = FloodLimit::new(1000, 10);
        let mut port = limit.port_bucket();
        limit.set(1000, 20);
        limit.refresh(&mut port);
        assert!(port.take(Nanos(0), 20) && !port.take(Nanos(0), 1));
    }

    #[test]
    fn no_limit_is_no_limit() {
        let mut port = FloodLimit::new(0, 0).port_bucket();
        assert!(port.take(Nanos(0), u64::MAX));
    }
}
