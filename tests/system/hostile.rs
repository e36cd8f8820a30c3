//! Frames nobody should send: each is forwarded or dropped for a reason, and the network goes on.

use std::time::Duration;

use forebay_control::counters::BadFrames;
use forebay_testbed::frame::{BROADCAST, Frame, TPID_C, TPID_S, mark_of};
use forebay_testbed::measure::flood::small_frame;
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::measure::source::Source;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, PortKind, Result, wait};

use crate::bed::{Bed, Oracle, with_offload};
use crate::harness::{Outcome, Subject, Suite};
use crate::wire::Wire;

/// A station that sends rubbish.
const VANDAL: [u8; 6] = [2, 0xbb, 0, 0, 0, 1];
/// A tag that is shorter than this the kernel drops by itself, before tcx sees it (skb_vlan_untag).
const TAG_AND_ETHERTYPE: usize = 6;
const FRAMES_A_ROUND: u32 = 128;
const ROUNDS: u32 = 4096 / FRAMES_A_ROUND;
const ARRIVAL_LIMIT: Duration = Duration::from_secs(10);
const SEED: u64 = 0x0f0e_0b0a_0102_0304;

pub fn register(suite: &mut Suite) {
    suite.on_forebay("runts_and_truncated_headers_are_counted_and_harm_nobody", runts);
    suite.on_forebay("a_bad_frame_is_counted_by_what_is_wrong_with_it", bad_frames);
    suite.on_forebay("4096_random_frames_are_counted_and_harm_nobody", random_frames);
    suite.on_forebay("a_frame_longer_than_the_output_mtu_is_dropped_there_only", oversize);
    suite.on_forebay("stacks_of_vlan_tags_up_to_a_full_frame_pass_or_are_counted", vlan_stacks);
    suite.once("what_a_sender_writes_below_its_frames_is_not_believed", forged_origin);
    suite.heavy_once("what_a_sender_writes_below_its_frames_does_not_follow_a_tcx_flow", || {
        forged_below_a_flow(PortKind::VethTcx)
    });
    suite.heavy_once("what_a_sender_writes_below_its_frames_does_not_follow_an_xdp_flow", || {
        forged_below_a_flow(PortKind::VethXdp)
    });
    suite.on_forebay("ip_packets_that_lie_about_their_length_pass_as_frames", lying_lengths);
}

/// xorshift64* (Vigna 2014): the same frames at every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

/// Every frame is accounted for: it entered, and went on or was dropped for one reason.
fn assert_all_counted(counted: &Oracle, sent: u64) {
    let moved = |name| counted.moved("h1", name).unwrap_or(0);
    assert_eq!(moved("rx_packets"), sent, "{counted}");
    let ended = [
        "forwarded_packets",
        "flooded_packets",
        "bad_frame",
        "reserved_address",
        "same_port",
        "no_destination",
        "flood_limited",
        "vlan_not_allowed",
        "over_threshold",
        "rx_ring_full",
        "rx_too_big",
        "collector_full",
        "no_frame",
    ];
    assert_eq!(ended.map(moved).iter().sum::<u64>(), sent, "{counted}");
}

/// The other hosts still talk.
fn assert_alive(hosts: &[Host]) -> Result<()> {
    let report = Ping::new(hosts[2].v4()).from(&hosts[1])?;
    assert!(report.is_complete(), "{report:?}");
    Ok(())
}

/// Three hosts; the first is silent but for its frame socket.
fn vandal_bed(
    subject: Subject,
) -> std::result::Result<(Bed, Vec<Host>, FrameSocket), Box<dyn std::error::Error>> {
    let (bed, hosts) = Bed::with_hosts(subject, 3)?;
    hosts[0].silence()?;
    let socket = FrameSocket::open(&hosts[0])?;
    Ok((bed, hosts, socket))
}

fn runts(subject: Subject) -> Outcome {
    let (mut bed, hosts, socket) = vandal_bed(subject)?;
    let ethertypes = [0x0800, 0x86dd, 0x0806, TPID_C, TPID_S, 0x0001, 0x88b5];
    let mut sent = 0;
    let ((), counted) = bed.watch(|_| {
        for ethertype in ethertypes {
            for length in 0..46 {
                let frame = Frame::marked(VANDAL, BROADCAST, 0x4500_0000).ethertype(ethertype);
                socket.send(&frame.payload_bytes(length).build_short())?;
                let is_cut_tag = matches!(ethertype, TPID_C | TPID_S) && length < TAG_AND_ETHERTYPE;
                sent += u64::from(!is_cut_tag || sees_cut_tags(subject));
            }
        }
        Ok(())
    })?;
    assert_all_counted(&counted, sent);
    Ok(assert_alive(&hosts)?)
}

