//! Who holds frames, in the shape that `ynl --family netdev --dump page-pool-get` prints.
//!
//! The kernel has a page pool for each queue; we have an RX ring for each port and worker, and a fill ring for each worker
//! and lane.
//! The attributes keep the kernel's names and are filled with what is nearest (Documentation/netlink/specs/netdev.yaml,
//! Linux 6.12); an attribute that does not apply is left out, as there.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{IfIndex, PortId};
use crate::memory::LANES;

/// One ring that holds frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PagePool {
    /// From 1. Port id times workers, plus worker, plus 1; fill rings come behind those of all ports there may be, rings that
    /// ports share behind these.
    pub id: u32,
    /// The port's netdev; of a fill ring the collector's transmit end. Left out while the port has no netdev.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<IfIndex>,
    /// The worker that polls the ring, from 0.
    pub napi_id: u32,
    /// Frames that the ring holds. In an RX ring there is a packet in each; those of a fill ring wait for one. A ring on the
    /// port's own netdev has a fill ring of its own, which counts with it.
    pub inflight: u64,
    /// Bytes of these frames.
    pub inflight_mem: u64,
}

/// Numbers rings, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePoolIds {
    /// Ports there may be.
    pub max_ports: u32,
    /// Workers.
    pub workers: u32,
}

impl PagePoolIds {
    /// The RX ring of a port at a worker.
    pub fn rx_ring(self, port: PortId, worker: u32) -> u32 {
        u32::from(port.0) * self.workers + worker + 1
    }

    /// A worker's fill ring in a lane, from 0.
    pub fn fill_ring(self, lane: u32, worker: u32) -> u32 {
        (self.max_ports + lane) * self.workers + worker + 1
    }

    /// The ring at a worker that all ports share.
    pub fn shared_ring(self, worker: u32) -> u32 {
        (self.max_ports + LANES as u32) * self.workers + worker + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_rings_have_the_same_id() {
        let ids = PagePoolIds { max_ports: 4, workers: 3 };
        let rings = (0..4).flat_map(|port| (0..3).map(move |worker| ids.rx_ring(PortId(port), worker)));
        let fill_rings =
            (0..LANES as u32).flat_map(|lane| (0..3).map(move |worker| ids.fill_ring(lane, worker)));
        let shared_rings = (0..3).map(|worker| ids.shared_ring(worker));
        let all: Vec<u32> = rings.chain(fill_rings).chain(shared_rings).collect();
        assert_eq!(all, (1..=21).collect::<Vec<u32>>());
    }

    #[test]
    fn names_are_the_kernels_and_what_does_not_apply_is_left_out() {
        let mut ring =
            PagePool { id: 1, ifindex: Some(IfIndex(7)), napi_id: 0, inflight: 2, inflight_mem: 4096 };
        let json = serde_json::to_string(&ring).unwrap();
        assert_eq!(json, r#"{"id":1,"ifindex":7,"napi-id":0,"inflight":2,"inflight-mem":4096}"#);
        ring.ifindex = None;
        let json = serde_json::to_string(&ring).unwrap();
        assert_eq!(json, r#"{"id":1,"napi-id":0,"inflight":2,"inflight-mem":4096}"#);
    }
}
