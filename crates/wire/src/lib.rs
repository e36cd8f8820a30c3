//! Bytes to headers and back: Ethernet, VLAN, IP, checksums.
