//! The control side: it owns ports and kernel objects and hands workers their snapshots. One lock guards it all; no
//! worker ever takes it.

mod attach;
mod fdb;
mod housekeeper;
mod netdevs;
mod occupancy;
mod page_pools;
mod port;
mod ports;
mod share;
mod show;
mod workers;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use forebay_control::config::{Config, Settings};
use forebay_control::occupancy::PoolOccupancy;
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::Datapath;
use forebay_kernel::netlink::link;

use crate::collector::Collector;
use crate::fdb::Limits;
use crate::shared::Shared;
use crate::topology::Topology;

pub(crate) use housekeeper::Housekeeper;
pub(crate) use workers::WorkerHandle;

use port::{Port, Retired};

/// Everything that only the control thread touches.
pub(crate) struct Control {
    shared: Arc<Shared>,
    datapath: Datapath,
    /// `None` once the switch has stopped.
    collector: Option<Collector>,
    workers: Vec<WorkerHandle>,
    ports: BTreeMap<PortId, Port>,
    ids_by_name: HashMap<String, PortId>,
    ids_by_ifindex: HashMap<u32, PortId>,
    /// Ids are handed out in a circle, so that a packet still under way with an old id meets no new port.
    next_id: u32,
    retired: Retired,
    rx_ring_depth: u32,
    max_ports: u32,
    /// The last snapshot.
    occupancy: Option<PoolOccupancy>,
}

impl Control {
    pub(crate) fn new(
        config: &Config,
        shared: Arc<Shared>,
        collector: Collector,
        datapath: Datapath,
        workers: Vec<WorkerHandle>,
    ) -> Self {
        Self {
            shared,
            datapath,
            collector: Some(collector),
            workers,
            ports: BTreeMap::new(),
            ids_by_name: HashMap::new(),
            ids_by_ifindex: HashMap::new(),
            next_id: 0,
            retired: Retired::default(),
            rx_ring_depth: config.pool.rx_ring_depth,
            max_ports: config.switch.max_ports,
            occupancy: None,
        }
    }

    /// Shows workers the ports as they are now.
    fn publish(&self) {
        let topology = Topology::new(self.ports.values().map(Port::entry));
        self.shared.topology.store(Arc::new(topology));
    }

    fn collector(&self) -> Result<&Collector, ApiError> {
        self.collector
            .as_ref()
            .ok_or_else(|| ApiError::new(ErrorCode::ShuttingDown, "the switch is stopping"))
    }

    fn id_of(&self, name: &str) -> Result<PortId, ApiError> {
        self.ids_by_name.get(name).copied().ok_or_else(|| {
            ApiError::new(ErrorCode::NoSuchPort, format!("there is no port `{name}`"))
                .with_field("name")
                .with_value(name)
                .with_remedy("see `forebay port list`")
        })
    }

    fn port_of(&self, name: &str) -> Result<&Port, ApiError> {
        let id = self.id_of(name)?;
        Ok(&self.ports[&id])
    }

    pub(crate) fn apply_settings(&mut self, settings: &Settings) -> Result<(), ApiError> {
        self.collector()?;
        let limits = Limits {
            total: settings.max_entries,
            per_port: settings.max_entries_per_port,
            ageing_s: settings.ageing_seconds,
        };
        self.shared.fdb.set_limits(limits).map_err(|error| {
            ApiError::new(ErrorCode::InvalidValue, error.to_string())
                .with_field("fdb.max_entries")
                .with_value(settings.max_entries)
                .with_remedy("a larger table needs a restart")
        })?;
        self.shared.flood.set(settings.flood_copies_per_second, settings.flood_burst_copies);
        Ok(())
    }

    /// Detaches all ports, ends the workers, removes the collector. A second call does nothing.
    pub(crate) fn stop(&mut self) {
        let Some(collector) = self.collector.take() else { return };
        let _short = ports::short_grace_periods(self.ports.len());
        for port in self.ports.values_mut() {
            port.attachment = None;
        }
        self.workers.drain(..).for_each(WorkerHandle::stop);
        // With the netdev gone all sockets are unbound at once; one by one each would wait for a grace period.
        if let Err(error) = link::delete(collector.ifindex) {
            tracing::warn!(netdev = collector.name, %error, "the collector could not be deleted");
        }
        drop(collector);
        self.ports.clear();
        self.ids_by_name.clear();
        self.ids_by_ifindex.clear();
        self.publish();
    }
}
