//! A generation of the pool: its memory, the collector that fills it, and who holds free frames of it.
//!
//! The pool changes its size by a new generation beside the old one: ports are moved over, the old one is drained and
//! goes. So there are two of everything for a moment, on two collectors.

use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_control::memory::fill_entries;
use forebay_kernel::{Bank, Datapath, RingOwner};
use forebay_policy::Refill;
use forebay_pool::{Arena, FrameSize, Magazine, Pool};
use forebay_xsk::{FillRing, QueueRings};

use crate::SwitchError;
use crate::collector::{Collector, CollectorPair};
use crate::counters::Counter;
use crate::worker::{Drain, Supply};

/// Packet memory and its free frames.
#[derive(Clone)]
pub(crate) struct Stock {
    pub(crate) arena: Arc<Arena>,
    pub(crate) pool: Arc<Pool>,
}

impl Stock {
    /// Maps memory for `frames` frames, all of them free.
    pub(crate) fn new(frames: NonZeroU32, frame_size: FrameSize) -> Result<Self, SwitchError> {
        let (arena, free) = Arena::new(frames, frame_size)?;
        Ok(Self { arena: Arc::new(arena), pool: Arc::new(Pool::new(free)) })
    }

    /// A supply on it, its fill ring filled as `refill` wants it at first.
    pub(crate) fn supply(&self, fill: FillRing, refill: Refill) -> (Supply, SupplyGauge) {
        let magazine = Magazine::new(Arc::clone(&self.pool));
        let gauge = SupplyGauge { level: magazine.level(), posted: Arc::default() };
        let mut supply = Supply { fill, magazine, refill, posted: Arc::clone(&gauge.posted), drain: None };
        supply.prime();
        (supply, gauge)
    }
}

/// Where a worker's free frames can be counted.
#[derive(Clone)]
pub(crate) struct SupplyGauge {
    level: Arc<AtomicU32>,
    posted: Arc<Counter>,
}

impl SupplyGauge {
    /// Free frames in the magazine.
    pub(crate) fn free(&self) -> u64 {
        self.level.load(Ordering::Relaxed).into()
    }

    /// Frames posted.
    pub(crate) fn posted(&self) -> u64 {
        self.posted.get()
    }
}

/// One generation; see the module.
pub(crate) struct Generation {
    /// Which of the collectors is its own, 0 or 1.
    pub(crate) number: u8,
    pub(crate) stock: Stock,
    pub(crate) collector: Collector,
    pub(crate) fill_entries: u32,
    pub(crate) gauges: Vec<SupplyGauge>,
}

impl Generation {
    /// Binds `stock` to the collector that `pair` becomes; one supply for each of `queues` workers.
    pub(crate) fn new(
        number: u8,
        stock: Stock,
        pair: CollectorPair,
        datapath: &Datapath,
        queues: u32,
        refill: impl Fn(u32) -> Refill,
    ) -> Result<(Self, Vec<Supply>), SwitchError> {
        let fill_entries = fill_entries(stock.pool.total(), queues);
        let (collector, rings) = Collector::new(pair, datapath, &stock.arena, queues, fill_entries)?;
        let (mut supplies, mut gauges) = (Vec::new(), Vec::new());
        for (queue, QueueRings { fill, rx, .. }) in (0..).zip(rings) {
            let socket = &collector.queues[queue as usize];
            datapath.set_socket(Bank::Collector(number), RingOwner::Drain, queue, socket.as_fd())?;
            let (mut supply, gauge) = stock.supply(fill, refill(fill_entries));
            supply.drain = Some(Drain::new(Arc::clone(socket), rx, collector.pair.ends.transmit_ifindex));
            supplies.push(supply);
            gauges.push(gauge);
        }
        datapath.connect_collector(number, collector.pair.ends)?;
        Ok((Self { number, stock, collector, fill_entries, gauges }, supplies))
    }

    /// Frames that ports may hold: all but what fill rings and magazines keep.
    pub(crate) fn shared_frames(&self) -> u32 {
        shared_frames(self.stock.pool.total(), self.gauges.len() as u32)
    }
}

/// Frames that ports may hold of so many, with so many queues.
pub(crate) fn shared_frames(frames: u32, queues: u32) -> u32 {
    frames.saturating_sub(queues * (fill_entries(frames, queues) + Magazine::FRAMES))
}
