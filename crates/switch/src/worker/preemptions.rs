//! Whether another thread had the worker's processor: the kernel counts how often it takes a thread off that wants to go on.

use forebay_policy::Nanos;
use nix::sys::resource::{UsageWho, getrusage};

/// How old the number may be that a later one is compared with, in nanoseconds. To read it is a system call.
const FRESH: u64 = 1_000_000;

/// The number of times that this thread was taken off its processor, as it was lately.
#[derive(Debug, Default)]
pub(super) struct Preemptions {
    count: i64,
    read: Nanos,
}

impl Preemptions {
    /// Reads the number if that which is known is not fresh.
    pub(super) fn refresh(&mut self, now: Nanos) {
        if now.since(self.read) >= FRESH {
            self.has_come(now);
        }
    }

    /// Whether the thread was taken off since the number was read last.
    pub(super) fn has_come(&mut self, now: Nanos) -> bool {
        // Without a number every gap is taken for a preemption.
        let count = getrusage(UsageWho::RUSAGE_THREAD)
            .map_or(self.count + 1, |usage| usage.involuntary_context_switches());
        self.read = now;
        std::mem::replace(&mut self.count, count) != count
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    const NOW: Nanos = Nanos(FRESH);
    /// Looks that take some seconds.
    const LOOKS: u32 = 20_000_000;

    #[test]
    fn a_thread_on_the_same_processor_is_noticed() {
        let (mut preemptions, is_over) = (Preemptions::default(), AtomicBool::new(false));
        let mut one = CpuSet::new();
        let all = sched_getaffinity(None).expect("a mask of processors");
        one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).expect("a processor"));
        let pin = || sched_setaffinity(None, &one).expect("this process may use that processor");
        pin();
        assert!((0..LOOKS).any(|_| !preemptions.has_come(NOW)), "it is not preempted all the time");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let noticed = (0..LOOKS).any(|_| preemptions.has_come(NOW));
            is_over.store(true, Ordering::Relaxed);
            assert!(noticed);
        });
    }

    #[test]
    fn a_number_that_is_fresh_is_not_read_again() {
        let mut preemptions = Preemptions { count: -1, read: NOW };
        preemptions.refresh(Nanos(NOW.0 + FRESH - 1));
        assert_eq!(preemptions.count, -1);
        preemptions.refresh(Nanos(NOW.0 + FRESH));
        assert!(preemptions.count >= 0);
        assert_eq!(preemptions.read, Nanos(NOW.0 + FRESH));
    }
}
