//! The thread that talks with the programs that run virtual machines: it listens at the ports' sockets or connects to
//! them, follows the vhost-user protocol, and hands virtqueues to workers and takes them back.
//!
//! It waits for all sockets at once and for no front end: one that is silent, or that sends half a message, keeps nobody
//! else waiting. A front end that breaks the rules loses its connection, and its port says why. One that does not listen
//! yet is tried again, at intervals that grow to two seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_policy::{Backoff, Nanos, TokenBucket};
use forebay_vhost::{Backend, DeviceOptions, Event, Owner, Progress, Virtqueue};
use forebay_xsk::FrameSender;
use rustix::event::Timespec;

use super::Changes;
use crate::SwitchError;
use crate::guests::{GuestKey, Meeting, Order, Ready, Reception, Waiting, Watch, connect_to};
use crate::shared::Shared;
use crate::supervise;

/// When the switch tries again to connect to a front end. Two seconds are what a user who starts one would wait for.
const AGAIN: Backoff = Backoff::new(Nanos(50_000_000), Nanos::from_secs(2));

/// Announcements of one guest after it has moved: front ends ask for five or so. Each goes out of every netdev.
const ANNOUNCEMENTS: TokenBucket = TokenBucket::new(10, 20);

/// Stops its thread when dropped.
pub(crate) struct Guests {
    reception: Reception,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Guests {
    pub(crate) fn start(
        control: Arc<Changes>,
        reception: Reception,
        waiting: Waiting,
    ) -> Result<Self, SwitchError> {
        let shared = Arc::clone(&control.hold().shared);
        let sender = FrameSender::open()?;
        let watch = Watch::new(&waiting.bell)?;
        let (guests, waited_for) = (BTreeMap::new(), WaitedFor::default());
        let work = move || Thread { control, shared, sender, waiting, watch, guests, waited_for }.run();
        let thread = supervise::spawn("guests".to_owned(), work)?;
        Ok(Self { reception, thread: Mutex::new(Some(thread)) })
    }

    /// Has the thread make a turn.
    pub(crate) fn wake(&self) {
        self.reception.bell().call();
    }

    /// Closes all connections, and ends the thread.
    pub(crate) fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.reception.send(Order::Stop);
            // A panic would have ended the process.
            let _ = thread.join();
        }
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One port's socket, and the front end that is connected.
struct Guest {
    meeting: Meeting,
    device: DeviceOptions,
    backend: Option<Backend>,
    /// The kick of its control queue that is watched.
    control_kick: Option<Arc<OwnedFd>>,
    /// When the switch is to connect, if it is to.
    again: Backoff,
    /// Why it could not connect.
    missing: String,
    announcements: TokenBucket,
}

impl Guest {
    fn new(meeting: Meeting, device: DeviceOptions) -> Self {
        Self {
            meeting,
            device,
            backend: None,
            control_kick: None,
            again: AGAIN,
            missing: String::new(),
            announcements: ANNOUNCEMENTS,
        }
    }

    /// Time until the switch is to connect.
    fn connects_in(&self, now: Nanos) -> Option<Nanos> {
        self.again.wait(now).filter(|_| self.backend.is_none())
    }
}

/// Guests that something is to be done for besides what descriptors tell.
#[derive(Default)]
struct WaitedFor {
    /// Those to look at without a wait.
    busy: BTreeSet<GuestKey>,
    /// Those to connect to.
    missing: BTreeSet<GuestKey>,
}

struct Thread {
    control: Arc<Changes>,
    shared: Arc<Shared>,
    /// For announcements.
    sender: FrameSender,
    waiting: Waiting,
    watch: Watch,
    guests: BTreeMap<GuestKey, Guest>,
    waited_for: WaitedFor,
}

impl Thread {
    fn run(mut self) {
        loop {
            let Ready { bell, guests } = self.wait();
            self.shared.turns.guests.add(1);
            if bell {
                self.waiting.bell.hear();
                self.waiting.bell.listen();
                if !self.obey() {
                    return self.close_all();
                }
                self.break_faulty();
            }
            for key in guests {
                self.look(key);
            }
            self.connect_those_due();
        }
    }

