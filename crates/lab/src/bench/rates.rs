//! What the lab's own source and sockets see across a switch: rate, latency, cycles.

use std::time::{Duration, Instant};

use forebay_testbed::frame::Frame;
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::flood::{small_frame, teach};
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::measure::source::Source;
use forebay_testbed::measure::{cpu, latency, paced};
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::{LabError, Result, wait};

use super::pair::Pair;
use super::{Contender, SENDER_CPU, Value, asked};
use crate::experiment::flows::{self, NewFlows};

/// UDP source ports of the saturating source.
const FLOWS: u32 = 64;
/// A square, and as many as one port may have of the default table and more.
const NEW_FLOWS: u32 = 40_000;
/// New flows whose first packets are timed.
const FIRST_PACKETS: u32 = 500;
/// Frames a second where nothing may be lost.
const PACED_RATE: u32 = 50_000;
/// Time for the last frames to arrive.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(1);
/// Time for the first packets to go through before measuring.
const WARM_UP_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn small_packets(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    if contender.port() == PortKind::VethTcx {
        // Without XDP on it, a veth takes redirected frames only with GRO.
        pair.lab.switch().ethtool("h1", &["gro", "on"])?;
    }
    let (from, to) = pair.ends();
    let sink = Sink::attach(to.netns(), "eth0")?;
    teach(to)?;
    let source = Source::start(from.netns(), "eth0", small_frame(from, to), FLOWS, SENDER_CPU)?;
    let arrives = || sink.counted().is_ok_and(|counted| counted.packets > 0);
    wait::until("the first packet behind the switch", WARM_UP_LIMIT, arrives)?;
    let (start, before) = (Instant::now(), sink.counted()?.packets);
    std::thread::sleep(duration);
    let rate = (sink.counted()?.packets - before) as f64 / start.elapsed().as_secs_f64();
    source.finish()?;
    Ok(vec![Value::new(asked::SMALL_PACKETS, rate / 1e6)])
}

pub(super) fn latency(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let pair = Pair::new(contender)?;
    let (client, server) = pair.ends();
    // Client and server on one processor: across two, how the scheduler wakes them outweighs the way between them, and is
    // another thing from one run to the next.
    let tcp = on_sender_cpu(|| latency::tcp(client, server, duration))?;
    let udp = on_sender_cpu(|| latency::udp(client, server, duration))?;
    Ok(vec![
        Value::in_micros(asked::TCP_P50, tcp.p50),
        Value::in_micros(asked::TCP_P99, tcp.p99),
        Value::in_micros(asked::UDP_P50, udp.p50),
        Value::in_micros(asked::UDP_P99, udp.p99),
    ])
}

/// Of a daemon of its own, with a table of its own size and ports of its own.
pub(super) fn new_flows(_: Contender, _: Duration) -> Result<Vec<Value>> {
    let NewFlows { installs, first, later, woken } = flows::new_flows(NEW_FLOWS, FIRST_PACKETS)?;
    Ok(vec![
        Value::new("flows installed, 1000/s", installs / 1e3),
        Value::new("first packet of a flow p50, µs", first.p50),
        Value::new("first packet of a flow p99, µs", first.p99),
        Value::new("later packets of a flow p50, µs", later.p50),
        Value::new("later packets of a flow p99, µs", later.p99),
        Value::new("a thread that is woken p50, µs", woken.p50),
        Value::new("a thread that is woken p99, µs", woken.p99),
    ])
}

pub(super) fn cycles(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let (through, arrived) = time_through(contender, duration)?;
    let sending = time_of_sending(duration)?;
    let cycles = (through - sending) * cpu::cycles_per_second()?;
    let arrived = Value::new("of these frames arrived, %", arrived * 100.0);
    Ok(vec![Value::new("cycles a 60-byte frame", cycles), arrived])
}

/// Seconds of processor time a frame that goes through the switch, and the share of the frames that arrived.
fn time_through(contender: Contender, duration: Duration) -> Result<(f64, f64)> {
    let pair = Pair::new(contender)?;
    let (from, to) = pair.ends();
    let sink = Sink::attach(to.netns(), "eth0")?;
    teach(to)?;
    let socket = FrameSocket::open(from)?;
    let frame = small_frame(from, to);
    let work = || Ok::<_, LabError>(pair.dut.work_time()? + cpu::softirq_threads_time());
    let before = work()?;
    let sent = on_sender_cpu(|| paced::send(&socket, &frame, PACED_RATE, duration))?;
    let arrived = || sink.counted().map(|counted| counted.packets);
    // On a machine that does something else as well, some may be lost: then they do not arrive later either.
    let _ = wait::until("every paced frame", ARRIVAL_LIMIT, || arrived().is_ok_and(|n| n >= sent.frames));
    let worked = work()?.saturating_sub(before);
    let time_a_frame = (sent.sender_time + worked).as_secs_f64() / sent.frames as f64;
    Ok((time_a_frame, arrived()? as f64 / sent.frames as f64))
}

/// Seconds of processor time a frame that is dropped where it enters the switch.
fn time_of_sending(duration: Duration) -> Result<f64> {
    let mut lab = Lab::new("bench-base")?;
    let host = lab.host("h1", PortKind::VethTcx)?;
    let _sink = Sink::attach(lab.switch(), "h1")?;
    let socket = FrameSocket::open(&host)?;
    let end = (host.mac(), host.v4().octets(), 9);
    let frame = Frame::udp4(end, end, &[0; 18]).build();
    let before = cpu::softirq_threads_time();
    let sent = on_sender_cpu(|| paced::send(&socket, &frame, PACED_RATE, duration))?;
    let softirq = cpu::softirq_threads_time().saturating_sub(before);
    Ok((sent.sender_time + softirq).as_secs_f64() / sent.frames as f64)
}

pub(super) fn on_sender_cpu<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pinned = || cpu::pin_to(SENDER_CPU).and_then(|()| work());
    let joined = std::thread::scope(|scope| scope.spawn(pinned).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
