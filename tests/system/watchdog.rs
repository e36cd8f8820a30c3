//! What the service manager hears of a daemon whose threads do, or do not, make turns. The test is the service manager.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use forebay_testbed::dut::ForebayOptions;
use forebay_testbed::{Lab, PortKind, wait};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::bed::Bed;
use crate::connectivity::ping_all;
use crate::harness::{Outcome, Suite, ensure_program};

const LIMIT: Duration = Duration::from_secs(30);
/// The time that the service manager would wait: the daemon looks at its threads four times in it.
const WATCHDOG: Duration = Duration::from_secs(6);

pub fn register(suite: &mut Suite) {
    suite.once("the_watchdog_is_fed_only_while_every_thread_makes_turns", fed_by_turns);
}

/// Where the daemon says how it is.
struct Ear(UnixDatagram);

impl Ear {
    fn new(lab: &Lab) -> std::io::Result<Ear> {
        let socket = UnixDatagram::bind(lab.path("notify"))?;
        socket.set_nonblocking(true)?;
        Ok(Ear(socket))
    }

    /// How often the watchdog was fed since this was asked last.
    fn fed(&self) -> usize {
        let mut buffer = [0; 256];
        let said = std::iter::from_fn(|| {
            let length = self.0.recv(&mut buffer).ok()?;
            Some(buffer[..length].to_vec())
        });
        said.filter(|said| said.windows(10).any(|words| words == b"WATCHDOG=1")).count()
    }
}

/// A thread that stands still until this is dropped.
struct Stopped(Pid);

impl Stopped {
    /// Only the calling thread can let it go on.
    fn stop(process: u32, name: &str) -> Result<Stopped, Box<dyn std::error::Error>> {
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
            if std::fs::read_to_string(thread.path().join("comm"))?.trim() == name {
                let thread = Pid::from_raw(thread.file_name().to_string_lossy().parse()?);
                ptrace::seize(thread, Options::empty())?;
                let stopped = Stopped(thread);
                ptrace::interrupt(thread)?;
                waitpid(thread, Some(nix::sys::wait::WaitPidFlag::__WALL))?;
                return Ok(stopped);
            }
        }
        Err(format!("there is no thread {name}").into())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Fails only when it is gone.
        let _ = ptrace::detach(self.0, None);
    }
}

fn fed_by_turns() -> Outcome {
    ensure_program()?;
    let lab = Lab::new("watchdog")?;
    let ear = Ear::new(&lab)?;
    let socket = lab.path("notify").display().to_string();
    let environment = vec![
        ("NOTIFY_SOCKET".to_owned(), socket),
        ("WATCHDOG_USEC".to_owned(), WATCHDOG.as_micros().to_string()),
    ];
    let mut bed = Bed::of(lab, ForebayOptions { environment, ..Default::default() })?;
    let hosts = bed.lab.hosts(2, PortKind::VethTcx)?;
    bed.attach(&hosts)?;
    let process = bed.dut().pids()[0];
    for thread in ["worker-0", "flow-keeper", "housekeeper", "guests"] {
        // Also a worker that sleeps all the while.
        for _ in 0..2 {
            wait::until("the watchdog to be fed", LIMIT, || ear.fed() > 0)?;
        }
        let complaints = |bed: &mut Bed| {
            let log = bed.forebay().log();
            let about = format!("thread=\"{thread}\"");
            log.lines().filter(|line| line.contains("makes no turns") && line.contains(&about)).count()
        };
        // A thread that a busy machine kept waiting is complained about too.
        let before = complaints(&mut bed);
        let stopped = Stopped::stop(process, thread)?;
        wait::until("the daemon to notice", LIMIT, || complaints(&mut bed) > before)?;
        ear.fed();
        wait::until("the daemon to go on noticing", LIMIT, || complaints(&mut bed) > before + 1)?;
        assert_eq!(ear.fed(), 0, "{thread}: {}", bed.forebay().log());
        drop(stopped);
    }
    wait::until("the watchdog to be fed", LIMIT, || ear.fed() > 0)?;
    Ok(ping_all(&hosts, false)?)
}
