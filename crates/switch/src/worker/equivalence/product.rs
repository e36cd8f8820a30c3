//! The product without sockets: a worker that is handed its packets, and the kernel program that follows its offers.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use forebay_control::PortId;
use forebay_kernel::netlink::link;
use forebay_kernel::trial::{Trial, Tried};
use forebay_kernel::{
    Bank, ClassTable, Datapath, DatapathOptions, FlowAction, FlowKey, FlowNote, FlowNumber, FlowTable,
    FlowVerdict, PortConfig, XdpProgram, XdpVariant,
};
use forebay_policy::Nanos;
use forebay_pool::{Arena, Frame, FrameSize, Segment};
use forebay_xsk::{TagEdit, Transmitter};
use rtrb::{Consumer, RingBuffer};

use super::oracle::{Copies, Port};
use super::world;
use crate::attention::Attention;
use crate::counters::WorkerCell;
use crate::fdb::{Flush, Limits, fdb_of};
use crate::flood::PortFlood;
use crate::publication::Publication;
use crate::rate::Rate;
use crate::rules::RuleSet;
use crate::shared::Shared;
use crate::supervise::Turns;
use crate::topology::Topology;
use crate::worker::clock::Moment;
use crate::worker::decide::Verdict;
use crate::worker::facts::Facts;
use crate::worker::receive::Stretch;
use crate::worker::{Member, Offer, Offers, RulingCache, Worker};

pub(super) const MAX_PORTS: u16 = 8;
/// So many flows are in the table before all are taken out.
const MAX_FLOWS: usize = 1000;
const HEADROOM: u16 = 256;
/// Longer than a worker remembers what it offered.
const STEP: Nanos = Nanos(200_000_000);

pub(super) struct Product {
    worker: Worker,
    offers: Consumer<Offer>,
    arena: Arena,
    frame: Option<Frame>,
    shared: Arc<Shared>,
    now: Nanos,
    datapath: Datapath,
    classes: ClassTable,
    table: FlowTable,
    flows: HashMap<FlowKey, (FlowNumber, FlowVerdict)>,
    publication: Publication,
    last_mark: u32,
    netdevs: Vec<u32>,
    program: XdpProgram,
    trial: Trial,
}

