//! Ports of virtual machines: their queues come and go with what the machines' drivers do.

use std::sync::Arc;
use std::sync::mpsc;

use forebay_control::port::{PortSpec, PortState};
use forebay_control::vhost_user::VhostUser;
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_policy::{Lane, Turn};
use forebay_vhost::{DeviceOptions, Features, NetConfig, Virtqueue};

use super::plan::Plan;
use super::port_guest::Guest;
use super::{Change, Control, netdevs};
use crate::counters::RingGauge;
use crate::guests::{GuestKey, Meeting};
use crate::worker::{
    Command, Exchange, Feed, GuestOutput, GuestSource, ModeratedQueue, Outlet, ProbeNotes, QUANTUM_BYTES,
    ServedSource, Source,
};

/// Bytes that a MAC address begins with which an administrator gives (IEEE 802, the local bit).
const LOCAL: u8 = 0x02;

/// The features that a guest is offered.
fn offered(asked: &VhostUser) -> Result<Features, ApiError> {
    Features::ALL.masked(&asked.features).map_err(|error| {
        let error = ApiError::new(ErrorCode::InvalidValue, error.to_string()).with_field("features");
        error.with_value(&asked.features).with_remedy("name features as in -mrg,-event-idx")
    })
}

/// An address for a guest whose front end gives it none: always the same for the same port.
fn mac_of(name: &str) -> [u8; 6] {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [a, b, c, d, e, ..] = hash.to_be_bytes();
    [LOCAL, a, b, c, d, e]
}

