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
    /// Its buckets.
    pub buckets: u32,
    /// Counters that each flow has, so that CPUs do not wait for each other; a power of two.
    pub stripes: u32,
}

impl FlowShape {
    /// One and a half places for each flow: of a full table's flows 5 in a thousand find both of their buckets full, of a
    /// half full one's none in a million. Counters for each CPU up to a limit.
    pub fn new(max_flows: u32, cpus: u32) -> FlowShape {
        let buckets = (max_flows.max(FLOW_WAYS) * 3).div_ceil(2 * FLOW_WAYS);
        let stripes = cpus.max(1).next_power_of_two().min(MAX_STRIPES);
        FlowShape { buckets, stripes }
    }

    /// Places for flows.
    pub const fn places(self) -> u32 {
        FLOW_WAYS * self.buckets
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
    fn there_are_one_and_a_half_places_for_each_flow_and_a_counter_for_each_cpu() {
        let shape = FlowShape::new(65_536, 2);
        assert_eq!((shape.places(), shape.counts(), shape.bytes()), (98_304, 294_912, 15 << 20));
        assert_eq!(FlowShape::new(1000, 3).stripes, 4);
        assert_eq!(FlowShape::new(1000, 200).stripes, MAX_STRIPES);
        assert!(FlowShape::new(1001, 1).places() >= 1501);
    }
}
