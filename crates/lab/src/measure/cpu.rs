//! Processor time.
//!
//! A thread's run time comes from /proc/PID/task/TID/schedstat, in nanoseconds; it contains the interrupts handled
//! while the thread was running. Cycles are that time multiplied by the processor's nominal rate.

use std::path::Path;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::{LabError, Result};

/// Pins the calling thread to a processor.
///
/// # Errors
/// When there is no such processor.
pub fn pin_to(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|errno| LabError::system(format!("pinning a thread to processor {processor}"), errno))
}

/// The run time of all of a process's threads.
pub fn process_time(pid: u32) -> Duration {
    threads_of(Path::new(&format!("/proc/{pid}/task"))).map(|thread| run_time(&thread)).sum()
}

/// The run time of the calling thread.
pub fn own_thread_time() -> Duration {
    run_time(Path::new("/proc/thread-self"))
}

/// The run time of the kernel's threads that handle interrupts left over.
pub fn softirq_threads_time() -> Duration {
    let is_softirq = |thread: &std::path::PathBuf| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    threads_of(Path::new("/proc")).filter(is_softirq).map(|thread| run_time(&thread)).sum()
}

fn threads_of(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_number = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|n| n.as_encoded_bytes()[0].is_ascii_digit())
    };
    entries.map(|entry| entry.path()).filter(is_number)
}

/// Zero for a thread that is gone.
fn run_time(thread: &Path) -> Duration {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    Duration::from_nanos(nanos)
}

/// The processor's nominal rate, in cycles a second.
///
/// # Errors
/// When /proc/cpuinfo does not say.
pub fn cycles_per_second() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz"));
    let megahertz = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    megahertz.map(|rate| rate * 1e6).ok_or_else(|| LabError::output("/proc/cpuinfo", "no `cpu MHz`"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_takes_time_of_the_thread_and_of_its_process() {
        let (thread, process) = (own_thread_time(), process_time(std::process::id()));
        let deadline = Instant::now() + Duration::from_secs(20);
        while own_thread_time() <= thread {
            assert!(Instant::now() < deadline, "the thread works and its run time stands still");
        }
        assert!(process_time(std::process::id()) > process);
    }
}
