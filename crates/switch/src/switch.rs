//! The running switch: started, asked, stopped.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use forebay_control::capture::{Capture, CaptureSelect};
use forebay_control::channels::ChannelShow;
use forebay_control::coalesce::{CoalescePort, CoalesceSet, CoalesceShow};
use forebay_control::config::{Config, Settings};
use forebay_control::eswitch::{EswitchSet, EswitchSetReply, EswitchShow};
use forebay_control::fdb::{FdbAdd, FdbDel, FdbEntry, FdbFlush, FdbFlushReply};
use forebay_control::flow::{FlowFlushReply, FlowList, FlowTable};
use forebay_control::hints::{HintsSet, HintsShow};
use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue};
use forebay_control::occupancy::{ClearmaxReply, PoolOccupancy};
use forebay_control::page_pool::PagePool;
use forebay_control::pool::{PoolPort, PoolPortSet, PoolSet, PoolShow};
use forebay_control::port::{PortAdd, PortAddReply, PortDelRefused, PortDelReply, PortSet, PortShow};
use forebay_control::rss::{RssSet, RssShow};
use forebay_control::rule::{RuleAdd, RuleShow};
use forebay_control::rxq::{RxqCollector, RxqCollectorSet, RxqPort, RxqSet, RxqShow};
use forebay_control::stats::{LatencyShow, StatsShow, WorkersShow};
use forebay_control::{ApiError, SwitchControl, ThreadTurns};
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
use crate::control::channels::Look;
use crate::control::queues::{napis_of, queues_of};
use crate::control::{
    self, Change, Changes, Control, Drivers, Flows, Guests, Held, Housekeeper, Left, Moderator, Parts,
    WorkerHandle, read_saved,
};
use crate::counters::WorkerCell;
use crate::fdb::{Fdb, Limits};
use crate::flows::{FlowBook, FlowKeeper};
use crate::guests::Reception;
use crate::pool_instance::{PoolInstance, Stock, Supplied};
use crate::rate::Rate;
use crate::settled;
use crate::shared::Shared;
use crate::supervise::Turns;
use crate::topology::Topology;
use crate::worker::{PROPOSALS, Proposals, RulingCache, Waker, Worker};

/// Ports that one change adds or deletes. Each takes up to 14 ms where grace periods cannot be shortened, and other changes
/// come between the pieces of a long request.
const PORTS_A_CHANGE: usize = 32;

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
        let workers = start_workers(config, &shared, &datapath, supplied, proposals)?;
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
        let (worker, commander) =
            Worker::new(index, Arc::clone(shared), slots, Some(transmitter), cache, proposals)?;
        let cpu = config.switch.cpus.get(index).copied();
        let handle = WorkerHandle::spawn(index, cpu, worker, commander)?;
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

impl SwitchControl for Switch {
    fn port_add(&self, request: PortAdd) -> PortAddReply {
        let _short = control::short_grace_periods(request.ports.len());
        let mut reply = PortAddReply::default();
        let mut left = request.ports.into_iter().peekable();
        while left.peek().is_some() {
            let ports = left.by_ref().take(PORTS_A_CHANGE).collect();
            let piece = PortAdd { ports, wait: request.wait };
            let PortAddReply { added, refused } = self.change_and_save(|change| change.port_add(piece));
            reply.added.extend(added);
            reply.refused.extend(refused);
        }
        control::log_missing(&reply.added);
        reply
    }

    fn port_del(&self, names: &[String]) -> Result<PortDelReply, ApiError> {
        let _short = control::short_grace_periods(names.len());
        let mut reply = PortDelReply::default();
        let mut seen = HashSet::new();
        let names: Vec<String> = names.iter().filter(|name| seen.insert(*name)).cloned().collect();
        for (number, piece) in names.chunks(PORTS_A_CHANGE).enumerate() {
            match self.change_and_save(|change| change.port_del(piece)) {
                Ok(PortDelReply { deleted, refused }) => {
                    reply.deleted.extend(deleted);
                    reply.refused.extend(refused);
                }
                Err(error) if number == 0 => return Err(error),
                Err(error) => {
                    let refuse = |name: &String| PortDelRefused { name: name.clone(), error: error.clone() };
                    reply.refused.extend(piece.iter().map(refuse));
                }
            }
        }
        Ok(reply)
    }

    fn port_set(&self, name: &str, change: PortSet) -> Result<PortShow, ApiError> {
        self.and_save(|control| control.port_set(name, change))
    }

    fn port_list(&self) -> Vec<PortShow> {
        self.settled().port_list()
    }

    fn port_show(&self, name: &str) -> Result<PortShow, ApiError> {
        self.settled().port_show(name)
    }

    fn fdb_list(&self) -> Vec<FdbEntry> {
        let names = self.control().port_names();
        control::list_stations(&self.shared, &names)
    }

    fn fdb_add(&self, request: FdbAdd) -> Result<FdbEntry, ApiError> {
        self.control().fdb_add(&request)
    }

    fn fdb_del(&self, request: FdbDel) -> Result<FdbEntry, ApiError> {
        self.control().fdb_del(&request)
    }

    fn fdb_flush(&self, request: FdbFlush) -> Result<FdbFlushReply, ApiError> {
        self.control().fdb_flush(&request)
    }

    fn rule_list(&self) -> Vec<RuleShow> {
        self.settle_flows();
        self.control().rule_list()
    }

    fn flow_add(&self, request: RuleAdd) -> Result<RuleShow, ApiError> {
        self.and_save(|control| control.flow_add(&request))
    }

    fn flow_del(&self, id: u64) -> Result<RuleShow, ApiError> {
        self.and_save(|control| control.flow_del(id))
    }

