//! What the control side asks of the thread that talks with virtual machines (`control/guest_thread.rs`), and the sockets
//! where they connect.

mod access;
mod socket;
mod watch;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_control::PortId;
use forebay_vhost::DeviceOptions;

use crate::SwitchError;
use crate::attention::Attention;

pub(crate) use socket::{GuestSocket, Meeting, connect_to};
pub(crate) use watch::{Ready, Watch};

/// Names one port of a guest; no other port has or had the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GuestKey {
    pub(crate) id: PortId,
    pub(crate) serial: u64,
}

/// What the control side asks of the thread.
pub(crate) enum Order {
    /// Meet front ends of a port.
    Serve(GuestKey, Meeting, DeviceOptions),
    /// The port is gone, and so are its queues.
    Forget(GuestKey),
    /// Close all connections and end.
    Stop,
}

/// How the thread is asked for something.
#[derive(Clone)]
pub(crate) struct Reception {
    orders: Sender<Order>,
    bell: Arc<Attention>,
}

impl Reception {
    /// Nobody is asked yet. The receiving end is for [`Guests::start`].
    pub(crate) fn new() -> Result<(Self, Waiting), SwitchError> {
        let (orders, received) = channel();
        let bell = Arc::new(Attention::new()?);
        Ok((Self { orders, bell: Arc::clone(&bell) }, Waiting { orders: received, bell }))
    }

    /// What workers ring when a queue breaks.
    pub(crate) fn bell(&self) -> Arc<Attention> {
        Arc::clone(&self.bell)
    }

    pub(crate) fn serve(&self, key: GuestKey, meeting: Meeting, device: DeviceOptions) {
        self.send(Order::Serve(key, meeting, device));
    }

    pub(crate) fn forget(&self, key: GuestKey) {
        self.send(Order::Forget(key));
    }

    pub(crate) fn send(&self, order: Order) {
        // Fails only while the switch stops.
        let _ = self.orders.send(order);
        self.bell.call();
    }
}

/// The thread's end, until it runs.
pub(crate) struct Waiting {
    pub(crate) orders: Receiver<Order>,
    pub(crate) bell: Arc<Attention>,
}
