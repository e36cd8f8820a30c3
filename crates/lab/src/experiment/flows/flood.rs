//! A flood of 5-tuples from one port, while rules look at addresses and ports, and what two other ports notice.

use std::time::{Duration, Instant};

use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::measure::cpu;
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::sys::batch::{self, BATCH};
use forebay_testbed::{LabError, Result, wait};
use serde_json::json;

use super::Options;
use super::grid::{rate, rate_at};
use super::scene::Scene;
use crate::experiment::{WORKER_CPU, numbered};

/// The flood's stations.
const FLOODER: u16 = 1;
const TARGET: u16 = 2;
/// Where the fields are that differ.
const IP_CHECKSUM: usize = 24;
const IP_HEADER: std::ops::Range<usize> = 14..34;
const ADDRESSES: std::ops::Range<usize> = 26..34;
const PORTS: std::ops::Range<usize> = 34..38;
const UDP_CHECKSUM: std::ops::Range<usize> = 40..42;
const LEARN_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at the number of flows.
const LOOK: Duration = Duration::from_millis(200);
/// What the rules look at: ports, and a few networks on either side.
const RULES: [(&str, &str); 6] = [
    ("dport", "80-90"),
    ("src", "10.0.0.0/8"),
    ("src", "10.1.0.0/16"),
    ("src", "192.168.0.0/16"),
    ("dst", "172.16.0.0/12"),
    ("dst", "8.8.8.0/24"),
];

/// What was measured.
pub(super) struct Flooded {
    pub(super) tuples: u64,
    pub(super) duration: Duration,
    /// Of the flood's frames, those that arrived.
    pub(super) arrived: u64,
    /// The most flows that there were beyond those before.
    pub(super) flows: u64,
    /// Millions of frames a second of the established flow before the flood.
    pub(super) before: f64,
    /// The same while it went on.
    pub(super) during: f64,
    /// The same while such a flood went to a netdev that is no port.
    pub(super) beside: f64,
    /// The same afterwards.
    pub(super) after: f64,
    /// The flood's share of one processor: its thread, the kernel's work on its frames included.
    pub(super) share: f64,
    /// The daemon's share of one processor meanwhile.
    pub(super) daemon: f64,
}

pub(super) fn measure(scene: &Scene, options: &Options) -> Result<Flooded> {
    eprintln!("flooding with {} tuples", options.tuples);
    let (sink, target) = (scene.sink(2)?, scene.sink(4)?);
    for (priority, rule) in (10..).zip(RULES) {
        let rule = json!({ "priority": priority, "ip_proto": "udp", rule.0: rule.1, "action": "normal" });
        scene.api().change("POST", "/v1/rules", &rule)?;
    }
    teach(scene)?;
    let seconds = Duration::from_secs(options.seconds.into());
    // Once without a look, so that its own flows are there.
    rate(scene, &sink, 1, seconds)?;
    let source = scene.source(1)?;
    let before = rate_at(&sink, seconds)?;
    let flows = scene.flows()?;
    let flooded = during(scene, options, (&sink, &target), flows)?;
    let beside = beside_no_port(scene, options, (&sink, &target))?;
    let after = rate_at(&sink, seconds)?;
    source.finish()?;
    Ok(Flooded { before, beside, after, ..flooded })
}

/// The established flow's rate while the same flood goes to a netdev that is no port: what sharing the processors takes.
fn beside_no_port(scene: &Scene, options: &Options, sinks: (&Sink, &Sink)) -> Result<f64> {
    let tuples = u64::from(options.flood_rate) * u64::from(options.seconds);
    let brief = Options { tuples, ..options.clone() };
    scene.api().change("DELETE", "/v1/ports/p3", &json!({}))?;
    let during = during(scene, &brief, sinks, 0)?.during;
    scene.add_ports([3])?;
    Ok(during)
}

/// The switch hears of the target.
fn teach(scene: &Scene) -> Result<()> {
    let frame = Frame::marked(numbered::mac_of(TARGET), BROADCAST, 1).build();
    wait::until("the target to be known", LEARN_LIMIT, || {
        let _ = scene.sockets[3].send(&frame);
        let known = scene.api().get::<Vec<forebay_control::fdb::FdbEntry>>("/v1/fdb?port=p4");
        known.is_ok_and(|entries| !entries.is_empty())
    })
}

