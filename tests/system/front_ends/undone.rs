//! What a guest leaves undone, header by header: lies cost it that packet, and the truth reaches others as they agreed.

use forebay_testbed::dut::ForebayOptions;
use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::frame::Frame;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::wait;
use forebay_vhost::driver::FrontEnd;
use forebay_vhost::{Features, NetHeader};
use forebay_wire::net_header::{NEEDS_CSUM, gso};
use forebay_wire::{Verdict, verify_l4};

use super::{LIMIT, RING, Scene, guest, guest_with, join, mac, pass, quiet};
use crate::bed::while_stopped;
use crate::harness::{Outcome, Suite};

const UDP: usize = 34;
pub(super) const PAYLOAD: usize = UDP + 8;
const PART: u16 = 1400;

pub fn register(suite: &mut Suite) {
    suite.once("a_header_that_lies_costs_its_guest_that_packet_alone", lies);
    suite.once("a_long_packet_reaches_a_guest_whole_or_in_right_parts", long);
    suite.once("a_containers_long_packet_reaches_a_guest_whole", from_container);
    suite.once("whoever_meddles_with_a_long_queue_costs_nobody_a_stream", meddled_with);
    suite.once("parts_of_a_long_packet_are_counted_as_the_guest_gets_them", counted);
    suite.once("what_a_guest_takes_undone_changes_while_its_driver_runs", changed);
    suite.once("a_service_tag_costs_a_guests_packet_of_the_mtu_nothing", service_tagged);
}

/// A datagram over IPv4 with an unfinished checksum.
pub(super) fn datagram(from: u8, to: u8, payload: usize) -> Vec<u8> {
    let mut packet = [&mac(to)[..], &mac(from), &[8, 0]].concat();
    packet.extend([0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 53, 0, 54, 0, 0, 0, 0]);
    packet.extend((0..payload).map(|at| at as u8));
    let length = |from: usize| ((packet.len() - from) as u16).to_be_bytes();
    let (of_ip, of_udp) = (length(14), length(UDP));
    packet[16..18].copy_from_slice(&of_ip);
    packet[UDP + 4..UDP + 6].copy_from_slice(&of_udp);
    let pseudo = (0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + u32::from(u16::from_be_bytes(of_udp))) as u16;
    packet[UDP + 6..PAYLOAD].copy_from_slice(&pseudo.to_be_bytes());
    packet
}

pub(super) fn header() -> NetHeader {
    NetHeader {
        flags: NEEDS_CSUM,
        gso_type: gso::UDP_L4,
        hdr_len: PAYLOAD as u16,
        gso_size: PART,
        csum_start: UDP as u16,
        csum_offset: 6,
    }
}

pub(super) fn sender() -> Features {
    Features::CSUM.with(Features::HOST_USO).with(Features::HOST_TSO4).with(Features::HOST_TSO6)
}

pub(super) fn receiver() -> Features {
    Features::GUEST_CSUM.with(Features::GUEST_USO4).with(Features::GUEST_USO6)
}

/// Guests 1 and 2, which know each other's ports.
fn two(scene: &Scene, receiver: Features) -> Result<[FrontEnd; 2], Box<dyn std::error::Error>> {
    let (mut one, mut other) = (guest_with(sender())?, guest_with(receiver)?);
    for (number, guest) in [(1, &mut one), (2, &mut other)] {
        let port = format!("vm{number}");
        scene.add(&port, &[])?;
        join(guest, scene, &port)?;
    }
    scene.exchange([&mut one, &mut other])?;
    Ok([one, other])
}

fn lies() -> Outcome {
    let scene = Scene::new(0, quiet())?;
    let [mut liar, mut other] = two(&scene, receiver())?;
    while other.receive().is_some() {}
    let before = Reading::settled(scene.client())?;
    let bad = [
        NetHeader { csum_start: 60_000, ..header() },
        NetHeader { gso_size: 0, ..header() },
        NetHeader { flags: 0, ..header() },
        NetHeader { gso_type: gso::TCPV4, csum_offset: 16, ..header() },
        NetHeader { gso_type: gso::UDP, ..header() },
        NetHeader { gso_type: 0x7f, ..header() },
        NetHeader { csum_offset: 16, ..header() },
        NetHeader { csum_start: UDP as u16 + 2, ..header() },
        NetHeader { gso_type: gso::NONE, csum_start: u16::MAX, csum_offset: u16::MAX, ..header() },
    ];
    for lie in bad {
        assert!(liar.transmit_undone(lie, &datagram(1, 2, 5000)), "{lie:?}");
    }
    // Thousands of packets out of one.
    assert!(liar.transmit_undone(NetHeader { gso_size: 1, ..header() }, &datagram(1, 2, 5000)));
    let mut moved = Moved::default();
    wait::until("the lies to be counted", LIMIT, || {
        let now = Reading::settled(scene.client());
        moved = now.map(|now| now.since(&before)).unwrap_or_default();
        moved.get("vm1", "rx_packets") == bad.len() as u64 + 1
    })?;
    assert_eq!((moved.get("vm1", "bad_frame"), moved.get("vm1", "rx_too_big")), (bad.len() as u64, 1));
    assert_eq!(other.receive(), None);
    pass(&mut liar, &mut other, 1, 2)
}

