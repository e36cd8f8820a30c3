//! Where the frames of the pool are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::MemorySwitch;

/// How many frames lie in each magazine there ever was; one that is gone has none.
#[derive(Default)]
pub(super) struct Levels(Vec<Arc<AtomicU32>>);

impl Levels {
    pub(super) fn add(&mut self, level: Arc<AtomicU32>) {
        self.0.retain(|level| Arc::strong_count(level) > 1);
        self.0.push(level);
    }

    fn sum(&self) -> u32 {
        self.0.iter().map(|level| level.load(Ordering::Relaxed)).sum()
    }
}

/// The pool's frames between two steps, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// In the shared store.
    pub free: u32,
    /// In the magazines of workers.
    pub magazines: u32,
    /// Posted for packets to come, and spare ones of the kernel's part.
    pub posted: u32,
    /// In RX rings.
    pub waiting: u32,
    /// On their way from one worker to another.
    pub handed: u32,
    /// In outputs: not yet received, or not yet taken back.
    pub leaving: u32,
    /// Frames that the pool has.
    pub total: u32,
}

impl Balance {
    /// Frames that are in no place, or in two (a negative number).
    pub fn missing(&self) -> i64 {
        let places = [self.free, self.magazines, self.posted, self.waiting, self.handed, self.leaving];
        i64::from(self.total) - places.iter().map(|place| i64::from(*place)).sum::<i64>()
    }
}

impl MemorySwitch {
    /// Counts all frames. Workers must have obeyed what was asked of them.
    pub fn balance(&self) -> Balance {
        let workers = || self.seats.iter().map(|seat| &seat.worker);
        let leaving: usize = self.ports.values().map(|port| port.receiver.frames()).sum();
        Balance {
            free: self.pool().free(),
            magazines: self.levels.sum(),
            posted: self.seats.iter().map(|seat| seat.queue.holds() as u32).sum(),
            waiting: workers().map(|worker| worker.waiting_frames()).sum(),
            handed: workers().map(|worker| worker.handed_frames()).sum(),
            leaving: leaving as u32,
            total: self.pool().total(),
        }
    }
}
