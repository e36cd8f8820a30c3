//! What the control thread asks of a worker, between two turns.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender, TrySendError};

use forebay_control::{DropReason, PortId};

use super::{Channel, Worker};

/// One request. Where there is an answer, it comes when the request is done.
pub(crate) enum Command {
    /// Serve this port from now on.
    Add(Box<Channel>),
    /// Take what lies in the port's RX ring back to the pool and forget the port. Nothing may deliver to it any more.
    Remove(PortId, Sender<()>),
    /// Set the port's account right by what its ring holds.
    Audit(PortId),
    /// End the thread.
    Stop,
}

/// The control thread's end.
pub(crate) struct Commander {
    sender: SyncSender<Command>,
    bell: Arc<OwnedFd>,
    command_waits: Arc<AtomicBool>,
}

impl Commander {
    pub(super) fn new(
        sender: SyncSender<Command>,
        bell: Arc<OwnedFd>,
        command_waits: Arc<AtomicBool>,
    ) -> Self {
        Self { sender, bell, command_waits }
    }

    /// Sends a request and wakes the worker; waits while the worker is too far behind. A worker that has ended takes
    /// none, which only happens while the switch stops.
    pub(crate) fn send(&self, command: Command) {
        let sent = self.sender.try_send(command);
        self.ring();
        if let Err(TrySendError::Full(command)) = sent {
            let _ = self.sender.send(command);
            self.ring();
        }
    }

    fn ring(&self) {
        self.command_waits.store(true, Ordering::Release);
        let _ = rustix::io::write(self.bell.as_fd(), &1u64.to_ne_bytes());
    }
}

impl Worker {
    /// Waits for packets or commands; says whether it slept.
    pub(super) fn wait(&mut self) -> bool {
        self.ready.poll()
    }

    /// Carries out what was asked. `false`: stop.
    pub(super) fn obey(&mut self) -> bool {
        if !self.ready.is_asked() {
            return true;
        }
        self.ready.silence();
        while let Ok(command) = self.ready.commands.try_recv() {
            match command {
                Command::Add(channel) => self.add(*channel),
                Command::Remove(port, answer) => {
                    self.remove(port);
                    let _ = answer.send(());
                }
                Command::Audit(port) => self.audit(port),
                Command::Stop => return false,
            }
        }
        true
    }

    fn add(&mut self, channel: Channel) {
        let port = channel.port;
        // The only failures are a bad descriptor and want of kernel memory; then the port stays silent and its ring
        // fills, which its counters show.
        let _ = self.ready.watch(port, channel.socket.as_fd());
        self.channels[usize::from(port.0)] = Some(channel);
        self.ready.again(port);
    }

    /// Packets that nobody looked at any more count as dropped: their port is down.
    fn remove(&mut self, port: PortId) {
        let Some(mut channel) = self.channels[usize::from(port.0)].take() else { return };
        self.ready.ignore(channel.socket.as_fd());
        let cell = Arc::clone(&channel.cells);
        let cell = cell.of(self.index);
        while channel.ring.receive(&mut self.burst, u64::MAX) > 0 {
            let packets = self.burst.len() as u64;
            cell.rx_packets.add(packets);
            cell.rx_bytes
                .add((0..self.burst.len()).map(|index| u64::from(self.burst.len_bytes(index))).sum());
            cell.drop(DropReason::PortDown, packets);
            self.refill();
        }
        channel.gauge.set(0);
        channel.settle();
    }

    /// For a port whose account says more than its ring may hold: packets that were lost on the way wake nobody.
    fn audit(&self, port: PortId) {
        if let Some(channel) = &self.channels[usize::from(port.0)] {
            channel.settle();
        }
    }
}
