//! The shared pool: no port holds more than its part, and afterwards none holds anything.

use std::time::Duration;

use forebay_control::pool::PoolThreshold;
use forebay_control::rxq::{RxqLane, RxqShow};
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::measure::source::Source;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, PortKind, Result, wait};

use crate::bed::{Bed, CONGESTION, Oracle, while_stopped};
use crate::harness::{Outcome, Subject, Suite};
use crate::wire::Wire;

/// A pool whose ports share so little that a few hundred frames saturate it.
const SMALL_POOL: &str = "[pool]\nframes = 2432\nrx_ring_depth = 1024\n";
/// Frames that each saturating host sends: more than any of them may hold.
const OFFERED: u64 = 1100;
/// Frames that are under way to a tap at once, so that taps fill up side by side.
const TAP_WINDOW: u64 = 8;
const ARRIVAL_LIMIT: Duration = Duration::from_secs(3);
/// Within which a port that had many packets is in the lane of those that have few again: it rests ten seconds.
const REST_LIMIT: Duration = Duration::from_secs(15);
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 7, 0xff];

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_port_holds_no_more_than_its_static_threshold", static_threshold);
    suite.on_netdevs("saturated_ports_hold_what_the_dynamic_threshold_says", dynamic_threshold);
    suite.on_netdevs("a_quiet_port_has_its_reserve_when_the_pool_is_saturated", reserve);
    suite.on_forebay("jumbo_frames_of_one_port_do_not_take_the_turn_of_another", jumbo_turns);
    suite.heavy_once("a_flood_on_a_tcx_port_costs_no_other_port_a_ping", || flood(PortKind::VethTcx));
    suite.heavy_once("a_flood_on_an_xdp_port_costs_no_other_port_a_ping", || flood(PortKind::VethXdp));
    suite.heavy_on_forebay("the_pool_changes_its_size_under_traffic", resizes);
    suite.on_forebay("a_pool_that_can_not_be_is_refused_and_the_old_one_goes_on", size_refused);
    suite.on_netdevs("with_headroom_a_quiet_ports_first_burst_is_not_refused", headroom);
    suite.on_forebay("a_part_of_the_pool_that_can_not_be_is_refused_and_changes_nothing", refused);
}

/// Silent hosts on a small pool; the switch knows the last one's station.
pub struct Crowd {
    /// The bed they are in.
    pub bed: Bed,
    /// The hosts.
    pub hosts: Vec<Host>,
    wire: Wire,
    /// Frames they share.
    shared: u64,
}

/// So many of them.
pub fn crowd(subject: Subject, count: usize) -> std::result::Result<Crowd, Box<dyn std::error::Error>> {
    let mut bed = Bed::with_config(subject, SMALL_POOL)?;
    let hosts = bed.lab.hosts(count, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    let others: Vec<usize> = (0..count - 1).collect();
    let _ = wire.deliver(&mut bed, count - 1, |mark| Frame::marked(RECEIVER, BROADCAST, mark), &others)?;
    let shared = bed.client().pool()?.frames_shared;
    Ok(Crowd { bed, hosts, wire, shared })
}

/// Lets hosts send to the last one in turn, `each` frames each, while the switch stands still.
pub fn saturate(crowd: &mut Crowd, senders: &[usize], each: u64) -> Result<Oracle> {
    let Crowd { bed, hosts, wire, .. } = crowd;
    let pid = bed.forebay().daemon().pid();
    let senders = frames_from(hosts, wire, senders);
    let ((), counted) = bed.watch(|lab| while_stopped(pid, || send_through(lab, wire, &senders, each)))?;
    Ok(counted)
}

fn frames_from<'a>(hosts: &'a [Host], wire: &mut Wire, senders: &[usize]) -> Vec<(&'a Host, usize, Vec<u8>)> {
    let mark = wire.mark();
    let frame = |sender: usize| Frame::marked([2, 0, 0, 0, 7, sender as u8], RECEIVER, mark).build();
    senders.iter().map(|sender| (&hosts[*sender], *sender, frame(*sender))).collect()
}

/// Sends frames, in turns. A veth has a frame at once, a tap and a guest's ring get it later.
pub fn send_through(
    lab: &Lab,
    wire: &mut Wire,
    senders: &[(&Host, usize, Vec<u8>)],
    each: u64,
) -> Result<()> {
    let taps = || senders.iter().filter(|(host, ..)| matches!(host.kind(), PortKind::Tap | PortKind::Guest));
    let received = |host: &Host| match host.carried() {
        Some(packets) => Ok(packets),
        None => lab.switch().received_packets(host.name()),
    };
    let mut awaited = taps().map(|(host, ..)| received(host)).collect::<Result<Vec<_>>>()?;
    for sent in 1..=each {
        senders.iter().try_for_each(|(_, sender, bytes)| wire.socket(*sender).send(bytes))?;
        awaited.iter_mut().for_each(|frames| *frames += 1);
        if sent % TAP_WINDOW == 0 || sent == each {
            for ((host, ..), awaited) in taps().zip(&awaited) {
                let all_there = || received(host).is_ok_and(|now| now >= *awaited);
                wait::until("the tap or ring to have all frames", ARRIVAL_LIMIT, all_there)?;
            }
        }
    }
    Ok(())
}

