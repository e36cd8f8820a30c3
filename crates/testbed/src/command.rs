//! Programs: run to the end within a limit, or kept in the background until dropped.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::{LabError, Result, wait};

/// A program that ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The command line, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Finished {
    /// This, if the program succeeded.
    ///
    /// # Errors
    /// [`LabError::Failed`] with all it wrote.
    pub fn success(self) -> Result<Finished> {
        if self.status.success() {
            return Ok(self);
        }
        let output = format!("{}{}", self.stdout, self.stderr).trim().to_owned();
        Err(LabError::Failed { command: self.command, status: self.status.to_string(), output })
    }
}

/// Runs a program to its end; it is killed when that takes longer than `limit`.
///
/// # Errors
/// When it can't be started or is too slow; a failure exit status is no error here, see [`Finished::success`].
pub fn run(mut command: Command, limit: Duration) -> Result<Finished> {
    let text = describe(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|source| LabError::NotStarted { command: text.clone(), source })?;
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let ended = wait_for_exit(&mut child, limit);
    if ended.is_none() {
        end(&mut child);
    }
    let (stdout, stderr) = (collect(stdout), collect(stderr));
    match ended {
        Some(status) => Ok(Finished { command: text, status, stdout, stderr }),
        None => Err(LabError::TooSlow { command: text, limit, output: format!("{stdout}{stderr}") }),
    }
}

/// Runs a program to its successful end. The limit is generous: `ip` waits while others configure the network.
///
/// # Errors
/// As [`run`], and when the exit status is a failure.
pub fn run_ok(command: Command) -> Result<Finished> {
    run(command, Duration::from_secs(60))?.success()
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks ends the output; what was read so far is what there is.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn collect(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

fn wait_for_exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    if let Some(status) = child.try_wait().ok().flatten() {
        return Some(status);
    }
    // The process is still there, dead or alive, because only `try_wait` and `wait` make its number free.
    let _ = sleep_until_exit(child, limit);
    let rest = deadline.saturating_duration_since(Instant::now());
    wait::until_some("the program's end", rest, || child.try_wait().ok().flatten()).ok()
}

/// Sleeps until the program ends, at most this long; less when a signal comes. A look every few milliseconds would add
/// some to each of the hundreds of commands of a scenario.
fn sleep_until_exit(child: &Child, limit: Duration) -> rustix::io::Result<()> {
    let process = pidfd_open(rustix::process::Pid::from_child(child), PidfdFlags::empty())?;
    let limit = Timespec::try_from(limit).unwrap_or_default();
    // A process's descriptor can be read once the process has ended: pidfd_open(2).
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).map(drop)
}

fn end(child: &mut Child) {
    // Both fail only when the child is gone already.
    let _ = child.kill();
    let _ = child.wait();
}

/// The command line as a person would type it.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A program in the background, its output in a file; killed when dropped.
#[derive(Debug)]
pub struct Background {
    child: Child,
    command: String,
    log: PathBuf,
}

impl Background {
    /// Starts the program with both outputs going to a new file `log`.
    ///
    /// # Errors
    /// When the log can't be written or the program can't be started.
    pub fn start(command: Command, log: &Path) -> Result<Background> {
        // What an earlier program wrote must not pass for this one's output.
        let _ = std::fs::remove_file(log);
        Background::start_appending(command, log)
    }

    /// As [`Background::start`], but keeps what is in the log.
    ///
    /// # Errors
    /// As [`Background::start`].
    pub fn start_appending(mut command: Command, log: &Path) -> Result<Background> {
        command.stdin(Stdio::null());
        Background::spawn(command, log)
    }

    /// As [`Background::start`], for a program that reads commands. Returns its standard input too.
    ///
    /// # Errors
    /// As [`Background::start`].
    pub fn start_asking(mut command: Command, log: &Path) -> Result<(Background, ChildStdin)> {
        let _ = std::fs::remove_file(log);
        command.stdin(Stdio::piped());
        let mut program = Background::spawn(command, log)?;
        let input = program.child.stdin.take().expect("a pipe was asked for");
        Ok((program, input))
    }

    fn spawn(mut command: Command, log: &Path) -> Result<Background> {
        let text = describe(&command);
        let open = || File::options().create(true).append(true).open(log);
        let file = open().map_err(|error| LabError::system(format!("opening {}", log.display()), error))?;
        let copy = file.try_clone().map_err(|error| LabError::system("copying a file handle", error))?;
        command.stdout(file).stderr(copy);
        let child =
            command.spawn().map_err(|source| LabError::NotStarted { command: text.clone(), source })?;
        Ok(Background { child, command: text, log: log.to_owned() })
    }

    /// The process id. `ip netns exec` becomes the program it starts, so this is the program's own.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the program wrote so far.
    pub fn output(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the output contains `text`.
    ///
    /// # Errors
    /// When it does not within `limit`, or the program ended before.
    pub fn wait_for_output(&mut self, text: &str, limit: Duration) -> Result<()> {
        self.wait_until(&format!("`{text}` in its output"), limit, |output| output.contains(text))
    }

    /// Waits until a look at the output says yes.
    ///
    /// # Errors
    /// When it does not within `limit`, or the program ended before.
    pub fn wait_until(&mut self, what: &str, limit: Duration, ready: impl Fn(&str) -> bool) -> Result<()> {
        let outcome = wait::until_some(what, limit, || {
            let ended = self.child.try_wait().ok().flatten();
            if ready(&self.output()) { Some(Ok(())) } else { ended.map(Err) }
        });
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => Err(LabError::Failed {
                command: self.command.clone(),
                status: status.to_string(),
                output: self.output(),
            }),
            Err(_) => Err(LabError::TooSlow { command: self.command.clone(), limit, output: self.output() }),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        // Fails only for a process that is gone, which is where signals lead anyway.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// Waits for the program's end.
    ///
    /// # Errors
    /// When it is still running after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        wait_for_exit(&mut self.child, limit).ok_or_else(|| LabError::TooSlow {
            command: self.command.clone(),
            limit,
            output: self.output(),
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_killed_and_its_output_is_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; exec sleep 60"]);
        let error = run(command, Duration::from_millis(300)).unwrap_err();
        assert!(matches!(&error, LabError::TooSlow { output, .. } if output == "begun\n"), "{error}");
    }

    #[test]
    fn a_failing_program_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no room >&2; exit 3"]);
        let error = run_ok(command).unwrap_err().to_string();
        assert!(error.contains("no room") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_background_program_dies_with_its_value() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; exec sleep 60"]);
        let mut program = Background::start(command, &directory.path().join("log")).unwrap();
        program.wait_for_output("ready", Duration::from_secs(5)).unwrap();
        let pid = program.pid();
        drop(program);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
