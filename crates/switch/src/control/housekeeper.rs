//! The thread that follows netdevs, lets old entries go, and moves ports that have many packets out of others' way.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_control::IfIndex;
use forebay_kernel::netlink::{LinkEvent, LinkMonitor, XdpMonitor};
use forebay_policy::{Debounce, Nanos, TokenBucket, Watch};
use forebay_xsk::FrameSender;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Change, Changes, Control};
use crate::SwitchError;
use crate::supervise;

/// Rounds in which events about netdevs are followed: 8 at once, 50 a second in the long run.
const ROUNDS: TokenBucket = TokenBucket::new(50, 8);
/// How often all is saved because a netdev has changed; it is saved once a second anyway.
const SAVES: Debounce = Debounce::new(4, 4);
/// Slots of the forwarding table that one tick looks at.
const SWEEP_SLOTS: usize = 16_384;
/// Events that are followed under one lock.
const EVENTS: usize = 256;

/// Stops its thread when dropped.
pub(crate) struct Housekeeper {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Housekeeper {
    /// Starts the thread. It listens in the calling thread's network namespace.
    pub(crate) fn start(control: Arc<Changes>) -> Result<Self, SwitchError> {
        let monitor = LinkMonitor::open()?;
        let xdp_monitor = XdpMonitor::open()?;
        let sender = FrameSender::open()?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map(Arc::new)
            .map_err(SwitchError::system("create an eventfd"))?;
        let stopped = Arc::clone(&stop);
        let work = move || run(&control, (monitor, xdp_monitor), &sender, &stopped);
        let thread = supervise::spawn("housekeeper".to_owned(), work)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        let _ = rustix::io::write(self.stop.as_fd(), &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    control: &Changes,
    (mut monitor, mut xdp_monitor): (LinkMonitor, XdpMonitor),
    sender: &FrameSender,
    stop: &OwnedFd,
) {
    let shared = Arc::clone(&control.hold().shared);
    let now = || Nanos(shared.started.elapsed().as_nanos() as u64);
    let (mut watch, mut rounds, mut saves) = (Watch::new(now()), ROUNDS, SAVES);
    let mut pause = watch.pause(false, false);
    // Netdevs that could not be attached to are to be looked at again.
    let mut looks_again = false;
    loop {
        // Events wait in their sockets, and become fewer there: several changes of one netdev are one look.
        // They also wait while a change is under way.
        let listens = rounds.available(now()) > 0 && control.is_free();
        let (link_events, xdp_events): (&dyn AsFd, &dyn AsFd) =
            if listens { (&monitor, &xdp_monitor) } else { (stop, stop) };
        let pause_now = if listens { pause } else { pause.min(Watch::SOON) };
        let [heard, xdp_heard, stopped, called] =
            wait([link_events, xdp_events, stop, &shared.attention], pause_now);
        if stopped {
            return control.keep_none();
        }
        shared.turns.housekeeper.add(1);
        if called {
            shared.attention.hear();
        }
        if watch.observe(called, now()) {
            shared.attention.listen();
        }
        let ticks = watch.ticks(now());
        looks_again |= ticks;
        let mut followed = false;
        if let Some(mut change) = control.try_begin() {
            let events = if listens && heard { hear(&mut monitor) } else { Vec::new() };
            if listens && (heard || xdp_heard) {
                let _ = rounds.take(now(), 1);
            }
            let outputs = (listens && xdp_heard).then(|| xdp_monitor.changed());
            followed = change.keep_up(events, outputs, std::mem::take(&mut looks_again), now());
        } else if looks_again {
            // Changes that follow each other at once leave no place free.
            control.keep_next();
        }
        let mut control = control.hold();
        if followed && saves.change(now()) || saves.is_due(now()) {
            let _ = control.save();
        }
        control.audit();
        let probes = control.find_loops(now());
        if ticks {
            control.tick();
        }
        pause = watch.pause(!control.put_off.is_done(), control.holds_frames());
        pause = pause.min(control.loops.pause(now()));
        drop(control);
        // A port whose netdev goes this moment needs none.
        probes.iter().for_each(|(ifindex, frame)| _ = sender.send(ifindex.0, frame));
    }
}

/// Waits for any of them, or for so long; says which were ready. An interrupted wait is a short one.
fn wait<const N: usize>(whom: [&dyn AsFd; N], pause: Nanos) -> [bool; N] {
    let mut fds = whom.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
    let pause = Duration::from_nanos(pause.0);
    let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
    let _ = poll(&mut fds, Some(&timeout));
    fds.map(|fd| !fd.revents().is_empty())
}

fn hear(monitor: &mut LinkMonitor) -> Vec<LinkEvent> {
    let mut events = Vec::new();
    while events.len() < EVENTS {
        match monitor.next_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "could not follow netdevs; looking at all of them");
                events.push(LinkEvent::Overrun);
                break;
            }
        }
    }
    events
}

impl Change<'_> {
    /// Follows netdevs and sorts ports into lanes. Says whether a netdev has changed something.
    fn keep_up(
        &mut self,
        events: Vec<LinkEvent>,
        outputs: Option<Option<BTreeSet<IfIndex>>>,
        looks_again: bool,
        now: Nanos,
    ) -> bool {
        let mut changed = self.follow(events);
        if let Some(outputs) = outputs {
            changed |= self.follow_outputs(outputs);
        }
        self.sort_into_lanes(now);
        if looks_again {
            changed |= self.look_again();
            self.tell_stations();
            self.count_received();
        }
        changed
    }
}

impl Control {
    /// Once a second.
    fn tick(&mut self) {
        self.shared.fdb.expire(self.shared.now_s(), SWEEP_SLOTS);
        self.observe_loss();
        self.look_who_carries();
        self.look_at_captures();
        let _ = self.save_counted();
    }
}
