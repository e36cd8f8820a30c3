//! A table that no kernel program reads, for a data plane without a kernel.

use forebay_control::memory::FlowShape;

use super::{FlowCount, FlowKey, FlowNumber, FlowTable, FlowVerdict, get, set};
use crate::DatapathError;
use crate::hash::Secret;
use crate::mapped::Mapped;

/// Programs may count in as many places at once.
const STRIPES: u32 = 2;

impl FlowTable {
    /// An empty table for `max_flows`, in memory of this process. `seed` decides where flows lie.
    ///
    /// # Errors
    /// There is no memory.
    pub fn detached(max_flows: u32, seed: u64) -> Result<Self, DatapathError> {
        let shape = FlowShape::new(max_flows, STRIPES);
        Ok(Self {
            flows: Mapped::anonymous(shape.places() as usize)?,
            counts: Mapped::anonymous(shape.counts() as usize)?,
            shape,
            secret: Secret::seeded(seed),
            left: Vec::new(),
        })
    }

    /// The flow with this key and what it says, as a program finds it.
    pub fn look_up(&self, key: FlowKey) -> Option<(FlowNumber, FlowVerdict)> {
        let number = self.find(key)?;
        Some((number, self.read(number).verdict))
    }

    /// Counts what a flow carried, as a program does.
    pub fn carry(&self, number: FlowNumber, fresh: FlowCount) {
        let cell = self.count_in(0, number);
        let before = get(cell);
        let packets = before.packets.wrapping_add(fresh.packets);
        set(cell, FlowCount { packets, bytes: before.bytes.wrapping_add(fresh.bytes) });
    }
}
