//! Measuring: a packet source and sink in BPF, a flood, datagrams, connections, latency, processor time, memory, what else a process holds, and how numbers spread.

pub mod connections;
pub mod cpu;
pub mod datagrams;
pub mod flood;
pub mod held;
pub mod huge_pages;
pub mod latency;
pub mod machine;
pub mod memory;
pub mod paced;
pub mod sink;
pub mod source;
pub mod spread;
