//! Memory for the table of stations, which outlives the daemon. Unsafe code.
//!
//! No program reads it. It is a map all the same, because a map can be pinned: a daemon that is killed leaves the
//! stations as they were at that moment, and nobody has to save them. The daemon's own memory serves where nothing is to
//! outlive it.
//!
//! The rule it keeps: what an earlier daemon left is read, never written. The next daemon fills a map of its own, which takes
//! the other one's name in one step, so that a kill at any time leaves one whole table or the other.
//!
//! ```text
//!   bucket 0: format, second in which the table's clock began     buckets 1…: keys k k k k k k k k
//!                                                                             values v v v v v v v v
//! ```
#![allow(unsafe_code, reason = "promises that its values may be mapped")]

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use libbpf_rs::{MapCore as _, MapHandle, MapType};

use crate::DatapathError;
use crate::mapped::{Mapped, Shared};
use crate::pins::{Pins, STATIONS};

/// Counts up when keys or values mean something else than before; in front of it are letters, to tell it from anything.
const FORMAT: u64 = u64::from_be_bytes(*b"station\x01");
/// Where a map is pinned until it is filled.
const NEXT: &str = "stations_next";
/// Buckets before the first.
const HEAD: usize = 1;
/// Where in the head's keys is what.
const HEAD_FORMAT: usize = 0;
const HEAD_BEGAN: usize = 1;
/// Most buckets that are read: 64 MiB of memory, thirty times what a table of the default size has.
const MOST_BUCKETS: u32 = 1 << 19;

/// Keys and values of eight slots; keys fill one cache line, values another.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct StationBucket {
    /// Which station; 0: none.
    pub keys: [AtomicU64; 8],
    /// What is known of it.
    pub values: [AtomicU64; 8],
}

// SAFETY: integers only, all of them atomics.
unsafe impl Shared for StationBucket {}

/// The memory of one table.
#[derive(Debug)]
pub struct StationMemory {
    mapped: Mapped<StationBucket>,
    /// Of a map that is pinned; it has its name once it is filled.
    pins: Option<Pins>,
}

impl StationMemory {
    /// Memory of the process alone, all zero.
    ///
    /// # Errors
    /// There is none.
    pub fn own(buckets: usize) -> Result<Self, DatapathError> {
        Ok(Self { mapped: Mapped::anonymous(HEAD + buckets)?, pins: None })
    }

    /// A new map, all zero. The table's clock began in second `began_s` of the machine's.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn pinned(pins: &Pins, buckets: usize, began_s: u64) -> Result<Self, DatapathError> {
        let count = HEAD + buckets;
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let [key, value] = [size_of::<u32>(), size_of::<StationBucket>()].map(|bytes| bytes as u32);
        let map = MapHandle::create(MapType::Array, Some(STATIONS), key, value, count as u32, &options)
            .map_err(DatapathError::bpf("make the table of stations"))?;
        let mapped = Mapped::map(map.as_fd(), count, "map the table of stations")?;
        let head: &StationBucket = mapped.get(0);
        head.keys[HEAD_BEGAN].store(began_s, Relaxed);
        head.keys[HEAD_FORMAT].store(FORMAT, Relaxed);
        pins.put(NEXT, map.as_fd().as_raw_fd())?;
        Ok(Self { mapped, pins: Some(pins.clone()) })
    }

    /// The table is filled: a daemon that comes after this one finds it, in the place of the one before.
    ///
    /// # Errors
    /// The pin could not be moved; the earlier table stays.
    pub fn publish(&self) -> Result<(), DatapathError> {
        let Some(pins) = &self.pins else { return Ok(()) };
        let failed = |source| DatapathError::System { what: "pin the table of stations", source };
        pins.rename(NEXT, STATIONS).map_err(failed)
    }

    /// The table's buckets; may be called on the packet path.
    #[inline]
    pub fn buckets(&self) -> &[StationBucket] {
        &self.mapped.all()[HEAD..]
    }
}

/// What an earlier daemon left.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LeftStations {
    /// The second of the machine's clock in which the table's clock began.
    pub began_s: u64,
    /// Key and value of each slot that has a key.
    pub slots: Vec<(u64, u64)>,
}

/// Why there is something, and it cannot be taken up.
#[derive(Debug, thiserror::Error)]
pub enum LeftStationsError {
    /// Another version wrote it, or somebody else.
    #[error("the pinned table of stations has a format of another version")]
    Format,
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] DatapathError),
}

impl LeftStations {
    /// Reads what is pinned; nothing where there is nothing.
    ///
    /// # Errors
    /// It cannot be read, or is no such table.
    pub fn read(pins: &Pins) -> Result<Option<Self>, LeftStationsError> {
        if pins.get(STATIONS).is_none() {
            return Ok(None);
        }
        let map = MapHandle::from_pinned_path(pins.path(STATIONS))
            .map_err(DatapathError::bpf("open the pinned table of stations"))?;
        let is_table = map.map_type() == MapType::Array
            && map.value_size() as usize == size_of::<StationBucket>()
            && (1..=MOST_BUCKETS).contains(&map.max_entries());
        if !is_table {
            return Err(LeftStationsError::Format);
        }
        let mapped: Mapped<StationBucket> =
            Mapped::map(map.as_fd(), map.max_entries() as usize, "map the pinned table of stations")?;
        let (head, buckets) = mapped.all().split_at(HEAD);
        if head[0].keys[HEAD_FORMAT].load(Acquire) != FORMAT {
            return Err(LeftStationsError::Format);
        }
        let slots = buckets.iter().flat_map(|bucket| bucket.keys.iter().zip(&bucket.values));
        let slots = slots.map(|(key, value)| (key.load(Acquire), value.load(Acquire)));
        let began_s = head[0].keys[HEAD_BEGAN].load(Relaxed);
        Ok(Some(Self { began_s, slots: slots.filter(|(key, _)| *key != 0).collect() }))
    }
}
