//! Request and response: one byte there, one byte back, one at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::host::Host;
use crate::{LabError, Result};

const PORT: u16 = 5002;
/// A response that takes longer counts as lost, and the measurement fails.
const RESPONSE_LIMIT: Duration = Duration::from_secs(2);
/// A datagram that has no reply by then is lost. Beside a stream that fills a queue some are.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// Datagrams of which one must have a reply.
const TRIES: u64 = 10;
/// Exchanges before those that count.
const WARM_UP: u32 = 200;

/// The time from request to response.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    /// Exchanges.
    pub count: u64,
    /// Half of them took no longer.
    pub p50: Duration,
    /// Ninety-nine of a hundred took no longer.
    pub p99: Duration,
    /// Nine hundred and ninety-nine of a thousand took no longer.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> LabError {
    move |error| LabError::system(what, error)
}

/// Exchanges over one TCP connection for so long.
///
/// # Errors
/// When the hosts can't connect or a response does not come.
pub fn tcp(client: &Host, server: &Host, duration: Duration) -> Result<Latency> {
    let address = SocketAddr::new(server.v4().into(), PORT);
    let listener = server.netns().enter(|| TcpListener::bind(address))?.map_err(system("listening"))?;
    let echo = std::thread::spawn(move || echo_tcp(&listener));
    // Without a connection the server goes on waiting for one.
    let measured = tcp_to(client, address, duration)?;
    // It sees the end of the connection and ends, too.
    let _ = echo.join();
    Ok(measured)
}

/// The same with a server at this address that sends back what it gets.
///
/// # Errors
/// As [`tcp`].
pub fn tcp_to(client: &Host, server: SocketAddr, duration: Duration) -> Result<Latency> {
    let connect = || TcpStream::connect_timeout(&server, RESPONSE_LIMIT);
    let mut stream = client.netns().enter(connect)?.map_err(system("connecting"))?;
    stream.set_nodelay(true).map_err(system("setting TCP_NODELAY"))?;
    stream.set_read_timeout(Some(RESPONSE_LIMIT)).map_err(system("setting a timeout"))?;
    exchange(duration, || {
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])
    })
}

fn echo_tcp(listener: &TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    // Where packets are lost, so is the client's end of the connection.
    stream.set_read_timeout(Some(2 * RESPONSE_LIMIT))?;
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
}

/// Exchanges of UDP datagrams for so long.
///
/// # Errors
/// When a socket can't be made or a response does not come.
pub fn udp(client: &Host, server: &Host, duration: Duration) -> Result<Latency> {
    let address = SocketAddr::new(server.v4().into(), PORT);
    let bind = |address: SocketAddr| UdpSocket::bind(address);
    let there = server.netns().enter(|| bind(address))?.map_err(system("binding"))?;
    let here = client.netns().enter(|| bind(SocketAddr::new(client.v4().into(), 0)))?;
    let here = here.and_then(|socket| socket.connect(address).map(|()| socket)).map_err(system("binding"))?;
    for socket in [&here, &there] {
        socket.set_read_timeout(Some(RESPONSE_LIMIT)).map_err(system("setting a timeout"))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let echo = std::thread::spawn(move || echo_udp(&there, &seen));
    let measured = exchange(duration, || {
        here.send(&[1])?;
        here.recv(&mut [0]).map(drop)
    });
    stop.store(true, Ordering::Relaxed);
    // Wakes the server, which then sees that it is over.
    let _ = here.send(&[0]);
    let _ = echo.join();
    measured
}

/// Exchanges of datagrams with a server at this address that sends back what it gets. A datagram that is lost counts as an
/// exchange of [`LOST_AFTER`].
///
/// # Errors
/// When a socket can't be made, or nothing comes back at the beginning.
pub fn udp_to(client: &Host, server: SocketAddr, duration: Duration) -> Result<Latency> {
    let here = client.netns().enter(|| UdpSocket::bind(SocketAddr::new(client.v4().into(), 0)))?;
    let here = here.and_then(|socket| socket.connect(server).map(|()| socket)).map_err(system("binding"))?;
    here.set_read_timeout(Some(LOST_AFTER)).map_err(system("setting a timeout"))?;
    let (mut number, mut answers) = (0u64, false);
    exchange(duration, || {
        number += 1;
        here.send(&number.to_ne_bytes())?;
        let mut reply = [0; 8];
        // Replies of earlier ones may come late.
        while u64::from_ne_bytes(reply) != number {
            match here.recv(&mut reply) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && (answers || number < TRIES) => break,
                received => received?,
            };
        }
        answers |= u64::from_ne_bytes(reply) == number;
        Ok(())
    })
}

fn echo_udp(socket: &UdpSocket, stop: &AtomicBool) {
    let mut byte = [0];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut byte) {
            let _ = socket.send_to(&byte[..length], from);
        }
    }
}

fn exchange(duration: Duration, mut once: impl FnMut() -> std::io::Result<()>) -> Result<Latency> {
    let mut times = Times::default();
    for _ in 0..WARM_UP {
        once().map_err(system("waiting for a response"))?;
    }
    let end = Instant::now() + duration;
    while Instant::now() < end {
        let start = Instant::now();
        once().map_err(system("waiting for a response"))?;
        times.add(start.elapsed());
    }
    times.latency().ok_or_else(|| LabError::output("request and response", "none was complete"))
}

/// How long exchanges took.
#[derive(Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let longest = RESPONSE_LIMIT.as_nanos() as u64 * 2;
        Times(Histogram::new_with_bounds(1, longest, 3).expect("these bounds are valid"))
    }
}

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn extend(&mut self, times: impl IntoIterator<Item = Duration>) {
        times.into_iter().for_each(|time| self.add(time));
    }

    /// `None` without any exchange.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let quantile = |q| Duration::from_nanos(self.0.value_at_quantile(q));
        (!self.0.is_empty()).then(|| Latency {
            count: self.0.len(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: quantile(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_timed_one_by_one() {
        let pause = Duration::from_millis(2);
        let latency = exchange(Duration::from_millis(50), || {
            std::thread::sleep(pause);
            Ok(())
        });
        let latency = latency.unwrap();
        assert!(latency.count > 0 && latency.p50 >= pause && latency.p99 >= latency.p50, "{latency:?}");
    }
}
