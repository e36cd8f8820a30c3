//! Packets alike, one after the other, are decided about once: they go where they would go one by one.

use std::sync::Arc;

use forebay_control::PortId;
use forebay_control::vlan::VlanMode;
use forebay_switch::memory::{MemoryOptions, MemoryPort, MemorySwitch, WayIn};

const STATIONS: usize = 4;
const ROUNDS: usize = 10;

/// A switch without flows, and ports each of which has one station, which is known.
fn switch() -> (MemorySwitch, Vec<PortId>) {
    let mut switch =
        MemorySwitch::new(MemoryOptions { workers: 1, ..MemoryOptions::default() }).expect("memory");
    switch.set_offload(false);
    let add =
        |isolated| MemoryPort { vlan: VlanMode::All, isolated, way_in: WayIn::Queue, worker: 0, owner: 0 };
    // The last two do not reach each other.
    let ports: Vec<_> =
        (0..STATIONS).map(|n| switch.add_port(add(n >= 2)).expect("room for a port")).collect();
    for (from, port) in ports.iter().enumerate() {
        switch.send(*port, &packet(from, STATIONS, 0));
        assert!(switch.settle(ROUNDS));
    }
    received(&mut switch, &ports);
    (switch, ports)
}

/// A packet from a station to another; to [`STATIONS`] is to all.
fn packet(from: usize, to: usize, number: u8) -> Arc<[u8]> {
    let mut bytes = vec![0; 60];
    bytes[..6].copy_from_slice(&if to == STATIONS { [0xff; 6] } else { [2, 0, 0, 0, 0, to as u8] });
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from as u8]);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[59] = number;
    bytes.into()
}

fn received(switch: &mut MemorySwitch, ports: &[PortId]) -> Vec<Vec<Vec<u8>>> {
    ports.iter().map(|port| std::iter::from_fn(|| switch.receive(*port)).collect()).collect()
}

#[test]
fn packets_of_one_turn_go_where_they_go_one_by_one() {
    // From the third port: to the first, the second, the isolated one, all, nobody known, itself.
    let to = [0, 0, 0, 1, 0, 1, 1, 3, 3, 0, STATIONS, STATIONS, 9, 9, 2, 0, 0, 1];
    let packets: Vec<_> = to.iter().enumerate().map(|(number, to)| packet(2, *to, number as u8)).collect();
    let ((mut together, ports), (mut apart, _)) = (switch(), switch());
    for packet in &packets {
        together.send(ports[2], packet);
        apart.send(ports[2], packet);
        assert!(apart.settle(ROUNDS));
    }
    assert!(together.turn(0) > packets.len() / 2, "most of them in one burst");
    assert!(together.settle(ROUNDS));
    let arrived = received(&mut together, &ports);
    assert_eq!(arrived, received(&mut apart, &ports));
    assert_eq!(arrived.iter().map(Vec::len).collect::<Vec<_>>(), [11, 8, 0, 0]);
    let counted = ports.iter().map(|port| (together.counters(*port), apart.counters(*port)));
    counted.for_each(|(together, apart)| assert_eq!(together, apart));
    assert_eq!(together.balance().missing(), 0);
}
