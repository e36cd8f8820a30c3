//! A thread that sleeps on the worker's processor and answers when it is woken: the first packet of a flow wakes the worker in the
//! same way, so whatever keeps that processor from running shows here, too.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use forebay_testbed::measure::cpu;
use forebay_testbed::{LabError, Result};

use super::super::WORKER_CPU;

/// The thread, which ends when this is dropped.
pub(super) struct Woken(UnixStream);

impl Woken {
    pub(super) fn start() -> Result<Woken> {
        let refused = |error| LabError::system("a pair of sockets", error);
        let (here, there) = UnixStream::pair().map_err(refused)?;
        here.set_nonblocking(true).map_err(refused)?;
        std::thread::spawn(move || {
            // On another processor it would tell nothing: then nothing answers.
            if cpu::pin_to(WORKER_CPU).is_ok() {
                // The other end is gone when nothing is measured any more.
                let _ = answer(there);
            }
        });
        Ok(Woken(here))
    }

    /// The time from a byte to its answer. As with packets, the one who waits looks without rest.
    pub(super) fn time(&mut self) -> Result<Duration> {
        let failed = |error| LabError::system("waking a thread", error);
        let start = Instant::now();
        self.0.write_all(&[1]).map_err(failed)?;
        loop {
            match self.0.read_exact(&mut [0]) {
                Ok(()) => return Ok(start.elapsed()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn answer(mut stream: UnixStream) -> std::io::Result<()> {
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
}