fn static_threshold(subject: Subject) -> Outcome {
    const FRAMES: u64 = 100;
    let mut crowd = crowd(subject, 3)?;
    let client = crowd.bed.client();
    let bytes = (FRAMES * 2048).to_string();
    client.ok(&["pool", "set", "h1", "--static", &bytes, "--reserve", "0"])?;
    let counted = saturate(&mut crowd, &[0], OFFERED)?;
    let dropped = OFFERED - FRAMES;
    counted.exactly(&[
        ("h1", "rx_packets", OFFERED),
        ("h1", "over_threshold", dropped),
        ("h1", "forwarded_packets", FRAMES),
        ("h3", "tx_packets", FRAMES),
    ]);
    Ok(())
}

fn dynamic_threshold(subject: Subject) -> Outcome {
    let mut crowd = crowd(subject, 5)?;
    let client = crowd.bed.client();
    for th in [8, 10, 13] {
        for senders in [&[0][..], &[0, 1], &[0, 1, 2, 3]] {
            for sender in senders {
                client.ok(&[
                    "pool",
                    "set",
                    crowd.hosts[*sender].name(),
                    "--th",
                    &th.to_string(),
                    "--reserve",
                    "0",
                ])?;
            }
            let counted = saturate(&mut crowd, senders, OFFERED)?;
            let alpha = f64::from(th).exp2() / 1024.0;
            let expected = alpha * crowd.shared as f64 / (1.0 + alpha * senders.len() as f64);
            for sender in senders {
                let held = counted.moved(crowd.hosts[*sender].name(), "forwarded_packets").unwrap_or(0);
                let off = (held as f64 - expected).abs();
                assert!(
                    off <= 0.1 * expected,
                    "th {th}, {senders:?}: {held} held, {expected} expected\n{counted}"
                );
            }
            let pool = client.pool()?;
            assert!(pool.ports.iter().all(|port| port.used == 0), "{pool:?}");
        }
    }
    Ok(())
}

fn reserve(subject: Subject) -> Outcome {
    const BURST: u64 = 30;
    let Crowd { mut bed, hosts, mut wire, shared } = crowd(subject, 3)?;
    let client = bed.client();
    // The first takes nearly all, and the second may hold nothing but its reserve.
    let most = ((shared - BURST) * 2048).to_string();
    client.ok(&["pool", "set", "h1", "--static", &most])?;
    client.ok(&["pool", "set", "h2", "--th", "3", "--reserve", &BURST.to_string()])?;
    let pid = bed.forebay().daemon().pid();
    let (loud, quiet) = (frames_from(&hosts, &mut wire, &[0]), frames_from(&hosts, &mut wire, &[1]));
    let ((), counted) = bed.watch(|lab| {
        while_stopped(pid, || {
            send_through(lab, &mut wire, &loud, OFFERED)?;
            send_through(lab, &mut wire, &quiet, 2 * BURST)
        })
    })?;
    assert_eq!(counted.moved("h1", "forwarded_packets"), Some((shared - BURST).min(1024)), "{counted}");
    let quiet = counted.moved("h2", "forwarded_packets").unwrap_or(0);
    assert!((BURST..=BURST + shared / 128).contains(&quiet), "{quiet} of the quiet port\n{counted}");
    Ok(())
}

fn jumbo_turns(subject: Subject) -> Outcome {
    const EACH: u64 = 60;
    const JUMBO: usize = 8900;
    // A quantum of 64 × 1514 bytes, and a packet more.
    const JUMBOS_A_TURN: usize = 64 * 1514 / JUMBO + 1;
    let Crowd { mut bed, hosts, mut wire, .. } = crowd(subject, 3)?;
    hosts.iter().try_for_each(|host| host.set_mtu(bed.lab.switch(), 9000))?;
    let mut senders = frames_from(&hosts, &mut wire, &[0, 1]);
    senders[0].2.resize(JUMBO, 0);
    let pid = bed.forebay().daemon().pid();
    let (arrived, counted) = bed.watch(|lab| {
        while_stopped(pid, || {
            // The one with long frames is first in the run list.
            send_through(lab, &mut wire, &senders[..1], EACH)?;
            send_through(lab, &mut wire, &senders[1..], EACH)
        })?;
        let ours = |bytes: &[u8]| bytes[..6] == RECEIVER;
        wire.socket(2).collect(2 * EACH as usize, ARRIVAL_LIMIT, ours)
    })?;
    counted.no_drops();
    assert_eq!(arrived.len() as u64, 2 * EACH, "{counted}");
    let last_small = arrived.iter().rposition(|bytes| bytes.len() < JUMBO).expect("half of them are small");
    let jumbos_before = arrived[..last_small].iter().filter(|bytes| bytes.len() == JUMBO).count();
    assert!(jumbos_before <= JUMBOS_A_TURN, "{jumbos_before} jumbo frames before the last small one");
    Ok(())
}

