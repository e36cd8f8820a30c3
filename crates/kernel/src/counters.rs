//! The kernel programs' counters, read through shared memory. Unsafe code.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::MapHandle;

use crate::DatapathError;
use crate::layout::COUNTER_WORDS;

/// What the kernel programs counted for one port, all since the port was added. Each only ever grows, and may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Entered the port, counted as packets on the wire (a GSO packet is as many as it will become).
    pub offered_packets: u64,
    /// Reached the collector's program.
    pub collected_packets: u64,
    /// Collected while no socket stood for the port.
    pub unclaimed_packets: u64,
    /// Could not be handed over by the port's program.
    pub refused_packets: u64,
    /// Not handed over because the port held its share of the pool.
    pub over_threshold_packets: u64,
    /// Not handed over because the ring had no room left.
    pub ring_full_packets: u64,
}

impl KernelCounters {
    /// What was counted since `earlier`; right across a wrap.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            offered_packets: self.offered_packets.wrapping_sub(earlier.offered_packets),
            collected_packets: self.collected_packets.wrapping_sub(earlier.collected_packets),
            unclaimed_packets: self.unclaimed_packets.wrapping_sub(earlier.unclaimed_packets),
            refused_packets: self.refused_packets.wrapping_sub(earlier.refused_packets),
            over_threshold_packets: self.over_threshold_packets.wrapping_sub(earlier.over_threshold_packets),
            ring_full_packets: self.ring_full_packets.wrapping_sub(earlier.ring_full_packets),
        }
    }
}

/// The counters of every port id, mapped for reading.
#[derive(Debug)]
pub(crate) struct CounterTable {
    words: NonNull<AtomicU64>,
    ports: u32,
    _map: MapHandle,
}

// SAFETY: the mapping is read through atomics only and not tied to a thread.
unsafe impl Send for CounterTable {}
// SAFETY: as above.
unsafe impl Sync for CounterTable {}

impl CounterTable {
    pub(crate) fn map(map: MapHandle, ports: u32) -> Result<Self, DatapathError> {
        // SAFETY: a shared mapping of the map's values at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes(ports),
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            let source = std::io::Error::last_os_error();
            return Err(DatapathError::System { what: "map the port counters", source });
        }
        let words = NonNull::new(address.cast()).expect("mmap never returns the null page unasked");
        Ok(Self { words, ports, _map: map })
    }

    /// The counters of `port_id`, each read once. Zero for an id the table does not have.
    pub(crate) fn read(&self, port_id: u16) -> KernelCounters {
        if u32::from(port_id) >= self.ports {
            return KernelCounters::default();
        }
        let first = usize::from(port_id) * COUNTER_WORDS;
        // SAFETY: the id was checked, so the word lies inside the mapping; the kernel keeps values 8-byte aligned.
        let word = |n: usize| unsafe { self.words.add(first + n).as_ref() }.load(Ordering::Acquire);
        // The later stage is read first, so that a packet in between is seen as on its way and never as too many.
        let (unclaimed_packets, collected_packets) = (word(2), word(1));
        KernelCounters {
            ring_full_packets: word(5),
            over_threshold_packets: word(4),
            refused_packets: word(3),
            unclaimed_packets,
            collected_packets,
            offered_packets: word(0),
        }
    }
}

impl Drop for CounterTable {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, unmapped once.
        unsafe { libc::munmap(self.words.as_ptr().cast(), bytes(self.ports)) };
    }
}

/// Values of an array map lie without gaps; the mapping is whole pages.
fn bytes(ports: u32) -> usize {
    (ports as usize * COUNTER_WORDS * size_of::<u64>()).next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_survives_the_wrap() {
        let earlier = KernelCounters { offered_packets: u64::MAX - 1, ..Default::default() };
        let later = KernelCounters { offered_packets: 3, ..Default::default() };
        assert_eq!(later.since(&earlier).offered_packets, 5);
    }
}
