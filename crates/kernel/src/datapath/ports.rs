//! What the programs know of ports.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use forebay_control::IfIndex;
use libbpf_rs::{MapCore as _, MapFlags};

use super::Datapath;
use crate::DatapathError;
use crate::layout::PortConfig;

impl Datapath {
    /// Makes packets that come in on `ifindex` those of a port. Until then the attached programs let them pass.
    ///
    /// # Errors
    /// The map is full. It has room for `max_ports` netdevs, and a group takes one for each member.
    pub fn set_port(&self, ifindex: IfIndex, config: PortConfig) -> Result<(), DatapathError> {
        self.ports
            .update(&ifindex.0.to_ne_bytes(), &config.to_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a port into the kernel's table"))?;
        let near = self.near(ifindex);
        if matches!(near_ifindex(near.load(Relaxed)), here if here.0 == 0 || here == ifindex) {
            near.store(config.near(ifindex), Release);
        }
        Ok(())
    }

    fn near(&self, ifindex: IfIndex) -> &AtomicU64 {
        self.near_ports.get(ifindex.0 as usize & (self.near_ports.len() - 1))
    }

    /// Forgets `ifindex`; what comes in passes to the host's own stack. Nothing happens if it is not known.
    pub fn clear_port(&self, ifindex: IfIndex) {
        let near = self.near(ifindex);
        if near_ifindex(near.load(Relaxed)) == ifindex {
            near.store(0, Release);
        }
        let _ = self.ports.delete(&ifindex.0.to_ne_bytes());
    }

    /// Forgets the near ports of netdevs that are no ports any more, which an earlier daemon may have left. Their places
    /// would be taken for good.
    pub fn forget_near_ports_but(&self, is_port: impl Fn(IfIndex) -> bool) {
        for index in 0..self.near_ports.len() {
            let near = self.near_ports.get(index);
            let ifindex = near_ifindex(near.load(Relaxed));
            if ifindex.0 != 0 && !is_port(ifindex) {
                near.store(0, Release);
            }
        }
    }

    /// Whether the collector writes hints for packets of `port_id`, which come from a tcx port.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_hinted(&self, port_id: u16, is_hinted: bool) -> Result<(), DatapathError> {
        self.hinted
            .update(&u32::from(port_id).to_ne_bytes(), &u32::from(is_hinted).to_ne_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a port into the kernel's table of hints"))
    }

    /// Whether XDP programs may send frames to a port, and to which netdev. Flows that say so must be void before it is
    /// taken back.
    ///
    /// # Errors
    /// What the kernel said; a netdev whose driver cannot send frames of XDP programs is refused.
    pub fn set_output(&self, port_id: u16, ifindex: Option<IfIndex>) -> Result<(), DatapathError> {
        let key = u32::from(port_id).to_ne_bytes();
        let done = match ifindex {
            Some(ifindex) => self.outputs.update(&key, &ifindex.0.to_ne_bytes(), MapFlags::ANY),
            None => match self.outputs.delete(&key) {
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
                done => done,
            },
        };
        done.map_err(DatapathError::bpf("enter a port into the kernel's table of outputs"))
    }
}

/// The interface index in a `struct near_port`.
fn near_ifindex(near: u64) -> IfIndex {
    let [a, b, c, d, ..] = near.to_ne_bytes();
    IfIndex(u32::from_ne_bytes([a, b, c, d]))
}
