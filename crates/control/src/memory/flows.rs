//! How large the table of kernel flows is: its places, and the counters of each.

/// Places that are one behind the other; a flow has one in either of two such buckets.
pub const FLOW_WAYS: u32 = 4;
/// More CPUs share counters, and count by atomic operations.
const MAX_STRIPES: u32 = 16;
/// `struct flow` and `struct flow_count`, bpf/forebay.h.
const FLOW_BYTES: u64 = 64;
const COUNT_BYTES: u64 = 32;

/// The table's shape; programs and daemon go by the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowShape {
    /// log2 of its buckets.
    pub bucket_bits: u32,
    /// Counters that each flow has, so that CPUs do not wait for each other; a power of two.
    pub stripes: u32,
}

impl FlowShape {
    /// Twice the places for so many flows, so that hardly ever both buckets of a key are full; counters for each CPU up
    /// to a limit.
    pub fn new(max_flows: u32, cpus: u32) -> FlowShape {
        let buckets = (max_flows.max(FLOW_WAYS) * 2).div_ceil(FLOW_WAYS).next_power_of_two();
        let stripes = cpus.max(1).next_power_of_two().min(MAX_STRIPES);
        FlowShape { bucket_bits: buckets.ilog2(), stripes }
    }

    /// Places for flows.
    pub const fn places(self) -> u32 {
        FLOW_WAYS << self.bucket_bits
    }

    /// Counters of all of them, and for each what the daemon has noted of it.
    pub const fn counts(self) -> u32 {
        (self.stripes + 1) * self.places()
    }

    /// Bytes of all.
    pub const fn bytes(self) -> u64 {
        self.places() as u64 * FLOW_BYTES + self.counts() as u64 * COUNT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_two_places_for_each_flow_and_a_counter_for_each_cpu() {
        let shape = FlowShape::new(65_536, 2);
        assert_eq!((shape.places(), shape.counts(), shape.bytes()), (131_072, 393_216, 20 << 20));
        assert_eq!(FlowShape::new(1000, 3).stripes, 4);
        assert_eq!(FlowShape::new(1000, 200).stripes, MAX_STRIPES);
        assert!(FlowShape::new(1000, 1).places() >= 2000);
    }
}
