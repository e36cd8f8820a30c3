//! BPF programs and maps, netlink, feature probes.
