//! Measuring: a packet source and sink in BPF, latency, processor time, memory.

pub mod cpu;
pub mod latency;
pub mod memory;
pub mod paced;
pub mod sink;
pub mod source;
