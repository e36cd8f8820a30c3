//! The thread that talks with the programs that run virtual machines: it listens at the ports' sockets, follows the
//! vhost-user protocol, and hands virtqueues to workers and takes them back.
//!
//! It waits for all sockets at once and for no front end: one that is silent, or that sends half a message, keeps nobody
//! else waiting. A front end that breaks the rules loses its connection, and its port says why.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use forebay_control::port::PortState;
use forebay_vhost::{Backend, DeviceOptions, Event, Owner, Progress, Virtqueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Changes;
use crate::SwitchError;
use crate::guests::{GuestKey, Listener, Order, Reception, Waiting};
use crate::supervise;

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
        let work = move || Thread { control, waiting, guests: BTreeMap::new() }.run();
        let thread = supervise::spawn("guests".to_owned(), work)?;
        Ok(Self { reception, thread: Mutex::new(Some(thread)) })
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
    listener: Listener,
    device: DeviceOptions,
    backend: Option<Backend>,
    /// It is to be looked at without a wait.
    has_more: bool,
}

struct Thread {
    control: Arc<Changes>,
    waiting: Waiting,
    guests: BTreeMap<GuestKey, Guest>,
}

impl Thread {
    fn run(mut self) {
        loop {
            let ready = self.wait();
            self.waiting.bell.hear();
            self.waiting.bell.listen();
            if !self.obey() {
                return self.close_all();
            }
            self.break_faulty();
            for key in ready {
                self.look(key);
            }
        }
    }

    /// Waits until a guest or the control side has something. Returns the guests that have.
    fn wait(&self) -> Vec<GuestKey> {
        let mut owners = Vec::new();
        let mut fds = vec![PollFd::new(&self.waiting.bell, PollFlags::IN)];
        for (key, guest) in &self.guests {
            let descriptors: Vec<BorrowedFd<'_>> = match &guest.backend {
                Some(backend) => backend.descriptors().collect(),
                None => vec![guest.listener.as_fd()],
            };
            for descriptor in descriptors {
                fds.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
                owners.push(*key);
            }
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let busy: Vec<GuestKey> =
            self.guests.iter().filter(|(_, guest)| guest.has_more).map(|(key, _)| *key).collect();
        let timeout = (!busy.is_empty()).then_some(&at_once);
        // An interrupted wait reports nothing, and the caller comes back.
        let _ = poll(&mut fds, timeout);
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
                Order::Serve(key, listener, device) => {
                    self.guests.insert(key, Guest { listener, device, backend: None, has_more: false });
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
        let Some(backend) = &mut guest.backend else {
            match guest.listener.accept() {
                Ok(Some(stream)) => self.connect(key, stream),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a virtual machine could not connect"),
            }
            return;
        };
        let handled = backend.handle(&mut Service { control: &self.control, key });
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

    fn connect(&mut self, key: GuestKey, stream: UnixStream) {
        let Some(guest) = self.guests.get_mut(&key) else { return };
        guest.backend = Some(Backend::new(stream, guest.device));
        self.control.begin().guest_connects(key);
    }

    fn disconnect(&mut self, key: GuestKey, state: PortState, reason: String) {
        let Some(guest) = self.guests.get_mut(&key) else { return };
        if let Some(mut backend) = guest.backend.take() {
            backend.stop(&mut Service { control: &self.control, key });
        }
        self.control.begin().guest_leaves(key, state, reason);
    }

    fn close_all(&mut self) {
        for (key, guest) in &mut self.guests {
            if let Some(mut backend) = guest.backend.take() {
                backend.stop(&mut Service { control: &self.control, key: *key });
            }
        }
    }
}

/// Hands the queues of one guest to workers.
struct Service<'a> {
    control: &'a Changes,
    key: GuestKey,
}

impl Owner for Service<'_> {
    fn queue_started(&mut self, queue: Virtqueue) {
        self.control.begin().guest_queue_starts(self.key, queue);
    }

    fn queue_stopped(&mut self, index: usize) -> Option<Virtqueue> {
        self.control.begin().guest_queue_stops(self.key, index)
    }

    fn event(&mut self, event: Event) {
        if let Event::Features(features) = event {
            self.control.begin().guest_has_features(self.key, features);
        }
    }
}
