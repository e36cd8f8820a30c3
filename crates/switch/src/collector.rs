//! A collector: a veth pair of ours, whose far end packets for the slow path come out of.
//!
//! Its transmit end lies in the ports' network namespace, with its offloads off, so that the kernel segments packets
//! and completes checksums on the way in. Its receiving end lies in a private namespace that only this process holds:
//! nobody can touch it there, and however the process ends, the pair goes with it.

use std::sync::Arc;

use forebay_control::IfIndex;
use forebay_kernel::netlink::{NetlinkError, PrivateNetns, link, offload};
use forebay_kernel::{CollectorEnds, Datapath, NetdevLink};
use forebay_policy::Lane;
use forebay_pool::Arena;
use forebay_xsk::{Queue, QueueOptions, QueueRings, XskError};

use crate::SwitchError;

/// Packets up to this size pass, whatever the ports' MTU: 18 frames of 1792 bytes hold 32,256.
const MTU: u32 = 32_000;
/// Collectors that may stand in one namespace; also how many names of dead ones are stepped over.
const NAMES: u32 = 64;
/// The queue socket's own RX ring, where the packets end that a worker sends to itself: a turn of them at a time.
const DRAIN_ENTRIES: u32 = 128;

/// A veth pair that is to become a collector. It goes when it is dropped.
pub(crate) struct CollectorPair {
    pub(crate) name: String,
    pub(crate) ends: CollectorEnds,
    netns: Arc<PrivateNetns>,
}

impl CollectorPair {
    /// Makes the pair with its transmit end in the calling thread's namespace.
    fn make(netns: &Arc<PrivateNetns>, queues: u32) -> Result<Self, SwitchError> {
        let (name, peer) = make_pair(netns, queues)?;
        let transmit = link::by_name(&name)?;
        offload::set_tx_offloads(&name, false)?;
        let receive = netns.run(move || {
            let found = link::by_name(&peer)?;
            link::disable_ipv6_autoconf(found.ifindex)?;
            link::set_up(found.ifindex, true)?;
            Ok::<_, NetlinkError>(found)
        })?;
        link::set_up(transmit.ifindex, true)?;
        let ends = CollectorEnds { transmit_ifindex: transmit.ifindex, receive_ifindex: receive.ifindex };
        Ok(Self { name, ends, netns: Arc::clone(netns) })
    }
}

/// A pair for each lane.
pub(crate) fn make_pairs(
    netns: &Arc<PrivateNetns>,
    queues: u32,
) -> Result<[CollectorPair; Lane::COUNT], SwitchError> {
    Ok([CollectorPair::make(netns, queues)?, CollectorPair::make(netns, queues)?])
}

impl Drop for CollectorPair {
    fn drop(&mut self) {
        if let Err(error) = link::delete(self.ends.transmit_ifindex) {
            tracing::warn!(netdev = self.name, %error, "the collector could not be deleted");
        }
    }
}

/// How large a collector is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectorSize {
    /// One a worker.
    pub(crate) queues: u32,
    /// Entries of each queue's fill ring.
    pub(crate) fill_entries: u32,
}

/// A running collector. Dropping it deletes the pair, which unbinds all sockets on it at once.
pub(crate) struct Collector {
    pub(crate) pair: CollectorPair,
    pub(crate) queues: Vec<Arc<Queue>>,
    _program: NetdevLink,
}

impl Collector {
    /// Binds all queues of `pair` to `arena`, as which `first` is registered already, and attaches the program. The
    /// rings go to the workers.
    pub(crate) fn new(
        pair: CollectorPair,
        datapath: &Datapath,
        arena: &Arc<Arena>,
        first: Option<Arc<Queue>>,
        size: CollectorSize,
    ) -> Result<(Self, Vec<QueueRings>), SwitchError> {
        let (program, ifindex) = (datapath.collector_program(), pair.ends.receive_ifindex);
        let attached = pair.netns.run(move || program.attach(ifindex))?;
        let arena = Arc::clone(arena);
        let bound = pair.netns.run(move || bind_queues(ifindex, size, first.as_deref(), arena))?;
        let (queues, rings) = bound.into_iter().map(|(queue, rings)| (Arc::new(queue), rings)).unzip();
        Ok((Self { pair, queues, _program: attached }, rings))
    }
}

/// Creates the pair under the first free name; the name of a daemon that just died may still be there.
fn make_pair(netns: &PrivateNetns, queues: u32) -> Result<(String, String), SwitchError> {
    let mut last = None;
    for number in 0..NAMES {
        let (name, peer) = (format!("forebay{number}"), format!("forebay{number}rx"));
        match link::create_veth(&name, &peer, Some(netns.fd()), queues, MTU) {
            Ok(_) => return Ok((name, peer)),
            Err(error) if error.errno() == Some(rustix::io::Errno::EXIST.raw_os_error()) => {
                last = Some(error)
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(last.expect("NAMES is not zero").into())
}

fn bind_queues(
    ifindex: IfIndex,
    size: CollectorSize,
    first: Option<&Queue>,
    arena: Arc<Arena>,
) -> Result<Vec<(Queue, QueueRings)>, XskError> {
    let fill_entries = size.fill_entries;
    let options = |queue| QueueOptions {
        ifindex: ifindex.0,
        queue,
        fill_entries,
        rx_entries: DRAIN_ENTRIES,
        tx_entries: None,
    };
    let mut bound: Vec<(Queue, QueueRings)> = Vec::new();
    for queue in 0..size.queues {
        let next = match first.or(bound.first().map(|(first, _)| first)) {
            None => Queue::bind_first(Arc::clone(&arena), options(queue))?,
            Some(first) => Queue::bind_further(first, options(queue))?,
        };
        bound.push(next);
    }
    Ok(bound)
}
