//! The limit on flooding: one broadcast at a thousand ports is a thousand transmissions.
//!
//! Every port has a bucket of copies, and so has every worker: many ports that flood at once leave the worker time for
//! known destinations.

use forebay_policy::{Nanos, TokenBucket};

use crate::rate::{Rate, RatedBucket};

/// A worker may flood as much as this many ports.
const PORTS_PER_WORKER: u64 = 4;

/// A worker's bucket, and the setting it was made from.
#[derive(Debug)]
pub(crate) struct WorkerFlood {
    tokens: TokenBucket,
    generation: u64,
}

impl WorkerFlood {
    /// A full bucket.
    pub(crate) fn new(rate: &Rate) -> Self {
        let generation = rate.generation();
        let (per_second, burst) = rate.get();
        let ports = |one: u64| one.saturating_mul(PORTS_PER_WORKER);
        Self { tokens: TokenBucket::new(ports(per_second), ports(burst)), generation }
    }

    /// Takes `copies` tokens of a port and of the worker if there are as many; packet path.
    #[inline]
    pub(crate) fn take(&mut self, rate: &Rate, port: &mut RatedBucket, now: Nanos, copies: u64) -> bool {
        if self.generation != rate.generation() {
            *self = Self::new(rate);
        }
        rate.take(port, now, copies) && self.tokens.take(now, copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_floods_as_much_as_four_ports() {
        let rate = Rate::new(1000, 10);
        let mut worker = WorkerFlood::new(&rate);
        let mut passed = 0;
        for mut port in (0..8).map(|_| rate.bucket()) {
            passed += u32::from(worker.take(&rate, &mut port, Nanos(0), 10));
            assert!(!worker.take(&rate, &mut port, Nanos(0), 1), "the port has no more");
        }
        assert_eq!(passed, 4);
    }
}