/// More than a million frames a second from the first host to the second, while the third pings the fourth.
fn flood(kind: PortKind) -> Outcome {
    const SOURCE_CPU: usize = 0;
    const PINGS: u32 = 1000;
    let (mut bed, hosts) = Bed::with_hosts(Subject::Forebay(kind), 4)?;
    if kind == PortKind::VethTcx {
        // Without XDP on it, a veth takes redirected frames only with GRO.
        bed.lab.switch().ethtool(hosts[0].name(), &["gro", "on"])?;
    }
    let end = |host: &Host| (host.mac(), host.v4().octets(), 9);
    let mut frame = Frame::udp4(end(&hosts[0]), end(&hosts[1]), &[0; 18]).build();
    // No UDP checksum: the source changes the port.
    frame[40..42].copy_from_slice(&[0, 0]);
    let sink = Sink::attach(hosts[1].netns(), "eth0")?;
    FrameSocket::open(&hosts[1])?.send(&Frame::marked(hosts[1].mac(), BROADCAST, 1).build())?;
    // Both know each other before.
    assert!(Ping::new(hosts[3].v4()).from(&hosts[2])?.is_complete());
    let client = bed.client();
    let lanes = || {
        client
            .json::<RxqShow>(&["rxq", "show"])
            .map(|rxq| rxq.ports.iter().map(|port| port.lane).collect::<Vec<_>>())
    };
    assert_eq!(lanes()?, [RxqLane::Calm; 4]);
    let (report, counted) = bed.watch(|_| {
        let source = Source::start(hosts[0].netns(), "eth0", frame, 64, SOURCE_CPU)?;
        wait::until("the flood to arrive", ARRIVAL_LIMIT, || {
            sink.counted().is_ok_and(|seen| seen.packets > 0)
        })?;
        let out_of_the_way = [RxqLane::Busy, RxqLane::Calm, RxqLane::Calm, RxqLane::Calm];
        wait::until("the flood to be out of the way", ARRIVAL_LIMIT, || {
            lanes().is_ok_and(|now| now == out_of_the_way)
        })?;
        let report = Ping::new(hosts[3].v4()).count(PINGS).every(Duration::from_millis(1)).from(&hosts[2])?;
        source.finish()?;
        Ok(report)
    })?;
    assert!(report.is_complete(), "{report:?}\n{counted}");
    let held_at_most = || client.occupancy().map(|shown| shown.occupancy["h1"].of_pool().max_frames);
    let before = held_at_most()?;
    wait::until("the port to come back", REST_LIMIT, || lanes().is_ok_and(|now| now == [RxqLane::Calm; 4]))?;
    assert!(before > 64 && held_at_most()? == before, "a change of lane leaves the watermark, {before}");
    assert!(Ping::new(hosts[2].v4()).from(&hosts[0])?.is_complete());
    let refused = ["over_threshold", "rx_ring_full"].map(|drop| counted.moved("h1", drop).unwrap_or(0));
    assert!(refused.iter().sum::<u64>() > 0, "no flood\n{counted}");
    for port in ["h3", "h4"] {
        for drop in CONGESTION {
            assert_eq!(counted.moved(port, drop), Some(0), "{drop} on {port}\n{counted}");
        }
    }
    Ok(())
}

