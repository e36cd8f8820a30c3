//! The product without sockets: a whole worker with sources and outputs in memory, the keeper's book, and the kernel
//! program that follows its flows.

use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use forebay_control::{IfIndex, PortId};
use forebay_kernel::netlink::link;
use forebay_kernel::trial::{TcContext, Trial, Tried};
use forebay_kernel::{
    Bank, ClassTable, CollectorEnds, Datapath, DatapathOptions, FlowAction, FlowKey, FlowVerdict, PortConfig,
    RingOwner, RingRule, XdpProgram, XdpVariant,
};
use forebay_policy::{Nanos, Turn};
use forebay_pool::{Arena, FrameSize, Pool};
use rtrb::{Consumer, RingBuffer};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::oracle::{Copies, Port};
use super::world;
use crate::attention::Attention;
use crate::counters::WorkerCell;
use crate::fdb::{Flush, Limits, fdb_of};
use crate::flood::PortFlood;
use crate::flows::{FlowBook, FlowLimits};
use crate::news::News;
use crate::pool_instance::Stock;
use crate::publication::Publication;
use crate::rate::Rate;
use crate::rules::RuleSet;
use crate::shared::Shared;
use crate::supervise::Turns;
use crate::topology::Topology;
use crate::worker::clock::Moment;
use crate::worker::facts::Facts;
use crate::worker::verdict::Verdict;
use crate::worker::{
    Feed, Member, MemoryOutput, MemoryPacket, MemoryReceiver, MemorySender, MemorySource, Outlet, Proposal,
    Proposals, QUANTUM_BYTES, RulingCache, ServedSource, Slot, Source, Worker,
};

pub(super) const MAX_PORTS: u16 = 8;
/// So many flows are in the table before all are taken out.
const MAX_FLOWS: u64 = 1000;
/// Frames of the pool, and those that wait in an output at most.
const FRAMES: u32 = 4096;
const OUTPUT_FRAMES: usize = 16;
/// Longer than a worker remembers what it proposed, and shorter.
const STEP: Nanos = Nanos(200_000_000);
const SOON: u64 = 1000;
/// Too short for an Ethernet header.
const RUNT: [u8; 10] = [0; 10];

pub(super) struct Product {
    worker: Worker,
    proposals: Consumer<Proposal>,
    /// By port: where packets come in and go out.
    ends: Vec<(MemorySender, MemoryReceiver)>,
    shared: Arc<Shared>,
    now: Nanos,
    turn: u64,
    datapath: Datapath,
    classes: ClassTable,
    book: FlowBook,
    publication: Publication,
    netdevs: Vec<IfIndex>,
    program: XdpProgram,
    trial: Trial,
    _slow_path: OwnedFd,
}

/// A slow path whose rings take nothing, so that what it would get is counted and dropped.
fn full_slow_path(datapath: &Datapath, collector: IfIndex) -> OwnedFd {
    let bank = Bank::Collector(0);
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("an AF_XDP socket");
    datapath.set_socket(bank, RingOwner::Shared, 0, socket.as_fd()).expect("a socket");
    let full = RingRule { depth: 0, reserve: 0, th: 0, limit: u32::MAX };
    datapath.ring_account(RingOwner::Shared, 0).set_rule(full);
    let ends = CollectorEnds { transmit_ifindex: collector, receive_ifindex: collector };
    datapath.connect_collector(0, ends).expect("a collector");
    socket
}

fn netdevs() -> Vec<IfIndex> {
    let name = |number| format!("p{number}");
    for number in 0..=MAX_PORTS {
        link::create_veth(&name(number), &format!("q{number}"), None, 1, 1500).expect("a veth pair");
        link::set_up(link::by_name(&name(number)).expect("it was made").ifindex, true).expect("it can be up");
    }
    (0..=MAX_PORTS).map(|number| link::by_name(&name(number)).expect("it was made").ifindex).collect()
}