    fn now(&self) -> Nanos {
        Nanos(self.shared.started.elapsed().as_nanos() as u64)
    }

    /// How long to wait for guests: `None` without end.
    fn pause(&self) -> Option<Timespec> {
        if !self.waited_for.busy.is_empty() {
            return Some(Timespec::default());
        }
        let now = self.now();
        let missing = self.waited_for.missing.iter().filter_map(|key| self.guests.get(key));
        let first = missing.filter_map(|guest| guest.connects_in(now)).min()?;
        // A wait that ends too early by less than a millisecond would only be repeated.
        let pause = Duration::from_nanos(first.0) + Duration::from_millis(1);
        Some(Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() })
    }

    /// Waits until a guest or the control side has something.
    fn wait(&mut self) -> Ready {
        let mut ready = self.watch.wait(self.pause().as_ref());
        ready.guests.extend(std::mem::take(&mut self.waited_for.busy));
        ready.guests.sort_unstable();
        ready.guests.dedup();
        ready
    }

    /// Does what was asked. `false`: stop.
    fn obey(&mut self) -> bool {
        while let Ok(order) = self.waiting.orders.try_recv() {
            match order {
                Order::Serve(key, meeting, device) => {
                    self.guests.insert(key, Guest::new(meeting, device));
                    self.await_front_end(key);
                    self.try_to_connect(key);
                }
                Order::Forget(key) => self.forget(key),
                Order::Stop => return false,
            }
        }
        true
    }

    /// Waits for a front end of a port that has none.
    fn await_front_end(&mut self, key: GuestKey) {
        match self.guests.get(&key).map(|guest| &guest.meeting) {
            Some(Meeting::Listens(listener)) => self.must_watch(self.watch.add(key, listener)),
            Some(Meeting::Connects(_)) => _ = self.waited_for.missing.insert(key),
            None => {}
        }
    }

    /// Does not wait for a front end any more.
    fn stop_awaiting(&mut self, key: GuestKey) {
        if let Some(Meeting::Listens(listener)) = self.guests.get(&key).map(|guest| &guest.meeting) {
            self.watch.remove(listener);
        }
        self.waited_for.missing.remove(&key);
    }

    /// Waits for nothing that a front end does any more. Returns its back end, to be dropped.
    fn stop_watching(&mut self, key: GuestKey) -> Option<Backend> {
        let guest = self.guests.get_mut(&key)?;
        self.watch.replace(key, &mut guest.control_kick, None);
        self.waited_for.busy.remove(&key);
        let backend = guest.backend.take()?;
        self.watch.remove(backend.socket());
        Some(backend)
    }

    fn forget(&mut self, key: GuestKey) {
        drop(self.stop_watching(key));
        self.stop_awaiting(key);
        self.guests.remove(&key);
    }

    /// A port that nobody waits for says nothing of it, so somebody must know.
    fn must_watch(&self, is_watched: bool) {
        if !is_watched {
            tracing::error!(
                "the kernel has no memory to wait for a virtual machine: delete its port and add it again"
            );
        }
    }

    /// Guests whose queues workers serve no more.
    fn break_faulty(&mut self) {
        let faulty = self.control.hold().faulty_guests();
        for (key, reason) in faulty {
            self.disconnect(key, PortState::Broken, reason);
        }
    }

    fn look(&mut self, key: GuestKey) {
        let Some(guest) = self.guests.get_mut(&key) else { return };
        let Some(backend) = &mut guest.backend else { return self.accept(key) };
        let mut service = Service::new(&self.control, key);
        let handled = backend.handle(&mut service);
        let is_watched = self.watch.replace(key, &mut guest.control_kick, backend.control_kick());
        if service.has_started {
            guest.again.succeed();
        }
        let now = Nanos(self.shared.started.elapsed().as_nanos() as u64);
        service.moved.retain(|_| guest.announcements.take(now, 1));
        for address in service.moved {
            let frames = self.control.hold().announce_guest(key, address);
            // A port whose netdev goes this moment needs none.
            frames.iter().for_each(|(ifindex, frame)| _ = self.sender.send(ifindex.0, frame));
        }
        match handled {
            Ok(Progress::Waiting) => {}
            Ok(Progress::More) => _ = self.waited_for.busy.insert(key),
            Ok(Progress::Closed) => {
                let reason = "the virtual machine has closed its connection".to_owned();
                self.disconnect(key, PortState::Waiting, reason);
            }
            Err(error) => self.disconnect(key, PortState::Broken, error.to_string()),
        }
        self.must_watch(is_watched);
    }