impl Change<'_> {
    pub(super) fn plan_guest(&mut self, spec: PortSpec) -> Result<Plan, ApiError> {
        self.refuse_name(&spec)?;
        let id = self.free_id()?;
        self.open_guest(id, spec)
    }

    /// Makes a port's socket, which the thread listens at when the port is there.
    pub(super) fn open_guest(&mut self, id: PortId, spec: PortSpec) -> Result<Plan, ApiError> {
        let asked = spec.vhost_user.clone().expect("the caller has looked");
        let pairs = asked.queues;
        let features = offered(&asked)?;
        let config = NetConfig {
            mac: mac_of(spec.port_name()),
            is_up: true,
            is_to_announce: false,
            pairs,
            mtu: asked.mtu,
        };
        let (socket, meeting) = self.without_lock(|| Meeting::arrange(&asked))?;
        self.guest_serial += 1;
        let key = GuestKey { id, serial: self.guest_serial };
        self.connect_workers();
        let guest = Guest::new(key, socket, (pairs, asked.mtu), self.reception.bell());
        let device = DeviceOptions { features, config };
        let none = no_guest(&asked.path);
        let plan = self.reserve(id, spec, Err(none), true);
        Ok(Plan { guest: Some((guest, meeting, device)), ..plan })
    }

    /// A front end is there.
    pub(crate) fn guest_connects(&mut self, key: GuestKey) {
        let bell = self.reception.bell();
        self.change_guest(key, |guest| guest.begin_anew(bell, true));
        self.judge_guest(key);
    }

    /// The front end is gone, and its queues were taken back.
    pub(crate) fn guest_leaves(&mut self, key: GuestKey, state: PortState, reason: String) {
        let bell = self.reception.bell();
        if self.guest_mut(key).is_none() {
            return;
        }
        self.change_guest(key, |guest| guest.begin_anew(bell, false));
        let port = self.port_mut(key.id);
        tracing::info!(port = port.spec.port_name(), reason, "the virtual machine is gone");
        (port.state, port.reason) = (state, reason);
    }

    /// The switch could not connect to the front end yet.
    pub(crate) fn guest_is_missing(&mut self, key: GuestKey, reason: String) {
        if self.guest_mut(key).is_none() {
            return;
        }
        let port = self.port_mut(key.id);
        // Why the last front end broke says more.
        if port.state == PortState::Waiting {
            port.reason = reason;
        }
    }

    /// The features that were agreed on.
    pub(crate) fn guest_has_features(&mut self, key: GuestKey, features: Features) {
        self.change_guest(key, |guest| guest.agree(features));
    }

    /// The guest takes only these of the packets that it agreed to. When this returns, it gets no others.
    pub(crate) fn guest_has_offloads(&mut self, key: GuestKey, offloads: Features) {
        self.change_guest(key, |guest| guest.offloads = offloads);
        let Some(takes) = self.guest_mut(key).map(|guest| guest.takes()) else { return };
        let (done, is_done) = mpsc::channel();
        let worker = self.ports[&key.id].worker;
        self.workers[worker].send(Command::SetTakes(key.id, takes, done));
        // A worker that has ended fills no queue.
        let _ = self.without_lock(|| is_done.recv());
    }

    /// Changes what is known of a guest. Workers are told if it takes joint packets from now on, or no longer.
    fn change_guest(&mut self, key: GuestKey, change: impl FnOnce(&mut Guest)) {
        let Some(guest) = self.guest_mut(key) else { return };
        let took_joints = guest.takes_joints();
        change(guest);
        if guest.takes_joints() != took_joints {
            self.publish();
        }
    }

    /// The front end has set an MTU.
    pub(crate) fn guest_has_mtu(&mut self, key: GuestKey, mtu: u16) {
        if let Some(guest) = self.guest_mut(key) {
            guest.mtu = mtu;
            self.publish();
        }
    }

    /// Has the port's worker serve a queue.
    pub(crate) fn guest_queue_starts(&mut self, key: GuestKey, queue: Virtqueue) {
        let Some(guest) = self.guest_mut(key) else { return };
        let (index, cells, features) = (queue.index(), Arc::clone(&guest.cells), guest.features);
        let Some(queue) = self.moderated_queue(key, queue) else { return };
        if index % 2 == 1 {
            self.serve_guest(key, queue, features, cells);
        } else {
            let mut queues = self.take_outputs(key);
            queues.push(queue);
            self.fill_guest(key, queues);
        }
        self.judge_guest(key);
    }

    /// Takes a queue back from the port's worker.
    pub(crate) fn guest_queue_stops(&mut self, key: GuestKey, index: usize) -> Option<Virtqueue> {
        let guest = self.guest_mut(key)?;
        let stopped = if index % 2 == 1 {
            let slot = guest.sources.remove(&index)?;
            self.take_source(key.id, slot)
        } else {
            let mut queues = self.take_outputs(key);
            let at = queues.iter().position(|queue| queue.index() == index);
            let stopped = at.map(|at| queues.remove(at).into_virtqueue());
            self.fill_guest(key, queues);
            stopped
        };
        self.judge_guest(key);
        stopped
    }

    /// Takes all queues back from a port that leaves, and drops them.
    pub(super) fn dismiss_guest(&mut self, id: PortId) {
        let Some(guest) = self.ports.leaving_mut(id).and_then(|port| port.guest.as_mut()) else { return };
        let key = guest.key;
        let sources = std::mem::take(&mut guest.sources);
        let has_outputs = !std::mem::take(&mut guest.outputs).is_empty();
        let calls = std::mem::take(&mut guest.calls);
        self.reception.forget(key);
        let worker = self.ports.leaving_mut(id).map_or(0, |port| port.worker);
        for slot in sources.into_values() {
            self.take_source_at(worker, slot);
        }
        if has_outputs {
            self.take_outlet_at(worker, id);
        }
        self.forget_calls(worker, calls);
    }

    fn take_source(&mut self, id: PortId, slot: crate::worker::Slot) -> Option<Virtqueue> {
        let worker = self.ports[&id].worker;
        self.take_source_at(worker, slot)
    }

    fn take_source_at(&mut self, worker: usize, slot: crate::worker::Slot) -> Option<Virtqueue> {
        let (done, taken) = mpsc::channel();
        self.workers[worker].take_guest(slot, done);
        self.without_lock(|| taken.recv()).ok().flatten()
    }

    /// The receive queues that the worker fills; it fills none afterwards.
    fn take_outputs(&mut self, key: GuestKey) -> Vec<ModeratedQueue> {
        let Some(guest) = self.guest_mut(key) else { return Vec::new() };
        if std::mem::take(&mut guest.outputs).is_empty() {
            return Vec::new();
        }
        let worker = self.ports[&key.id].worker;
        match self.take_outlet_at(worker, key.id) {
            Some(Outlet::Guest(output)) => output.into_queues(),
            Some(Outlet::Memory(_)) | None => Vec::new(),
        }
    }

    fn take_outlet_at(&mut self, worker: usize, id: PortId) -> Option<Outlet> {
        let (done, taken) = mpsc::channel();
        self.workers[worker].send(Command::TakeOutlet(id, done));
        self.without_lock(|| taken.recv()).ok().flatten().map(|outlet| *outlet)
    }
}

impl Control {
    /// The guest of this port, if it is still this one's. What workers see of it is published where it changes: a machine
    /// that connects changes much else.
    pub(super) fn guest_mut(&mut self, key: GuestKey) -> Option<&mut Guest> {
        let guest = self.ports.beside(key.id)?.guest.as_mut()?;
        (guest.key == key).then_some(guest)
    }

