//! A pool instance: the pool's memory, the collectors that fill it, and who holds free frames of it.
//!
//! The pool changes its size by a new instance beside the old one: ports are moved over, the old one is drained and
//! goes. So there are two of everything for a moment.

use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_control::memory::{LANES, MAGAZINE_FRAMES, fill_entries, shared_frames};
use forebay_kernel::{Bank, Datapath, RingOwner};
use forebay_policy::{Lane, Refill};
use forebay_pool::{Arena, FrameSize, Magazine, Pool};
use forebay_xsk::{FillRing, QueueRings};

use crate::SwitchError;
use crate::collector::{Collector, CollectorPair, CollectorSize};
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
        let mut supply =
            Supply { fill, magazine, refill, polled: 0, posted: Arc::clone(&gauge.posted), drain: None };
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

    /// A view of how many free frames the magazine holds.
    pub(crate) fn level(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.level)
    }

    /// Frames posted.
    pub(crate) fn posted(&self) -> u64 {
        self.posted.get()
    }
}

/// One lane's collector, and where its workers' free frames can be counted.
pub(crate) struct Intake {
    /// The collector's in the kernel's tables.
    pub(crate) number: u8,
    pub(crate) collector: Collector,
    /// Of each of its fill rings.
    pub(crate) fill_entries: u32,
    pub(crate) gauges: Vec<SupplyGauge>,
}

/// One pool instance; see the module.
pub(crate) struct PoolInstance {
    /// Every second one is 1.
    parity: u8,
    pub(crate) stock: Stock,
    /// By lane.
    intakes: Vec<Intake>,
}

/// A worker's supply from the collector of this number.
pub(crate) struct Supplied {
    pub(crate) worker: usize,
    pub(crate) number: u8,
    pub(crate) supply: Box<Supply>,
}

const _: () = assert!(LANES == Lane::COUNT && MAGAZINE_FRAMES == Magazine::FRAMES);

impl PoolInstance {
    /// Binds `stock` to the collectors that `pairs` become, one a lane; one supply of each for each of `queues` workers.
    pub(crate) fn new(
        parity: u8,
        stock: Stock,
        pairs: [CollectorPair; Lane::COUNT],
        datapath: &Datapath,
        queues: u32,
        refill: impl Fn(u32) -> Refill,
    ) -> Result<(Self, Vec<Supplied>), SwitchError> {
        let fill_entries = fill_entries(stock.pool.total(), queues);
        let (mut intakes, mut supplied) = (Vec::<Intake>::new(), Vec::new());
        for ((pair, lane), fill_entries) in pairs.into_iter().zip(Lane::ALL).zip(fill_entries) {
            let size = CollectorSize { queues, fill_entries };
            let number = parity * Lane::COUNT as u8 + lane.index() as u8;
            let first = intakes.first().and_then(|intake| intake.collector.queues.first().cloned());
            let (collector, rings) = Collector::new(pair, datapath, &stock.arena, first, size)?;
            let mut gauges = Vec::new();
            for (queue, QueueRings { fill, rx, .. }) in (0..).zip(rings) {
                let socket = &collector.queues[queue as usize];
                datapath.set_socket(Bank::Collector(number), RingOwner::Drain, queue, socket.as_fd())?;
                let (mut supply, gauge) = stock.supply(fill, refill(fill_entries));
                supply.drain = Some(Drain::new(Arc::clone(socket), rx, collector.pair.ends.transmit_ifindex));
                supplied.push(Supplied { worker: queue as usize, number, supply: Box::new(supply) });
                gauges.push(gauge);
            }
            datapath.connect_collector(number, collector.pair.ends)?;
            intakes.push(Intake { number, collector, fill_entries, gauges });
        }
        Ok((Self { parity, stock, intakes }, supplied))
    }

    /// Parity of the next pool instance.
    pub(crate) fn next_parity(&self) -> u8 {
        1 - self.parity
    }

    pub(crate) fn intake(&self, lane: Lane) -> &Intake {
        &self.intakes[lane.index()]
    }

    pub(crate) fn intakes(&self) -> &[Intake] {
        &self.intakes
    }

    /// Whether rings there are those of the calm lane.
    pub(crate) fn is_calm(&self, bank: Bank) -> bool {
        bank == Bank::Collector(self.intake(Lane::Calm).number)
    }

    /// Of all its supplies.
    pub(crate) fn gauges(&self) -> impl Iterator<Item = &SupplyGauge> {
        self.intakes.iter().flat_map(|intake| &intake.gauges)
    }

    /// Frames that ports may hold: all but what fill rings and magazines keep.
    pub(crate) fn shared_frames(&self) -> u32 {
        shared_frames(self.stock.pool.total(), self.intakes[0].gauges.len() as u32)
    }
}
