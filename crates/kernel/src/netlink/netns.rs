//! A network namespace of our own, without a name, that can't outlive us.
//!
//! A named namespace is a mount that stays behind when a process is killed. This one is held by a thread: when the
//! thread ends, for whatever reason, the kernel takes the namespace away and every netdev in it.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use super::error::NetlinkError;
use super::sys;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace that only this process is in, held by a thread of its own.
///
/// It starts with a loopback netdev that is down, and with IPv6 off by default on netdevs made or moved in, so that
/// nothing in it speaks by itself. Making it needs CAP_SYS_ADMIN, using it does not. Dropping it ends its thread;
/// descriptors of it and sockets opened in it keep it alive until they are closed.
#[derive(Debug)]
pub struct PrivateNetns {
    netns: OwnedFd,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl PrivateNetns {
    /// Makes an empty namespace; `name` is its thread's, for those who look at the process (15 bytes are shown).
    pub fn new(name: &str) -> Result<PrivateNetns, NetlinkError> {
        let at = |what| move |source| NetlinkError::Netns { what, source };
        let (jobs, queue) = channel::<Job>();
        let (ready, outcome) = channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || live(&ready, &queue));
        let thread = thread.map_err(at("start its thread"))?;
        let entered = outcome.recv().unwrap_or_else(|_| Err(io::Error::other("its thread died")));
        match entered {
            Ok(netns) => Ok(PrivateNetns { netns, jobs: Some(jobs), thread: Some(thread) }),
            Err(source) => Err(NetlinkError::Netns { what: "enter it", source }),
        }
    }

    /// The namespace, to make netdevs in it or move them there.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.netns.as_fd()
    }

    /// Runs `job` inside the namespace and waits for it. Sockets that it opens stay in the namespace wherever they
    /// are used. If it panics, the caller does. One job runs at a time; a job must not call this itself.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, outcome) = channel::<Result<R, Box<dyn Any + Send>>>();
        let job: Job = Box::new(move || {
            // The receiver is gone only when the caller is, and then nobody wants the result.
            let _ = done.send(panic::catch_unwind(AssertUnwindSafe(job)));
        });
        let jobs = self.jobs.as_ref().expect("only drop takes the queue");
        jobs.send(job).expect("the thread waits for jobs until the queue is closed");
        match outcome.recv().expect("a panicking job is caught, so every job answers") {
            Ok(result) => result,
            Err(payload) => panic::resume_unwind(payload),
        }
    }
}

impl Drop for PrivateNetns {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // Jobs' panics were caught; the thread itself has nothing to fail with.
            let _ = thread.join();
        }
    }
}

/// The thread's life: enter, say so, work until nobody can send work any more.
fn live(ready: &Sender<io::Result<OwnedFd>>, queue: &Receiver<Job>) {
    let entered = enter();
    let is_in = entered.is_ok();
    if ready.send(entered).is_err() || !is_in {
        return;
    }
    queue.iter().for_each(|job| job());
}

fn enter() -> io::Result<OwnedFd> {
    sys::unshare_netns()?;
    quieten_ipv6();
    File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
}

/// /proc/sys/net is that of the thread's namespace. A kernel without IPv6 has no such file, and needs none; where
/// /proc/sys is read-only the netdevs' own switch (`disable_ipv6_autoconf`) still keeps them quiet.
fn quieten_ipv6() {
    for scope in ["all", "default"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
}