    /// Guests whose queues are served no more, and why.
    pub(crate) fn faulty_guests(&self) -> Vec<(GuestKey, String)> {
        let guests = self.ports.values().filter_map(|port| port.guest.as_ref());
        let connected = guests.filter(|guest| guest.is_connected);
        connected.filter_map(|guest| Some((guest.key, guest.cells.fault()?.to_string()))).collect()
    }

    fn judge_guest(&mut self, key: GuestKey) {
        if self.guest_mut(key).is_none() {
            return;
        }
        self.ports.change_if(key.id, |port| {
            let before = port.state;
            netdevs::judge_again(port);
            if port.state != before {
                tracing::info!(
                    port = port.spec.port_name(),
                    state = port.state.name(),
                    "its virtual machine is there"
                );
            }
            let shown = |state: PortState| (state.carries(), state == PortState::Blocked);
            shown(port.state) != shown(before)
        });
    }

    /// The port was made, and has no machine yet.
    pub(super) fn await_guest(&mut self, id: PortId) {
        let port = self.port_mut(id);
        let path = port.spec.vhost_user.as_ref().map_or("", |asked| &asked.path);
        (port.state, port.reason) =
            (PortState::Waiting, format!("no virtual machine is connected to {path}"));
    }

    fn serve_guest(
        &mut self,
        key: GuestKey,
        queue: ModeratedQueue,
        features: Features,
        cells: Arc<crate::worker::GuestCells>,
    ) {
        let index = queue.index();
        let Some(answers) = self.call_number(key, index - 1) else { return };
        let Ok(instance) = self.instance() else { return };
        let supply = (instance.intake(Lane::default()).number, Arc::clone(&instance.stock.arena));
        let worker = self.ports[&key.id].worker;
        let probes = ProbeNotes { notes: self.loops.notes(), port: key.id };
        let slot = self.workers[worker].serve(ServedSource {
            feed: Feed::Port(key.id),
            source: Source::Guest(Box::new(GuestSource::new(
                (queue, answers),
                features,
                (cells, probes),
                supply,
            ))),
            gauge: Arc::new(RingGauge::default()),
            account: None,
            turn: Turn::new(QUANTUM_BYTES),
            is_calm: false,
        });
        if let Some(guest) = self.guest_mut(key) {
            guest.sources.insert(index, slot);
        }
    }

    fn fill_guest(&mut self, key: GuestKey, mut queues: Vec<ModeratedQueue>) {
        let Some(guest) = self.guest_mut(key).filter(|_| !queues.is_empty()) else { return };
        queues.sort_by_key(ModeratedQueue::index);
        guest.outputs = queues.iter().map(ModeratedQueue::index).collect();
        let output = GuestOutput::new(queues, guest.takes(), Arc::clone(&guest.cells));
        // It may be another guest than the one that was probed last.
        self.port_mut(key.id).probing.passed = None;
        let worker = self.ports[&key.id].worker;
        self.workers[worker].send(Command::AddOutlet(key.id, Box::new(Outlet::Guest(output))));
    }

    /// Has workers hand packets to each other, which guests' queues need that have one producer.
    pub(super) fn connect_workers(&mut self) {
        let Ok(instance) = self.instance() else { return };
        if self.workers.len() < 2 || !self.exchange_levels.is_empty() {
            return;
        }
        let stock = instance.stock.clone();
        match Exchange::connect(self.workers.len(), self.shared.max_ports, &stock.arena, &stock.pool) {
            Ok(ends) => {
                self.exchange_levels = ends.iter().map(Exchange::level).collect();
                for (worker, exchange) in self.workers.iter().zip(ends) {
                    worker.send(Command::SetExchange(Box::new(exchange)));
                }
            }
            Err(error) => tracing::error!(%error, "packets for guests of other workers are lost"),
        }
    }

    /// Another pool is there: guests' packets, and those that workers hand over, are copied into its frames from now on.
    pub(super) fn move_guests(&mut self) {
        let Ok(instance) = self.instance() else { return };
        let (number, arena) = (instance.intake(Lane::default()).number, Arc::clone(&instance.stock.arena));
        for worker in &self.workers {
            worker.send(Command::MoveGuests(number, Arc::clone(&arena)));
        }
        if !std::mem::take(&mut self.exchange_levels).is_empty() {
            self.connect_workers();
        }
    }
}

fn no_guest(path: &str) -> ApiError {
    ApiError::new(ErrorCode::NoSuchNetdev, format!("no virtual machine is connected to {path}"))
}
