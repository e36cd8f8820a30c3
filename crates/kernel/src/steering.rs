//! Which worker the packets of a port go to that has rings at all of them (bpf/steer.h).
//!
//! Workers write down where packets for a station leave: the packet path of one tells the kernel's program where the next
//! packet belongs. What they write is shared memory, and no system call. For stations that nobody has written about, each
//! port has a table of queues by a hash of both addresses.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::DatapathError;
use crate::flows::FlowKey;
use crate::hash::Secret;
use crate::mapped::Mapped;

/// `STEERED_STATIONS` and `STEERED_QUEUE`, bpf/forebay.h.
pub(crate) const STATIONS: usize = 4096;
const QUEUE: u64 = 0xffff;
const WRITTEN_SHIFT: u32 = 16;

/// A place of two stations that leave at different workers would change with each packet, and each change may let packets
/// overtake others. So it stays for so long.
const LEAST_STAY_MS: u64 = 1000;

/// Where packets for stations leave, as workers found.
#[derive(Debug)]
pub struct SteeredStations {
    places: Mapped<AtomicU64>,
    secret: Secret,
}

impl SteeredStations {
    pub(crate) fn new(places: Mapped<AtomicU64>, secret: Secret) -> Self {
        Self { places, secret }
    }

    /// In memory alone, where there is no kernel program.
    ///
    /// # Errors
    /// No memory.
    pub fn detached() -> Result<Self, DatapathError> {
        Ok(Self::new(Mapped::anonymous(STATIONS)?, Secret::seeded(1)))
    }

    /// Has packets for `dst` go to this worker, unless the place was written less than a second ago; packet path. `now_ms`
    /// is any clock that all workers have.
    #[inline]
    pub fn lead(&self, dst: u64, worker: usize, now_ms: u64) {
        let place = self.place(dst);
        let (found, queue) = (place.load(Relaxed), worker as u64 + 1);
        let is_free = found & QUEUE == 0 || now_ms.saturating_sub(found >> WRITTEN_SHIFT) >= LEAST_STAY_MS;
        if is_free && found & QUEUE != queue {
            place.store(now_ms << WRITTEN_SHIFT | queue, Relaxed);
        }
    }

    /// The worker that packets for `dst` go to.
    pub fn worker_of(&self, dst: u64) -> Option<usize> {
        (self.place(dst).load(Relaxed) & QUEUE).checked_sub(1).map(|worker| worker as usize)
    }

    fn place(&self, dst: u64) -> &AtomicU64 {
        let hash = self.secret.hash(FlowKey::new(0, None, 0, dst).0) >> 32;
        self.places.get(hash as usize % STATIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_is_led_to_the_last_worker_that_was_named_but_not_more_than_once_a_second() {
        let stations = SteeredStations::detached().expect("memory");
        assert_eq!(stations.worker_of(7), None);
        stations.lead(7, 0, 5000);
        assert_eq!(stations.worker_of(7), Some(0));
        stations.lead(7, 3, 5999);
        assert_eq!(stations.worker_of(7), Some(0), "it was written just now");
        stations.lead(7, 3, 6000);
        assert_eq!(stations.worker_of(7), Some(3));
    }

    #[test]
    fn stations_have_places_of_their_own() {
        let stations = SteeredStations::detached().expect("memory");
        (0..32).for_each(|station| stations.lead(station << 40 | 2, station as usize, 0));
        let kept = (0..32).filter(|station| stations.worker_of(station << 40 | 2) == Some(*station as usize));
        assert!(kept.count() >= 28, "a few of 32 may share one of 4096");
    }
}