fn during(scene: &Scene, options: &Options, (sink, target): (&Sink, &Sink), flows: u64) -> Result<Flooded> {
    let (daemon, arrived) = (daemon_time(scene), target.counted()?.packets);
    let (established, start) = (sink.counted()?.packets, Instant::now());
    let (share, most) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| send(scene, options));
        let mut most = 0;
        while !flood.is_finished() {
            most = most.max(scene.flows().unwrap_or(0));
            std::thread::sleep(LOOK);
        }
        (flood.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), most)
    });
    let (share, duration) = (share?, start.elapsed());
    let established = (sink.counted()?.packets - established) as f64 / duration.as_secs_f64() / 1e6;
    Ok(Flooded {
        tuples: options.tuples,
        duration,
        arrived: target.counted()?.packets - arrived,
        flows: most.max(scene.flows()?).saturating_sub(flows),
        before: f64::NAN,
        during: established,
        beside: f64::NAN,
        after: f64::NAN,
        share,
        daemon: daemon_time(scene).saturating_sub(daemon).as_secs_f64() / duration.as_secs_f64(),
    })
}

fn daemon_time(scene: &Scene) -> Duration {
    scene.pids().into_iter().map(cpu::process_time).sum()
}

/// Sends all tuples at their rate, away from the source's processor; the share of a processor that it took.
fn send(scene: &Scene, options: &Options) -> Result<f64> {
    cpu::pin_to(WORKER_CPU)?;
    let mut frames = vec![template(); BATCH];
    let (start, before) = (Instant::now(), cpu::own_thread_time());
    let softirq = cpu::softirq_threads_time();
    let pause = Duration::from_secs(1) * BATCH as u32 / options.flood_rate;
    let (mut number, mut bursts) = (0, 0);
    while number < options.tuples {
        let count = (options.tuples - number).min(BATCH as u64) as usize;
        for frame in &mut frames[..count] {
            set_tuple(frame, number);
            number += 1;
        }
        batch::send(&scene.sockets[2], &frames[..count])
            .map_err(|error| LabError::system("sending the flood", error))?;
        bursts += 1;
        std::thread::sleep((start + pause * bursts).saturating_duration_since(Instant::now()));
    }
    let softirq = cpu::softirq_threads_time().saturating_sub(softirq);
    let own = cpu::own_thread_time().saturating_sub(before);
    // The threads that handle interrupts work for the source, too: this is the most that the flood can have taken.
    Ok((own + softirq).as_secs_f64() / start.elapsed().as_secs_f64())
}

fn template() -> Vec<u8> {
    let end = |station| (numbered::mac_of(station), [0; 4], 0);
    let mut frame = Frame::udp4(end(FLOODER), end(TARGET), &[0; 18]).build();
    frame[UDP_CHECKSUM].fill(0);
    frame
}

/// Addresses and ports that no other number has: twelve bytes that look random, of which eight are the number's.
fn set_tuple(frame: &mut [u8], number: u64) {
    // SplitMix64 (Steele, Lea and Flood 2014): one to one.
    let mixed = |seed: u64| {
        let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let addresses = mixed(number + 1);
    frame[ADDRESSES].copy_from_slice(&addresses.to_be_bytes());
    frame[PORTS].copy_from_slice(&mixed(addresses).to_be_bytes()[..4]);
    frame[IP_CHECKSUM..IP_CHECKSUM + 2].fill(0);
    let words =
        frame[IP_HEADER].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = !((folded & 0xffff) + (folded >> 16)) as u16;
    frame[IP_CHECKSUM..IP_CHECKSUM + 2].copy_from_slice(&folded.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use forebay_testbed::checksum;

    use super::*;

    #[test]
    fn tuples_are_distinct_and_their_packets_whole() {
        let mut frame = template();
        let mut seen = HashSet::new();
        for number in 0..10_000 {
            set_tuple(&mut frame, number);
            assert!(seen.insert(frame[ADDRESSES.start..PORTS.end].to_vec()));
        }
        // The header is right; of UDP there is no checksum to verify.
        assert_eq!(checksum::verify_ip(&frame[14..]), checksum::Verdict::Unverified);
    }
}
