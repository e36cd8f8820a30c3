//! The data plane: one thread that serves the rings bound to its queues.
//!
//! It works in NAPI style: a run list of sources with packets, at most 128 packets a turn, sleep when nothing is
//! ready. A turn, or a piece of one, is [`Worker::run_once`], and its six verbs are six files. The loop around it reads
//! the clocks (`run`); below it time is an argument:
//!
//! ```text
//!   receive ─► classify ─► decide ─► transmit ─► complete ─► refill
//!   RX ring    headers,    FDB,      many a      counters    frames back to
//!   to burst   VLAN        verdicts  call                    the fill ring
//! ```
//!
//! Between decide and transmit, checksums that senders left are completed in what leaves.
//!
//! A ring is one port's own or shared by all; a burst is therefore a row of [`Stretch`]es, each of one port.
//!
//! Nothing here allocates, locks or logs once the worker runs; commands from the control thread come between turns.

mod arrivals;
mod cache;
mod calls_due;
mod checksums;
mod classify;
mod clock;
mod command;
mod complete;
mod decide;
mod dispatch;
mod doorbell;
mod drain;
#[cfg(test)]
mod equivalence;
mod exchange;
mod facts;
mod finish;
mod guest;
mod guest_output;
mod join;
mod key;
mod loans;
mod long;
mod memory;
mod moderation;
mod outlet;
mod parcel;
mod polled;
mod preemptions;
mod probes;
mod proposal;
mod receive;
mod reclaim;
mod record;
mod refill;
mod repeat;
mod rule;
mod run;
mod scene;
mod slot;
mod source;
mod steer;
mod step;
mod stretch;
mod transmit;
mod underway;
mod undone;
mod verdict;

use std::sync::Arc;

use arc_swap::Cache;
use forebay_control::PortId;
use forebay_control::rule::MAX_OUTPUTS;
use forebay_hints::Values;
use forebay_policy::{Linger, Pace, RunList, Standing};
use forebay_pool::{Burst, MAX_SEGMENTS_PER_PACKET};
use forebay_wire::net_header::NetHeader;
use forebay_xsk::Transmitter;

use crate::SwitchError;
use crate::flood::WorkerFlood;
use crate::layouts::Layouts;
use crate::shared::Shared;
use crate::topology::Topology;

pub(crate) use cache::RulingCache;
pub(crate) use clock::Moment;
pub(crate) use command::{Command, Commander, Emptied, Waker};
pub(crate) use drain::Drain;
pub(crate) use exchange::{EXCHANGE_FRAMES, Exchange};
pub(crate) use guest::{GuestCells, GuestSource, ProbeNotes};
pub(crate) use guest_output::GuestOutput;
pub(crate) use key::deeper_fields;
pub(crate) use long::LongSource;
pub(crate) use memory::{MemoryOutput, MemoryPacket, MemoryReceiver, MemorySender, MemorySource, Untaken};
pub(crate) use moderation::{Choice, ModeratedQueue, Moderation};
pub(crate) use outlet::Outlet;
pub(crate) use probes::ProbeToGuest;
pub(crate) use proposal::{PROPOSALS, Proposal, Proposals, Unrepeatable};
pub(crate) use slot::Slot;
pub(crate) use source::{COLLECTORS, Feed, Member, ServedSource, Source, SuppliedBy, Supply, XskSource};
pub(crate) use underway::UnderwayAccount;

use arrivals::Arrivals;
use doorbell::Doorbell;
use join::JointRun;
use loans::Loans;
use parcel::Parcel;
use polled::Polled;
use preemptions::Preemptions;
use probes::ProbesDue;
use record::Record;
use repeat::Repeats;
use rule::Asked;
use stretch::Stretch;

/// Packets after which a worker looks who else is ready: the longest turn.
pub(crate) const TURN: usize = Pace::TURN as usize;

/// Bytes of one ring in one turn, about: half a turn of full Ethernet packets. A port of jumbo packets has fewer of them.
pub(crate) const QUANTUM_BYTES: u32 = Pace::TURN / 2 * 1514;