fn netdevs() -> Vec<u32> {
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
        let limits = Limits { total: 4096, per_port: 4096, ageing_s: u32::MAX };
        let shared = Arc::new(Shared {
            topology: Arc::new(ArcSwap::from_pointee(Topology::default())),
            layouts: Arc::default(),
            fdb: fdb_of(limits, [1, 2]).telling(Arc::clone(datapath.generations())),
            generations: Arc::clone(datapath.generations()),
            flood: Rate::new(0, 0),
            moves: Rate::new(0, 0),
            workers: [WorkerCell::default()].into(),
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
        let offers = Offers::new(producer, Arc::new(Attention::new().expect("an eventfd")));
        let transmitter = Some(Transmitter::open(None).expect("a packet socket"));
        let (worker, _) =
            Worker::new(0, Arc::clone(&shared), 1, transmitter, RulingCache::new([1, 2]), offers)
                .expect("a worker");
        let (arena, mut frames) = Arena::new(NonZeroU32::MIN, FrameSize::B2048).expect("memory");
        Self {
            worker,
            offers: consumer,
            arena,
            frame: frames.pop(),
            shared,
            now: STEP,
            classes: datapath.class_table().expect("classes"),
            table: datapath.flow_table().expect("a table"),
            flows: HashMap::new(),
            publication,
            last_mark: 0,
            program: datapath.xdp_program(netdevs[0], XdpVariant::Plain).expect("a program"),
            trial: Trial::default(),
            datapath,
            netdevs,
        }
    }

    /// Shows worker and kernel the ports as they are now.
    pub(super) fn set_ports(&mut self, ports: &[Port]) {
        for (id, port) in (0..).zip(ports) {
            let ifindex = self.netdevs[usize::from(id)];
            let leaves_checksums = port.leaves_checksums;
            let config = PortConfig { port_id: id, queue: 0, bank: Bank::Collector(0), leaves_checksums };
            self.datapath.set_port(ifindex, config).expect("room for a port");
            self.datapath.set_output(id, Some(ifindex)).expect("an output");
            let (flood, moves) = (PortFlood::new(&self.shared.flood), self.shared.moves.bucket());
            let cells = world::entry(id, port, ifindex).cells;
            self.worker.members[usize::from(id)] = Some(Box::new(Member { cells, flood, moves, tap: None }));
        }
        let entry = |(id, port): (u16, &Port)| world::entry(id, port, self.netdevs[usize::from(id)]);
        self.publication.publish((0..).zip(ports).map(entry));
    }

    /// The rules change, and whether the kernel follows flows, and then the ports are shown.
    pub(super) fn set_rules(&mut self, rules: RuleSet, carries_flows: bool, ports: &[Port]) {
        self.publication.set_carries_flows(carries_flows);
        self.publication.suspend_flows();
        self.classes.set(rules.classes()).expect("room for the classes");
        self.publication.set_rules(Arc::new(rules), self.last_mark, true);
        self.set_ports(ports);
    }

    /// Forgets all stations.
    pub(super) fn forget_stations(&mut self) {
        self.shared.fdb.flush(Flush { with_static: true, ..Flush::default() });
    }

    /// What the worker does with a packet whose flow's mark this is, and whether the kernel was told how to do it.
    pub(super) fn decide(&mut self, input: u16, bytes: &[u8], flow_mark: u32) -> (Copies, Option<Offer>) {
        self.now = Nanos(self.now.0 + STEP.0);
        let mut frame = self.frame.take().expect("it was put back");
        let len = bytes.len() as u16;
        self.arena.bytes_mut(&mut frame, HEADROOM, len).copy_from_slice(bytes);
        let topology = self.shared.topology.load_full();
        self.worker.burst.push(Segment { frame, offset: HEADROOM, len }, true);
        self.worker.records[0].facts = Facts { flow_mark, ..Facts::default() };
        self.worker.stretches.clear();
        self.worker.stretches.push(Stretch::new(Some(PortId(input)), 0..1));
        // What was decided once is not too old here.
        self.worker.find_repeats(&topology, Nanos(0));
        if (self.now.0 / STEP.0).is_multiple_of(2) {
            // As among packets of other flows.
            self.worker.records[0].repeats = self.worker.stretches[0].alike.take();
        }
        self.worker.classify(&self.arena, &topology);
        self.worker.decide(&self.arena, &topology, Moment { now: self.now, ..Moment::default() });
        self.worker.complete_checksums(&self.arena, &topology);
        let copies = self.copies(&topology, input);
        self.frame = self.worker.burst.drain().next();
        (copies, self.take_offers())
    }

    /// Whether the worker did with the last packet what it had done with one before.
    pub(super) fn has_repeated(&self) -> bool {
        self.worker.stretches[0].alike.or(self.worker.records[0].repeats).is_some()
    }

    /// The worker's last.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        Some(self.worker.records[0].verdict)
    }

    /// Where `Worker::transmit` sends the packet.
    fn copies(&self, topology: &Topology, input: u16) -> Copies {
        let Ok(headers) = self.worker.records[0].classified else { return Vec::new() };
        let segment = &self.worker.burst.packet(0)[0];
        let packet = self.arena.bytes(&segment.frame, segment.offset, segment.len);
        let mut ports = match self.worker.records[0].verdict {
            Verdict::Forward(port) => vec![port],
            Verdict::Drop(_) | Verdict::Refused(..) => Vec::new(),
            Verdict::Flood => {
                let isolated = |id: PortId| topology.port(id).is_some_and(|port| port.isolated);
                let mut members = topology.members(headers.vid).to_vec();
                members.retain(|id| id.0 != input && !(isolated(*id) && isolated(PortId(input))));
                members
            }
        };
        ports.extend(self.worker.extras.iter().map(|(_, port)| *port));
        ports.sort_unstable();
        let up = ports.into_iter().filter_map(|id| topology.port(id)).filter(|port| port.output.is_some());
        up.map(|port| (port.id.0, edited(packet, headers.egress(&port.vlans)))).collect()
    }

    /// Puts in what the worker offers; returns the offer for the packet itself, if the kernel is to do it now.
    fn take_offers(&mut self) -> Option<Offer> {
        let mut last = None;
        if self.flows.len() > MAX_FLOWS {
            self.flows.drain().for_each(|(_, (number, _))| self.table.remove(number));
        }
        // No program runs now: there is no need to wait.
        let left = self.table.take_left();
        self.table.reclaim(&left);
        while let Ok(offer) = self.offers.pop() {
            let verdict = offer.repeat.ok().or(offer.tell);
            let verdict = verdict.filter(|verdict| verdict.holds(offer.key, &self.shared.generations));
            last = verdict.filter(|verdict| self.install(offer.key, verdict)).map(|_| offer);
        }
        last
    }

    fn install(&mut self, key: FlowKey, verdict: &FlowVerdict) -> bool {
        let under = |flow_mark| match verdict.action {
            FlowAction::Tell { port_id, .. } => {
                FlowVerdict { action: FlowAction::Tell { port_id, flow_mark }, ..*verdict }
            }
            _ => *verdict,
        };
        if let Some((number, before)) = self.flows.get(&key) {
            if matches!(before.action, FlowAction::Tell { flow_mark, .. } if *before == under(flow_mark))
                || before == verdict
            {
                return true;
            }
            self.table.remove(*number);
        }
        self.flows.remove(&key);
        self.last_mark += 1;
        let verdict = under(self.last_mark);
        let Ok(number) = self.table.insert(key, &verdict, FlowNote::default()) else { return false };
        self.flows.insert(key, (number, verdict));
        true
    }

    /// The mark that a program with hints gives to packets of this key.
    pub(super) fn told(&self, key: FlowKey) -> Option<u32> {
        let (_, verdict) = self.flows.get(&key)?;
        let FlowAction::Tell { flow_mark, .. } = verdict.action else { return None };
        verdict.holds(key, &self.shared.generations).then_some(flow_mark)
    }

    /// Runs the kernel program over a packet.
    pub(super) fn run(&mut self, input: u16, bytes: &[u8]) -> Tried<'_> {
        let ifindex = self.netdevs[usize::from(input)];
        self.trial.xdp(self.program.as_fd(), ifindex, 0, bytes).expect("a run")
    }

    /// The flow with this key: what it says, and what it carried.
    pub(super) fn flow(&self, key: FlowKey) -> Option<(FlowVerdict, [u64; 2])> {
        let (number, verdict) = self.flows.get(&key)?;
        let count = self.table.count(*number);
        Some((*verdict, [count.packets, count.bytes]))
    }

    pub(super) fn rules(&self) -> &RuleSet {
        self.publication.rules()
    }
}

fn edited(packet: &[u8], edit: TagEdit) -> Vec<u8> {
    let (addresses, rest) = packet.split_at(12);
    match edit {
        TagEdit::Keep => packet.to_vec(),
        TagEdit::Push(tag) => [addresses, &tag, rest].concat(),
        TagEdit::Replace(tag) => [addresses, &tag, &rest[4..]].concat(),
        TagEdit::Pop => [addresses, &rest[4..]].concat(),
    }
}
