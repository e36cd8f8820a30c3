//! Traffic of all sorts at once, until told to stop. Each source is a thread with its own random numbers.
//!
//! Programs may fail here: their host's link may be away at the moment. What must hold is counted: streams between
//! steady hosts carry data, whatever happens to the others.

mod frames;
mod programs;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::world::{Hosts, STEADY, World};
use crate::interrupt::Interrupt;

/// What a source does again and again.
type Turn = fn(&mut Source);

/// The sources, by name.
const SOURCES: [(&str, Turn); 7] = [
    ("steady-tcp", programs::steady_stream),
    ("any-tcp", programs::any_stream),
    ("ping", programs::ping),
    ("ping", programs::ping),
    ("udp", frames::datagrams),
    ("broadcast", frames::broadcasts),
    ("rubbish", frames::rubbish),
];

/// What the sources did.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) steady_streams: AtomicU64,
    pub(super) steady_failures: AtomicU64,
    pub(super) steady_bytes: AtomicU64,
    pub(super) other_bytes: AtomicU64,
    pub(super) pings_sent: AtomicU64,
    pub(super) pings_answered: AtomicU64,
    pub(super) datagrams: AtomicU64,
    pub(super) broadcasts: AtomicU64,
    pub(super) rubbish: AtomicU64,
}

/// Adds to one number of the tally.
fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// One source of traffic.
struct Source {
    hosts: Arc<Hosts>,
    random: fastrand::Rng,
    stop: Interrupt,
    tally: Arc<Tally>,
    /// Where its programs write.
    log: PathBuf,
}

impl Source {
    fn run(mut self, turn: Turn) {
        while !self.stop.is_set() {
            turn(&mut self);
        }
    }

    /// Two different hosts.
    fn pair(&mut self, among: usize) -> (usize, usize) {
        let from = self.random.usize(..among);
        let other = self.random.usize(..among - 1);
        (from, if other < from { other } else { other + 1 })
    }

    fn any_pair(&mut self) -> (usize, usize) {
        self.pair(self.hosts.len())
    }

    fn steady_pair(&mut self) -> (usize, usize) {
        self.pair(STEADY)
    }

    fn pause(&self, milliseconds: u64) {
        self.stop.wait(Duration::from_millis(milliseconds));
    }
}

/// Running sources.
#[derive(Debug)]
pub(super) struct Traffic {
    stop: Interrupt,
    tally: Arc<Tally>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts all sources.
    pub(super) fn start(world: &World, random: &mut fastrand::Rng) -> Traffic {
        let (stop, tally) = (Interrupt::default(), Arc::new(Tally::default()));
        let start = |(number, (name, turn)): (usize, &(&str, Turn))| {
            let source = Source {
                hosts: Arc::clone(&world.hosts),
                random: random.fork(),
                stop: stop.clone(),
                tally: Arc::clone(&tally),
                log: world.lab.path(&format!("{name}-{number}.log")),
            };
            let turn = *turn;
            std::thread::spawn(move || source.run(turn))
        };
        let threads = SOURCES.iter().enumerate().map(start).collect();
        Traffic { stop, tally, threads }
    }

    /// Stops all sources, waits for their programs and says what they did.
    pub(super) fn stop(mut self) -> Arc<Tally> {
        self.end();
        Arc::clone(&self.tally)
    }

    fn end(&mut self) {
        self.stop.raise();
        for thread in self.threads.drain(..) {
            // A source that panicked has said so; the others' traffic counts.
            let _ = thread.join();
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.end();
    }
}
