//! The limit on flooding: one broadcast at a thousand ports is a thousand transmissions.
//!
//! Every port has a bucket of copies. A worker floods as much as four ports may, so that many ports that flood at once
//! leave it time for known destinations; and of that each port has a part of its own.

use forebay_policy::{Nanos, Part, SharedRate};

use crate::rate::{Rate, RatedBucket};

/// A worker may flood as much as this many ports.
const PORTS_PER_WORKER: u64 = 4;

/// One port's, at one worker.
#[derive(Debug)]
pub(crate) struct PortFlood {
    bucket: RatedBucket,
    part: Part,
}

/// One worker's, and the setting it was made from.
#[derive(Debug)]
pub(crate) struct WorkerFlood {
    rate: SharedRate,
    revision: u64,
}

impl PortFlood {
    /// Of a port that has been quiet.
    pub(crate) fn new(rate: &Rate) -> Self {
        Self { bucket: rate.bucket(), part: Part::default() }
    }
}

impl WorkerFlood {
    /// Of a worker that has not flooded yet.
    pub(crate) fn new(rate: &Rate) -> Self {
        let revision = rate.revision();
        let (per_second, burst) = rate.get();
        let ports = |one: u64| one.saturating_mul(PORTS_PER_WORKER);
        Self { rate: SharedRate::new(ports(per_second), ports(burst)), revision }
    }

    /// Takes `copies` tokens of a port and of the worker if there are as many; packet path.
    #[inline]
    pub(crate) fn take(&mut self, rate: &Rate, port: &mut PortFlood, now: Nanos, copies: u64) -> bool {
        if self.revision != rate.revision() {
            *self = Self::new(rate);
        }
        rate.take(&mut port.bucket, now, copies) && self.rate.take(&mut port.part, now, copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What eight ports get at once that want ten copies each, of buckets that hold as many.
    #[test]
    fn a_worker_floods_as_much_as_four_ports_and_a_packet_of_each() {
        let rate = Rate::new(1000, 10);
        let mut worker = WorkerFlood::new(&rate);
        let mut ports: Vec<PortFlood> = (0..8).map(|_| PortFlood::new(&rate)).collect();
        let mut passed = [0; 8];
        for _ in 0..100 {
            for (port, passed) in ports.iter_mut().zip(&mut passed) {
                *passed += u32::from(worker.take(&rate, port, Nanos(0), 1));
            }
        }
        let sum: u32 = passed.iter().sum();
        // Forty in the worker's bucket; of the parts, 200 ms worth of half of 4000 copies a second at most.
        assert!((40..=80).contains(&sum), "{passed:?}");
        assert!(passed.iter().all(|passed| *passed > 0), "{passed:?}");
    }

    #[test]
    fn five_ports_that_flood_leave_a_quiet_one_its_broadcasts() {
        let rate = Rate::new(1000, 100);
        let mut worker = WorkerFlood::new(&rate);
        let mut ports: Vec<PortFlood> = (0..5).map(|_| PortFlood::new(&rate)).collect();
        let mut quiet = PortFlood::new(&rate);
        let mut lost = 0;
        for ms in 0..5000u64 {
            let now = Nanos(ms * 1_000_000);
            for port in &mut ports {
                while worker.take(&rate, port, now, 6) {}
            }
            if ms % 100 == 99 {
                lost += u32::from(!worker.take(&rate, &mut quiet, now, 6));
            }
        }
        assert_eq!(lost, 0);
    }
}
