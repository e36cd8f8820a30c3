//! Short TCP connections, many at a time: connect, one byte there, one byte back, close.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, shutdown};

use crate::host::Host;
use crate::{LabError, Result};

/// Where the server listens; what is measured with a rule has one for ports 80 to 90. Several, because a client's port
/// rests for a second (`tcp_tw_reuse`) before it leads to the same place again: to one place, 32,000 a second.
const PORTS: RangeInclusive<u16> = 80..=87;
/// Threads on each side for each port, and so connections at a time.
const AT_A_TIME: usize = 4;
/// A byte that takes longer counts as lost, and the measurement fails.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Connections a second, each begun, used and closed within the measurement.
///
/// # Errors
/// When the server can't listen, or a connection fails.
pub fn set_up_per_second(client: &Host, server: &Host, duration: Duration) -> Result<f64> {
    // Closed connections keep their ports for a minute, unless they may be used again.
    client.netns().set("ipv4/ip_local_port_range", "1024 65535")?;
    client.netns().set("ipv4/tcp_tw_reuse", "1")?;
    // Where nothing is answered, connecting fails after seconds instead of minutes.
    client.netns().set("ipv4/tcp_syn_retries", "2")?;
    let addresses = PORTS.map(|port| SocketAddr::new(server.v4().into(), port));
    let listen = || addresses.map(TcpListener::bind).collect::<io::Result<Vec<_>>>();
    let listeners = server.netns().enter(listen)?.map_err(|error| LabError::system("listening", error))?;
    let connect = |addresses: &[SocketAddr]| client.netns().enter(|| connect_for(addresses, duration));
    between(&listeners, connect)?.map_err(|error| LabError::system("a short connection", error))
}

/// Does this while the listeners answer; it gets their addresses.
fn between<T>(listeners: &[TcpListener], work: impl FnOnce(&[SocketAddr]) -> Result<T>) -> Result<T> {
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>();
    let addresses = addresses.map_err(|error| LabError::system("finding a listener's address", error))?;
    std::thread::scope(|scope| {
        for listener in listeners {
            (0..AT_A_TIME).for_each(|_| drop(scope.spawn(|| serve(listener))));
        }
        let done = work(&addresses);
        for listener in listeners {
            // Ends the servers' wait for connections. Fails only for what is no listener.
            let _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
        }
        done
    })
}

/// Until the listener is shut down. A connection that ends early is the client's to notice.
fn serve(listener: &TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        let _ = answer(&mut stream);
    }
}

/// One byte for one byte, then waits for the client to close, so that it is the client's port that waits.
fn answer(stream: &mut TcpStream) -> io::Result<()> {
    let mut byte = [0];
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.read_exact(&mut byte)?;
    stream.write_all(&byte)?;
    stream.read(&mut byte).map(drop)
}

/// From so many threads as the server has.
fn connect_for(addresses: &[SocketAddr], duration: Duration) -> io::Result<f64> {
    let start = Instant::now();
    let end = start + duration;
    let connections = std::thread::scope(|scope| {
        let targets = addresses.iter().flat_map(|address| [*address; AT_A_TIME]);
        let clients: Vec<_> =
            targets.map(|address| scope.spawn(move || connect_until(address, end))).collect();
        let join = |client: std::thread::ScopedJoinHandle<'_, io::Result<u64>>| {
            client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        clients.into_iter().map(join).sum::<io::Result<u64>>()
    })?;
    Ok(connections as f64 / start.elapsed().as_secs_f64())
}

fn connect_until(address: SocketAddr, end: Instant) -> io::Result<u64> {
    let mut connections = 0;
    while Instant::now() < end {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
        connections += 1;
    }
    Ok(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_and_a_closed_port_is_an_error() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let duration = Duration::from_millis(20);
        let rate = between(&listeners, |addresses| Ok(connect_for(addresses, duration)));
        assert!(rate.unwrap().unwrap() > 0.0);
        drop(listeners);
        assert!(connect_for(&addresses, duration).is_err());
    }
}
