//! The running switch: started, asked, stopped.

mod requests;

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arc_swap::ArcSwap;
use forebay_control::SwitchControl;
use forebay_control::config::Config;
use forebay_control::eswitch::EswitchSet;
use forebay_kernel::machine::Machine;
use forebay_kernel::netlink::PrivateNetns;
use forebay_kernel::{Datapath, DatapathOptions, LeftStations, Pins, ShortGracePeriods, StationMemory};
use forebay_policy::Nanos;
use forebay_pool::FrameSize;
use forebay_xsk::{Departures, Transmitter};
use rtrb::RingBuffer;
use rustix::time::{ClockId, clock_gettime};

use crate::SwitchError;
use crate::attention::Attention;
use crate::collector;
use crate::control::{
    self, Change, Changes, Control, Flows, Guests, Held, Housekeeper, Left, Moderator, Parts, WorkerHandle,
    read_saved,
};
use crate::counters::WorkerCell;
use crate::fdb::{Fdb, Limits};
use crate::flows::{FlowBook, FlowKeeper};
use crate::guests::Reception;
use crate::long_queues;
use crate::news::News;
use crate::pool_instance::{PoolInstance, Stock, Supplied};
use crate::rate::Rate;
use crate::settled;
use crate::shared::Shared;
use crate::supervise::Turns;
use crate::topology::Topology;
use crate::worker::{PROPOSALS, Proposals, RulingCache, Waker, Worker};

/// Where a switch leaves what the next one takes up.
#[derive(Clone, Debug)]
pub struct Handover {
    /// Programs and tables.
    pub pins: Pins,
    /// The file for all else.
    pub saved_in: PathBuf,
}

/// A switch with its workers, its collector and its ports. It stops when it is told to, or dropped.
pub struct Switch {
    control: Arc<Changes>,
    shared: Arc<Shared>,
    book: Arc<Mutex<FlowBook>>,
    housekeeper: Mutex<Option<Housekeeper>>,
    guests: Guests,
    moderator: Moderator,
    wakers: Vec<Waker>,
    is_stopping: AtomicBool,
}

