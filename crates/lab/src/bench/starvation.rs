//! A flood on one port, and what two others notice of it.

use std::time::{Duration, Instant};

use super::rates::{small_frame, teach, wait_until_it_carries};
use super::{Contender, SENDER_CPU, Value, WORKER_CPU};
use crate::Result;
use crate::dut;
use crate::host::PortKind;
use crate::lab::Lab;
use crate::measure::latency;
use crate::measure::sink::Sink;
use crate::measure::source::Source;
use crate::programs::ping::Ping;
use crate::wait;

const FLOWS: u32 = 64;
/// Pings of the victim, one a millisecond.
const PINGS: u32 = 10_000;
const PING_PAUSE: Duration = Duration::from_millis(1);
const START_LIMIT: Duration = Duration::from_secs(10);

/// Hosts: the attacker, whom it floods, and the victim with whom it talks.
pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let mut lab = Lab::new("starve")?;
    let hosts = lab.hosts(4, contender.ports)?;
    let mut dut = contender.dut.start(&lab, WORKER_CPU)?;
    dut.add_ports(&dut::ports_of(&hosts))?;
    if dut.needs_offloads_off() {
        hosts.iter().try_for_each(|host| host.netns().ethtool("eth0", &["tx", "off"]).map(drop))?;
    }
    let (attacker, target, victim, server) = (&hosts[0], &hosts[1], &hosts[2], &hosts[3]);
    wait_until_it_carries(attacker, target)?;
    wait_until_it_carries(victim, server)?;
    let quiet = latency::tcp(victim, server, duration)?;
    if contender.ports == PortKind::VethTcx {
        lab.switch().ethtool(attacker.name(), &["gro", "on"])?;
    }
    let sink = Sink::attach(target.netns(), "eth0")?;
    teach(target)?;
    let source = Source::start(attacker.netns(), "eth0", small_frame(attacker, target), FLOWS, SENDER_CPU)?;
    let arrives = || sink.counted().is_ok_and(|counted| counted.packets > 0);
    wait::until("the first packet of the flood", START_LIMIT, arrives)?;
    let (start, before) = (Instant::now(), sink.counted()?.packets);
    let flooded = latency::tcp(victim, server, duration)?;
    let pings = Ping::new(server.v4()).count(PINGS).every(PING_PAUSE).from(victim)?;
    let carried = (sink.counted()?.packets - before) as f64 / start.elapsed().as_secs_f64();
    source.finish()?;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    Ok(vec![
        Value::new(
            "of the victim's pings lost, %",
            100.0 * f64::from(pings.sent - pings.received) / f64::from(pings.sent),
        ),
        Value::new("TCP p50 quiet, µs", micros(quiet.p50)),
        Value::new("TCP p50 flooded, µs", micros(flooded.p50)),
        Value::new("TCP p99 quiet, µs", micros(quiet.p99)),
        Value::new("TCP p99 flooded, µs", micros(flooded.p99)),
        Value::new("flood carried, Mpps", carried / 1e6),
    ])
}
