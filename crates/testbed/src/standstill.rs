//! A switch that stands still, so that packets pile up where they are.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{LabError, Result, wait};

/// How long a signal may take to reach every thread.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Runs `work` while every thread of a process stands still. The process goes on afterwards, also when `work` fails.
///
/// # Errors
/// Those of `work`, and when the process is gone or does not stop.
pub fn while_stopped<T>(pid: u32, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let process = Pid::from_raw(pid.cast_signed());
    let signal = |signal: Signal| {
        kill(process, signal).map_err(|errno| LabError::system(format!("sending {signal} to {pid}"), errno))
    };
    signal(Signal::SIGSTOP)?;
    let stopped = wait::until("every thread of the switch to stop", STOP_LIMIT, || is_stopped(pid));
    let done = stopped.and_then(|()| work());
    signal(Signal::SIGCONT)?;
    done
}

/// Whether every thread of a process is in state T (proc_pid_stat(5)): a signal takes a while to reach them all.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut stats = threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("stat")));
    stats.all(|stat| stat.is_ok_and(|stat| stat.contains(") T ")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::command::Background;

    #[test]
    fn a_process_stands_still_meanwhile_and_goes_on_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("60");
        let program = Background::start(command, &directory.path().join("log")).unwrap();
        let pid = program.pid();
        assert!(while_stopped(pid, || Ok(is_stopped(pid))).unwrap());
        wait::until("it to go on", STOP_LIMIT, || !is_stopped(pid)).unwrap();
    }
}
