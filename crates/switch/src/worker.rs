//! The data plane: one thread that serves the ports bound to its collector queue.
//!
//! It works in NAPI style: a run list of ports with packets, a budget of 64 packets a turn, sleep when nothing is
//! ready. One turn is [`Worker::run_once`], and its six verbs are six files:
//!
//! ```text
//!   receive ─► classify ─► decide ─► transmit ─► complete ─► refill
//!   RX ring    headers,    FDB,      many a      counters    frames back to
//!   to burst   VLAN        verdicts  call                    the fill ring
//! ```
//!
//! Nothing here allocates, locks or logs once the worker runs; commands from the control thread come between turns.

mod classify;
mod command;
mod complete;
mod decide;
mod join;
mod ready;
mod receive;
mod refill;
mod transmit;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::Cache;
use forebay_control::PortId;
use forebay_kernel::RingAccount;
use forebay_policy::{Deficit, Nanos};
use forebay_pool::{Burst, Magazine};
use forebay_xsk::{FillRing, PortSocket, RxRing, Transmitter};

use crate::SwitchError;
use crate::counters::{PortCells, RingGauge};
use crate::flood::FloodBucket;
use crate::shared::Shared;
use crate::topology::Topology;

pub(crate) use command::{Command, Commander};

use classify::Classified;
use complete::Tally;
use decide::Verdict;
use join::JointRun;
use ready::Ready;

/// Packets of one port in one turn; the kernel's NAPI budget.
pub(crate) const BUDGET: usize = 64;

/// Bytes of one port in one turn, about: a budget of full Ethernet packets. A port of jumbo packets has fewer of them.
pub(crate) const QUANTUM_BYTES: u32 = BUDGET as u32 * 1514;

/// What a turn counts for at least: sixteen turns of next to nothing come between two looks at who is ready, and one
/// full turn, because whoever became ready meanwhile waits that long. Commands are looked for before each turn.
const LEAST_TURN: usize = BUDGET / 16;

/// A port as one worker serves it: its RX ring on the worker's queue.
pub(crate) struct Channel {
    pub(crate) port: PortId,
    pub(crate) ring: RxRing,
    pub(crate) socket: Arc<PortSocket>,
    pub(crate) gauge: Arc<RingGauge>,
    pub(crate) account: RingAccount,
    pub(crate) cells: Arc<PortCells>,
    pub(crate) flood: FloodBucket,
    pub(crate) deficit: Deficit,
}

impl Channel {
    /// What the ring does not hold any more, the port may take again.
    fn settle(&self) {
        self.account.settle(|| u64::from(self.ring.occupancy()));
    }
}

/// What a worker is made of. Its thread calls [`Worker::run`].
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    topology: Cache<Arc<arc_swap::ArcSwap<Topology>>, Arc<Topology>>,
    channels: Vec<Option<Channel>>,
    ready: Ready,
    fill: FillRing,
    magazine: Magazine,
    transmitter: Transmitter,
    burst: Burst,
    classified: Vec<Classified>,
    verdicts: Vec<Verdict>,
    runs: Vec<JointRun>,
    flood: FloodBucket,
    started: Instant,
}

impl Worker {
    /// A worker for collector queue `index` whose frames go through `fill`.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        fill: FillRing,
        magazine: Magazine,
        transmitter: Transmitter,
    ) -> Result<(Self, Commander), SwitchError> {
        let (ready, commander) = Ready::new()?;
        let mut channels = Vec::new();
        channels.resize_with(shared.max_ports, || None);
        let mut worker = Self {
            index,
            topology: Cache::new(Arc::clone(&shared.topology)),
            channels,
            ready,
            fill,
            magazine,
            transmitter,
            burst: Burst::new(BUDGET),
            classified: Vec::with_capacity(BUDGET),
            verdicts: Vec::with_capacity(BUDGET),
            runs: Vec::with_capacity(BUDGET),
            flood: shared.flood.worker_bucket(),
            started: shared.started,
            shared,
        };
        worker.prime();
        Ok((worker, commander))
    }

    /// Serves ports until told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let looked = Instant::now();
            let slept = self.wait();
            let woken = if slept { Instant::now() } else { looked };
            let mut served = 0;
            while served < BUDGET {
                if !self.obey() {
                    return;
                }
                let Some(port) = self.ready.next() else { break };
                served += self.run_once(port).max(LEAST_TURN);
            }
            let cell = self.shared.worker_cell(self.index);
            cell.iterations.add(1);
            cell.sleeps.add(u64::from(slept));
            cell.busy_ns.add(woken.elapsed().as_nanos() as u64);
        }
    }

    /// One turn of one port: the data plane. Says how many packets it was.
    fn run_once(&mut self, port: PortId) -> usize {
        let Some(mut channel) = self.channels[usize::from(port.0)].take() else { return 0 };
        let now = Nanos(self.started.elapsed().as_nanos() as u64);
        let topology = Arc::clone(self.topology.load());
        let mut tally = Tally::default();

        let more = self.receive(&mut channel);
        let packets = self.burst.len();
        self.classify(&topology, &channel, &mut tally);
        self.decide(&topology, &mut channel, now, &mut tally);
        self.transmit(&topology, &channel);
        self.complete(&channel, &tally);
        self.refill();
        channel.settle();

        if more {
            self.ready.again(port);
        }
        self.channels[usize::from(port.0)] = Some(channel);
        packets
    }
}
