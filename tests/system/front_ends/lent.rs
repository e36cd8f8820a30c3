//! Long packets of a guest, most of which stay in its memory while they are sent: each output gets them as it takes them.

use forebay_testbed::dut::ForebayOptions;
use forebay_testbed::dut::counters::Reading;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::wait;
use forebay_vhost::driver::FrontEnd;
use forebay_vhost::{Features, NetHeader};
use forebay_wire::{Verdict, verify_l4};

use super::undone::{PAYLOAD, datagram, header, receiver, sender};
use super::{LIMIT, Scene, guest_with, join, mac, pass};
use crate::harness::{Outcome, Suite};

/// Bytes of a header that a packet socket has in front of each packet.
const SOCKET_HEADER: usize = 10;
const BROADCAST: [u8; 6] = [0xff; 6];

pub fn register(suite: &mut Suite) {
    suite.once("a_guests_long_packet_reaches_everybody_as_they_take_it", everybody);
    suite.once("a_guests_long_packets_are_captured_to_their_end", captured);
}

/// A guest that sends long packets, one that takes them, and one that takes none.
fn three(scene: &Scene) -> Result<[FrontEnd; 3], Box<dyn std::error::Error>> {
    let mut guests = [sender(), receiver(), Features::default()].map(guest_with).into_iter();
    let mut made = Vec::new();
    for number in 1..=3 {
        let mut guest = guests.next().expect("three were made")?;
        let port = format!("vm{number}");
        scene.add(&port, &["--vlan", "access:7"])?;
        join(&mut guest, scene, &port)?;
        made.push(guest);
    }
    let [mut one, mut two, mut three]: [FrontEnd; 3] = made.try_into().map_err(|_| "three were made")?;
    pass(&mut two, &mut one, 2, 1)?;
    pass(&mut three, &mut one, 3, 1)?;
    Ok([one, two, three])
}

/// A datagram of guest 1 to this address.
fn datagram_to(destination: [u8; 6], payload: usize) -> Vec<u8> {
    let mut packet = datagram(1, 2, payload);
    packet[..6].copy_from_slice(&destination);
    packet
}

fn gets_whole(guest: &mut FrontEnd, packet: &[u8]) -> Outcome {
    let received = wait::until_some("the packet", LIMIT, || guest.receive_undone())?;
    assert_eq!(received, (header(), packet.to_vec()));
    Ok(())
}

fn gets_parts(guest: &mut FrontEnd, packet: &[u8]) -> Outcome {
    let mut payload = Vec::new();
    while payload.len() < packet.len() - PAYLOAD {
        let (undone, part) = wait::until_some("a part", LIMIT, || guest.receive_undone())?;
        assert!(undone.is_plain() && verify_l4(&[&part[..]]) == Verdict::Good, "{undone:?}");
        payload.extend_from_slice(&part[PAYLOAD..]);
    }
    assert_eq!(payload, packet[PAYLOAD..]);
    Ok(())
}

/// The container's port is a trunk: its packets have a tag.
fn container_gets_whole(socket: &mut FrameSocket, packet: &[u8]) -> Outcome {
    let is_it = |frame: &[u8]| frame[SOCKET_HEADER + 6..].starts_with(&mac(1));
    let frames = socket.collect(1, LIMIT, is_it)?;
    let frame = frames.first().ok_or("no packet has come")?;
    let (told, frame) = frame.split_at(SOCKET_HEADER);
    let tagged = [&packet[..12], &[0x81, 0, 0, 7], &packet[12..]].concat();
    assert!(frame == tagged, "{} bytes of {}", frame.len(), tagged.len());
    let told = NetHeader::from_bytes(&[told, &[0; 10]].concat().try_into().expect("a header"));
    assert_eq!((told.gso_type, told.gso_size), (header().gso_type, header().gso_size));
    Ok(())
}

fn everybody() -> Outcome {
    for workers in [1, 2] {
        let config = format!("[loop]\ndetect = false\n[switch]\nworkers = {workers}\n");
        let scene = Scene::new(1, ForebayOptions::with_config(config))?;
        let host = &scene.hosts[0];
        scene.client().ok(&["port", "set", host.name(), "--vlan", "trunk:7"])?;
        let [mut sender, mut taker, mut other] = three(&scene)?;
        let mut socket = FrameSocket::open_with_virtio_headers(host)?;
        // Copies of the first packets, which were flooded.
        Reading::settled(scene.client())?;
        while taker.receive().is_some() || other.receive().is_some() {}
        for payload in [5_000, 15_000] {
            let packet = datagram_to(BROADCAST, payload);
            assert!(sender.transmit_undone(header(), &packet));
            gets_whole(&mut taker, &packet)?;
            gets_parts(&mut other, &packet)?;
            container_gets_whole(&mut socket, &packet)?;
            let packet = datagram_to(mac(2), payload);
            assert!(sender.transmit_undone(header(), &packet));
            gets_whole(&mut taker, &packet)?;
            let packet = datagram_to(mac(3), payload);
            assert!(sender.transmit_undone(header(), &packet));
            gets_parts(&mut other, &packet)?;
        }
        assert_eq!(sender.transmit_backlog(), 0, "the guest has its buffers back");
        assert!(scene.client().stats_check()?.balanced);
        assert!(scene.client().pool()?.ports.iter().all(|port| port.used == 0));
    }
    Ok(())
}

fn captured() -> Outcome {
    let scene = Scene::new(0, super::quiet())?;
    let [mut sender, mut taker, _] = three(&scene)?;
    Reading::settled(scene.client())?;
    while taker.receive().is_some() {}
    let file = scene.lab.path("long.pcapng");
    let packet = datagram_to(mac(2), 15_000);
    let before = Reading::settled(scene.client())?;
    let path = file.to_string_lossy();
    let words = ["capture", "vm1", "-c", "1", "--seconds", "60", "--snaplen", "65535", "-w", &path];
    std::thread::scope(|scope| {
        let capture = scope.spawn(|| scene.client().ok(&words).map(drop));
        wait::until("a packet to be captured", LIMIT, || {
            sender.transmit_undone(header(), &packet);
            while taker.receive().is_some() {}
            capture.is_finished()
        })?;
        capture.join().expect("it does not panic")
    })?;
    let bytes = std::fs::read(&file)?;
    assert!(bytes.windows(packet.len()).any(|window| window == packet), "all of the packet is there");
    let moved = Reading::settled(scene.client())?.since(&before);
    assert_eq!(moved.get("vm1", "rx_packets"), moved.get("vm2", "tx_packets"), "{moved:?}");
    Ok(())
}
