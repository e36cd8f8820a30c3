//! Small datagrams from an ordinary socket, as many as one processor sends, and how many an ordinary socket receives.

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};

use super::cpu;
use crate::host::Host;
use crate::programs::udp;
use crate::{LabError, Result, wait};

/// Of a datagram: the frame around it has 60 bytes, the least that Ethernet has.
pub const PAYLOAD_BYTES: usize = 18;
const PORT: u16 = 5004;
/// Datagrams a system call, each way.
const BATCH: usize = 64;
/// Time for the first datagram to arrive.
const START_LIMIT: Duration = Duration::from_secs(5);
/// How often a receiver that nothing arrives at looks whether it is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// What went by in a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Received {
    /// Datagrams received a second.
    pub per_second: f64,
    /// Their share of those that were sent meanwhile; little more than 1 when some were on their way before.
    pub share: f64,
}

/// What the threads have done so far.
#[derive(Debug, Default)]
struct Progress {
    sent: AtomicU64,
    received: AtomicU64,
    stop: AtomicBool,
}

/// Sends from a thread on `processor`, receives on any other, and says how many a second are received.
///
/// # Errors
/// When a socket can't be made, the kernel refuses a datagram, or nothing arrives.
pub fn measure(from: &Host, to: &Host, processor: usize, duration: Duration) -> Result<Received> {
    let address = SocketAddr::new(to.v4().into(), PORT);
    let receiver = udp::socket(to, address.ip(), PORT)?;
    let sender = udp::socket(from, from.v4().into(), 0)?;
    sender.connect(address).map_err(|error| LabError::system("connecting a UDP socket", error))?;
    through(&sender, &receiver, processor, duration)
}

fn through(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    processor: usize,
    duration: Duration,
) -> Result<Received> {
    receiver
        .set_read_timeout(Some(STOP_INTERVAL))
        .map_err(|error| LabError::system("setting a timeout", error))?;
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let receive = || receive_until_stopped(receiver, &progress);
        let receiving = scope.spawn(move || cpu::away_from(processor, receive));
        let send = || send_until_stopped(sender, &progress);
        let sending = scope.spawn(move || cpu::pin_to(processor).and_then(|()| send()));
        let arrives = || progress.received.load(Ordering::Relaxed) > 0;
        let began = wait::until("the first datagram behind the switch", START_LIMIT, arrives);
        let received = began.map(|()| progress.during(duration));
        progress.stop.store(true, Ordering::Relaxed);
        for thread in [receiving, sending] {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        received
    })
}

impl Progress {
    fn during(&self, duration: Duration) -> Received {
        let counts = || [&self.sent, &self.received].map(|count| count.load(Ordering::Relaxed));
        let (start, before) = (Instant::now(), counts());
        std::thread::sleep(duration);
        let (elapsed, after) = (start.elapsed(), counts());
        let [sent, received] = [0, 1].map(|at| (after[at] - before[at]) as f64);
        Received { per_second: received / elapsed.as_secs_f64(), share: received / sent.max(1.0) }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn send_until_stopped(socket: &UdpSocket, progress: &Progress) -> Result<()> {
    let payload = [0; PAYLOAD_BYTES];
    let datagrams = [[IoSlice::new(&payload)]; BATCH];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    while !progress.is_over() {
        let sent =
            sendmmsg(socket.as_raw_fd(), &mut headers, &datagrams, [None; BATCH], [], MsgFlags::empty());
        match sent {
            Ok(messages) => drop(progress.sent.fetch_add(messages.count() as u64, Ordering::Relaxed)),
            // No room just now.
            Err(Errno::ENOBUFS | Errno::EAGAIN) => {}
            Err(errno) => return Err(LabError::system("sending datagrams", errno)),
        }
    }
    Ok(())
}

fn receive_until_stopped(socket: &UdpSocket, progress: &Progress) -> Result<()> {
    let mut payloads = [[0; PAYLOAD_BYTES]; BATCH];
    while !progress.is_over() {
        // Made anew each time, because they borrow from the batch that was received.
        let mut buffers = payloads.each_mut().map(|payload| [IoSliceMut::new(payload)]);
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
        // The rest of a batch is not waited for.
        let flags = MsgFlags::MSG_WAITFORONE;
        match recvmmsg(socket.as_raw_fd(), &mut headers, buffers.iter_mut(), flags, None) {
            Ok(messages) => drop(progress.received.fetch_add(messages.count() as u64, Ordering::Relaxed)),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(LabError::system("receiving datagrams", errno)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_arrive_are_counted() {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (sender, receiver) = (bind(), bind());
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let received = through(&sender, &receiver, 0, Duration::from_millis(50)).unwrap();
        assert!(received.per_second > 0.0 && received.share > 0.0, "{received:?}");
    }
}