/// The kernel drops a tag that is cut off before tcx sees it.
fn sees_cut_tags(subject: Subject) -> bool {
    matches!(subject.kind(), PortKind::VethXdp | PortKind::Guest)
}

fn bad_frames(subject: Subject) -> Outcome {
    let (mut bed, hosts, socket) = vandal_bed(subject)?;
    let send = |source: [u8; 6], ethertype, length, count: u64| {
        let frame = Frame::marked(source, BROADCAST, 0).ethertype(ethertype).payload_bytes(length);
        (0..count).try_for_each(|_| socket.send(&frame.build_short()))
    };
    let group = [3, 0xbb, 0, 0, 0, 1];
    let ((), counted) = bed.watch(|_| {
        send([0; 6], 0x0800, 46, 5)?;
        send(group, 0x0800, 46, 3)?;
        send(VANDAL, TPID_C, 2, 2)
    })?;
    let truncated_tag = if sees_cut_tags(subject) { 2 } else { 0 };
    assert_eq!(counted.moved("h1", "bad_frame"), Some(8 + truncated_tag), "{counted}");
    let wanted = BadFrames { runt: 0, truncated_tag, multicast_source: 3, zero_source: 5 };
    let client = bed.client();
    assert_eq!(client.port("h1")?.counters.bad_frames, wanted, "{counted}");
    let stats = client.stats()?;
    assert_eq!((stats.total.bad_frames, stats.ports[0].counters.bad_frames), (wanted, wanted));
    assert!(stats.workers.iter().all(|worker| worker.bad_descriptors == 0), "{:?}", stats.workers);
    let shown = client.ok(&["port", "show", "h1"])?.stdout;
    assert!(shown.contains("of bad_frame: zero_source"), "{shown}");
    Ok(assert_alive(&hosts)?)
}

pub fn random_frames(subject: Subject) -> Outcome {
    let (mut bed, hosts, socket) = vandal_bed(subject)?;
    let mut random = Random(SEED);
    let mut ear = FrameSocket::open(&hosts[1])?;
    let ((), counted) = bed.watch(|_| {
        for round in 0..ROUNDS {
            for _ in 0..FRAMES_A_ROUND {
                let length = 14 + usize::try_from(random.next() % 1400).expect("below 1400");
                socket.send(&random.bytes(length))?;
            }
            // What plays the virtual machine monitor gets a word in: its queue is short.
            socket.send(&Frame::marked(VANDAL, BROADCAST, round).build())?;
            let heard = ear.collect(1, ARRIVAL_LIMIT, |bytes| mark_of(bytes) == Some(round))?;
            assert_eq!(heard.len(), 1, "round {round} did not arrive");
        }
        Ok(())
    })?;
    assert_all_counted(&counted, u64::from(ROUNDS * (FRAMES_A_ROUND + 1)));
    Ok(assert_alive(&hosts)?)
}

fn oversize(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    for host in [&hosts[0], &hosts[2]] {
        host.set_mtu(bed.lab.switch(), 9000)?;
    }
    let mut wire = Wire::new(&hosts)?;
    let long = |mark| Frame::marked(VANDAL, BROADCAST, mark).payload_bytes(5000);
    let (arrived, counted) = wire.deliver(&mut bed, 0, long, &[2])?;
    assert_eq!(arrived[0].len(), 5014);
    let received = [("h1", "rx_packets", 1), ("h1", "flooded_packets", 1)];
    counted.exactly(&[&received[..], &[("h2", "tx_too_big", 1), ("h3", "tx_packets", 1)]].concat());
    Ok(())
}

