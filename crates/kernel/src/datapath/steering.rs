//! Which workers take a port's packets.

use std::os::fd::AsFd as _;

use forebay_control::rss::RSS_SLOTS;
use libbpf_rs::{MapCore as _, MapFlags};

use super::Datapath;
use crate::hash::Secret;
use crate::mapped::Mapped;
use crate::steering::STATIONS;
use crate::{DatapathError, SteeredStations};

impl Datapath {
    /// Where packets for stations leave.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn steered_stations(&self) -> Result<SteeredStations, DatapathError> {
        let what = "map the table of steered stations";
        let places = Mapped::map(self.steered_stations.as_fd(), STATIONS, what)?;
        Ok(SteeredStations::new(places, Secret(self.settings.secret)))
    }

    /// Has packets of a port go to these queues, by a hash of their addresses.
    ///
    /// # Errors
    /// The kernel has room for 64 such ports.
    pub fn set_rss(&self, port_id: u16, queues: &[u32; RSS_SLOTS]) -> Result<(), DatapathError> {
        let map = &self.rss;
        let set = |(slot, queue): (u16, &u32)| {
            map.update(&key(port_id, slot), &queue.to_ne_bytes(), MapFlags::ANY).map_err(DatapathError::bpf(
                "enter a port's queues into the kernel's table (room for 64 ports)",
            ))
        };
        (0..).zip(queues).try_for_each(set)
    }

    /// Forgets them; nothing happens if there are none.
    pub fn clear_rss(&self, port_id: u16) {
        for slot in 0..RSS_SLOTS as u16 {
            let _ = self.rss.delete(&key(port_id, slot));
        }
    }
}

fn key(port_id: u16, slot: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (port_id.to_ne_bytes(), slot.to_ne_bytes());
    [a, b, c, d]
}
