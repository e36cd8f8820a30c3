//! BPF programs and maps, netlink, feature probes.

pub mod netlink;
pub mod probe;