impl Product {
    /// In a namespace of its own.
    pub(super) fn new() -> Self {
        let netdevs = netdevs();
        let options = DatapathOptions {
            max_ports: MAX_PORTS.into(),
            queues: 1,
            frame_payload: 1792,
            max_flows: 4 * MAX_FLOWS as u32,
            collector_rx: netdevs[usize::from(MAX_PORTS)],
        };
        let datapath = Datapath::load(&options, None).expect("the programs load");
        let slow_path = full_slow_path(&datapath, options.collector_rx);
        let limits = Limits { total: 4096, per_port: 4096, ageing_s: u32::MAX };
        let shared = Arc::new(Shared {
            topology: Arc::new(ArcSwap::from_pointee(Topology::default())),
            layouts: Arc::default(),
            fdb: fdb_of(limits, [1, 2]).telling(Arc::clone(datapath.generations())),
            generations: Arc::clone(datapath.generations()),
            steered: datapath.steered_stations().expect("memory"),
            flood: Rate::new(0, 0),
            moves: Rate::new(0, 0),
            workers: [WorkerCell::default()].into(),
            worker_nodes: [None].into(),
            news: News::of_workers(1, 0),
            attention: Attention::new().expect("an eventfd"),
            turns: Turns::default(),
            max_ports: MAX_PORTS.into(),
            join_segments: false,
            linger_ns: 0,
            started: Instant::now(),
        });
        let mut publication = Publication::new(Arc::clone(&shared));
        publication.void_flows(true);
        let (producer, consumer) = RingBuffer::new(16);
        let proposals = Proposals::new(producer, Arc::new(Attention::new().expect("an eventfd")));
        let cache = RulingCache::new([1, 2]);
        let (mut worker, _) =
            Worker::new(0, Arc::clone(&shared), MAX_PORTS.into(), None, cache, proposals).expect("a worker");
        let frames = NonZeroU32::new(FRAMES).expect("not zero");
        let Stock { arena, pool } = Stock::new(frames, FrameSize::B2048).expect("memory");
        let ends = (0..MAX_PORTS).map(|id| connect(&mut worker, PortId(id), &arena, &pool)).collect();
        let max_entries = 4 * MAX_FLOWS;
        let limits = FlowLimits { max_entries, idle: Nanos(u64::MAX), installs_per_second: 0 };
        let table = datapath.flow_table().expect("a table");
        Self {
            worker,
            proposals: consumer,
            ends,
            book: FlowBook::new(table, Arc::clone(&shared.generations), limits),
            shared,
            now: STEP,
            turn: 0,
            classes: datapath.class_table().expect("classes"),
            publication,
            program: datapath.xdp_program(netdevs[0], XdpVariant::Plain).expect("a program"),
            trial: Trial::default(),
            _slow_path: slow_path,
            datapath,
            netdevs,
        }
    }

    /// Shows worker and kernel the ports as they are now.
    pub(super) fn set_ports(&mut self, ports: &[Port]) {
        for (id, port) in (0..).zip(ports) {
            let ifindex = self.netdevs[usize::from(id)];
            let leaves_checksums = port.leaves_checksums;
            let bank = Bank::Collector(0);
            let config =
                PortConfig { port_id: id, queue: 0, bank, leaves_checksums, steering: None, near_queues: 0 };
            self.datapath.set_port(ifindex, config).expect("room for a port");
            self.datapath.set_output(id, Some(ifindex)).expect("an output");
            let (flood, moves) = (PortFlood::new(&self.shared.flood), self.shared.moves.bucket());
            let cells = world::entry(id, port, ifindex).cells;
            self.worker.members[usize::from(id)] =
                Some(Box::new(Member { cells, flood, moves, tap: None, underway: None }));
        }
        let entry = |(id, port): (u16, &Port)| world::entry(id, port, self.netdevs[usize::from(id)]);
        self.publication.publish((0..).zip(ports).map(entry), || self.book.last_flow_id());
    }

    /// The rules change, and whether the kernel follows flows, and then the ports are shown.
    pub(super) fn set_rules(&mut self, rules: RuleSet, carries_flows: bool, ports: &[Port]) {
        self.publication.set_carries_flows(carries_flows);
        self.publication.suspend_flows();
        self.classes.set(rules.classes()).expect("room for the classes");
        self.publication.set_rules(Arc::new(rules), self.book.last_flow_id(), true);
        self.set_ports(ports);
    }

    /// Forgets all stations.
    pub(super) fn forget_stations(&mut self) {
        self.shared.fdb.flush(Flush { with_static: true, ..Flush::default() });
    }

    /// What the worker does with a packet with this flow id, and whether the kernel was told how to do it.
    pub(super) fn decide(&mut self, input: u16, bytes: &[u8], flow_id: u32) -> (Copies, Option<Proposal>) {
        self.turn += 1;
        // A decision is proposed again after a while, and repeated until then.
        self.now.0 += if self.turn.is_multiple_of(100) { STEP.0 } else { SOON };
        self.send(input, bytes, flow_id);
        if self.turn.is_multiple_of(2) {
            // A burst of packets of several flows.
            self.send(input, &RUNT, 0);
        }
        self.worker.wake(Slot(input.into()));
        self.worker.step(Moment { now: self.now, ..Moment::default() });
        (self.copies(), self.take_proposals())
    }