    fn flow_list(&self) -> FlowList {
        let lister = self.control().flow_lister();
        let flows = lister.list();
        let control = self.control();
        FlowList { table: control.flow_table(), flows, rules: control.rule_list() }
    }

    fn flow_table(&self) -> FlowTable {
        self.control().flow_table()
    }

    fn flow_flush(&self) -> Result<FlowFlushReply, ApiError> {
        self.control().refuse_if_stopping()?;
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner).flush();
        Ok(FlowFlushReply { flushed: book })
    }

    fn stats(&self) -> StatsShow {
        self.settled().stats()
    }

    fn workers(&self) -> WorkersShow {
        self.control().workers()
    }

    fn latency(&self) -> LatencyShow {
        self.control().latency()
    }

    fn workers_clear(&self) -> WorkersShow {
        self.control().workers_clear()
    }

    fn pool(&self) -> PoolShow {
        self.control().pool()
    }

    fn pool_set(&self, change: PoolSet) -> Result<PoolShow, ApiError> {
        let _short = self.short_grace_periods();
        self.control.begin().pool_set(change)
    }

    fn pool_port_set(&self, name: &str, change: PoolPortSet) -> Result<PoolPort, ApiError> {
        self.change_and_save(|control| control.pool_port_set(name, change))
    }

    fn rxq(&self) -> RxqShow {
        self.control().rxq_show()
    }

    fn rxq_set(&self, name: &str, change: RxqSet) -> Result<RxqPort, ApiError> {
        self.change_and_save(|control| control.rxq_set(name, change))
    }

    fn rxq_set_collector(&self, change: RxqCollectorSet) -> Result<Vec<RxqCollector>, ApiError> {
        self.control.begin().rxq_set_collector(change)
    }

    fn coalesce(&self, port: Option<&str>) -> Result<CoalesceShow, ApiError> {
        self.control().coalesce_show(port)
    }

    fn coalesce_set(&self, name: &str, change: &CoalesceSet) -> Result<CoalescePort, ApiError> {
        self.change_and_save(|control| control.coalesce_set(name, change))
    }

    fn rss(&self, port: Option<&str>) -> Result<Vec<RssShow>, ApiError> {
        self.control().rss_show(port)
    }

    fn rss_set(&self, name: &str, change: &RssSet) -> Result<RssShow, ApiError> {
        self.change_and_save(|control| control.rss_set(name, change))
    }

    fn hints(&self, port: Option<&str>) -> Result<HintsShow, ApiError> {
        let drivers = Drivers::of(&self.control().ifindexes());
        self.control().hints_show(port, &drivers)
    }

    fn hints_set(&self, name: &str, change: HintsSet) -> Result<HintsShow, ApiError> {
        self.change_and_save(|control| control.hints_set(name, change))
    }

    fn capture(&self, name: &str, select: CaptureSelect) -> Result<Box<dyn Capture>, ApiError> {
        self.control().capture(name, select)
    }

    fn occupancy_snapshot(&self) -> PoolOccupancy {
        self.control().occupancy_snapshot()
    }

    fn occupancy_show(&self, port: Option<&str>) -> Result<PoolOccupancy, ApiError> {
        self.control().occupancy_show(port)
    }

    fn occupancy_clearmax(&self, port: Option<&str>) -> Result<ClearmaxReply, ApiError> {
        self.control().occupancy_clearmax(port)
    }

    fn channel_list(&self, port: Option<&str>) -> Result<Vec<ChannelShow>, ApiError> {
        let looks = self.control().channels_to_look_at(port)?;
        // The kernel is asked without the lock.
        let looked = looks.into_iter().map(Look::look).collect();
        Ok(self.control().channels(looked))
    }

    fn queue_list(&self, port: Option<&str>) -> Result<Vec<NetdevQueue>, ApiError> {
        let netdevs = self.control().netdevs_of(port)?;
        queues_of(&netdevs)
    }

    fn napi_list(&self, port: Option<&str>) -> Result<Vec<NetdevNapi>, ApiError> {
        let netdevs = self.control().netdevs_of(port)?;
        napis_of(&netdevs)
    }

    fn page_pools(&self) -> Vec<PagePool> {
        self.control().page_pools()
    }

    fn eswitch(&self) -> EswitchShow {
        self.control().eswitch()
    }

    fn eswitch_set(&self, change: EswitchSet) -> Result<EswitchSetReply, ApiError> {
        let _short = self.short_grace_periods();
        self.control.begin().eswitch_set(change)
    }

    fn apply_settings(&self, settings: Settings) -> Result<(), ApiError> {
        self.control.begin().apply_settings(&settings)
    }

    fn leave(&self) {
        let mut change = self.control.begin();
        let ticket = change.leave();
        drop(change);
        ticket.wait();
    }

    fn turns(&self) -> Vec<ThreadTurns> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let cells = self.shared.workers.iter().enumerate();
        let workers = cells.map(|(index, cell)| (format!("worker-{index}"), cell.iterations.get()));
        let turns = &self.shared.turns;
        let others = [
            ("flow-keeper", turns.flow_keeper.get()),
            ("housekeeper", turns.housekeeper.get()),
            ("guests", turns.guests.get()),
            ("moderator", turns.moderator.get()),
        ];
        let others = others.map(|(thread, turns)| (thread.to_owned(), turns));
        let turns = workers.chain(others).map(|(thread, turns)| ThreadTurns { thread, turns }).collect();
        // After the counts were read: else a turn could count for this look instead of the next.
        self.wakers.iter().for_each(Waker::wake);
        self.guests.wake();
        self.moderator.wake();
        turns
    }

    fn shutdown(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let housekeeper = self.housekeeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(housekeeper);
        self.guests.stop();
        self.moderator.stop();
        let _short = self.short_grace_periods();
        self.control.begin().stop();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shutdown();
    }
}
