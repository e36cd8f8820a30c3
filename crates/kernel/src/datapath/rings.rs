//! Where the programs put packets: the sockets of rings, and the accounts.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;

use forebay_control::IfIndex;
use libbpf_rs::{MapCore as _, MapFlags};

use super::Datapath;
use crate::DatapathError;
use crate::accounts::{Accounts, RingAccount};
use crate::layout::{Bank, OWNERS_BESIDES_PORTS};

/// Whose ring it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOwner {
    /// One port's.
    Port(u16),
    /// That of all ports which have none of their own.
    Shared,
    /// That of packets which a worker sends to the collector itself.
    Drain,
}

/// The accounts of the rings of one worker.
#[derive(Clone, Debug)]
pub struct QueueAccounts {
    accounts: Arc<Accounts>,
    queues: u32,
    shared: u32,
    queue: u32,
}

impl QueueAccounts {
    /// Gives back the frames of a packet that the worker has read from the long queue. They are in the account of this port's
    /// ring; `None`: in the account of the shared ring. Packet path.
    pub fn settle_long(&self, port: Option<u16>, frames: u64) {
        let owner = port.map_or(self.shared, u32::from);
        if owner <= self.shared {
            let index = owner * self.queues + self.queue;
            RingAccount::new(Arc::clone(&self.accounts), index as usize).settle_long(frames);
        }
    }
}

impl Datapath {
    /// Sends packets for the ring of `owner` on `queue` to `socket`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_socket(
        &self,
        bank: Bank,
        owner: RingOwner,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), DatapathError> {
        let fd = socket.as_raw_fd() as u32;
        self.sockets
            .update(&self.socket_key(bank, owner, queue), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a socket into the kernel's table"))
    }

    /// A port's packets on `queue` are from now on those of the shared ring, or without one counted as unclaimed.
    /// After [`grace_period`](crate::grace_period) none is under way.
    pub fn clear_socket(&self, bank: Bank, owner: RingOwner, queue: u32) {
        let _ = self.sockets.delete(&self.socket_key(bank, owner, queue));
    }

    /// The account of the ring of `owner` on `queue`, whichever socket it is.
    pub fn ring_account(&self, owner: RingOwner, queue: u32) -> RingAccount {
        let index = self.number(owner) * self.queues + queue;
        RingAccount::new(Arc::clone(&self.accounts), index as usize)
    }

    /// The accounts of all rings on `queue`.
    pub fn queue_accounts(&self, queue: u32) -> QueueAccounts {
        let accounts = Arc::clone(&self.accounts);
        QueueAccounts { accounts, queues: self.queues, shared: self.max_ports, queue }
    }

    /// Has long packets of `queue` sent out of this netdev from now on, whole; `None`: they are cut.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn connect_long_queue(&self, queue: u32, ifindex: Option<IfIndex>) -> Result<(), DatapathError> {
        let number = ifindex.map_or(0, |ifindex| ifindex.0);
        self.long_queues
            .update(&queue.to_ne_bytes(), &number.to_ne_bytes(), MapFlags::ANY)
            .map_err(DatapathError::bpf("enter a long queue into the kernel's table"))
    }

    fn socket_key(&self, bank: Bank, owner: RingOwner, queue: u32) -> [u8; 4] {
        let owners = self.max_ports + OWNERS_BESIDES_PORTS;
        ((bank.number() * owners + self.number(owner)) * self.queues + queue).to_ne_bytes()
    }

    /// The shared ring stands behind the last port, and that for draining behind it.
    fn number(&self, owner: RingOwner) -> u32 {
        match owner {
            RingOwner::Port(id) => id.into(),
            RingOwner::Shared => self.max_ports,
            RingOwner::Drain => self.max_ports + 1,
        }
    }
}