impl Switch {
    /// Starts a switch in the calling thread's network namespace; the collector's far end lies in
    /// `netns`.
    ///
    /// # Errors
    /// [`SwitchError`] naming the step; nothing is left behind.
    ///
    /// It has no ports, unless it takes over what an earlier one left to it.
    pub fn start(
        config: &Config,
        netns: PrivateNetns,
        handover: Option<Handover>,
    ) -> Result<Self, SwitchError> {
        let mut left = Left {
            saved: handover.as_ref().and_then(|handover| read_saved(&handover.saved_in)),
            ..Left::default()
        };
        if let (None, Some(handover)) = (&left.saved, &handover) {
            handover.pins.clear();
        }
        let frames = NonZeroU32::new(config.pool.frames).ok_or(SwitchError::Setting {
            what: "pool.frames",
            value: 0,
            limit: "there must be at least one frame",
        })?;
        let stock = Stock::new(frames, FrameSize::new(config.pool.frame_size)?)?;
        let queues = config.switch.workers.max(1);
        let netns = Arc::new(netns);
        let pairs = collector::make_pairs(&netns, queues)?;
        let options = DatapathOptions {
            max_ports: config.switch.max_ports,
            queues,
            frame_payload: stock.arena.frame_size().payload(),
            max_flows: config.flows.max_entries,
            collector_rx: pairs[0].ends.receive_ifindex,
        };
        let datapath = netns.run({
            let pins = handover.as_ref().map(|handover| handover.pins.clone());
            move || Datapath::load(&options, pins.as_ref())
        })?;
        let datapath = Arc::new(datapath);
        let refill = |high| control::refill(&config.pool, high);
        let (instance, supplied) = PoolInstance::new(0, stock, pairs, &datapath, queues, refill)?;
        left.stations = handover.as_ref().and_then(|handover| left_stations(&handover.pins));
        let shared = Arc::new(shared(config, queues, &datapath, handover.as_ref())?);
        let bell = Arc::new(Attention::new()?);
        let (producers, proposals) =
            (0..queues).map(|_| RingBuffer::new(PROPOSALS)).unzip::<_, _, Vec<_>, Vec<_>>();
        let book = FlowBook::new(
            datapath.flow_table()?,
            Arc::clone(datapath.generations()),
            control::flow_limits(&config.settings(), config.flows.max_entries.into()),
        );
        let book = Arc::new(Mutex::new(book));
        let keeper = FlowKeeper::start(Arc::clone(&shared), Arc::clone(&book), proposals, Arc::clone(&bell))?;
        let proposals = producers.into_iter().map(|ring| Proposals::new(ring, Arc::clone(&bell)));
        let mut workers = start_workers(config, &shared, &datapath, supplied, proposals)?;
        long_queues::start(config.switch.long_queues, &mut workers, &instance, &datapath)?;
        let flows = Flows::new(book, keeper, config.flows.redirect_peer);
        let (kept, kept_book) = (Arc::clone(&shared), flows.shared_book());
        let wakers = workers.iter().map(WorkerHandle::waker).collect();
        let (reception, waiting) = Reception::new()?;
        let commanders = workers.iter().map(WorkerHandle::commander).collect();
        let moderator = Moderator::start(Arc::clone(&shared), commanders)?;
        let parts = Parts {
            netns,
            instance,
            datapath,
            workers,
            flows,
            reception: reception.clone(),
            moderator: moderator.orders(),
        };
        let control = Control::new(config, shared, parts)?;
        let control = Arc::new(Changes::new(control));
        let mut change = control.begin();
        change.eswitch_set(EswitchSet {
            spool_mode: Some(config.switch.spool_mode),
            offload: Some(config.flows.offload),
        })?;
        let left_ports = left.saved.as_ref().map_or(0, |saved| saved.ports.len());
        let _short = control::short_grace_periods(left_ports);
        if let Some(Handover { saved_in, .. }) = handover {
            change.take_over(saved_in, left);
        }
        drop(change);
        let guests = Guests::start(Arc::clone(&control), reception, waiting)?;
        let housekeeper = Housekeeper::start(Arc::clone(&control))?;
        let (housekeeper, is_stopping) = (Mutex::new(Some(housekeeper)), AtomicBool::new(false));
        Ok(Self {
            control,
            shared: kept,
            book: kept_book,
            housekeeper,
            guests,
            moderator,
            wakers,
            is_stopping,
        })
    }

    /// Has something changed, in one step, that the next daemon must know. When this returns, it is written; other requests
    /// do not wait for that.
    fn and_save<T>(&self, step: impl FnOnce(&mut Control) -> T) -> T {
        let mut control = self.control();
        let done = step(&mut control);
        let ticket = control.save();
        drop(control);
        ticket.wait();
        done
    }

    /// As [`Switch::and_save`], for what takes several steps, or must not come between the steps of another change.
    fn change_and_save<T>(&self, change: impl FnOnce(&mut Change<'_>) -> T) -> T {
        let mut changing = self.control.begin();
        let done = change(&mut changing);
        let ticket = changing.save();
        drop(changing);
        ticket.wait();
        done
    }

    /// The control side once nothing is under way, or after some milliseconds. The wait is without the lock.
    fn settled(&self) -> Held<'_> {
        self.settle_flows();
        let pause = || std::thread::sleep(settled::PAUSE);
        Held::from(settled::lock_settled(self.control.lock(), Control::is_settled, pause))
    }

    /// For what is about all ports.
    fn short_grace_periods(&self) -> Option<ShortGracePeriods> {
        let ports = self.control().port_count();
        control::short_grace_periods(ports)
    }

    fn settle_flows(&self) {
        control::settle_flows(&self.book, Nanos(self.shared.started.elapsed().as_nanos() as u64));
    }

    fn control(&self) -> Held<'_> {
        self.control.hold()
    }
}

