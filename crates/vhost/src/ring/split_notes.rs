//! Notes of a split ring (vhost-user, `QueueRegionSplit`): the used index, and buffers in flight, of which we have none.

use std::sync::atomic::Ordering;

use crate::error::VhostError;
use crate::inflight::{ENTRIES, THIS_VERSION, VERSION};
use crate::memory::Area;

/// Offsets in a region.
const LAST_BATCH: usize = 12;
const USED_INDEX: usize = 14;
const FIRST: usize = 16;
/// Bytes of an entry, and offsets in it.
const ENTRY: usize = 16;
const IN_FLIGHT: usize = 0;
const NEXT: usize = 6;
const COUNTER: usize = 8;

/// Checks what the last back end left: buffers in flight are those behind the used index `used`, in their order.
/// `available` says which buffer is at a position.
pub(super) fn check(
    area: &Area,
    entries: u16,
    used: u16,
    available: impl Fn(u16) -> u16,
) -> Result<(), VhostError> {
    if area.load_u16(VERSION, Ordering::Acquire) != THIS_VERSION {
        return Ok(());
    }
    let at = |entry: u16, offset: usize| FIRST + ENTRY * usize::from(entry) + offset;
    let load = |entry: u16, offset: usize| area.load_u16(at(entry, offset), Ordering::Relaxed);
    // It died after it had shown these, and before it had noted that.
    let mut shown = Vec::new();
    let mut entry = area.load_u16(LAST_BATCH, Ordering::Relaxed);
    for _ in 0..used.wrapping_sub(area.load_u16(USED_INDEX, Ordering::Relaxed)).min(entries) {
        if entry >= entries {
            break;
        }
        shown.push(entry);
        entry = load(entry, NEXT);
    }
    let is_in_flight = |entry: &u16| load(*entry, IN_FLIGHT) & 0xff == 1 && !shown.contains(entry);
    let mut buffers: Vec<(u64, u16)> =
        (0..entries).filter(is_in_flight).map(|entry| (area.load_u64(at(entry, COUNTER)), entry)).collect();
    buffers.sort_unstable();
    let mut positions = (0..).map(|ahead| used.wrapping_add(ahead));
    match buffers
        .iter()
        .all(|(_, head)| positions.next().is_some_and(|position| available(position) == *head))
    {
        true => Ok(()),
        false => Err(VhostError::BadNotes { what: "buffers that were used out of order" }),
    }
}

/// Begins notes without buffers in flight.
pub(super) fn begin(area: &Area, entries: u16, used: u16) {
    for entry in 0..entries {
        area.store_u16(FIRST + ENTRY * usize::from(entry) + IN_FLIGHT, 0, Ordering::Release);
    }
    area.store_u16(LAST_BATCH, 0, Ordering::Release);
    area.store_u16(ENTRIES, entries, Ordering::Release);
    settle(area, used);
    area.store_u16(VERSION, THIS_VERSION, Ordering::Release);
}

/// The guest was shown all up to this index.
#[inline]
pub(super) fn settle(area: &Area, used: u16) {
    area.store_u16(USED_INDEX, used, Ordering::Release);
}
