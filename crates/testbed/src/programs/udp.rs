//! UDP between hosts through ordinary sockets, unicast and multicast.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::host::Host;
use crate::{LabError, Result};

const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
const STREAM_PORT: u16 = 5003;
/// Between two datagrams of a stream.
const STREAM_INTERVAL: Duration = Duration::from_millis(3);
/// Datagrams a stream has at most: they wait in the receiver's buffer, at well under a kilobyte each.
const STREAM_LIMIT: u32 = 8000;

fn system(what: &str) -> impl Fn(std::io::Error) -> LabError + '_ {
    move |error| LabError::system(what, error)
}

/// A socket in the host, bound to this address and port.
///
/// # Errors
/// When the address is not the host's or the port is taken.
pub fn socket(host: &Host, address: IpAddr, port: u16) -> Result<UdpSocket> {
    let bound = host.netns().enter(|| UdpSocket::bind(SocketAddr::new(address, port)))?;
    let socket = bound.map_err(system("binding a UDP socket"))?;
    // Root may exceed the system's limit: a burst of a test must fit.
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_BYTES)
        .map_err(|errno| LabError::system("enlarging a receive buffer", errno))?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).map_err(system("setting a timeout"))?;
    Ok(socket)
}

/// Sends `count` numbered datagrams of `bytes` bytes and returns how many different ones arrived.
///
/// # Errors
/// When a socket can't be made or a datagram can't be sent.
pub fn transfer(from: &Host, to: &Host, v6: bool, count: u32, bytes: usize) -> Result<usize> {
    let receiver = socket(to, to.address(v6), 5000)?;
    let sender = socket(from, from.address(v6), 0)?;
    send_numbered(&sender, SocketAddr::new(to.address(v6), 5000), count, bytes)?;
    Ok(count_numbered(&receiver, count))
}

/// Sends `count` small numbered datagrams to this port and returns how many different ones arrived.
///
/// # Errors
/// As [`transfer`].
pub fn transfer_to(from: &Host, to: &Host, port: u16, count: u32) -> Result<usize> {
    let receiver = socket(to, to.v4().into(), port)?;
    let sender = socket(from, from.v4().into(), 0)?;
    send_numbered(&sender, SocketAddr::new(to.v4().into(), port), count, 0)?;
    Ok(count_numbered(&receiver, count))
}

/// Datagrams that flow in the background, to show that something else does not disturb them.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<u32>>,
    receiver: UdpSocket,
}

/// What a [`Stream`] carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamReport {
    /// Datagrams sent.
    pub sent: u32,
    /// Different datagrams received.
    pub received: u32,
    /// Datagrams received again.
    pub duplicates: u32,
}

impl Stream {
    /// Starts to send a numbered datagram every few milliseconds; one at least has been sent when this returns.
    ///
    /// # Errors
    /// When a socket can't be made.
    pub fn start(from: &Host, to: &Host) -> Result<Stream> {
        let receiver = socket(to, to.v4().into(), STREAM_PORT)?;
        let (sender, target) =
            (socket(from, from.v4().into(), 0)?, SocketAddr::new(to.v4().into(), STREAM_PORT));
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let send = move |number: u32| sender.send_to(&number.to_be_bytes(), target).map(drop);
        send(0).map_err(system("sending a datagram"))?;
        let sender = std::thread::spawn(move || send_until_stopped(send, &seen));
        Ok(Stream { stop, sender, receiver })
    }

    /// Stops to send, waits for what is under way and says what was carried.
    ///
    /// # Errors
    /// When a datagram could not be sent.
    pub fn finish(self) -> Result<StreamReport> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (mut numbers, mut duplicates, mut datagram) = (HashSet::new(), 0, [0; 4]);
        while numbers.len() < sent as usize {
            match self.receiver.recv(&mut datagram) {
                Ok(_) => duplicates += u32::from(!numbers.insert(datagram)),
                Err(_) => break,
            }
        }
        Ok(StreamReport { sent, received: numbers.len() as u32, duplicates })
    }
}

/// Also stops by itself when the receiver's buffer might not hold more.
fn send_until_stopped(send: impl Fn(u32) -> std::io::Result<()>, stop: &AtomicBool) -> Result<u32> {
    for number in 1..STREAM_LIMIT {
        if stop.load(Ordering::Relaxed) {
            return Ok(number);
        }
        send(number).map_err(system("sending a datagram"))?;
        std::thread::sleep(STREAM_INTERVAL);
    }
    Ok(STREAM_LIMIT)
}

/// Sends numbered datagrams to a multicast group and returns how many different ones each member got.
///
/// # Errors
/// When a socket can't be made or a group can't be joined.
pub fn multicast(from: &Host, members: &[&Host], group: Ipv4Addr, count: u32) -> Result<Vec<usize>> {
    let joined = members.iter().map(|host| join(host, group)).collect::<Result<Vec<_>>>()?;
    let sender = socket(from, from.v4().into(), 0)?;
    send_numbered(&sender, SocketAddr::new(group.into(), 5001), count, 100)?;
    Ok(joined.iter().map(|receiver| count_numbered(receiver, count)).collect())
}

fn join(host: &Host, group: Ipv4Addr) -> Result<UdpSocket> {
    let receiver = socket(host, group.into(), 5001)?;
    let joined = host.netns().enter(|| receiver.join_multicast_v4(&group, &host.v4()))?;
    joined.map_err(system("joining a multicast group"))?;
    Ok(receiver)
}

fn send_numbered(sender: &UdpSocket, to: SocketAddr, count: u32, bytes: usize) -> Result<()> {
    let mut datagram = vec![0; bytes.max(4)];
    for number in 0..count {
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        sender.send_to(&datagram, to).map_err(system("sending a datagram"))?;
    }
    Ok(())
}

/// Receives until all have come or nothing comes for the socket's timeout.
fn count_numbered(receiver: &UdpSocket, count: u32) -> usize {
    let mut seen = HashSet::new();
    let mut datagram = [0; 65536];
    while seen.len() < count as usize {
        match receiver.recv(&mut datagram) {
            Ok(length) if length >= 4 => drop(seen.insert(datagram[..4].to_vec())),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    seen.len()
}
