//! Netdevs that receive what is addressed to known stations, because they cannot or should not receive everything.
//!
//! The kernel tells the driver these addresses, as it does for macvlan. A driver whose device has too little room for them
//! receives everything instead, if it may.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_control::{IfIndex, MacAddr};

use crate::memberships::{Memberships, Wish};

/// A netdev that also receives what is for groups and for the stations in here, until this is dropped.
#[derive(Debug)]
pub struct UnicastFilter {
    memberships: Memberships,
    ifindex: IfIndex,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    stations: BTreeSet<MacAddr>,
    /// The last time, the kernel did not take a station.
    was_refused: bool,
}

impl UnicastFilter {
    /// For a netdev of the calling thread's namespace; no station so far.
    pub(crate) fn begin(memberships: &Memberships, ifindex: IfIndex) -> io::Result<Self> {
        memberships.add(ifindex, Wish::Groups)?;
        Ok(Self { memberships: memberships.clone(), ifindex, told: Mutex::default() })
    }

    /// Number of stations.
    pub fn stations(&self) -> usize {
        self.told().stations.len()
    }

    /// Takes out the stations that are not `wanted`, and in those that are. It waits for the kernel.
    ///
    /// # Errors
    /// What the kernel said to the first that it refused; the others are in. Said once, until it refuses none.
    pub fn follow(&self, wanted: &BTreeSet<MacAddr>) -> io::Result<()> {
        let mut told = self.told();
        let Told { stations, was_refused } = &mut *told;
        let gone: Vec<MacAddr> = stations.difference(wanted).copied().collect();
        for station in gone {
            stations.remove(&station);
            self.memberships.drop(self.ifindex, Wish::Station(station));
        }
        let new: Vec<MacAddr> = wanted.difference(stations).copied().collect();
        let mut outcome = Ok(());
        for station in new {
            match self.memberships.add(self.ifindex, Wish::Station(station)) {
                Ok(()) => _ = stations.insert(station),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        let is_news = !std::mem::replace(was_refused, outcome.is_err());
        if is_news { outcome } else { Ok(()) }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnicastFilter {
    fn drop(&mut self) {
        let stations = std::mem::take(&mut self.told().stations);
        stations.into_iter().for_each(|station| self.memberships.drop(self.ifindex, Wish::Station(station)));
        self.memberships.drop(self.ifindex, Wish::Groups);
    }
}
