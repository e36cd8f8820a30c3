//! UDP between hosts through ordinary sockets, unicast and multicast.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::host::Host;
use crate::{LabError, Result};

const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

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
    let mut seen = std::collections::HashSet::new();
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