    fn send(&mut self, input: u16, bytes: &[u8], flow_id: u32) {
        let facts = Facts { flow_id, ..Facts::default() };
        let (sender, _) = &mut self.ends[usize::from(input)];
        sender
            .send(MemoryPacket { bytes: bytes.into(), facts, undone: Default::default() })
            .expect("room for two");
    }

    /// What has left.
    fn copies(&mut self) -> Copies {
        let ends = (0..).zip(&mut self.ends);
        let received = ends.flat_map(|(id, (_, receiver))| {
            std::iter::from_fn(move || receiver.receive()).map(move |received| (id, received.bytes))
        });
        received.collect()
    }

    /// Whether the worker did with the last packet what it had done with one before.
    pub(super) fn has_repeated(&self) -> bool {
        self.worker.stretches[0].alike.or(self.worker.records[0].repeats).is_some()
    }

    /// The worker's last.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        Some(self.worker.records[0].verdict)
    }

    /// Puts in what the worker proposes; returns the proposal for the packet itself, if the kernel is to do it now.
    fn take_proposals(&mut self) -> Option<Proposal> {
        if self.book.len() > MAX_FLOWS {
            self.book.flush();
        }
        // No program runs now: there is no need to wait.
        let left = self.book.take_left();
        self.book.reclaim(&left, self.now);
        let mut last = None;
        while let Ok(proposal) = self.proposals.pop() {
            self.book.take(proposal, self.now);
            last = self
                .find(proposal.key)
                .map(|_| proposal)
                .filter(|proposal| proposal.repeat.is_ok() || proposal.tell.is_some());
        }
        last
    }

    /// The flow with this key, if it holds.
    fn find(&self, key: FlowKey) -> Option<FlowVerdict> {
        let (_, verdict) = self.book.table().look_up(key)?;
        verdict.holds(key, &self.shared.generations).then_some(verdict)
    }

    /// The flow id that a program with hints gives to packets of this key.
    pub(super) fn told(&self, key: FlowKey) -> Option<u32> {
        match self.find(key)?.action {
            FlowAction::Tell { flow_id, .. } => Some(flow_id),
            _ => None,
        }
    }

    /// Runs the kernel program over a packet.
    pub(super) fn run(&mut self, input: u16, bytes: &[u8]) -> Tried<'_> {
        let ifindex = self.netdevs[usize::from(input)];
        self.trial.xdp(self.program.as_fd(), ifindex, 0, bytes).expect("a run")
    }

    /// Runs the program at tcx over a packet that the one at the XDP hook has passed on.
    pub(super) fn run_tcx(&mut self, input: u16, bytes: &[u8]) -> Tried<'_> {
        let ifindex = self.netdevs[usize::from(input)];
        let context = TcContext { ifindex, ..TcContext::default() };
        self.trial.tc(self.datapath.tcx_program(), &context, bytes).expect("a run")
    }

    /// Packets for which the kernel had no flow. The slow path's rings are full, so that they go nowhere.
    pub(super) fn missed(&self, input: u16) -> u64 {
        self.datapath.counters(input).slow_path_packets
    }

    /// The flow with this key: what it says, and what it carried.
    pub(super) fn flow(&self, key: FlowKey) -> Option<(FlowVerdict, [u64; 2])> {
        let (number, verdict) = self.book.table().look_up(key)?;
        let count = self.book.table().count(number);
        Some((verdict, [count.packets, count.bytes]))
    }

    pub(super) fn rules(&self) -> &RuleSet {
        self.publication.rules()
    }
}

/// Gives a port its ends: a source that the worker serves under the port's number, and an output.
fn connect(
    worker: &mut Worker,
    id: PortId,
    arena: &Arc<Arena>,
    pool: &Arc<Pool>,
) -> (MemorySender, MemoryReceiver) {
    let (source, sender) = MemorySource::new(2, Arc::clone(arena), pool);
    let served = ServedSource {
        feed: Feed::Port(id),
        source: Source::Memory(source),
        gauge: Arc::default(),
        account: None,
        turn: Turn::new(QUANTUM_BYTES),
        is_calm: false,
    };
    worker.sources[usize::from(id.0)] = Some(Box::new(served));
    let (output, receiver) = MemoryOutput::new(OUTPUT_FRAMES, Arc::clone(arena), pool);
    worker.outlets[usize::from(id.0)] = Some(Box::new(Outlet::Memory(output)));
    (sender, receiver)
}
