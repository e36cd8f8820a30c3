//! The thread that talks with the programs that run virtual machines: it listens at the ports' sockets or connects to
//! them, follows the vhost-user protocol, and hands virtqueues to workers and takes them back.
//!
//! It waits for all sockets at once and for no front end: one that is silent, or that sends half a message, keeps nobody
//! else waiting. A front end that breaks the rules loses its connection, and its port says why. One that does not listen
//! yet is tried again, at intervals that grow to two seconds.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_control::port::PortState;
use forebay_policy::{Backoff, Nanos, TokenBucket};
use forebay_vhost::{Backend, DeviceOptions, Event, Owner, Progress, Virtqueue};
use forebay_xsk::FrameSender;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Changes;
use crate::SwitchError;
use crate::guests::{GuestKey, Meeting, Order, Reception, Waiting, connect_to};
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
        let work = move || Thread { control, shared, sender, waiting, guests: BTreeMap::new() }.run();
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
    /// It is to be looked at without a wait.
    has_more: bool,
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
            has_more: false,
            again: AGAIN,
            missing: String::new(),
            announcements: ANNOUNCEMENTS,
        }
    }

    /// Time until the switch is to connect.
    fn connects_in(&self, now: Nanos) -> Option<Nanos> {
        self.again
            .wait(now)
            .filter(|_| self.backend.is_none() && matches!(self.meeting, Meeting::Connects(_)))
    }

    /// What to wait for.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match (&self.backend, &self.meeting) {
            (Some(backend), _) => backend.descriptors().collect(),
            (None, Meeting::Listens(listener)) => vec![listener.as_fd()],
            (None, Meeting::Connects(_)) => Vec::new(),
        }
    }
}

struct Thread {
    control: Arc<Changes>,
    shared: Arc<Shared>,
    /// For announcements.
    sender: FrameSender,
    waiting: Waiting,
    guests: BTreeMap<GuestKey, Guest>,
}

impl Thread {
    fn run(mut self) {
        loop {
            let ready = self.wait();
            self.shared.turns.guests.add(1);
            self.waiting.bell.hear();
            self.waiting.bell.listen();
            if !self.obey() {
                return self.close_all();
            }
            self.break_faulty();
            for key in ready {
                self.look(key);
            }
            self.connect_those_due();
        }
    }

    fn now(&self) -> Nanos {
        Nanos(self.shared.started.elapsed().as_nanos() as u64)
    }

    /// How long to wait for guests: `None` without end.
    fn pause(&self, is_busy: bool) -> Option<Timespec> {
        if is_busy {
            return Some(Timespec::default());
        }
        let now = self.now();
        let first = self.guests.values().filter_map(|guest| guest.connects_in(now)).min()?;
        // A wait that ends too early by less than a millisecond would only be repeated.
        let pause = Duration::from_nanos(first.0) + Duration::from_millis(1);
        Some(Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() })
    }

    /// Waits until a guest or the control side has something. Returns the guests that have.
    fn wait(&self) -> Vec<GuestKey> {
        let mut owners = Vec::new();
        let mut fds = vec![PollFd::new(&self.waiting.bell, PollFlags::IN)];
        for (key, guest) in &self.guests {
            for descriptor in guest.descriptors() {
                fds.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
                owners.push(*key);
            }
        }
        let busy: Vec<GuestKey> =
            self.guests.iter().filter(|(_, guest)| guest.has_more).map(|(key, _)| *key).collect();
        // An interrupted wait reports nothing, and the caller comes back.
        let _ = poll(&mut fds, self.pause(!busy.is_empty()).as_ref());
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let mut ready: Vec<GuestKey> =
            fds[1..].iter().zip(owners).filter(|(fd, _)| is_ready(fd)).map(|(_, key)| key).collect();
        ready.extend(busy);
        ready.sort_unstable();
        ready.dedup();
        ready
    }

    /// Does what was asked. `false`: stop.
    fn obey(&mut self) -> bool {
        while let Ok(order) = self.waiting.orders.try_recv() {
            match order {
                Order::Serve(key, meeting, device) => {
                    self.guests.insert(key, Guest::new(meeting, device));
                    self.try_to_connect(key);
                }
                Order::Forget(key) => drop(self.guests.remove(&key)),
                Order::Stop => return false,
            }
        }
        true
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
        guest.has_more = false;
        let Some(backend) = &mut guest.backend else { return self.accept(key) };
        let mut service = Service::new(&self.control, key);
        let handled = backend.handle(&mut service);
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
            Ok(Progress::More) => guest.has_more = true,
            Ok(Progress::Closed) => {
                let reason = "the virtual machine has closed its connection".to_owned();
                self.disconnect(key, PortState::Waiting, reason);
            }
            Err(error) => self.disconnect(key, PortState::Broken, error.to_string()),
        }
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
        let is_due = |guest: &Guest| guest.connects_in(now) == Some(Nanos(0));
        let due: Vec<GuestKey> =
            self.guests.iter().filter(|(_, guest)| is_due(guest)).map(|(key, _)| *key).collect();
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
        let Some(guest) = self.guests.get_mut(&key) else { return };
        guest.backend = Some(Backend::new(stream, guest.device));
        self.control.begin().guest_connects(key);
    }

    fn disconnect(&mut self, key: GuestKey, state: PortState, reason: String) {
        let Some(guest) = self.guests.get_mut(&key) else { return };
        if let Some(mut backend) = guest.backend.take() {
            backend.stop(&mut Service::new(&self.control, key));
        }
        let now = self.shared.started.elapsed().as_nanos() as u64;
        guest.again.fail(Nanos(now));
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