pub fn vlan_stacks(subject: Subject) -> Outcome {
    const MOST_TAGS: usize = 374;
    let (mut bed, hosts, socket) = vandal_bed(subject)?;
    let mut sent = 0;
    let ((), counted) = bed.watch(|_| {
        for protocol in [TPID_C, TPID_S] {
            for count in [1, 2, 3, 4, 8, 16, 100, MOST_TAGS] {
                let bare = Frame::marked(VANDAL, BROADCAST, 7);
                let frame = (0..count).fold(bare, |frame, n| frame.tag(protocol, (n as u16) & 0x0fff));
                socket.send(&frame.build())?;
                sent += 1;
            }
        }
        Ok(())
    })?;
    assert_all_counted(&counted, sent);
    Ok(assert_alive(&hosts)?)
}

pub fn lying_lengths(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let mut wire = Wire::new(&hosts)?;
    let ends = (([2; 6], [10, 66, 9, 1], 7), ([0xff; 6], [10, 66, 9, 2], 9));
    let honest = Frame::udp4(ends.0, ends.1, b"sixteen bytes ok").build();
    // Total length, header length, UDP length and protocol, each wrong in both directions.
    let lies: [(usize, &[u8]); 7] = [
        (16, &[0, 0]),
        (16, &[0xff, 0xff]),
        (14, &[0x4f]),
        (14, &[0x40]),
        (38, &[0, 0]),
        (38, &[0xff, 0xff]),
        (23, &[6]),
    ];
    let (arrived, counted) = bed.watch(|_| {
        for (offset, bytes) in lies {
            let mut frame = honest.clone();
            frame[offset..offset + bytes.len()].copy_from_slice(bytes);
            wire.socket(0).send(&frame)?;
        }
        wire.socket(1).collect(lies.len(), Duration::from_secs(3), |frame| frame[6..12] == [2; 6])
    })?;
    let dropped = counted.moved("h1", "bad_frame").unwrap_or(0);
    assert_eq!(arrived.len() as u64 + dropped, lies.len() as u64, "{counted}");
    assert_all_counted(&counted, lies.len() as u64);
    Ok(())
}

/// In spool mode basic a packet's port is known by what lies below it alone.
fn forged_origin() -> Outcome {
    let subject = Subject::Forebay(PortKind::VethXdp);
    let mut bed = Bed::with_config(subject, "[switch]\nspool_mode = \"basic\"\n")?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    hosts.iter().try_for_each(Host::silence)?;
    for (host, vlan) in hosts.iter().zip(["access:10", "access:20", "access:20"]) {
        bed.attach_vlan(host, vlan)?;
    }
    let victim = bed.client().port("h2")?.id;
    let frame = Frame::marked(hosts[0].mac(), hosts[2].mac(), 1).build();
    let mut ear = FrameSocket::open(&hosts[2])?;
    let (sent, counted) =
        bed.watch(|_| Source::send_forged(hosts[0].netns(), "eth0", &frame, victim.0.into()))?;
    assert_eq!(counted.moved("h1", "rx_packets"), Some(sent), "{counted}");
    assert_eq!(counted.moved("h2", "rx_packets"), Some(0), "{counted}");
    let heard = ear.collect(1, Duration::ZERO, |bytes| bytes[6..12] == hosts[0].mac())?;
    assert!(heard.is_empty(), "{counted}");
    Ok(())
}

/// A frame that is redirected from driver to driver keeps its metadata, unless a program removes it.
fn forged_below_a_flow(kind: PortKind) -> Outcome {
    let subject = Subject::Forebay(kind);
    with_offload(|| {
        let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
        hosts.iter().try_for_each(Host::silence)?;
        if kind == PortKind::VethTcx {
            // Without XDP on it, a veth takes redirected frames only with GRO.
            bed.lab.switch().ethtool(hosts[0].name(), &["gro", "on"])?;
        }
        let sink = Sink::attach_for_metadata(hosts[1].netns(), "eth0")?;
        FrameSocket::open(&hosts[1])?.send(&Frame::marked(hosts[1].mac(), BROADCAST, 1).build())?;
        let frame = small_frame(&hosts[0], &hosts[1]);
        // The first frames lead to the flow, which all others follow from some moment on.
        wait::until("all frames of a round to follow the flow", ARRIVAL_LIMIT, || {
            let round = bed.watch(|_| Source::send_forged(hosts[0].netns(), "eth0", &frame, 1));
            round.is_ok_and(|(sent, counted)| counted.moved("h1", "offloaded_packets") == Some(sent))
        })?;
        assert_eq!(sink.counted()?.packets, 0, "frames with what their sender wrote below them");
        Ok(())
    })
}
