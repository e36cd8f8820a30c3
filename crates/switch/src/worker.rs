//! The data plane: one thread that serves the rings bound to its queues.
//!
//! It works in NAPI style: a run list of rings with packets, a budget of 128 packets a turn, sleep when nothing is
//! ready. A turn, or a piece of one, is [`Worker::run_once`], and its six verbs are six files:
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

mod below;
mod cache;
mod channel;
mod checksums;
mod classify;
mod command;
mod complete;
mod decide;
#[cfg(test)]
mod equivalence;
mod join;
mod key;
mod offer;
mod ready;
mod receive;
mod reclaim;
mod refill;
mod repeat;
mod rule;
mod transmit;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::Cache;
use forebay_control::PortId;
use forebay_control::rule::MAX_OUTPUTS;
use forebay_kernel::cycles;
use forebay_policy::{Linger, Nanos, Pace};
use forebay_pool::Burst;
use forebay_xsk::Transmitter;

use crate::SwitchError;
use crate::flood::FloodBucket;
use crate::layouts::Layouts;
use crate::shared::Shared;
use crate::topology::Topology;

pub(crate) use cache::RulingCache;
pub(crate) use channel::{COLLECTORS, Channel, Feed, Member, Slot, SuppliedBy, Supply};
pub(crate) use command::{Command, Commander, Emptied};
pub(crate) use offer::{OFFERS, Offer, Offers, Unrepeatable};
pub(crate) use reclaim::Drain;

use below::Below;
use classify::Classified;
use command::Wait;
use decide::Verdict;
use join::JointRun;
use ready::Ready;
use receive::Stretch;
use repeat::{Found, Repeats};
use rule::Asked;

/// Packets after which a worker looks who else is ready: the longest turn.
pub(crate) const BUDGET: usize = Pace::TURN as usize;

/// Bytes of one ring in one turn, about: half a budget of full Ethernet packets. A port of jumbo packets has fewer of them.
pub(crate) const QUANTUM_BYTES: u32 = Pace::TURN / 2 * 1514;

/// What a turn counts for at least: sixteen turns of next to nothing come between two looks at who is ready, and one
/// full turn, because whoever became ready meanwhile waits that long. Commands are looked for before each turn.
const LEAST_TURN: usize = BUDGET / 16;

/// What a worker is made of. Its thread calls [`Worker::run`].
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    topology: Cache<Arc<arc_swap::ArcSwap<Topology>>, Arc<Topology>>,
    layouts: Cache<Arc<arc_swap::ArcSwap<Layouts>>, Arc<Layouts>>,
    channels: Vec<Option<Box<Channel>>>,
    /// Those that all ports share.
    shared_rings: Vec<Slot>,
    members: Vec<Option<Box<Member>>>,
    supplies: [Option<Box<Supply>>; COLLECTORS],
    ready: Ready,
    transmitter: Transmitter,
    burst: Burst,
    below: Vec<Below>,
    stretches: Vec<Stretch>,
    /// Which decision each packet of the burst repeats.
    repeated: Vec<Option<Found>>,
    classified: Vec<Classified>,
    /// What rules were asked of the packets of one stretch; empty where there are none.
    asked: Vec<Asked>,
    verdicts: Vec<Verdict>,
    /// Copies beside those that verdicts make: of the packet with this index in the burst, to this port.
    extras: Vec<(usize, PortId)>,
    runs: Vec<JointRun>,
    flood: FloodBucket,
    linger: Linger,
    cache: RulingCache,
    repeats: Repeats,
    offers: Offers,
    started: Instant,
}

impl Worker {
    /// A worker that serves nothing yet; `slots` is how many rings it can serve at once.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        slots: usize,
        transmitter: Transmitter,
        cache: RulingCache,
        offers: Offers,
    ) -> Result<(Self, Commander), SwitchError> {
        let (ready, commander) = Ready::new(slots)?;
        let worker = Self {
            index,
            topology: Cache::new(Arc::clone(&shared.topology)),
            layouts: Cache::new(Arc::clone(&shared.layouts)),
            channels: std::iter::repeat_with(|| None).take(slots).collect(),
            shared_rings: Vec::with_capacity(COLLECTORS),
            members: std::iter::repeat_with(|| None).take(shared.max_ports).collect(),
            supplies: [const { None }; COLLECTORS],
            ready,
            transmitter,
            burst: Burst::new(BUDGET),
            below: Vec::with_capacity(BUDGET),
            stretches: Vec::with_capacity(BUDGET),
            repeated: Vec::with_capacity(BUDGET),
            classified: Vec::with_capacity(BUDGET),
            asked: Vec::with_capacity(BUDGET),
            verdicts: Vec::with_capacity(BUDGET),
            extras: Vec::with_capacity(BUDGET * MAX_OUTPUTS),
            runs: Vec::with_capacity(BUDGET),
            flood: shared.flood.worker_bucket(),
            linger: Linger::new(shared.linger_ns),
            cache,
            repeats: Repeats::new(),
            offers,
            started: shared.started,
            shared,
        };
        Ok((worker, commander))
    }

    /// Serves rings until told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let looked = Instant::now();
            let wait = self.wait();
            let woken = if wait == Wait::None { looked } else { Instant::now() };
            self.observe_poll(wait != Wait::None, self.at(woken));
            let began = cycles();
            let (mut served, mut packets) = (0, 0);
            while served < BUDGET {
                if !self.obey() {
                    return;
                }
                let Some(slot) = self.ready.next() else { break };
                let turn = self.run_once(slot);
                packets += turn;
                served += turn.max(LEAST_TURN);
            }
            let cell = self.shared.worker_cell(self.index);
            let spent = cycles().wrapping_sub(began);
            cell.iterations.add(1);
            cell.busy_iterations.add(u64::from(packets > 0));
            if packets > 0 { &cell.busy_cycles } else { &cell.idle_cycles }.add(spent);
            cell.sleeps.add(u64::from(wait == Wait::Asleep));
            cell.lingers.add(u64::from(wait == Wait::Awake));
            cell.busy_ns.add(woken.elapsed().as_nanos() as u64);
        }
    }

    /// `instant` as policies know it.
    fn at(&self, instant: Instant) -> Nanos {
        Nanos(instant.saturating_duration_since(self.started).as_nanos() as u64)
    }

    /// One turn of one ring, or a piece of it: the data plane. Says how many packets it was.
    fn run_once(&mut self, slot: Slot) -> usize {
        let Some(mut channel) = self.channels[slot.index()].take() else { return 0 };
        let now = self.at(Instant::now());
        let topology = Arc::clone(self.topology.load());

        let standing = self.receive(&mut channel);
        let arena = channel.ring.arena();
        self.find_repeats(&topology, now);
        channel.reads_headers = self.classify(arena, &topology);
        self.decide(arena, &topology, now);
        if self.has_leaving() {
            self.complete_checksums(arena, &topology);
            self.transmit(arena, &topology);
        }
        self.complete(&channel);
        let packets = self.burst.len();
        self.refill(&mut channel, standing, now);
        channel.settle();

        self.ready.served(slot, packets, standing);
        self.channels[slot.index()] = Some(channel);
        packets
    }
}
