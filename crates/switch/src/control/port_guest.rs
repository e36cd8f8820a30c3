//! What a port holds of its virtual machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_control::port::PortState;
use forebay_control::vhost_user::{VhostUser, VhostUserShow};
use forebay_vhost::Features;

use super::port_calls::QueueCalls;
use crate::attention::Attention;
use crate::guests::{GuestKey, GuestSocket};
use crate::worker::{GuestCells, Slot};

/// What a guest must have agreed to before segments are joined for it.
const JOINTS: Features = Features(Features::GUEST_CSUM.0 | Features::GUEST_TSO4.0 | Features::GUEST_TSO6.0);

/// One port's virtual machine, connected or not.
pub(super) struct Guest {
    pub(super) key: GuestKey,
    /// The socket where the switch listens, held for its drop.
    _socket: Option<GuestSocket>,
    /// What workers tell of the machine that is connected.
    pub(super) cells: Arc<GuestCells>,
    /// What they had told of those before.
    past_packets: u64,
    /// Transmit queues that its worker serves, by index.
    pub(super) sources: BTreeMap<usize, Slot>,
    /// Indexes of receive queues that its worker fills.
    pub(super) outputs: Vec<usize>,
    /// Of each queue that it may use, by index.
    pub(super) calls: Vec<QueueCalls>,
    /// What both ends agreed on.
    pub(super) features: Features,
    /// What it takes undone now, of [`Features::GUEST_OFFLOADS`].
    pub(super) offloads: Features,
    pub(super) is_connected: bool,
    /// MTU that the guest was offered, or that its front end has set.
    pub(super) mtu: u16,
}

impl Guest {
    /// Nobody is connected. `bell` rings when a queue breaks.
    pub(super) fn new(
        key: GuestKey,
        socket: Option<GuestSocket>,
        (pairs, mtu): (u16, u16),
        bell: Arc<Attention>,
    ) -> Self {
        Self {
            key,
            mtu,
            _socket: socket,
            cells: Arc::new(GuestCells::new(bell)),
            past_packets: 0,
            sources: BTreeMap::new(),
            outputs: Vec::new(),
            calls: (0..2 * pairs).map(|_| QueueCalls::default()).collect(),
            features: Features::default(),
            offloads: Features::default(),
            is_connected: false,
        }
    }

    /// Another machine connects, or none is there any more.
    pub(super) fn begin_anew(&mut self, bell: Arc<Attention>, is_connected: bool) {
        self.past_packets = self.taken_packets();
        self.cells = Arc::new(GuestCells::new(bell));
        self.agree(Features::default());
        self.is_connected = is_connected;
        // No queue runs, so nobody is to be told.
        self.calls.iter().for_each(|calls| _ = calls.cells.ask(None));
    }

    /// Both ends have agreed on `features`: the guest takes all that it agreed to.
    pub(super) fn agree(&mut self, features: Features) {
        self.features = features;
        self.offloads = Features(features.0 & Features::GUEST_OFFLOADS.0);
    }

    /// What was agreed on, without what the guest does not take for now.
    pub(super) fn takes(&self) -> Features {
        self.features.without(Features::GUEST_OFFLOADS).with(self.offloads)
    }

    /// Whether it takes TCP segments that were joined.
    pub(super) fn takes_joints(&self) -> bool {
        self.takes().has(JOINTS)
    }

    /// Packets that workers took from its queues.
    pub(super) fn taken_packets(&self) -> u64 {
        self.past_packets + self.cells.taken_packets.get()
    }

    /// Pairs of queues that it may use.
    pub(super) fn pairs(&self) -> u16 {
        (self.calls.len() / 2) as u16
    }

    /// Whether packets pass both ways.
    pub(super) fn is_running(&self) -> bool {
        !self.sources.is_empty() && !self.outputs.is_empty()
    }

    /// The port's state while the machine is connected.
    pub(super) fn state(&self) -> (PortState, String) {
        if !self.is_running() {
            let reason = "the virtual machine's driver has not started its queues";
            return (PortState::Negotiating, reason.to_owned());
        }
        (PortState::Up, String::new())
    }

    pub(super) fn show(&self, asked: &VhostUser) -> VhostUserShow {
        let mut running: Vec<u32> =
            self.sources.keys().chain(&self.outputs).map(|index| *index as u32).collect();
        running.sort_unstable();
        VhostUserShow {
            path: asked.path.clone(),
            client: asked.client,
            queues: asked.queues,
            running,
            features: self.takes().words().into_iter().map(str::to_owned).collect(),
        }
    }
}
