//! The collector: one veth pair of ours, whose far end all packets for the slow path come out of.
//!
//! Its transmit end lies in the ports' network namespace, with its offloads off, so that the kernel segments packets
//! and completes checksums on the way in. Its receiving end lies in a private namespace that only this process holds:
//! nobody can touch it there, and however the process ends, the pair goes with it.

use std::sync::Arc;

use forebay_kernel::netlink::{NetlinkError, PrivateNetns, link, offload};
use forebay_kernel::{CollectorEnds, Datapath, NetdevLink};
use forebay_pool::Arena;
use forebay_xsk::{Queue, QueueOptions, QueueRings, XskError};

use crate::SwitchError;

/// Packets up to this size pass, whatever the ports' MTU: 18 frames of 1792 bytes hold 32,256.
const MTU: u32 = 32_000;
/// Collectors that may stand in one namespace; also how many names of dead ones are stepped over.
const NAMES: u32 = 64;
/// The queue socket's own RX ring, where the packets end that a worker sends to itself: a budget of them at a time.
const DRAIN_ENTRIES: u32 = 128;

/// A veth pair that is to become a collector. It goes when it is dropped.
pub(crate) struct CollectorPair {
    pub(crate) name: String,
    pub(crate) ends: CollectorEnds,
    netns: Arc<PrivateNetns>,
}

impl CollectorPair {
    /// Makes the pair with its transmit end in the calling thread's namespace.
    pub(crate) fn make(netns: &Arc<PrivateNetns>, queues: u32) -> Result<Self, SwitchError> {
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

impl Drop for CollectorPair {
    fn drop(&mut self) {
        if let Err(error) = link::delete(self.ends.transmit_ifindex) {
            tracing::warn!(netdev = self.name, %error, "the collector could not be deleted");
        }
    }
}

/// The running collector. Dropping it deletes the pair, which unbinds all sockets on it at once.
pub(crate) struct Collector {
    pub(crate) pair: CollectorPair,
    pub(crate) queues: Vec<Arc<Queue>>,
    _program: NetdevLink,
}

impl Collector {
    /// Binds all queues of `pair` to `arena` and attaches the program. The rings go to the workers.
    pub(crate) fn new(
        pair: CollectorPair,
        datapath: &Datapath,
        arena: &Arc<Arena>,
        queues: u32,
        fill_entries: u32,
    ) -> Result<(Self, Vec<QueueRings>), SwitchError> {
        let (program, ifindex) = (datapath.collector_program(), pair.ends.receive_ifindex);
        let attached = pair.netns.run(move || program.attach(ifindex))?;
        let arena = Arc::clone(arena);
        let bound = pair.netns.run(move || bind_queues(ifindex, queues, fill_entries, arena))?;
        let (queues, rings) = bound.into_iter().map(|(queue, rings)| (Arc::new(queue), rings)).unzip();
        Ok((Self { pair, queues, _program: attached }, rings))
    }

    /// Runs `job` where sockets on the collector are opened.
    pub(crate) fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        self.pair.netns.run(job)
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
    ifindex: u32,
    queues: u32,
    fill_entries: u32,
    arena: Arc<Arena>,
) -> Result<Vec<(Queue, QueueRings)>, XskError> {
    let options =
        |queue| QueueOptions { ifindex, queue, fill_entries, rx_entries: DRAIN_ENTRIES, tx_entries: None };
    let mut bound: Vec<(Queue, QueueRings)> = Vec::new();
    for queue in 0..queues {
        let next = match bound.first() {
            None => Queue::bind_first(Arc::clone(&arena), options(queue))?,
            Some((first, _)) => Queue::bind_further(first, options(queue))?,
        };
        bound.push(next);
    }
    Ok(bound)
}
