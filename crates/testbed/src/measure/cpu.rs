//! Processor time.
//!
//! A process's time comes from its processor clock, a thread's from /proc/PID/task/TID/schedstat, both in nanoseconds;
//! they contain the interrupts handled while a thread was running. Cycles are that time multiplied by the processor's nominal rate.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_getcpuclockid};
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

/// Runs `work`, and the threads and programs that it starts, on any processor but this one.
///
/// # Errors
/// Those of `work`, and when there is no other processor.
pub fn away_from<T>(processor: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let this = Pid::from_raw(0);
    let refused =
        |errno| LabError::system(format!("keeping a thread away from processor {processor}"), errno);
    let before = sched_getaffinity(this).map_err(refused)?;
    let mut others = before;
    others.unset(processor).and_then(|()| sched_setaffinity(this, &others)).map_err(refused)?;
    let done = work();
    sched_setaffinity(this, &before).map_err(refused)?;
    done
}

/// The run time of all of a process's threads, of those that have ended as well; zero when it is gone.
pub fn process_time(pid: u32) -> Duration {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed()));
    clock.and_then(ClockId::now).map(Duration::from).unwrap_or_default()
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

/// How often the threads of a process that have this name have been given a processor.
pub fn turns_of(pid: u32, name: &str) -> u64 {
    let tasks = format!("/proc/{pid}/task");
    let has_name = |thread: &std::path::PathBuf| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    threads_of(Path::new(&tasks)).filter(has_name).map(|thread| schedstat(&thread, 2)).sum()
}

/// The share of one processor that these processes use during `duration`.
pub fn share_of(pids: &[u32], duration: Duration) -> f64 {
    let time = || -> Duration { pids.iter().map(|pid| process_time(*pid)).sum() };
    share_during(duration, time)
}

/// The share of one processor that interrupts take during `duration`, hard and soft, of everybody on the machine. The
/// kernel counts it in hundredths of a second, so that ten seconds tell a thousandth.
pub fn share_of_interrupts(duration: Duration) -> f64 {
    share_during(duration, interrupt_time)
}

fn share_during(duration: Duration, time: impl Fn() -> Duration) -> f64 {
    let (start, before) = (Instant::now(), time());
    std::thread::sleep(duration);
    time().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64()
}

/// Time in interrupts and softirqs on all processors since boot.
fn interrupt_time() -> Duration {
    interrupt_time_of(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The sixth and seventh number of the first line, in hundredths of a second (proc_stat(5), USER_HZ).
fn interrupt_time_of(stat: &str) -> Duration {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: u64 =
        line.split_whitespace().skip(6).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
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
    Duration::from_nanos(schedstat(thread, 0))
}

/// One number of a thread's: its time on a processor, its time of waiting for one, and how often it was given one.
fn schedstat(thread: &Path, number: usize) -> u64 {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    text.split_whitespace().nth(number).and_then(|word| word.parse().ok()).unwrap_or(0)
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
    use super::*;

    #[test]
    fn interrupts_are_the_sixth_and_seventh_number() {
        let stat = "cpu  100 2 300 4000 5 6 70 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(interrupt_time_of(stat), Duration::from_millis(760));
        assert_eq!(interrupt_time_of(""), Duration::ZERO);
    }

    #[test]
    fn the_time_of_a_thread_that_has_ended_stays_the_process_time() {
        let before = process_time(std::process::id());
        let worked = std::thread::spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while own_thread_time() < Duration::from_millis(5) && Instant::now() < deadline {}
            own_thread_time()
        });
        let worked = worked.join().unwrap();
        assert!(process_time(std::process::id()) >= before + worked);
    }

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
