//! Who has packets: the kernel says so through epoll, the run list remembers it.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::Slot;
use super::command::{Command, Commander};
use crate::SwitchError;

/// Ready sockets that one look at epoll reports; the others are reported by the next.
const EVENTS: usize = 64;
/// Commands that wait for a worker; whoever sends one more waits for it.
const COMMANDS: usize = 64;
/// Marks the event of the command channel; slots are 32 bits.
const COMMAND: u64 = u64::MAX;

/// Run list and epoll of one worker.
pub(super) struct Ready {
    epoll: OwnedFd,
    run_list: VecDeque<Slot>,
    listed: Vec<bool>,
    pub(super) commands: Receiver<Command>,
    bell: Arc<OwnedFd>,
    command_waits: Arc<AtomicBool>,
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
        let (sender, commands) = sync_channel(COMMANDS);
        let command_waits = Arc::new(AtomicBool::new(false));
        let commander = Commander::new(sender, Arc::clone(&bell), Arc::clone(&command_waits));
        let ready = Self {
            epoll,
            run_list: VecDeque::with_capacity(slots),
            listed: vec![false; slots],
            commands,
            bell,
            command_waits,
        };
        Ok((ready, commander))
    }

    /// The ring whose turn it is.
    pub(super) fn next(&mut self) -> Option<Slot> {
        let slot = self.run_list.pop_front()?;
        self.listed[slot.index()] = false;
        Some(slot)
    }

    /// Puts `slot` at the end of the run list, once.
    pub(super) fn again(&mut self, slot: Slot) {
        let listed = &mut self.listed[slot.index()];
        if !*listed {
            *listed = true;
            self.run_list.push_back(slot);
        }
    }

    /// Asks the kernel who is ready. Waits only when the run list is empty; says whether it had to.
    pub(super) fn poll(&mut self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if self.look(Some(&at_once)) || !self.run_list.is_empty() {
            return false;
        }
        self.look(None);
        true
    }

    fn look(&mut self, timeout: Option<&Timespec>) -> bool {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        // An interrupted wait reports nothing, and the caller comes back.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, timeout) else { return false };
        for event in events.iter() {
            match event.data.u64() {
                COMMAND => {}
                slot => self.again(Slot(slot as u32)),
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

    /// Stops watching it.
    pub(super) fn ignore(&mut self, socket: BorrowedFd<'_>) {
        let _ = epoll::delete(self.epoll.as_fd(), socket);
    }
}
