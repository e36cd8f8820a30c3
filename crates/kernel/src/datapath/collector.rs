//! The collectors: their program, and where the ports' programs find them.

use std::os::fd::{AsFd as _, OwnedFd};

use forebay_control::IfIndex;
use libbpf_rs::{MapCore as _, MapFlags};

use super::Datapath;
use crate::DatapathError;
use crate::layout::{Bank, CollectorEnds};
use crate::link::{self, NetdevLink, Relocated};

/// The collector's program, to be bound to one netdev. The datapath must outlive it.
pub struct CollectorProgram(Relocated);

impl CollectorProgram {
    /// Attaches it to a collector's receiving end. Runs in that end's namespace.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach(&self, receive_ifindex: IfIndex) -> Result<NetdevLink, DatapathError> {
        let program = self.load(receive_ifindex)?;
        link::attach_xdp(program.as_fd(), receive_ifindex)
    }

    pub(crate) fn load(&self, receive_ifindex: IfIndex) -> Result<OwnedFd, DatapathError> {
        self.0.load_bound(c"collector", receive_ifindex)
    }
}

impl Datapath {
    /// The program for a collector's receiving end.
    pub fn collector_program(&self) -> CollectorProgram {
        CollectorProgram(self.collector.clone())
    }

    /// Tells the programs where collector `number` is. Runs in the ports' namespace, where its transmit end is.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn connect_collector(&self, number: u8, ends: CollectorEnds) -> Result<(), DatapathError> {
        let key = Bank::Collector(number).number().to_ne_bytes();
        let bpf = DatapathError::bpf("enter a collector into the kernel's table");
        self.collectors
            .update(&key, &ends.to_bytes(), MapFlags::ANY)
            .and_then(|()| {
                self.collector_tx.update(&key, &ends.transmit_ifindex.0.to_ne_bytes(), MapFlags::ANY)
            })
            .map_err(bpf)
    }
}