    /// Takes the next front end that has connected.
    fn accept(&mut self, key: GuestKey) {
        let Some(Meeting::Listens(listener)) = self.guests.get(&key).map(|guest| &guest.meeting) else {
            return;
        };
        match listener.accept() {
            Ok(Some(stream)) => self.connect(key, stream),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "a virtual machine could not connect"),
        }
    }

    fn connect_those_due(&mut self) {
        let now = self.now();
        let is_due = |key: &&GuestKey| {
            self.guests.get(key).is_some_and(|guest| guest.connects_in(now) == Some(Nanos(0)))
        };
        let due: Vec<GuestKey> = self.waited_for.missing.iter().filter(is_due).copied().collect();
        for key in due {
            self.try_to_connect(key);
        }
    }

    /// Connects to a front end that listens; or does so later.
    fn try_to_connect(&mut self, key: GuestKey) {
        let now = self.now();
        let Some(guest) = self.guests.get_mut(&key) else { return };
        let Meeting::Connects(path) = &guest.meeting else { return };
        // It is due again unless its queues start: also if it takes connections and closes them.
        guest.again.fail(now);
        match connect_to(path) {
            Ok(stream) => {
                guest.missing.clear();
                self.connect(key, stream);
            }
            Err(error) => {
                let reason = format!("cannot connect to {}: {error}; it is tried again", path.display());
                if guest.missing != reason {
                    guest.missing.clone_from(&reason);
                    self.control.begin().guest_is_missing(key, reason);
                }
            }
        }
    }

    fn connect(&mut self, key: GuestKey, stream: UnixStream) {
        self.stop_awaiting(key);
        let Some(guest) = self.guests.get_mut(&key) else { return };
        let backend = guest.backend.insert(Backend::new(stream, guest.device));
        let is_watched = self.watch.add(key, backend.socket());
        self.must_watch(is_watched);
        self.control.begin().guest_connects(key);
    }

    fn disconnect(&mut self, key: GuestKey, state: PortState, reason: String) {
        if let Some(mut backend) = self.stop_watching(key) {
            backend.stop(&mut Service::new(&self.control, key));
        }
        let now = self.now();
        let Some(guest) = self.guests.get_mut(&key) else { return };
        guest.again.fail(now);
        self.await_front_end(key);
        self.control.begin().guest_leaves(key, state, reason);
    }

    fn close_all(&mut self) {
        for (key, guest) in &mut self.guests {
            if let Some(mut backend) = guest.backend.take() {
                backend.stop(&mut Service::new(&self.control, *key));
            }
        }
    }
}

/// Hands the queues of one guest to workers.
struct Service<'a> {
    control: &'a Changes,
    key: GuestKey,
    /// A queue was started.
    has_started: bool,
    /// Addresses of guests that have moved here.
    moved: Vec<[u8; 6]>,
}

impl<'a> Service<'a> {
    fn new(control: &'a Changes, key: GuestKey) -> Self {
        Self { control, key, has_started: false, moved: Vec::new() }
    }
}

impl Owner for Service<'_> {
    fn queue_started(&mut self, queue: Virtqueue) {
        self.has_started = true;
        self.control.begin().guest_queue_starts(self.key, queue);
    }

    fn queue_stopped(&mut self, index: usize) -> Option<Virtqueue> {
        self.control.begin().guest_queue_stops(self.key, index)
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Features(features) => self.control.begin().guest_has_features(self.key, features),
            Event::Offloads(offloads) => self.control.begin().guest_has_offloads(self.key, offloads),
            Event::Mtu(mtu) => self.control.begin().guest_has_mtu(self.key, mtu),
            Event::Announce(address) => self.moved.push(address),
            Event::Coalescing { queue, limits } => {
                self.control.begin().guest_asks_for_limits(self.key, queue, limits);
            }
            _ => {}
        }
    }
}
