//! Rings that break the rules, each in one way: the error says which.

use super::*;
use crate::driver::GUEST_START;
use crate::ring::{MAX_CHAIN, MAX_PACKET_BYTES};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;

/// A descriptor: address, length, flags, and next or id.
type Entry = (u64, u32, u16, u16);

fn bytes_of(entry: Entry, is_packed: bool) -> [u8; 16] {
    let (address, len, flags, other) = entry;
    let (third, fourth) = if is_packed { (other, flags) } else { (flags, other) };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&third.to_le_bytes());
    bytes[14..].copy_from_slice(&fourth.to_le_bytes());
    bytes
}

/// A ring of eight with these descriptors from the first on, of which the first is available.
fn ring_of(features: Features, entries: &[Entry], table: &[Entry]) -> (Driver, Virtqueue) {
    let is_packed = features.has(Features::RING_PACKED);
    let driver = driver(features, 8);
    let write = |at: u64, bytes: &[u8]| assert!(driver.memory().write(at, bytes));
    for (index, entry) in entries.iter().enumerate() {
        let mut entry = *entry;
        entry.2 |= if is_packed { AVAIL } else { 0 };
        write(GUEST_START + 16 * index as u64, &bytes_of(entry, is_packed));
    }
    for (index, entry) in table.iter().enumerate() {
        write(driver.buffer_of(0) + 16 * index as u64, &bytes_of(*entry, is_packed));
    }
    if !is_packed {
        // The available ring: flags 0, index 1, entry 0.
        write(driver.layout_of_driver(), &[0, 0, 1, 0, 0, 0]);
    }
    let queue = driver.device(1).expect("the driver's ring");
    (driver, queue)
}

/// What a transmit queue says to these descriptors.
fn error_of(features: Features, entries: &[Entry], table: &[Entry]) -> RingError {
    let (_driver, mut queue) = ring_of(features, entries, table);
    let error = queue.offered().expect_err("the ring is malformed");
    assert_eq!(queue.offered(), Err(error), "and stays so");
    error
}

fn both() -> [Features; 2] {
    [BASIC, BASIC.with(Features::RING_PACKED)]
}

/// Somewhere in memory.
const HERE: u64 = GUEST_START + 4096;

#[test]
fn a_loop_is_recognised() {
    let entries = [(HERE, 1, NEXT, 1), (HERE, 1, NEXT, 0)];
    assert_eq!(error_of(BASIC, &entries, &[]), RingError::ChainTooLong { limit: 8 });
    let entries = [(HERE, 1, NEXT, 0); 8];
    assert_eq!(
        error_of(BASIC.with(Features::RING_PACKED), &entries, &[]),
        RingError::ChainTooLong { limit: 8 }
    );
}

#[test]
fn a_descriptor_outside_the_table_is_refused() {
    let error = error_of(BASIC, &[(HERE, 1, NEXT, 8)], &[]);
    assert_eq!(error, RingError::DescriptorOutside { index: 8, size: 8 });
}

#[test]
fn a_buffer_outside_the_memory_is_refused() {
    for features in both() {
        for (address, len) in [(0, 64), (u64::MAX, 64), (GUEST_START - 1, 64), (HERE, 65_000)] {
            let error = error_of(features, &[(address, len, 0, 0)], &[]);
            assert_eq!(error, RingError::Unmapped { address, len });
        }
    }
}

#[test]
fn lengths_that_overflow_are_refused() {
    for features in both() {
        let error = error_of(features, &[(HERE, 10, NEXT, 1), (HERE, u32::MAX, 0, 0)], &[]);
        assert_eq!(error, RingError::TooLong { limit: MAX_PACKET_BYTES });
    }
}

#[test]
fn a_buffer_of_the_wrong_direction_is_refused() {
    for features in both() {
        let error = error_of(features, &[(HERE, 64, WRITE, 0)], &[]);
        assert_eq!(error, RingError::WrongDirection { writable: true });
        let (_driver, mut queue) = ring_of(features, &[(HERE, 64, 0, 0)], &[]);
        let error = queue.put(NetHeader::default(), [&b"x"[..]], 1);
        assert_eq!(error, Err(RingError::WrongDirection { writable: false }));
    }
}

#[test]
fn a_chain_too_short_for_its_header_is_refused() {
    for features in both() {
        let error = error_of(features, &[(HERE, 11, 0, 0)], &[]);
        assert_eq!(error, RingError::TooShort { len: 11, needed: 12 });
    }
}

