//! Who has packets: the kernel says so through epoll, the run list remembers it.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use forebay_policy::{Pace, Refill, Served, Standing};
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
/// Commands that wait for a worker; whoever sends one more waits for it.
const COMMANDS: usize = 64;
/// Marks the event of the command channel; slots are 32 bits.
const COMMAND: u64 = u64::MAX;
/// Marks the event of a queue's own socket.
const DRAIN: u64 = u64::MAX - 1;

/// Marks the event of the alarm.
const ALARM: u64 = u64::MAX - 2;

/// How long a worker sleeps at most that wants to look again.
const SNOOZE: Timespec = Timespec { tv_sec: 0, tv_nsec: Refill::QUIET as i64 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Turns that new rings get before one that has waited since its last turn.
const NEW_BEFORE_OLD: u32 = 16;

/// Turns of the worker for which a ring stays heavy after one of its own that left packets.
const HEAVY_TURNS: u64 = 64;

/// Run lists and epoll of one worker.
///
/// A ring with packets is *old* when a turn of its lately left some, and *new* otherwise; new ones go before old ones. So
/// whoever has little to send waits for the turn under way and not for every ring that is flooded (the two lists of
/// FQ-CoDel, RFC 8290 section 4.2). Old rings are not starved: they have every seventeenth turn.
pub(super) struct Ready {
    epoll: OwnedFd,
    new: VecDeque<Slot>,
    old: VecDeque<Slot>,
    new_in_a_row: u32,
    pace: Pace,
    /// Nobody had a turn since the last look.
    looked: bool,
    listed: Vec<bool>,
    turns: u64,
    /// The turn until which each ring is heavy.
    heavy: Vec<u64>,
    pub(super) commands: Receiver<Command>,
    bell: Arc<OwnedFd>,
    command_waits: Arc<AtomicBool>,
    /// One alarm serves many sleeps: a timeout for each costs a busy worker a few percent of what it carries.
    alarm: OwnedFd,
    alarm_is_set: bool,
}

impl Ready {
    pub(super) fn new(slots: usize) -> Result<(Self, Commander), SwitchError> {
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
        let ready = Self {
            epoll,
            new: VecDeque::with_capacity(slots),
            old: VecDeque::with_capacity(slots),
            new_in_a_row: 0,
            pace: Pace::default(),
            looked: false,
            listed: vec![false; slots],
            turns: 0,
            heavy: vec![0; slots],
            commands,
            bell,
            command_waits,
            alarm,
            alarm_is_set: false,
        };
        Ok((ready, commander))
    }

    /// The ring whose turn it is. In a hurry, whoever has more goes on only after a look at who has come.
    pub(super) fn next(&mut self) -> Option<Slot> {
        if self.new.is_empty() && !self.old.is_empty() && !self.looked && self.pace.is_hurried() {
            self.look_now();
        }
        self.looked = false;
        let old_first = self.new_in_a_row >= NEW_BEFORE_OLD && !self.old.is_empty();
        let new = if old_first { None } else { self.new.pop_front() };
        self.new_in_a_row = if new.is_some() { self.new_in_a_row + 1 } else { 0 };
        let slot = new.or_else(|| self.old.pop_front())?;
        self.listed[slot.index()] = false;
        Some(slot)
    }

    /// When turns are interrupted.
    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// The ring whose turn it was had so many packets. With more, it goes on when new ones had their turn, or has another
    /// turn when all others had theirs.
    pub(super) fn served(&mut self, slot: Slot, packets: usize, standing: Standing) {
        let more = standing != Standing::Empty;
        self.pace.observe(Served { packets: packets as u32, more, new: self.new_in_a_row > 0 });
        self.turns += 1;
        if more {
            self.heavy[slot.index()] = self.turns + HEAVY_TURNS;
        }
        match standing {
            Standing::Empty => {}
            Standing::Interrupted if self.list(slot) => self.old.push_front(slot),
            Standing::Over if self.list(slot) => self.old.push_back(slot),
            Standing::Interrupted | Standing::Over => {}
        }
    }

    /// The ring may have packets.
    pub(super) fn wake(&mut self, slot: Slot) {
        let is_heavy = self.turns < self.heavy[slot.index()];
        if self.list(slot) {
            if is_heavy { &mut self.old } else { &mut self.new }.push_back(slot);
        }
    }

    /// Whether `slot` was in neither list, and is now about to be in one.
    fn list(&mut self, slot: Slot) -> bool {
        !std::mem::replace(&mut self.listed[slot.index()], true)
    }

    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.old.is_empty()
    }

    /// Asks the kernel who is ready, without waiting; says whether anybody is, or was before.
    pub(super) fn look_now(&mut self) -> bool {
        self.look(Some(&AT_ONCE)) || !self.is_empty()
    }

    /// Waits until somebody is ready; when `briefly`, not for long.
    pub(super) fn sleep(&mut self, briefly: bool) {
        if briefly && !self.alarm_is_set {
            let once = Itimerspec { it_interval: AT_ONCE, it_value: SNOOZE };
            self.alarm_is_set = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &once).is_ok();
        }
        self.look(None);
    }

    fn silence_alarm(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.alarm, &mut count);
        self.alarm_is_set = false;
    }

    fn look(&mut self, timeout: Option<&Timespec>) -> bool {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        // An interrupted wait reports nothing, and the caller comes back.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, timeout) else { return false };
        self.looked = true;
        for event in events.iter() {
            match event.data.u64() {
                // The bell may ring after its command was carried out; it must be silenced all the same.
                COMMAND => self.command_waits.store(true, Ordering::Relaxed),
                // Whoever looks tends to the supplies next.
                DRAIN => {}
                ALARM => self.silence_alarm(),
                slot => self.wake(Slot(slot as u32)),
            }
        }
        !events.is_empty()
    }

    /// Whether a command waits.
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.command_waits.load(Ordering::Relaxed)
    }

    /// Takes the bell's count, so that it rings for the next command. Whatever was sent before is in the channel.
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

    /// Stops watching it.
    pub(super) fn ignore(&mut self, socket: BorrowedFd<'_>) {
        let _ = epoll::delete(self.epoll.as_fd(), socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Ready {
        Ready::new(64).expect("an epoll and an eventfd can be had").0
    }

    fn order(ready: &mut Ready, turns: usize) -> Vec<u32> {
        (0..turns).filter_map(|_| ready.next().map(|slot| slot.0)).collect()
    }

    #[test]
    fn a_bell_that_rings_late_is_heard_and_silenced() {
        let mut ready = ready();
        rustix::io::write(&*ready.bell, &1u64.to_ne_bytes()).expect("an eventfd takes a number");
        assert!(ready.look_now() && ready.is_asked());
        ready.silence();
        assert!(!ready.look_now() && !ready.is_asked());
    }

    #[test]
    fn a_sleep_that_is_to_be_short_ends_by_itself_each_time() {
        let mut ready = ready();
        for _ in 0..2 {
            ready.sleep(true);
            assert!(!ready.alarm_is_set && !ready.look_now());
        }
    }

    #[test]
    fn a_ring_is_listed_once() {
        let mut ready = ready();
        [1, 2, 1].into_iter().for_each(|slot| ready.wake(Slot(slot)));
        ready.served(Slot(2), 64, Standing::Over);
        assert_eq!(order(&mut ready, 9), [1, 2]);
    }

    #[test]
    fn whoever_was_quiet_goes_before_whoever_has_more() {
        let mut ready = ready();
        [1, 2].into_iter().for_each(|slot| ready.served(Slot(slot), 64, Standing::Over));
        [3, 4].into_iter().for_each(|slot| ready.wake(Slot(slot)));
        assert_eq!(order(&mut ready, 9), [3, 4, 1, 2]);
    }

    #[test]
    fn whoever_was_interrupted_goes_on_after_the_new_and_before_the_old() {
        let mut ready = ready();
        ready.served(Slot(1), 64, Standing::Over);
        ready.served(Slot(2), 16, Standing::Interrupted);
        ready.wake(Slot(3));
        assert_eq!(order(&mut ready, 9), [3, 2, 1]);
    }

    #[test]
    fn a_ring_that_left_packets_lately_is_not_new_when_it_comes_again() {
        let mut ready = ready();
        let turn = |ready: &mut Ready, slot, standing| {
            ready.next();
            ready.served(Slot(slot), 16, standing);
        };
        [Standing::Over, Standing::Empty].into_iter().for_each(|standing| turn(&mut ready, 1, standing));
        [1, 2].into_iter().for_each(|slot| ready.wake(Slot(slot)));
        assert_eq!(order(&mut ready, 9), [2, 1]);
        (0..HEAVY_TURNS).for_each(|_| turn(&mut ready, 3, Standing::Empty));
        [1, 2].into_iter().for_each(|slot| ready.wake(Slot(slot)));
        assert_eq!(order(&mut ready, 9), [1, 2]);
    }

    #[test]
    fn many_quiet_rings_do_not_starve_one_that_has_more() {
        let mut ready = ready();
        ready.served(Slot(0), 64, Standing::Over);
        (1..=40).for_each(|slot| ready.wake(Slot(slot)));
        let order = order(&mut ready, 41);
        assert_eq!(order.iter().position(|slot| *slot == 0), Some(NEW_BEFORE_OLD as usize));
        assert_eq!(order.len(), 41);
    }
}
