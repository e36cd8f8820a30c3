//! Every ring that holds frames, as the netdev netlink family lists page pools.

use forebay_control::IfIndex;
use forebay_control::page_pool::{PagePool, PagePoolIds};
use forebay_policy::Lane;

use super::Control;
use super::port::Port;
use super::ring::Ring;
use crate::pool_instance::{PoolInstance, SupplyGauge};

impl Control {
    /// The RX rings of all ports, then the workers' fill rings, then rings that ports share.
    pub(crate) fn page_pools(&self) -> Vec<PagePool> {
        let rx = self
            .ports
            .values()
            .flat_map(|port| port.rings.serving().iter().map(|ring| self.rx_ring(port, ring)));
        let fill = self.pool.current().into_iter().flat_map(|instance| self.fill_rings(instance));
        let shared = self.pool.shared_rings().serving().iter().map(|ring| self.shared_ring(ring));
        rx.chain(fill).chain(shared).collect()
    }

    fn rx_ring(&self, port: &Port, ring: &Ring) -> PagePool {
        let worker = ring.worker as u32;
        let ifindex = port.attachment.as_ref().map(|attachment| attachment.ifindex);
        let posted = ring.supply.as_ref().map_or(0, SupplyGauge::posted);
        let id = self.page_pool_ids().rx_ring(port.id, worker);
        self.page_pool(id, ifindex, worker, ring.account.used() + posted)
    }

    fn fill_rings(&self, instance: &PoolInstance) -> Vec<PagePool> {
        let ids = self.page_pool_ids();
        let rings = (0..).zip(instance.intakes()).flat_map(|(lane, intake)| {
            let ifindex = Some(intake.collector.pair.ends.transmit_ifindex);
            (0..).zip(&intake.gauges).map(move |(worker, gauge)| {
                self.page_pool(ids.fill_ring(lane, worker), ifindex, worker, gauge.posted())
            })
        });
        rings.collect()
    }

    fn shared_ring(&self, ring: &Ring) -> PagePool {
        let worker = ring.worker as u32;
        let ends = self.pool.current().map(|instance| instance.intake(Lane::Calm).collector.pair.ends);
        let id = self.page_pool_ids().shared_ring(worker);
        self.page_pool(id, ends.map(|ends| ends.transmit_ifindex), worker, ring.account.used())
    }

    fn page_pool(&self, id: u32, ifindex: Option<IfIndex>, napi_id: u32, inflight: u64) -> PagePool {
        let frame_bytes = u64::from(self.frame_bytes());
        PagePool { id, ifindex, napi_id, inflight, inflight_mem: inflight * frame_bytes }
    }

    fn page_pool_ids(&self) -> PagePoolIds {
        PagePoolIds { max_ports: self.ports.max_ports(), workers: self.workers.len() as u32 }
    }
}
