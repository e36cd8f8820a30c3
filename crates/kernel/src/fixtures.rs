//! The kernel programs by themselves: packet in, verdict and packet out (`BPF_PROG_TEST_RUN`).
//!
//! Each program has a table of cases. The oracle beside the verdict is which counters moved: a packet that follows a
//! flow is counted there, exactly, and nowhere else; one that goes the slow path is counted as such. In the tables
//! about following flows no socket is open. So a packet that follows no flow passes, and no other packet does.
//!
//! What a test run cannot show: a tag beside the packet (the kernel takes none in `struct __sk_buff`), where a redirect
//! ends (it is not done), and programs that are bound to a netdev, which the kernel does not run at all.

mod admission;
mod bound;
mod checksums;
mod claims;
mod deeper;
mod departures;
mod following;
mod gso;
mod holding;
mod packets;
mod places;
mod privileges;
mod probes;
mod slow;
mod stand;
mod steering;
mod tags;
