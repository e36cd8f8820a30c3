//! The process that holds a socket's lock.
//!
//! The lock file says a pid, but anybody may have written it, and the process may have ended and its number been given to
//! another. So the number is only a hint: the kernel must say that this process holds the lock, and that it handles the
//! signal, which would end it otherwise. All signals go through a descriptor of the process that was opened before that was
//! asked, so that they reach this process or nobody.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::beside;

const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Longest text that is looked at in the lock file.
const MAX_PID_BYTES: u64 = 32;

/// Why the process that holds the lock is not asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HolderError {
    #[error("the lock file says no pid; stop the daemon by hand")]
    NoPid,
    #[error(
        "process {0}, which the lock file names, is not the one that holds the lock; stop the daemon by hand"
    )]
    NotTheHolder(i32),
    #[error(
        "process {0} holds the lock and does not handle SIGUSR1, so it is no forebay daemon; stop it by hand"
    )]
    NotADaemon(i32),
    #[error("can't find out about the lock: {0}")]
    System(#[from] io::Error),
}

/// A daemon that serves a socket.
#[derive(Debug)]
pub(crate) struct Holder {
    pid: Pid,
    process: OwnedFd,
    lock: File,
}

impl Holder {
    /// The daemon that holds the lock of the socket at this path; `None` if nobody does.
    pub(crate) fn find(socket: &Path) -> Result<Option<Holder>, HolderError> {
        let path = beside(socket, ".lock");
        let open = File::options().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path);
        let lock = match open {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            open => open?,
        };
        if !is_held(&lock)? {
            return Ok(None);
        }
        let pid = pid_in(&lock).ok_or(HolderError::NoPid)?;
        let number = pid.as_raw_nonzero().get();
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Err(HolderError::NotTheHolder(number)),
            opened => opened.map_err(io::Error::from)?,
        };
        // From here on the number means the process of the descriptor, or the descriptor's process has ended.
        let inode = lock.metadata()?.ino();
        if !holds_lock(&fs::read_to_string("/proc/locks")?, number, inode) {
            return Err(HolderError::NotTheHolder(number));
        }
        if !handles(&fs::read_to_string(format!("/proc/{number}/status"))?, Signal::USR1) {
            return Err(HolderError::NotADaemon(number));
        }
        Ok(Some(Holder { pid, process, lock }))
    }

    /// Its number.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Asks it to leave, and waits until it has freed the lock, for at most so long.
    pub(crate) fn ask_to_leave(&self, limit: Duration) {
        let asked = Instant::now();
        // It may have ended by itself, which is as good.
        let _ = pidfd_send_signal(&self.process, Signal::USR1);
        while is_held(&self.lock).unwrap_or(false) && asked.elapsed() < limit {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Whether another process holds the lock.
fn is_held(lock: &File) -> io::Result<bool> {
    match flock(lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(true),
        taken => {
            taken?;
            // Given back: the process that binds the socket takes the lock.
            flock(lock, FlockOperation::Unlock)?;
            Ok(false)
        }
    }
}

fn pid_in(lock: &File) -> Option<Pid> {
    let mut text = String::new();
    lock.take(MAX_PID_BYTES).read_to_string(&mut text).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}

/// Whether the kernel's list has a lock of this process on a file of this number, as in
/// `2: FLOCK  ADVISORY  WRITE 1234 00:19:5678 0 EOF` (fs/locks.c, `lock_get_status`). The device is not compared: some file
/// systems tell another one here.
fn holds_lock(locks: &str, pid: i32, inode: u64) -> bool {
    locks.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_flock = words.next() == Some("FLOCK");
        let (holder, file) = (words.nth(2), words.next());
        let number = file.and_then(|file| file.rsplit(':').next()).and_then(|number| number.parse().ok());
        is_flock && holder.and_then(|holder| holder.parse().ok()) == Some(pid) && number == Some(inode)
    })
}

/// Whether a process handles a signal, as in `SigCgt:\t0000000000000200` (proc_pid_status(5)).
fn handles(status: &str, signal: Signal) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::temp_dir::TempDir;

    /// A process that is ended with the test.
    struct Process(Child);

    impl Process {
        fn start(command: &mut Command) -> Process {
            Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }

        fn lives(&mut self) -> bool {
            self.0.try_wait().unwrap().is_none()
        }

        /// Until it says something.
        fn hear(&mut self) {
            self.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Holds the lock, does what the script says, and waits.
    fn holder(lock: &Path, script: &str) -> Process {
        // 2: LOCK_EX
        let begin = "$| = 1; open($l, '+<', $ARGV[0]) && flock($l, 2) || die; $l->autoflush(1)";
        let script = format!("{begin}; {script}; print '.'; <STDIN>");
        let mut process =
            Process::start(Command::new("perl").args(["-MIO::Handle", "-e", &script]).arg(lock));
        process.hear();
        process
    }

    fn scene(lock: &str) -> (TempDir, std::path::PathBuf) {
        let dir = TempDir::new();
        let socket = dir.path().join("a.sock");
        fs::write(beside(&socket, ".lock"), lock).unwrap();
        (dir, socket)
    }

    #[test]
    fn a_lock_that_nobody_holds_has_no_holder() {
        let (_dir, socket) = scene("1\n");
        assert!(Holder::find(&socket).unwrap().is_none());
        assert!(Holder::find(Path::new("/nonexistent/a.sock")).unwrap().is_none());
    }

    #[test]
    fn a_process_that_only_the_text_names_is_left_alone() {
        let mut bystander = Process::start(&mut Command::new("cat"));
        let (_dir, socket) = scene(&format!("{}\n", bystander.pid()));
        let _holder = holder(&beside(&socket, ".lock"), "1");
        let error = Holder::find(&socket).unwrap_err();
        assert!(matches!(error, HolderError::NotTheHolder(_)), "{error}");
        assert!(bystander.lives());
    }

    #[test]
    fn a_holder_that_the_signal_would_end_is_left_alone() {
        let (_dir, socket) = scene("");
        let lock = beside(&socket, ".lock");
        let mut holder = holder(&lock, "print $l $$");
        let error = Holder::find(&socket).unwrap_err();
        assert!(matches!(error, HolderError::NotADaemon(_)), "{error}");
        assert!(holder.lives());
    }

    #[test]
    fn a_holder_that_handles_the_signal_is_asked_and_waited_for() {
        let (_dir, socket) = scene("");
        let lock = beside(&socket, ".lock");
        let mut process = holder(&lock, "print $l $$; $SIG{USR1} = sub { exit 0 }");
        let holder = Holder::find(&socket).unwrap().expect("it holds the lock");
        assert_eq!(holder.pid(), process.pid().cast_signed());
        holder.ask_to_leave(Duration::from_secs(20));
        assert!(Holder::find(&socket).unwrap().is_none());
        assert_eq!(process.0.wait().unwrap().code(), Some(0));
    }

    #[test]
    fn a_lock_file_without_a_pid_names_nobody() {
        let (_dir, socket) = scene("");
        let _holder = holder(&beside(&socket, ".lock"), "1");
        assert!(matches!(Holder::find(&socket).unwrap_err(), HolderError::NoPid));
    }

    #[test]
    fn locks_are_told_apart_by_kind_process_and_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:19:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 00:19:43 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 9 00:19:43 0 EOF\n";
        assert!(holds_lock(locks, 7, 43));
        assert!(!holds_lock(locks, 7, 42) && !holds_lock(locks, 9, 43) && !holds_lock(locks, 8, 43));
        assert!(!holds_lock("nonsense\n\n1: FLOCK\n", 7, 43));
    }
}