#[test]
fn an_indirect_table_has_its_rules() {
    for features in both() {
        let (sample, _) = ring_of(features, &[], &[]);
        let table = sample.buffer_of(0);
        let plain = features.without(Features::INDIRECT_DESC);
        let one = [(table, 16, INDIRECT, 0)];
        let entry = [(HERE, 64, 0, 0)];
        assert_eq!(error_of(plain, &one, &entry), RingError::IndirectNotAllowed);
        assert_eq!(error_of(features, &one, &[(HERE, 64, INDIRECT, 0)]), RingError::IndirectNotAllowed);
        let chained = [(table, 16, INDIRECT | NEXT, 1), (HERE, 1, 0, 0)];
        assert_eq!(error_of(features, &chained, &entry), RingError::IndirectNotAllowed);
        let behind = [(HERE, 1, NEXT, 1), (table, 16, INDIRECT, 0)];
        assert_eq!(error_of(features, &behind, &entry), RingError::IndirectNotAllowed);
        for len in [0, 15, 17] {
            let error = error_of(features, &[(table, len, INDIRECT, 0)], &entry);
            assert_eq!(error, RingError::IndirectLength { len });
        }
        let nowhere = error_of(features, &[(u64::MAX - 7, 16, INDIRECT, 0)], &entry);
        assert_eq!(nowhere, RingError::Unmapped { address: u64::MAX - 7, len: 16 });
    }
}

#[test]
fn an_indirect_table_may_not_loop_nor_lead_outside() {
    let (sample, _) = ring_of(BASIC, &[], &[]);
    let table = sample.buffer_of(0);
    let error = error_of(BASIC, &[(table, 32, INDIRECT, 0)], &[(HERE, 1, NEXT, 1), (HERE, 1, NEXT, 0)]);
    assert_eq!(error, RingError::ChainTooLong { limit: 2 });
    let error = error_of(BASIC, &[(table, 32, INDIRECT, 0)], &[(HERE, 1, NEXT, 2)]);
    assert_eq!(error, RingError::DescriptorOutside { index: 2, size: 2 });
}

#[test]
fn a_long_table_is_read_only_so_far() {
    for features in both() {
        let (sample, _) = ring_of(features, &[], &[]);
        let len = 16 * (MAX_CHAIN + 1);
        // Zeros: an entry of a split table ends it, those of a packed one all count.
        let entries: Vec<Entry> = (0..=MAX_CHAIN)
            .map(|index| (HERE, 1, if features == BASIC { NEXT } else { 0 }, index as u16 + 1))
            .collect();
        let entries = if features == BASIC { entries } else { vec![(HERE, 1, 0, 0); MAX_CHAIN as usize + 1] };
        let error = error_of(features, &[(sample.buffer_of(0), len, INDIRECT, 0)], &entries);
        assert_eq!(error, RingError::ChainTooLong { limit: MAX_CHAIN });
    }
}

#[test]
fn more_available_buffers_than_entries_are_refused() {
    let driver = driver(BASIC, 8);
    let mut queue = driver.device(1).expect("the driver's ring");
    driver.memory().write(driver.layout_of_driver(), &[0, 0, 9, 0]);
    assert_eq!(queue.offered(), Err(RingError::TooManyAvailable { ahead: 9, size: 8 }));
}

#[test]
fn an_impossible_ring_is_refused() {
    let driver = driver(BASIC, 8);
    let open = |features: Features, place: RingPlace| {
        Virtqueue::new(Arc::clone(driver.memory()), features, place, Bells::default())
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let place = driver.place(3);
    let cases = [
        (BASIC, RingPlace { size: 0, ..place }, "a ring of 0 entries"),
        (BASIC, RingPlace { size: 12, ..place }, "a ring of 12 entries"),
        (BASIC.with(Features::RING_PACKED), RingPlace { size: 32_769, ..place }, "a ring of 32769 entries"),
        (BASIC, RingPlace { descriptors: place.descriptors + 8, ..place }, "descriptors of queue 3"),
        (BASIC, RingPlace { driver: 0, ..place }, "driver's part of queue 3"),
        (BASIC, RingPlace { device: u64::MAX, ..place }, "device's part of queue 3"),
        (BASIC, RingPlace { base: 0x1_0000, ..place }, "base 0x10000"),
        (BASIC.with(Features::RING_PACKED), RingPlace { base: 8, ..place }, "base 0x8"),
    ];
    for (features, place, wanted) in cases {
        let error = open(features, place).expect_err(wanted);
        assert!(error.contains(wanted), "{error}");
    }
    assert!(open(BASIC.with(Features::RING_PACKED), RingPlace { size: 7, ..place }).is_ok());
}
