//! Programs and sockets of two hosts, one switch between them: streams, datagrams, requests, connections.

use std::time::Duration;

use forebay_testbed::host::Host;
use forebay_testbed::measure::{connections, datagrams, latency};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::web::WebServer;
use forebay_testbed::programs::wrk::WrkLoad;
use forebay_testbed::{LabError, Result};

use super::pair::Pair;
use super::{Contender, SENDER_CPU, Value, WORKER_CPU, asked, rates};

/// Of the page that is fetched: one segment with its headers.
const PAGE_BYTES: usize = 1000;
/// Connections at a time that pages are fetched over.
const WEB_CONNECTIONS: u32 = 32;

pub(super) fn one_stream(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    streams(contender, 1, asked::ONE_STREAM, duration)
}

pub(super) fn eight_streams(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    streams(contender, 8, asked::EIGHT_STREAMS, duration)
}

fn streams(contender: Contender, count: u32, metric: &'static str, duration: Duration) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let (client, server) = pair.ends();
    let _server = IperfServer::start(&pair.lab, server)?;
    Ok(vec![streamed(metric, count, duration, [client, server])?])
}

/// Of so many streams from one host to the other, where a server waits.
fn streamed(metric: &'static str, count: u32, duration: Duration, [from, to]: [&Host; 2]) -> Result<Value> {
    let iperf = Iperf::seconds(whole_seconds(duration)).streams(count).on_processors(SENDER_CPU, WORKER_CPU);
    Ok(Value::new(metric, iperf.run(from, to)?.received_bits_per_second / 1e9))
}

/// From the uplink to the container, and back.
pub(super) fn uplink(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let (beyond, container) = pair.ends();
    let mut values = Vec::new();
    for (from, to, names) in [(beyond, container, asked::IN), (container, beyond, asked::OUT)] {
        let [one, eight, small, p50, p99, share] = names;
        let server = IperfServer::start(&pair.lab, to)?;
        for (metric, count) in [(one, 1), (eight, 8)] {
            values.push(streamed(metric, count, duration, [from, to])?);
        }
        drop(server);
        let received = datagrams::measure(from, to, SENDER_CPU, duration)?;
        values.push(Value::new(small, received.per_second / 1e6));
        values.push(Value::new(share, received.share * 100.0));
        let times = rates::on_sender_cpu(|| latency::tcp(from, to, duration))?;
        values.push(Value::new(p50, times.p50.as_secs_f64() * 1e6));
        values.push(Value::new(p99, times.p99.as_secs_f64() * 1e6));
    }
    Ok(values)
}

pub(super) fn small_udp(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let (from, to) = pair.ends();
    let received = datagrams::measure(from, to, SENDER_CPU, duration)?;
    Ok(vec![
        Value::new(asked::SMALL_UDP, received.per_second / 1e6),
        Value::new("of these datagrams arrived, %", received.share * 100.0),
    ])
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
