//! The worker threads as the control side holds them.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use forebay_vhost::Virtqueue;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::SwitchError;
use crate::news::News;
use crate::pool_instance::Supplied;
use crate::supervise;
use crate::worker::{Command, Commander, Emptied, Moderation, ServedSource, Slot, Waker, Worker};

/// One worker thread.
pub(crate) struct WorkerHandle {
    pub(crate) cpu: Option<u32>,
    commander: Commander,
    thread: JoinHandle<()>,
    /// Slots handed out so far, and those of them that came back.
    next_slot: u32,
    free_slots: Vec<Slot>,
    /// Numbers of moderated queues that were handed out so far, those that came back, and how many there is room for.
    next_call: usize,
    free_calls: Vec<usize>,
    room_for_calls: usize,
    /// What it notes of queues that are moderated from outside.
    news: Arc<News>,
}

/// Moderated queues that a worker has room for once it has any.
const FIRST_CALLS: usize = 64;

impl WorkerHandle {
    /// Starts the thread, pinned to `cpu` where one is given.
    pub(crate) fn spawn(
        index: usize,
        cpu: Option<u32>,
        (worker, commander): (Worker, Commander),
        news: Arc<News>,
    ) -> Result<Self, SwitchError> {
        let thread = supervise::spawn(format!("worker-{index}"), move || {
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            worker.run();
        })?;
        Ok(Self {
            cpu,
            commander,
            thread,
            next_slot: 0,
            free_slots: Vec::new(),
            next_call: 0,
            free_calls: Vec::new(),
            room_for_calls: 0,
            news,
        })
    }

    /// A number for a queue whose calls the worker is to moderate.
    pub(crate) fn call_number(&mut self) -> usize {
        if let Some(number) = self.free_calls.pop() {
            return number;
        }
        if self.next_call == self.room_for_calls {
            self.room_for_calls = (2 * self.room_for_calls).max(FIRST_CALLS);
            self.send(Command::GrowModeration(Box::new(Moderation::new(
                self.room_for_calls,
                Arc::clone(&self.news),
            ))));
        }
        self.next_call += 1;
        self.next_call - 1
    }

    /// The queue comes no more. Its number may be used again at once, because commands are carried out in order.
    pub(crate) fn free_call_number(&mut self, number: usize) {
        self.send(Command::ForgetModerated(number));
        self.free_calls.push(number);
    }

    /// Another end that commands the worker.
    pub(crate) fn commander(&self) -> Commander {
        self.commander.clone()
    }

    /// What wakes the worker.
    pub(crate) fn waker(&self) -> Waker {
        self.commander.waker()
    }

    pub(crate) fn send(&self, command: Command) {
        self.commander.send(command);
    }

    /// Has the worker serve `source` under the slot that comes back.
    pub(crate) fn serve(&mut self, source: ServedSource) -> Slot {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.next_slot += 1;
            Slot(self.next_slot - 1)
        });
        self.send(Command::AddSource(slot, Box::new(source)));
        slot
    }

    /// Has the worker serve what lies in the ring and forget it; see [`Command::Retire`]. The slot may be used again at
    /// once, because commands are carried out in order.
    pub(crate) fn retire(&mut self, slot: Slot, replaced: bool, done: Sender<Emptied>) {
        self.send(Command::Retire(slot, replaced, done));
        self.free_slots.push(slot);
    }

    /// Has the worker give a guest's queue back; see [`Command::TakeGuest`].
    pub(crate) fn take_guest(&mut self, slot: Slot, done: Sender<Option<Virtqueue>>) {
        self.send(Command::TakeGuest(slot, done));
        self.free_slots.push(slot);
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(self) {
        self.commander.send(Command::Stop);
        // A panic would have ended the process.
        let _ = self.thread.join();
    }
}

/// Gives workers what supplies their rings.
pub(crate) fn hand_out(workers: &[WorkerHandle], supplied: Vec<Supplied>) {
    for Supplied { worker, number, supply } in supplied {
        workers[worker].send(Command::AddSupply(number, supply));
    }
}

/// A worker that cannot be pinned (the CPU is not in the daemon's set) still works.
fn pin(cpu: u32) {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "a worker could not be pinned to its CPU");
    }
}
