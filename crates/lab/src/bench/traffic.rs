//! Programs and sockets of two hosts, one switch between them: streams, datagrams, requests, connections.

use std::time::Duration;

use forebay_testbed::host::Host;
use forebay_testbed::measure::{connections, datagrams, latency};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::web::WebServer;
use forebay_testbed::programs::wrk::WrkLoad;
use forebay_testbed::{LabError, Result};

use super::pair::Pair;
use super::{Contender, Measure, SENDER_CPU, Value, WORKER_CPU, asked, rates};

/// Of the page that is fetched: one segment with its headers.
const PAGE_BYTES: usize = 1000;
/// Connections at a time that pages are fetched over.
const WEB_CONNECTIONS: u32 = 32;

/// Who sends and asks.
#[derive(Clone, Copy)]
enum Way {
    /// The first of two hosts, which may be beyond an uplink.
    In,
    /// The second one.
    Out,
}

impl Way {
    /// Who sends, and who receives.
    fn ends(self, pair: &Pair) -> [&Host; 2] {
        let (first, second) = pair.ends();
        match self {
            Way::In => [first, second],
            Way::Out => [second, first],
        }
    }
}

/// Between an uplink and a container. These are eight measurements and not one, so that a peer's turn comes after two seconds: a
/// shared machine may have a third of its speed for ten.
pub(super) const UPLINK: [Measure; 8] = [
    |contender, duration| streams(contender, Way::In, 1, asked::IN[0], duration),
    |contender, duration| streams(contender, Way::In, 8, asked::IN[1], duration),
    |contender, duration| received(contender, Way::In, [asked::IN[2], asked::IN[5]], duration),
    |contender, duration| exchange(contender, Way::In, [asked::IN[3], asked::IN[4]], duration),
    |contender, duration| streams(contender, Way::Out, 1, asked::OUT[0], duration),
    |contender, duration| streams(contender, Way::Out, 8, asked::OUT[1], duration),
    |contender, duration| received(contender, Way::Out, [asked::OUT[2], asked::OUT[5]], duration),
    |contender, duration| exchange(contender, Way::Out, [asked::OUT[3], asked::OUT[4]], duration),
];

pub(super) fn one_stream(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    streams(contender, Way::In, 1, asked::ONE_STREAM, duration)
}

pub(super) fn eight_streams(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    streams(contender, Way::In, 8, asked::EIGHT_STREAMS, duration)
}

fn streams(
    contender: Contender,
    way: Way,
    count: u32,
    metric: &'static str,
    duration: Duration,
) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let [from, to] = way.ends(&pair);
    let _server = IperfServer::start(&pair.lab, to)?;
    let iperf = Iperf::seconds(whole_seconds(duration)).streams(count).on_processors(SENDER_CPU, WORKER_CPU);
    Ok(vec![Value::new(metric, iperf.run(from, to)?.received_bits_per_second / 1e9)])
}

pub(super) fn small_udp(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    received(contender, Way::In, [asked::SMALL_UDP, "of these datagrams arrived, %"], duration)
}

/// How many small datagrams arrived, and which share of them.
fn received(
    contender: Contender,
    way: Way,
    [rate, share]: [&'static str; 2],
    duration: Duration,
) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let [from, to] = way.ends(&pair);
    let received = datagrams::measure(from, to, SENDER_CPU, duration)?;
    Ok(vec![Value::new(rate, received.per_second / 1e6), Value::new(share, received.share * 100.0)])
}

/// Request and response over TCP.
fn exchange(
    contender: Contender,
    way: Way,
    [p50, p99]: [&'static str; 2],
    duration: Duration,
) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let [client, server] = way.ends(&pair);
    let times = rates::on_sender_cpu(|| latency::tcp(client, server, duration))?;
    Ok(vec![Value::in_micros(p50, times.p50), Value::in_micros(p99, times.p99)])
}

pub(super) fn web(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let (client, server) = pair.ends();
    let _server = WebServer::start(&pair.lab, server, PAGE_BYTES)?;
    let load = WrkLoad { connections: WEB_CONNECTIONS, seconds: whole_seconds(duration) };
    let report = load.run(client, server)?;
    if report.has_failures {
        return Err(LabError::output("a wrk report with failures", format!("{report:?}")));
    }
    Ok(vec![Value::new(asked::WEB, report.requests_per_second / 1e3)])
}

pub(super) fn connections(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let (client, server) = pair.ends();
    let rate = connections::set_up_per_second(client, server, duration)?;
    Ok(vec![Value::new(asked::CONNECTIONS, rate / 1e3)])
}

fn whole_seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}
