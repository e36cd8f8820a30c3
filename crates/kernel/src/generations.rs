//! Generations: numbers that grow when something changes that decisions relied upon.
//!
//! Who decides notes the sum of the generations it relied upon *before* it looks at the state; who changes the state
//! counts up *after*. The kernel programs add the same generations up: a flow whose sum is another is not followed. So a
//! change is obeyed from the next packet on, and nobody walks a table for it.
//!
//! An epoch grows after each change of any of them. While it stays the same, what a program found to hold still holds, and
//! it need not add up at each packet.
//!
//! Stations share slots, so that their number is no limit; that a slot is shared costs a decision more, never a wrong
//! one.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::DatapathError;
use crate::hash::Secret;
use crate::layout::STATIONS;
use crate::mapped::Mapped;

/// The switch's own, the stations' and the ports' generations, in memory that the kernel programs read.
#[derive(Debug)]
pub struct Generations {
    words: Mapped<AtomicU64>,
    secret: Secret,
}

/// Where they are, as bpf/forebay.h says; those of ports come behind those of stations.
const EPOCH: usize = 0;
const OF_SWITCH: usize = 1;
const OF_STATION: usize = 2;

/// Where a station's generation is; slot 0 is nobody's and never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StationSlot(pub(crate) u16);

impl Generations {
    pub(crate) fn map(map: BorrowedFd<'_>, port_slots: u32, secret: Secret) -> Result<Self, DatapathError> {
        Ok(Self::begin(Mapped::map(map, words(port_slots), "map the generations")?, secret))
    }

    /// Generations that no kernel program reads, for a data plane without a kernel. Stations have the same slots each time.
    ///
    /// # Errors
    /// There is no memory.
    pub fn detached(max_ports: u32) -> Result<Self, DatapathError> {
        Ok(Self::begin(Mapped::anonymous(words(max_ports))?, Secret::seeded(1)))
    }

    /// Begins an epoch: an earlier process may have been killed after a change and before it counted up.
    fn begin(words: Mapped<AtomicU64>, secret: Secret) -> Self {
        let generations = Self { words, secret };
        generations.changed();
        generations
    }

    /// The slot of a station; packet path.
    #[inline]
    pub fn station(&self, vid: u16, mac: u64) -> StationSlot {
        let station = mac | u64::from(vid) << 48;
        let hash = self.secret.hash([station, station, 0, 0]);
        StationSlot(1 + (((hash >> 32) * u64::from(STATIONS - 1)) >> 32) as u16)
    }

    /// The generation of a station's slot, to be read before its place is looked up; packet path.
    #[inline]
    pub fn of_station(&self, slot: StationSlot) -> u64 {
        self.words.get(OF_STATION + usize::from(slot.0)).load(Ordering::Acquire)
    }

    /// A station has come, moved or gone: flows that relied on its place are void. To be called after the change.
    pub fn station_changed(&self, vid: u16, mac: u64) {
        let slot = self.station(vid, mac);
        self.words.get(OF_STATION + usize::from(slot.0)).fetch_add(1, Ordering::AcqRel);
        self.changed();
    }

    /// The generation of a port.
    pub fn of_port(&self, port_id: u16) -> u64 {
        self.port(port_id).load(Ordering::Acquire)
    }

    /// Sets the generation of a port, which only grows; flows from and to it are void that were decided under another.
    pub fn set_port(&self, port_id: u16, generation: u64) {
        if self.port(port_id).swap(generation, Ordering::AcqRel) != generation {
            self.changed();
        }
    }

    /// The generation of the switch. It is odd while flows are followed at all.
    pub fn of_switch(&self) -> u64 {
        self.words.get(OF_SWITCH).load(Ordering::Acquire)
    }

    /// Sets the generation of the switch, which only grows: all flows are void that were decided under another.
    pub fn set_switch(&self, generation: u64) {
        if self.words.get(OF_SWITCH).swap(generation, Ordering::AcqRel) != generation {
            self.changed();
        }
    }

    /// Whoever changes something after this does so in the new epoch.
    fn changed(&self) {
        self.words.get(EPOCH).fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The sum of all that a decision relies upon, which grows when any of it changes.
    pub fn sum(&self, stations: [StationSlot; 2], ports: [u16; 2]) -> u64 {
        let stations = stations.iter().map(|slot| self.of_station(*slot)).fold(0, u64::wrapping_add);
        let ports = ports.iter().map(|id| self.of_port(*id)).fold(0, u64::wrapping_add);
        self.of_switch().wrapping_add(stations).wrapping_add(ports)
    }

    fn port(&self, port_id: u16) -> &AtomicU64 {
        self.words.get(OF_STATION + STATIONS as usize + usize::from(port_id))
    }
}

/// How many there are.
pub(crate) fn words(port_slots: u32) -> usize {
    OF_STATION + (STATIONS + port_slots) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_one_station_is_no_change_of_most_others() {
        let generations = Generations::detached(4).expect("memory");
        let slots: Vec<StationSlot> = (0..1000).map(|mac| generations.station(7, mac)).collect();
        generations.station_changed(7, 500);
        let changed = slots.iter().filter(|slot| generations.of_station(**slot) > 0).count();
        assert!((1..20).contains(&changed), "{changed} of 1000");
        assert_eq!(generations.of_station(slots[500]), 1);
    }

    #[test]
    fn nobody_has_the_first_slot() {
        let generations = Generations::detached(1).expect("memory");
        for mac in 0..100_000 {
            let slot = generations.station(1, mac << 20);
            assert!(slot.0 > 0 && u32::from(slot.0) < STATIONS);
        }
    }

    #[test]
    fn every_change_begins_an_epoch() {
        let generations = Generations::detached(2).expect("memory");
        let epoch = || generations.words.get(EPOCH).load(Ordering::Acquire);
        assert_eq!(epoch(), 1, "0 is what nobody has found anything in");
        let changes: [&dyn Fn(); 3] =
            [&|| generations.set_switch(1), &|| generations.set_port(1, 1), &|| {
                generations.station_changed(1, 1)
            }];
        for (number, change) in changes.into_iter().enumerate() {
            change();
            assert_eq!(epoch(), number as u64 + 2);
        }
        generations.set_switch(1);
        generations.set_port(1, 1);
        assert_eq!(epoch(), 4, "nothing has changed");
    }

    #[test]
    fn ports_and_switch_have_words_of_their_own() {
        let generations = Generations::detached(3).expect("memory");
        generations.set_switch(5);
        (0..3).for_each(|id| generations.set_port(id, 10 + u64::from(id)));
        assert_eq!(generations.of_switch(), 5);
        assert_eq!([0, 1, 2].map(|id| generations.of_port(id)), [10, 11, 12]);
        assert_eq!(generations.of_station(StationSlot((STATIONS - 1) as u16)), 0);
    }
}
