//! Every ring that holds frames, as the netdev netlink family lists page pools.

use forebay_control::IfIndex;
use forebay_control::page_pool::{PagePool, PagePoolIds};

use super::Control;
use super::port::{Port, PortQueue};

impl Control {
    /// The RX rings of all ports, then the workers' fill rings.
    pub(crate) fn page_pools(&self) -> Vec<PagePool> {
        let rx =
            self.ports.values().flat_map(|port| port.queues.iter().map(|queue| self.rx_ring(port, queue)));
        rx.chain((0..self.workers.len()).map(|worker| self.fill_ring(worker))).collect()
    }

    fn rx_ring(&self, port: &Port, queue: &PortQueue) -> PagePool {
        let worker = queue.worker as u32;
        let ifindex = port.attachment.as_ref().map(|attachment| attachment.ifindex);
        self.page_pool(self.page_pool_ids().rx_ring(port.id, worker), ifindex, worker, queue.account.used())
    }

    fn fill_ring(&self, worker: usize) -> PagePool {
        let ifindex = self.collector.as_ref().map(|collector| collector.ifindex);
        let posted = self.shared.worker_cell(worker).fill_occupancy.get();
        let worker = worker as u32;
        self.page_pool(self.page_pool_ids().fill_ring(worker), ifindex, worker, posted)
    }

    fn page_pool(&self, id: u32, ifindex: Option<u32>, napi_id: u32, inflight: u64) -> PagePool {
        let frame_bytes = u64::from(self.shared.arena.frame_size().bytes());
        PagePool {
            id,
            ifindex: ifindex.map(IfIndex),
            napi_id,
            inflight,
            inflight_mem: inflight * frame_bytes,
        }
    }

    fn page_pool_ids(&self) -> PagePoolIds {
        PagePoolIds { max_ports: self.max_ports, workers: self.workers.len() as u32 }
    }
}