/// Every size in turn while TCP and pings go on, in every mode that has a pool.
fn resizes(subject: Subject) -> Outcome {
    const PINGS: u32 = 1500;
    const BYTES: u64 = 16 << 20;
    let (mut bed, hosts) = Bed::with_hosts(subject, 4)?;
    assert!(Ping::new(hosts[3].v4()).from(&hosts[2])?.is_complete());
    let client = bed.client();
    for mode in ["spp", "basic"] {
        client.ok(&["eswitch", "set", "spool-mode", mode])?;
        let ((ping, stream), counted) = bed.watch(|lab| {
            let _server = IperfServer::start(lab, &hosts[1])?;
            std::thread::scope(|scope| {
                let ping = scope.spawn(|| {
                    Ping::new(hosts[3].v4()).count(PINGS).every(Duration::from_millis(1)).from(&hosts[2])
                });
                let stream = scope.spawn(|| Iperf::bytes(BYTES).run(&hosts[0], &hosts[1]));
                for frames in ["4096", "32768", "16384"] {
                    client.ok(&["pool", "set", "--frames", frames])?;
                    assert_eq!(client.pool()?.frames_total.to_string(), frames);
                }
                let ping = ping.join().expect("pinging does not panic")?;
                Ok((ping, stream.join().expect("a stream does not panic")?))
            })
        })?;
        assert!(stream.is_complete(BYTES), "{stream:?}\n{counted}");
        assert!(ping.received * 100 >= PINGS * 99, "{ping:?}\n{counted}");
        let pool = client.pool()?;
        assert_eq!((pool.frames_held, pool.frames_free + pool.frames_posted), (0, 16_384), "{pool:?}");
    }
    let collectors = (0..16).filter(|n| bed.lab.switch().has_netdev(&format!("forebay{n}"))).count();
    assert_eq!(collectors, 2, "a collector for each lane is left");
    Ok(())
}

fn size_refused(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let client = bed.client();
    let reserve = deepest(subject).to_string();
    client.ok(&["pool", "set", "h1", "--reserve", &reserve])?;
    client.ok(&["pool", "set", "h2", "--reserve", &reserve])?;
    let before = client.pool()?;
    for (frames, said) in [("1000", "1024 to 1048576"), ("1024", "at least"), ("2000000", "1048576")] {
        let finished = client.call(&["pool", "set", "--frames", frames])?;
        assert!(!finished.status.success() && finished.stderr.contains(said), "{frames}: {finished:?}");
        assert!(finished.stderr.contains(frames), "the value is named: {finished:?}");
    }
    assert_eq!(client.pool()?.frames_total, before.frames_total);
    assert!(Ping::new(hosts[1].v4()).from(&hosts[0])?.is_complete());
    Ok(())
}

/// Three ports saturate the pool, then a fourth's first burst comes.
fn headroom(subject: Subject) -> Outcome {
    // A sixteenth of the pool: half of the headroom.
    const BURST: u64 = 56;
    const TH: &str = "13";
    let Crowd { mut bed, hosts, mut wire, .. } = crowd(subject, 5)?;
    let client = bed.client();
    let pid = bed.forebay().daemon().pid();
    let mut refused = Vec::new();
    for policy in ["dt", "headroom"] {
        client.ok(&["pool", "set", "--policy", policy])?;
        hosts.iter().try_for_each(|host| client.ok(&["pool", "set", host.name(), "--th", TH]).map(drop))?;
        let loud = frames_from(&hosts, &mut wire, &[0, 1, 2]);
        let quiet = frames_from(&hosts, &mut wire, &[3]);
        let ((), counted) = bed.watch(|lab| {
            while_stopped(pid, || {
                send_through(lab, &mut wire, &loud, OFFERED)?;
                send_through(lab, &mut wire, &quiet, BURST)
            })
        })?;
        refused.push(counted.moved("h4", "over_threshold").unwrap_or(0));
        assert!(counted.moved("h1", "over_threshold").unwrap_or(0) > 0, "not saturated\n{counted}");
    }
    assert!(refused[0] > 0, "plain thresholds refused {refused:?}");
    assert_eq!(refused[1], 0, "headroom");
    Ok(())
}

/// Frames that a port's ring, or what stands for one, has room for.
fn deepest(subject: Subject) -> u32 {
    if subject.kind() == PortKind::Guest { 512 } else { 1024 }
}

fn refused(subject: Subject) -> Outcome {
    let most = deepest(subject).to_string();
    let more = (deepest(subject) + 1).to_string();
    let (mut bed, _hosts) = Bed::with_hosts(subject, 2)?;
    let client = bed.client();
    let parts =
        || Ok(client.pool()?.ports.iter().map(|port| (port.threshold, port.reserve)).collect::<Vec<_>>());
    let before: Result<_> = parts();
    for (args, said) in [
        (vec!["pool", "set", "h1", "--th", "2"], "3 to 16"),
        (vec!["pool", "set", "h1", "--th", "17"], "3 to 16"),
        (vec!["pool", "set", "h1", "--static", "2047"], "2048"),
        (vec!["pool", "set", "h1", "--static", "99999999999"], "bytes"),
        (vec!["pool", "set", "h1", "--reserve", &more], &most),
        (vec!["pool", "set", "h9", "--th", "8"], "h9"),
    ] {
        let finished = client.call(&args)?;
        assert!(!finished.status.success() && finished.stderr.contains(said), "{args:?}: {finished:?}");
    }
    assert_eq!(parts()?, before?);
    client.ok(&["pool", "set", "h1", "--th", "8"])?;
    assert_eq!(client.pool()?.ports[0].threshold, PoolThreshold::Dynamic { th: 8 });
    Ok(())
}
