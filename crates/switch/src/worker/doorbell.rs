//! Who has packets, and what the control thread asks: the kernel tells both through one epoll.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use forebay_policy::{Nanos, RunList};
use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::Slot;
use super::command::{Command, Commander};
use crate::SwitchError;

/// Ready sockets that one look at epoll reports; the others are reported by the next.
const EVENTS: usize = 64;
/// Commands that wait for a worker; the sender of one more waits for it.
const COMMANDS: usize = 64;
/// Marks the event of the command channel; slots are 32 bits.
const COMMAND: u64 = u64::MAX;
/// Marks the event of a queue's own socket.
const DRAIN: u64 = u64::MAX - 1;
/// Marks the event of the alarm.
const ALARM: u64 = u64::MAX - 2;

/// Marks the event of the bell that other workers ring.
const HANDED: u64 = u64::MAX - 3;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Where one worker hears that there is something to do.
pub(super) struct Doorbell {
    epoll: OwnedFd,
    pub(super) commands: Receiver<Command>,
    bell: Arc<OwnedFd>,
    command_waits: Arc<AtomicBool>,
    /// One alarm serves many sleeps: a timeout for each costs a busy worker a few percent of what it carries.
    alarm: OwnedFd,
    /// When it rings, if it is set.
    rings_at: Option<Nanos>,
    /// Another worker has handed packets over.
    rang: bool,
}

impl Doorbell {
    pub(super) fn new() -> Result<(Self, Commander), SwitchError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(SwitchError::system("create an epoll"))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Arc::new)
            .map_err(SwitchError::system("create an eventfd"))?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(COMMAND), epoll::EventFlags::IN)
            .map_err(SwitchError::system("watch an eventfd"))?;
        let alarm = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(SwitchError::system("create a timer"))?;
        epoll::add(&epoll, &alarm, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN)
            .map_err(SwitchError::system("watch a timer"))?;
        let (sender, commands) = sync_channel(COMMANDS);
        let command_waits = Arc::new(AtomicBool::new(false));
        let commander = Commander::new(sender, Arc::clone(&bell), Arc::clone(&command_waits));
        let doorbell = Self { epoll, commands, bell, command_waits, alarm, rings_at: None, rang: false };
        Ok((doorbell, commander))
    }

    /// Asks the kernel who is ready, without waiting, and lists them; says whether anybody is, or was before.
    pub(super) fn look_now(&mut self, list: &mut RunList) -> bool {
        self.look(Some(&AT_ONCE), list) || !list.is_empty()
    }

    /// Waits until somebody is ready, or until `wakes_at`. An alarm that is set to an earlier time stays set: setting it for
    /// each sleep would cost a system call each time.
    pub(super) fn sleep(&mut self, wakes_at: Option<Nanos>, now: Nanos, list: &mut RunList) {
        if let Some(at) = wakes_at.filter(|at| self.rings_at.is_none_or(|rings| rings > *at)) {
            // Zero would switch it off.
            let wait = at.since(now).max(1);
            let it_value = Timespec {
                tv_sec: (wait / Nanos::PER_SECOND) as i64,
                tv_nsec: (wait % Nanos::PER_SECOND) as i64,
            };
            let once = Itimerspec { it_interval: AT_ONCE, it_value };
            let is_set = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &once).is_ok();
            self.rings_at = is_set.then_some(at);
        }
        self.look(None, list);
    }

    fn silence_alarm(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.alarm, &mut count);
        self.rings_at = None;
    }

    fn look(&mut self, timeout: Option<&Timespec>, list: &mut RunList) -> bool {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        // An interrupted wait reports nothing, and the caller comes back.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, timeout) else { return false };
        list.looked();
        for event in events.iter() {
            match event.data.u64() {
                // The bell may ring after its command was carried out; it must be silenced all the same.
                COMMAND => self.command_waits.store(true, Ordering::Relaxed),
                // The worker tends to the supplies after each look.
                DRAIN => {}
                HANDED => self.rang = true,
                ALARM => self.silence_alarm(),
                slot => list.wake(slot as u32),
            }
        }
        !events.is_empty()
    }

    /// Whether another worker has rung since the last call.
    #[inline]
    pub(super) fn take_rang(&mut self) -> bool {
        std::mem::take(&mut self.rang)
    }

    /// Whether a command waits.
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.command_waits.load(Ordering::Relaxed)
    }

    /// Takes the bell's count, so that it rings for the next command. What was sent before is in the channel.
    pub(super) fn silence(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut count);
        self.command_waits.swap(false, Ordering::AcqRel);
    }

    /// Watches a ring's socket.
    pub(super) fn watch(&mut self, slot: Slot, socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(u64::from(slot.0)), epoll::EventFlags::IN)
    }

    /// Watches a queue's own socket, which no port has.
    pub(super) fn watch_drain(&mut self, socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(DRAIN), epoll::EventFlags::IN)
    }

    /// Watches what other workers ring when they have handed packets over.
    pub(super) fn watch_exchange(&mut self, bell: BorrowedFd<'_>) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, bell, epoll::EventData::new_u64(HANDED), epoll::EventFlags::IN)
    }

    /// Stops watching it.
    pub(super) fn ignore(&mut self, socket: BorrowedFd<'_>) {
        let _ = epoll::delete(self.epoll.as_fd(), socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doorbell() -> (Doorbell, RunList) {
        (Doorbell::new().expect("an epoll and an eventfd can be had").0, RunList::new(4))
    }

    #[test]
    fn a_bell_that_rings_late_is_heard_and_silenced() {
        let (mut doorbell, mut list) = doorbell();
        rustix::io::write(&*doorbell.bell, &1u64.to_ne_bytes()).expect("an eventfd takes a number");
        assert!(doorbell.look_now(&mut list) && doorbell.is_asked());
        doorbell.silence();
        assert!(!doorbell.look_now(&mut list) && !doorbell.is_asked());
    }

    #[test]
    fn a_sleep_that_is_to_be_short_ends_by_itself_each_time() {
        let (mut doorbell, mut list) = doorbell();
        for _ in 0..2 {
            doorbell.sleep(Some(Nanos(1_000_000)), Nanos(0), &mut list);
            assert!(doorbell.rings_at.is_none() && !doorbell.look_now(&mut list));
        }
    }

    #[test]
    fn the_alarm_is_set_only_to_something_earlier() {
        const HOUR: u64 = 3600 * Nanos::PER_SECOND;
        let (mut doorbell, mut list) = doorbell();
        for (wakes_at, rings_at) in [(None, None), (Some(HOUR), Some(HOUR)), (Some(HOUR + 1), Some(HOUR))] {
            rustix::io::write(&*doorbell.bell, &1u64.to_ne_bytes()).expect("an eventfd takes a number");
            doorbell.sleep(wakes_at.map(Nanos), Nanos(0), &mut list);
            doorbell.silence();
            assert_eq!(doorbell.rings_at, rings_at.map(Nanos));
        }
        doorbell.sleep(Some(Nanos(5)), Nanos(7), &mut list);
        assert_eq!(doorbell.rings_at, None, "what is due already has rung");
    }
}
