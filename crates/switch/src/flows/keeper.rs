//! The thread that installs flows and lets them go.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_kernel::grace_period;
use forebay_policy::Nanos;
use rtrb::Consumer;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::FlowBook;
use crate::SwitchError;
use crate::attention::Attention;
use crate::shared::Shared;
use crate::supervise;
use crate::worker::Proposal;

/// How often counters are looked at.
const TICK: Duration = Duration::from_secs(1);
/// How soon places are reclaimed that were given up: a key whose decision changes again and again has only so many.
const RECLAIM: Duration = Duration::from_millis(10);
/// Proposals that are installed under one lock.
const BATCH: usize = 1024;

/// Stops its thread when dropped.
pub(crate) struct FlowKeeper {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread works with.
struct Keeper {
    shared: Arc<Shared>,
    book: Arc<Mutex<FlowBook>>,
    proposals: Vec<Consumer<Proposal>>,
    bell: Arc<Attention>,
}

impl FlowKeeper {
    /// Starts the thread.
    pub(crate) fn start(
        shared: Arc<Shared>,
        book: Arc<Mutex<FlowBook>>,
        proposals: Vec<Consumer<Proposal>>,
        bell: Arc<Attention>,
    ) -> Result<Self, SwitchError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map(Arc::new)
            .map_err(SwitchError::system("create an eventfd"))?;
        let stopped = Arc::clone(&stop);
        let mut keeper = Keeper { shared, book, proposals, bell };
        let thread = supervise::spawn("flow-keeper".to_owned(), move || keeper.run(&stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for FlowKeeper {
    fn drop(&mut self) {
        let _ = rustix::io::write(self.stop.as_fd(), &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Keeper {
    fn run(&mut self, stop: &OwnedFd) {
        let (mut swept, mut reclaimed) = (Instant::now(), Instant::now());
        loop {
            let pause = TICK.saturating_sub(swept.elapsed());
            let pause = if self.book().has_left() { pause.min(RECLAIM) } else { pause };
            let [called, stopped] = wait([&*self.bell, stop], pause);
            if stopped {
                return;
            }
            self.shared.turns.flow_keeper.add(1);
            if called {
                self.bell.hear();
                self.bell.listen();
            }
            self.install();
            if reclaimed.elapsed() >= RECLAIM {
                self.reclaim();
                reclaimed = Instant::now();
            }
            if swept.elapsed() >= TICK {
                self.sweep();
                swept = Instant::now();
            }
        }
    }

    fn now(&self) -> Nanos {
        Nanos(self.shared.started.elapsed().as_nanos() as u64)
    }

    /// Installs what is proposed now, and not what comes meanwhile.
    fn install(&mut self) {
        let now = self.now();
        for proposals in &mut self.proposals {
            let mut left = proposals.slots();
            while left > 0 {
                let Ok(chunk) = proposals.read_chunk(left.min(BATCH)) else { break };
                left -= chunk.len();
                let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
                chunk.into_iter().for_each(|proposal| book.take(proposal, now));
            }
        }
    }

    fn sweep(&self) {
        self.book().sweep(&self.shared.fdb, self.now());
    }

    /// The grace period without the lock.
    fn reclaim(&self) {
        let left = self.book().take_left();
        if !left.is_empty() {
            grace_period();
            self.book().reclaim(&left, self.now());
        }
    }

    /// A thread that panicked while it held the lock has left counters that are still each in order.
    fn book(&self) -> MutexGuard<'_, FlowBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for either, or for so long; says which were ready. An interrupted wait is a short one.
fn wait(whom: [&dyn AsFd; 2], pause: Duration) -> [bool; 2] {
    let mut fds = whom.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
    let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
    let _ = poll(&mut fds, Some(&timeout));
    fds.map(|fd| !fd.revents().is_empty())
}