fn long() -> Outcome {
    let scene = Scene::new(0, quiet())?;
    let [mut sender, mut taker] = two(&scene, receiver())?;
    scene.add("vm3", &[])?;
    let mut other = guest()?;
    join(&mut other, &scene, "vm3")?;
    pass(&mut other, &mut sender, 3, 1)?;
    while taker.receive().is_some() || other.receive().is_some() {}

    let packet = datagram(1, 2, 5000);
    // What is no part of what must be finished does not go on.
    let told = NetHeader { flags: 0xff, hdr_len: 7, ..header() };
    assert!(sender.transmit_undone(told, &packet));
    let received = wait::until_some("the packet", LIMIT, || taker.receive_undone())?;
    assert_eq!(received, (header(), packet));

    let packet = datagram(1, 3, 5000);
    assert!(sender.transmit_undone(header(), &packet));
    let mut payload = Vec::new();
    while payload.len() < 5000 {
        let (undone, part) = wait::until_some("a part", LIMIT, || other.receive_undone())?;
        assert!(undone.is_plain() && verify_l4(&[&part[..]]) == Verdict::Good, "{undone:?}");
        assert!(part.len() <= PAYLOAD + usize::from(PART));
        payload.extend_from_slice(&part[PAYLOAD..]);
    }
    assert_eq!(payload, packet[PAYLOAD..]);

    // An unfinished checksum alone.
    let undone = NetHeader { gso_type: gso::NONE, gso_size: 0, ..header() };
    assert!(sender.transmit_undone(undone, &datagram(1, 2, 900)));
    let (told, packet) = wait::until_some("the datagram", LIMIT, || taker.receive_undone())?;
    assert_eq!((told, packet), (NetHeader { hdr_len: 0, ..undone }, datagram(1, 2, 900)));
    assert!(sender.transmit_undone(undone, &datagram(1, 3, 900)));
    let (told, packet) = wait::until_some("the datagram", LIMIT, || other.receive_undone())?;
    assert!(told.is_plain() && verify_l4(&[&packet[..]]) == Verdict::Good);
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

/// A segment of TCP over IPv4 with an unfinished checksum, and its header.
fn segment(from: [u8; 6], to: u8, payload: usize) -> (NetHeader, Vec<u8>) {
    const TCP: usize = 34;
    let mut packet = [&mac(to)[..], &from, &[8, 0]].concat();
    packet.extend([0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 53, 0, 54, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 4, 0, 0, 0, 0, 0]);
    packet.extend((0..payload).map(|at| at as u8));
    let of_ip = ((packet.len() - 14) as u16).to_be_bytes();
    packet[16..18].copy_from_slice(&of_ip);
    let pseudo = (0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 6 + (20 + payload)) as u16;
    packet[TCP + 16..TCP + 18].copy_from_slice(&pseudo.to_be_bytes());
    let kind = NetHeader { gso_type: gso::TCPV4, hdr_len: TCP as u16 + 20, csum_offset: 16, ..header() };
    (kind, packet)
}

/// Tells a packet that was never cut from one whose parts were joined by what its port counts.
fn from_container() -> Outcome {
    for (long_queues, packets) in [(true, 1), (false, 4)] {
        let config = format!("[loop]\ndetect = false\n[switch]\nlong_queues = {long_queues}\n");
        let scene = Scene::new(1, ForebayOptions::with_config(config))?;
        let mut taker = guest_with(Features::GUEST_CSUM.with(Features::GUEST_TSO4))?;
        scene.add("vm2", &[])?;
        join(&mut taker, &scene, "vm2")?;
        let host = &scene.hosts[0];
        // So that it says nothing by itself.
        host.netns().set("ipv6/conf/eth0/disable_ipv6", "1")?;
        let socket = FrameSocket::open_with_virtio_headers(host)?;
        let (header, packet) = segment(host.mac(), 2, 5000);
        wait::until("the guest to be known", LIMIT, || {
            taker.transmit(&Frame::marked(mac(2), [0xff; 6], 2).build());
            scene.client().fdb().is_ok_and(|fdb| fdb.iter().any(|entry| entry.mac.0 == mac(2)))
        })?;
        while taker.receive().is_some() {}
        let before = Reading::settled(scene.client())?;
        socket.send(&[&header.to_bytes(0)[..10], &packet].concat())?;
        let received = wait::until_some("the packet", LIMIT, || {
            let mut packets = std::iter::from_fn(|| taker.receive_undone());
            packets.find(|(_, packet)| packet[6..12] == host.mac())
        })?;
        let moved = Reading::settled(scene.client())?.since(&before);
        assert_eq!(moved.get("h1", "rx_packets"), packets, "{moved:?}");
        if long_queues {
            assert_eq!(received, (header, packet));
        }
        assert!(scene.client().stats_check()?.balanced);
        assert!(scene.client().pool()?.ports.iter().all(|port| port.used == 0));
    }
    Ok(())
}

/// As root may do on the host: one sends out of it what looks like a port's packet, and deletes it.
fn meddled_with() -> Outcome {
    const TAP: &str = "forebayl0";
    const STREAM: u64 = 20_000_000;
    let options = ForebayOptions::with_config("[loop]\ndetect = false\n[flows]\noffload = \"off\"\n");
    let scene = Scene::new(2, options)?;
    let switch = scene.lab.switch();
    let [one, other] = &scene.hosts[..] else { unreachable!("two hosts were made") };
    let socket = FrameSocket::open_on(switch, TAP)?;
    for tag in [[0xff, 0xff], [0x0f, 0xff], [0, 0]] {
        for kind in [[0x81, 0], [0x88, 0xa8]] {
            let frame = [&one.mac()[..], &other.mac(), &kind, &tag, &[8, 0], &[0; 60]].concat();
            socket.send(&frame)?;
        }
    }
    let carries = || -> Outcome {
        let _server = IperfServer::start(&scene.lab, other)?;
        let report = Iperf::bytes(STREAM).run(one, other)?;
        assert!(report.is_complete(STREAM), "{report:?}");
        Ok(())
    };
    carries()?;
    switch.ip(&["link", "delete", TAP])?;
    carries()?;
    let holds_nothing =
        || scene.client().pool().is_ok_and(|pool| pool.ports.iter().all(|port| port.used == 0));
    Ok(wait::until("accounts that are right", LIMIT, holds_nothing)?)
}

/// The command of the control queue that says what a guest takes: class, command, bits.
fn takes(features: Features) -> Vec<u8> {
    [&[5, 0][..], &features.0.to_le_bytes()].concat()
}

fn changed() -> Outcome {
    let scene = Scene::new(0, quiet())?;
    let offers = Features::CTRL_VQ.with(Features::CTRL_GUEST_OFFLOADS);
    let [mut sender, mut taker] = two(&scene, receiver().with(offers))?;
    while taker.receive().is_some() {}
    let word = |word: &str| {
        let guest = scene.client().port("vm2").ok().and_then(|port| port.vhost_user);
        guest.is_some_and(|guest| guest.features.iter().any(|feature| feature == word))
    };
    assert!(word("guest-offloads"));
    let packet = datagram(1, 2, 5000);
    // In turns: all that was agreed on, an unfinished checksum alone, nothing, all again.
    for (features, packets) in [
        (receiver(), 1),
        (Features::GUEST_CSUM, 4),
        (Features::default(), 4),
        (receiver(), 1),
        (Features::GUEST_CSUM, 4),
    ] {
        assert_eq!(taker.command(&takes(features)), Some(vec![0]), "{features:?}");
        // What comes behind the answer is what the guest takes.
        assert!(sender.transmit_undone(header(), &packet));
        let mut payload = Vec::new();
        for _ in 0..packets {
            let (undone, part) = wait::until_some("a packet", LIMIT, || taker.receive_undone())?;
            let is_right = verify_l4(&[&part[..]]) == Verdict::Good;
            assert!(
                if packets == 1 { undone == header() } else { undone.is_plain() && is_right },
                "{undone:?}"
            );
            payload.extend_from_slice(&part[PAYLOAD..]);
        }
        assert_eq!(payload, packet[PAYLOAD..]);
        let undone = NetHeader { gso_type: gso::NONE, gso_size: 0, hdr_len: 0, ..header() };
        assert!(sender.transmit_undone(undone, &datagram(1, 2, 900)));
        let (told, _) = wait::until_some("the datagram", LIMIT, || taker.receive_undone())?;
        assert_eq!(told.needs_checksum(), features.has(Features::GUEST_CSUM));
    }
    // Of what was not agreed on, and of what no guest takes, nothing can be switched on.
    for refused in [Features::GUEST_TSO4, Features::VERSION_1] {
        assert_eq!(taker.command(&takes(refused)), Some(vec![1]), "{refused:?}");
    }
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

fn counted() -> Outcome {
    const PARTS: u64 = 5;
    // A port alone may have three quarters of the guest's buffers.
    const ROOM: u64 = RING as u64 / 4 * 3;
    let scene = Scene::new(0, quiet())?;
    // It takes nothing undone.
    let [mut sender, mut other] = two(&scene, Features::default())?;
    while other.receive().is_some() {}
    let before = Reading::settled(scene.client())?;
    // There is room for the first parts of the last packet.
    let packets = ROOM / PARTS + 1;
    for _ in 0..packets {
        assert!(sender.transmit_undone(header(), &datagram(1, 2, usize::from(PART) * PARTS as usize)));
    }
    let mut moved = Moved::default();
    wait::until("the packets to be counted", LIMIT, || {
        let now = Reading::settled(scene.client());
        moved = now.map(|now| now.since(&before)).unwrap_or_default();
        moved.get("vm1", "rx_packets") == packets
    })?;
    let counts = ["tx_packets", "tx_over_share"].map(|counter| moved.get("vm2", counter));
    assert_eq!(counts, [ROOM, PARTS * packets - ROOM]);
    let received: Vec<Vec<u8>> = std::iter::from_fn(|| other.receive()).collect();
    let bytes: usize = received.iter().map(Vec::len).sum();
    assert_eq!((received.len() as u64, bytes as u64), (ROOM, moved.get("vm2", "tx_bytes")));
    Ok(())
}

/// The kernel's packet sockets take a service tag for a part of the packet, which is then longer than the MTU.
fn service_tagged() -> Outcome {
    const MTU: usize = 1500;
    const IP_AND_UDP: usize = 28;
    let mut scene = Scene::new(1, super::quiet())?;
    let station = scene.hosts[0].mac();
    let mut guest = guest_with(sender())?;
    scene.add("vm1", &[])?;
    join(&mut guest, &scene, "vm1")?;
    let mut socket = FrameSocket::open(&scene.hosts[0])?;
    for tags in [&[0x88, 0xa8, 0, 20][..], &[0x81, 0, 0, 10, 0x88, 0xa8, 0, 20]] {
        // The MTU has room for a second tag.
        let payload = MTU - IP_AND_UDP - (tags.len() - 4);
        let mut packet = datagram(1, 2, payload);
        packet[..6].copy_from_slice(&station);
        let tagged = [&packet[..12], tags, &packet[12..]].concat();
        let undone = NetHeader { gso_type: gso::NONE, gso_size: 0, ..header() };
        let undone = NetHeader { csum_start: undone.csum_start + tags.len() as u16, ..undone };
        assert!(guest.transmit_undone(undone, &tagged));
        let frames = socket.collect(1, LIMIT, |frame| frame[6..].starts_with(&mac(1)))?;
        let frame = frames.first().ok_or_else(|| format!("nothing has come with {tags:x?}"))?;
        assert!(frame.len() == tagged.len() && verify_l4(&[&frame[..]]) == Verdict::Good, "{tags:x?}");
    }
    // One to which nothing is left to do, in a burst that leaves by such a socket as a whole.
    let mut long = datagram(1, 2, 5000);
    long[..6].copy_from_slice(&station);
    let plain = [&station[..], &mac(1), &[0x88, 0xa8, 0, 20, 0x88, 0xb5], &[0; MTU]].concat();
    let pid = scene.daemon.daemon().pid();
    while_stopped(pid, || {
        assert!(guest.transmit_undone(header(), &long) && guest.transmit(&plain));
        Ok(())
    })?;
    let frames = socket.collect(1, LIMIT, |frame| *frame == plain)?;
    assert_eq!(frames.len(), 1, "nothing has come beside a long packet");
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}
