//! Direct binding: sockets on the port's own netdev, with a fill ring of their own.
//!
//! In spool mode `none` the memory is the port's own too, `rxq depth` frames a queue. In `spp` frames come from the pool
//! that all ports share, and the kernel keeps 128 bytes for each frame of it and each queue bound.

use std::num::NonZeroU32;
use std::sync::Arc;

use forebay_control::eswitch::SpoolMode;
use forebay_control::{ApiError, ErrorCode, IfIndex, PortId};
use forebay_kernel::Bank;
use forebay_kernel::netlink::{Link, netdev_genl};
use forebay_policy::Lane;
use forebay_xsk::{FillRing, PortSocket, Queue, QueueOptions, RxRing, XskError};

use super::ring::Ring;
use super::rings::{Opened, Service, no_socket};
use super::{Change, hints, share};
use crate::pool_instance::Stock;
use crate::worker::{Feed, SuppliedBy};

/// One bound queue of a netdev.
struct Bound {
    queue: Queue,
    fill: FillRing,
    ring: RxRing,
}

impl Change<'_> {
    /// Binds a port to the receive queues of `netdev` and has them served.
    pub(super) fn open_directly(&mut self, id: PortId, netdev: &Link) -> Result<Vec<Ring>, ApiError> {
        refuse_if_down(netdev)?;
        let workers = self.workers.len() as u32;
        let queues = self.without_lock(|| queues_of(netdev, workers))?;
        let rxq = self.ports[&id].rxq;
        let depth = rxq.depth;
        let own_memory = self.pool.mode() == SpoolMode::None;
        let pool = self.instance()?.stock.clone();
        let first = if own_memory {
            None
        } else {
            self.instance()?.intake(Lane::Calm).collector.queues.first().cloned()
        };
        let (stock, bound, has_origin) = self.without_lock(|| {
            let stock = if own_memory { own_stock(depth, queues, &pool)? } else { pool };
            let bound = bind(netdev.ifindex, depth, queues, &stock, first);
            let has_origin = hints::leaves_room_below(netdev.ifindex);
            Ok::<_, ApiError>((stock, bound.map_err(|error| no_socket(&error))?, has_origin))
        })?;
        let rule = match own_memory {
            true => share::own_memory_rule(depth),
            false => self.ports[&id].share.rule(depth),
        };
        let mut rings = Vec::new();
        for (worker, Bound { queue, mut fill, ring }) in bound.into_iter().enumerate() {
            if !own_memory {
                fill.keep_ledger();
            }
            let (supply, gauge) = stock.supply(fill, rxq.refill.refill(depth));
            let own = Some((SuppliedBy::Own(Box::new(supply)), gauge));
            let opened = Opened { worker, socket: PortSocket::from(queue), ring };
            let bank = Bank::Direct;
            let service = Service { bank, feed: Feed::Port(id), depth, rule, own, has_origin };
            rings.push(self.serve(opened, service)?);
        }
        let port = self.port_mut(id);
        port.stock = own_memory.then_some(stock);
        Ok(rings)
    }
}

/// The netdev's receive queues. Each needs a worker, or its packets would go nowhere.
fn queues_of(netdev: &Link, workers: u32) -> Result<u32, ApiError> {
    let queues = netdev_genl::rx_queues(netdev.ifindex)
        .map_err(|error| ApiError::new(ErrorCode::KernelRefused, error.to_string()))?;
    if queues <= workers {
        return Ok(queues);
    }
    let name = &netdev.name;
    let message = format!("`{name}` has more receive queues than there are workers");
    Err(ApiError::new(ErrorCode::NotSupported, message)
        .with_field("netdev")
        .with_value(format!("{queues} queues"))
        .with_limit(format!("{workers}, one for each worker"))
        .with_remedy(format!("ethtool -L {name} rx {workers}, or more switch.workers and a restart")))
}

/// Memory of a port's own, with frames as those of `pool`.
fn own_stock(depth: u32, queues: u32, pool: &Stock) -> Result<Stock, ApiError> {
    let frames = NonZeroU32::new(depth * queues).expect("a netdev that can be bound to has queues");
    Stock::new(frames, pool.arena.frame_size())
        .map_err(|error| ApiError::new(ErrorCode::KernelRefused, error.to_string()))
}

/// Binds the netdev's receive queues.
fn bind(
    ifindex: IfIndex,
    depth: u32,
    queues: u32,
    stock: &Stock,
    first: Option<Arc<Queue>>,
) -> Result<Vec<Bound>, XskError> {
    let mut bound: Vec<Bound> = Vec::new();
    for queue in 0..queues {
        let options = QueueOptions {
            ifindex: ifindex.0,
            queue,
            fill_entries: depth,
            rx_entries: depth,
            tx_entries: None,
        };
        let shares = bound.first().map(|bound| &bound.queue).or(first.as_deref());
        let opened = match shares {
            None => Queue::bind_first(Arc::clone(&stock.arena), options),
            Some(first) => Queue::bind_further(first, options),
        };
        let (queue, rings) = opened?;
        bound.push(Bound { queue, fill: rings.fill, ring: rings.rx });
    }
    Ok(bound)
}

fn refuse_if_down(netdev: &Link) -> Result<(), ApiError> {
    if netdev.admin_up {
        return Ok(());
    }
    let name = &netdev.name;
    Err(ApiError::new(
        ErrorCode::NetdevDown,
        format!("`{name}` is switched off, and its queues cannot be bound to"),
    )
    .with_field("netdev")
    .with_value(name)
    .with_remedy(format!("ip link set {name} up")))
}
