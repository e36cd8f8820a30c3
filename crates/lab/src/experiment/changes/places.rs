//! Who takes part: hosts, stations and the VLAN.

/// Places of the hosts' sockets; host 0 is behind port p1.
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;
/// The stream's sender and receiver.
pub(super) const STATION_A: u16 = 1;
pub(super) const S: u16 = 2;
/// The VLAN of all hosts.
pub(super) const VLAN: u16 = 10;