/// What a worker is made of. Its thread calls [`Worker::run`].
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    topology: Cache<Arc<arc_swap::ArcSwap<Topology>>, Arc<Topology>>,
    layouts: Cache<Arc<arc_swap::ArcSwap<Layouts>>, Arc<Layouts>>,
    sources: Vec<Option<Box<ServedSource>>>,
    /// Those that all ports share.
    shared_rings: Vec<Slot>,
    /// The long queue's, if there is one.
    long: Option<Slot>,
    members: Vec<Option<Box<Member>>>,
    supplies: [Option<Box<Supply>>; COLLECTORS],
    doorbell: Doorbell,
    run_list: RunList,
    polled: Polled,
    /// `None` in a worker all of whose outputs are in memory.
    transmitter: Option<Transmitter>,
    /// Outputs that this worker owns, by port.
    outlets: Vec<Option<Box<Outlet>>>,
    /// Outputs whose receivers are to be shown what was queued.
    owing: Vec<PortId>,
    moderation: Box<Moderation>,
    /// Where packets go for outputs that another worker owns.
    exchange: Option<Exchange>,
    probes_due: ProbesDue,
    /// Frames of the packet that another worker handed over.
    handed: Vec<Parcel>,
    burst: Burst,
    /// Of the packets of the burst, in their order.
    records: Box<[Record]>,
    /// What their devices told of them, where they told anything.
    hints: Box<[Values]>,
    /// What their senders left undone, where they did.
    undone: Box<[NetHeader]>,
    /// A packet of the burst is left undone.
    has_undone: bool,
    /// What they have in the memory of the guest that sent them.
    loans: Loans,
    stretches: Vec<Stretch>,
    /// What rules were asked of the packets of one stretch; empty where there are none.
    asked: Vec<Asked>,
    /// Copies beside those that verdicts make: of the packet with this index in the burst, to this port.
    extras: Vec<(usize, PortId)>,
    runs: Vec<JointRun>,
    flood: WorkerFlood,
    linger: Linger,
    preemptions: Preemptions,
    arrivals: Arrivals,
    cache: RulingCache,
    repeats: Repeats,
    proposals: Proposals,
}

impl Worker {
    /// A worker that serves nothing yet; `slots` is how many rings it can serve at once.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        slots: usize,
        transmitter: Option<Transmitter>,
        cache: RulingCache,
        proposals: Proposals,
    ) -> Result<(Self, Commander), SwitchError> {
        let (doorbell, commander) = Doorbell::new()?;
        let worker = Self {
            index,
            topology: Cache::new(Arc::clone(&shared.topology)),
            layouts: Cache::new(Arc::clone(&shared.layouts)),
            sources: std::iter::repeat_with(|| None).take(slots).collect(),
            shared_rings: Vec::with_capacity(COLLECTORS),
            long: None,
            members: std::iter::repeat_with(|| None).take(shared.max_ports).collect(),
            supplies: [const { None }; COLLECTORS],
            doorbell,
            run_list: RunList::new(slots),
            polled: Polled::new(),
            transmitter,
            outlets: std::iter::repeat_with(|| None).take(shared.max_ports).collect(),
            owing: Vec::with_capacity(shared.max_ports),
            moderation: Box::new(Moderation::new(0, Arc::clone(&shared.news[index]))),
            exchange: None,
            probes_due: ProbesDue::new(),
            handed: Vec::with_capacity(MAX_SEGMENTS_PER_PACKET),
            burst: Burst::new(TURN),
            records: record::records(),
            hints: vec![Values::default(); TURN].into_boxed_slice(),
            undone: vec![NetHeader::default(); TURN].into_boxed_slice(),
            has_undone: false,
            loans: Loans::new(),
            stretches: Vec::with_capacity(TURN),
            asked: Vec::with_capacity(TURN),
            extras: Vec::with_capacity(TURN * MAX_OUTPUTS),
            runs: Vec::with_capacity(TURN),
            flood: WorkerFlood::new(&shared.flood),
            linger: Linger::new(shared.linger_ns),
            preemptions: Preemptions::default(),
            arrivals: Arrivals::new(index, TURN),
            cache,
            repeats: Repeats::new(),
            proposals,
            shared,
        };
        Ok((worker, commander))
    }

    /// One turn of one ring, or a piece of it: the data plane. Says how many packets it was.
    fn run_once(&mut self, slot: Slot, moment: Moment) -> usize {
        let Some(mut served) = self.sources[slot.index()].take() else { return 0 };
        let now = moment.now;
        let topology = Arc::clone(self.topology.load());

        let standing = self.receive(&mut served, now);
        let arena = served.source.arena();
        self.find_repeats(&topology, now);
        let reads_headers = self.classify(arena, &topology);
        self.decide(arena, &topology, moment);
        if self.has_leaving() {
            self.complete_checksums(arena, &topology);
            self.transmit(arena, &topology, now);
        }
        self.settle_underway();
        self.give_back(&mut served, now);
        self.complete(&served);
        let packets = self.burst.len();
        self.linger.moves(packets as u64, self.burst.bytes_of(0..packets), now);
        served.source.set_reads_headers(reads_headers);
        self.refill(&mut served, standing, now);
        served.settle();

        self.run_list.served(slot.0, packets, standing);
        let is_to_be_polled = standing == Standing::Empty && matches!(served.source, Source::Guest(_));
        self.sources[slot.index()] = Some(served);
        if is_to_be_polled {
            self.poll_guest(slot);
        }
        packets
    }
}