/// The stations that an earlier daemon left.
fn left_stations(pins: &Pins) -> Option<LeftStations> {
    let left = LeftStations::read(pins);
    left.unwrap_or_else(|error| {
        tracing::warn!(%error, "no stations are taken over; they are learned anew");
        None
    })
}

fn shared(
    config: &Config,
    workers: u32,
    datapath: &Datapath,
    handover: Option<&Handover>,
) -> Result<Shared, SwitchError> {
    let limits = Limits {
        total: config.fdb.max_entries,
        per_port: config.fdb.max_entries_per_port,
        ageing_s: config.fdb.ageing_seconds,
    };
    let buckets = Fdb::buckets_for(limits);
    let memory = match handover {
        Some(handover) => StationMemory::pinned(&handover.pins, buckets, machine_now_s())?,
        None => StationMemory::own(buckets)?,
    };
    Ok(Shared {
        topology: Arc::new(ArcSwap::from_pointee(Topology::default())),
        layouts: Arc::default(),
        fdb: Fdb::new(memory, limits, seed()).telling(Arc::clone(datapath.generations())),
        generations: Arc::clone(datapath.generations()),
        steered: datapath.steered_stations()?,
        flood: Rate::new(config.flood.copies_per_second, config.flood.burst_copies),
        moves: Rate::new(config.fdb.moves_per_second, config.fdb.burst_moves),
        news: News::of_workers(workers as usize, control::most_queues(config.switch.max_ports)),
        attention: Attention::new()?,
        turns: Turns::default(),
        workers: (0..workers).map(|_| WorkerCell::default()).collect(),
        worker_nodes: worker_nodes(config, workers as usize),
        max_ports: config.switch.max_ports as usize,
        join_segments: config.switch.join_segments,
        linger_ns: u64::from(config.switch.linger_us) * 1000,
        started: Instant::now(),
    })
}

/// Without a node where sysfs cannot be read: then no worker is nearer than another.
fn worker_nodes(config: &Config, workers: usize) -> Box<[Option<u32>]> {
    let machine = Machine::read(Path::new("/sys")).inspect_err(|error| {
        tracing::warn!(%error, "the workers' NUMA nodes are not known");
    });
    let node = |worker| {
        let cpu: u32 = *config.switch.cpus.get(worker)?;
        machine.as_ref().ok()?.node_of(cpu as usize)
    };
    (0..workers).map(node).collect()
}

/// The machine's clock, which all processes share and which begins anew only when nothing is pinned any more.
pub(crate) fn machine_now_s() -> u64 {
    clock_gettime(ClockId::Monotonic).tv_sec.cast_unsigned()
}

/// Numbers that a sender of packets cannot guess: what the standard library seeds its hash maps with.
fn seed() -> [u64; 2] {
    let random = RandomState::new();
    [random.hash_one(0), random.hash_one(1)]
}

fn start_workers(
    config: &Config,
    shared: &Arc<Shared>,
    datapath: &Datapath,
    supplied: Vec<Supplied>,
    proposals: impl Iterator<Item = Proposals>,
) -> Result<Vec<WorkerHandle>, SwitchError> {
    let slots = control::slots(config.switch.max_ports);
    let mut handles = Vec::new();
    for (index, proposals) in proposals.enumerate() {
        let transmitter = open_transmitter(datapath, index as u32)?;
        let cache = RulingCache::new(seed());
        let worker = Worker::new(index, Arc::clone(shared), slots, Some(transmitter), cache, proposals)?;
        let cpu = config.switch.cpus.get(index).copied();
        let handle = WorkerHandle::spawn(index, cpu, worker, Arc::clone(&shared.news[index]))?;
        handles.push(handle);
    }
    control::hand_out(&handles, supplied);
    Ok(handles)
}

fn open_transmitter(datapath: &Datapath, worker: u32) -> Result<Transmitter, SwitchError> {
    let opened = Departures::open(datapath.departure_program()?, datapath.departure_memory(), worker);
    let departures = opened.inspect_err(|error| {
        tracing::warn!(worker, %error, "packets leave one by one, which costs about twice as much");
    });
    Ok(Transmitter::open(departures.ok())?)
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shutdown();
    }
}
