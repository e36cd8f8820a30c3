//! The worker threads as the control side holds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::SwitchError;
use crate::worker::{Command, Commander, Worker};

/// One worker thread.
pub(crate) struct WorkerHandle {
    pub(crate) cpu: Option<u32>,
    commander: Commander,
    magazine_level: Arc<AtomicU32>,
    thread: JoinHandle<()>,
}

impl WorkerHandle {
    /// Starts the thread, pinned to `cpu` where one is given.
    pub(crate) fn spawn(
        index: usize,
        cpu: Option<u32>,
        worker: Worker,
        commander: Commander,
        magazine_level: Arc<AtomicU32>,
    ) -> Result<Self, SwitchError> {
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                if let Some(cpu) = cpu {
                    pin(cpu);
                }
                worker.run();
            })
            .map_err(SwitchError::system("start a worker thread"))?;
        Ok(Self { cpu, commander, magazine_level, thread })
    }

    pub(crate) fn send(&self, command: Command) {
        self.commander.send(command);
    }

    /// Free frames in the worker's magazine.
    pub(crate) fn magazine_level(&self) -> u32 {
        self.magazine_level.load(Ordering::Relaxed)
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(self) {
        self.commander.send(Command::Stop);
        if self.thread.join().is_err() {
            tracing::error!("a worker thread had panicked");
        }
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
