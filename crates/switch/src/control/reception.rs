//! Netdevs that must be told which stations are behind the other ports.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_control::{MacAddr, PortId};
use forebay_kernel::UnicastFilter;
use forebay_wire::mac;

use super::Change;
use crate::shared::Shared;

/// Stations that one netdev is told at most. Devices have room for fewer; their drivers receive everything then, if they may.
const MOST_STATIONS: usize = 1024;

/// A netdev that is to know stations.
struct Listener {
    port: PortId,
    name: String,
    filter: Arc<UnicastFilter>,
}

impl Change<'_> {
    /// Tells netdevs the stations that have come and gone. Once a second.
    pub(super) fn tell_stations(&mut self) {
        let mut listeners = Vec::new();
        for port in self.ports.on_netdevs() {
            let filters = port.attachments().filter_map(|attachment| attachment.reception.stations.clone());
            let listener =
                |filter| Listener { port: port.id, name: port.spec.port_name().to_owned(), filter };
            listeners.extend(filters.map(listener));
        }
        if listeners.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.without_lock(|| listeners.iter().for_each(|listener| listener.follow(&shared)));
    }
}

impl Listener {
    fn follow(&self, shared: &Shared) {
        let elsewhere = shared.fdb.entries().filter(|entry| entry.port != self.port.0);
        let stations = elsewhere.map(|entry| MacAddr(mac::to_bytes(entry.mac)));
        let wanted: BTreeSet<MacAddr> = stations.take(MOST_STATIONS).collect();
        if let Err(error) = self.filter.follow(&wanted) {
            let port = self.name.as_str();
            tracing::warn!(port, %error, "a station may not be reached through it");
        }
    }
}
