//! The collector: one veth pair of ours, whose far end all packets for the slow path come out of.
//!
//! Its transmit end lies in the ports' network namespace, with its offloads off, so that the kernel segments packets
//! and completes checksums on the way in. Its receiving end lies in a private namespace that only this process holds:
//! nobody can touch it there, and however the process ends, the pair goes with it.

use std::sync::Arc;

use forebay_kernel::netlink::{NetlinkError, PrivateNetns, link, offload};
use forebay_kernel::{Datapath, DatapathOptions};
use forebay_pool::Arena;
use forebay_xsk::{Queue, QueueOptions, QueueRings, XskError};

use crate::SwitchError;

/// Packets up to this size pass, whatever the ports' MTU: 18 frames of 1792 bytes hold 32,256.
const MTU: u32 = 32_000;
/// Collectors that may stand in one namespace; also how many names of dead ones are stepped over.
const NAMES: u32 = 64;
/// The queue socket's own RX ring; nothing is delivered to it.
const UNUSED_RX_ENTRIES: u32 = 2;

/// The running collector.
pub(crate) struct Collector {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    pub(crate) netns: PrivateNetns,
    pub(crate) queues: Vec<Arc<Queue>>,
}

/// How to make one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectorOptions {
    pub(crate) queues: u32,
    pub(crate) max_ports: u32,
    pub(crate) fill_entries: u32,
}

impl Collector {
    /// Makes the pair, loads the programs and binds all queues. The rings go to the workers.
    pub(crate) fn new(
        options: CollectorOptions,
        netns: PrivateNetns,
        arena: &Arc<Arena>,
    ) -> Result<(Self, Datapath, Vec<QueueRings>), SwitchError> {
        let (name, peer) = make_pair(&netns, options.queues)?;
        let transmit = link::by_name(&name)?;
        offload::set_tx_offloads(&name, false)?;
        let receive = netns.run(move || {
            let found = link::by_name(&peer)?;
            link::disable_ipv6_autoconf(found.ifindex)?;
            link::set_up(found.ifindex, true)?;
            Ok::<_, NetlinkError>(found)
        })?;
        link::set_up(transmit.ifindex, true)?;

        let datapath_options = DatapathOptions {
            max_ports: options.max_ports,
            queues: options.queues,
            frame_payload: arena.frame_size().payload(),
            collector_tx: transmit.ifindex,
            collector_rx: receive.ifindex,
        };
        let datapath = netns.run(move || Datapath::load(&datapath_options))?;
        datapath.connect_collector(transmit.ifindex)?;
        let arena = Arc::clone(arena);
        let bound = netns.run(move || bind_queues(options, receive.ifindex, arena))?;
        let (queues, rings) = bound.into_iter().map(|(queue, rings)| (Arc::new(queue), rings)).unzip();
        Ok((Self { name, ifindex: transmit.ifindex, netns, queues }, datapath, rings))
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
    options: CollectorOptions,
    ifindex: u32,
    arena: Arc<Arena>,
) -> Result<Vec<(Queue, QueueRings)>, XskError> {
    let queue_options = |queue| QueueOptions {
        ifindex,
        queue,
        fill_entries: options.fill_entries,
        rx_entries: UNUSED_RX_ENTRIES,
        tx_entries: None,
    };
    let mut bound: Vec<(Queue, QueueRings)> = Vec::new();
    for queue in 0..options.queues {
        let next = match bound.first() {
            None => Queue::bind_first(Arc::clone(&arena), queue_options(queue))?,
            Some((first, _)) => Queue::bind_further(first, queue_options(queue))?,
        };
        bound.push(next);
    }
    Ok(bound)
}
