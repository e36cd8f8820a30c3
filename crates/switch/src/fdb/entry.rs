//! Entries of the table, for those who look at it.

use forebay_kernel::LeftStations;

use super::slot::{Key, Value};

/// An entry, as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    /// VLAN id.
    pub(crate) vid: u16,
    /// Station address, as [`forebay_wire::mac`] has it.
    pub(crate) mac: u64,
    /// The port it is behind.
    pub(crate) port: u16,
    /// Put in by request: neither moves nor ages.
    pub(crate) is_static: bool,
    /// When the station was last heard, in the caller's seconds; for a static entry, when it was put in.
    pub(crate) seen_s: u32,
}

/// Which entries [`Fdb::flush`] takes out: those that match all that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flush {
    /// Only this port's.
    pub(crate) port: Option<u16>,
    /// Only this VLAN's.
    pub(crate) vid: Option<u16>,
    /// Static entries too, as when a port is deleted.
    pub(crate) with_static: bool,
}

/// The entries of a table that an earlier process left, in that table's seconds. A slot that was being changed is nobody's.
pub(crate) fn left_entries(left: &LeftStations) -> impl Iterator<Item = Entry> + '_ {
    let slots = left.slots.iter().map(|(key, value)| (Key(*key), Value(*value)));
    slots
        .filter(|(key, value)| key.is_station() && value.is_owned())
        .map(|(key, value)| Entry::of(key, value))
}

impl Entry {
    pub(super) fn of(key: Key, value: Value) -> Self {
        let (port, is_static, seen_s) = (value.port(), value.is_static(), value.seen_s());
        Entry { vid: key.vid(), mac: key.mac(), port, is_static, seen_s }
    }
}

impl Flush {
    pub(super) fn matches(&self, entry: Entry) -> bool {
        self.port.is_none_or(|port| port == entry.port)
            && self.vid.is_none_or(|vid| vid == entry.vid)
            && (self.with_static || !entry.is_static)
    }
}
