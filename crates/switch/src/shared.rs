//! What workers and control thread both see.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use forebay_kernel::{Generations, SteeredStations};

use crate::attention::Attention;
use crate::counters::WorkerCell;
use crate::fdb::Fdb;
use crate::layouts::Layouts;
use crate::news::News;
use crate::rate::Rate;
use crate::supervise::Turns;
use crate::topology::Topology;

/// Shared state; everything in it is read without a lock.
pub(crate) struct Shared {
    pub(crate) topology: Arc<ArcSwap<Topology>>,
    pub(crate) layouts: Arc<ArcSwap<Layouts>>,
    pub(crate) fdb: Fdb,
    /// What kernel flows rely upon.
    pub(crate) generations: Arc<Generations>,
    /// Where packets for stations leave.
    pub(crate) steered: SteeredStations,
    /// Copies that the flooded packets of one port make.
    pub(crate) flood: Rate,
    /// Stations that move to one port.
    pub(crate) moves: Rate,
    pub(crate) workers: Box<[WorkerCell]>,
    /// The NUMA node of each worker, if it is pinned to a processor.
    pub(crate) worker_nodes: Box<[Option<u32>]>,
    pub(crate) turns: Turns,
    /// What each worker notes for the moderator.
    pub(crate) news: Box<[Arc<News>]>,
    /// The housekeeper's.
    pub(crate) attention: Attention,
    pub(crate) max_ports: usize,
    /// Whether runs of TCP segments leave as one packet.
    pub(crate) join_segments: bool,
    /// How long workers wait awake at most.
    pub(crate) linger_ns: u64,
    /// Time zero of the switch's clock.
    pub(crate) started: Instant,
}

impl Shared {
    #[inline]
    pub(crate) fn worker_cell(&self, worker: usize) -> &WorkerCell {
        &self.workers[worker]
    }

    /// Whole seconds of the switch's clock.
    pub(crate) fn now_s(&self) -> u32 {
        self.started.elapsed().as_secs() as u32
    }
}
