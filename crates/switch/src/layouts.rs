//! Layouts that hints below packets may have, as the packet path knows them.

use std::sync::Arc;

use forebay_hints::{Layout, Plan, Registry};

use crate::counters::Counter;

/// One of them.
#[derive(Debug)]
pub(crate) struct KnownLayout {
    pub(crate) plan: Plan,
    /// Our own programs write it: a VLAN tag in it is not in the packet, and a flow id is one of ours.
    pub(crate) is_ours: bool,
    /// Packets that came in it, by worker.
    pub(crate) packets: Box<[Counter]>,
}

/// All of them by id, replaced as a whole.
pub(crate) type Layouts = Registry<Arc<KnownLayout>>;

impl KnownLayout {
    pub(crate) fn new(layout: &Layout, is_ours: bool, workers: usize) -> Arc<Self> {
        let packets = (0..workers).map(|_| Counter::default()).collect();
        Arc::new(Self { plan: Plan::compile(layout), is_ours, packets })
    }

    /// Packets that came in it.
    pub(crate) fn packets(&self) -> u64 {
        self.packets.iter().map(Counter::get).sum()
    }
}
