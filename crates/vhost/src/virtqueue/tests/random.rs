//! Random steps of both ends against a list of packets, and rubbish.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Something that either end does.
#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u16>, bool),
    Offer(Vec<u16>, bool),
    ShowDevice,
    Take(u16),
    Discard,
    Put(u16),
    ShowGuest,
    Collect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let parts = || proptest::collection::vec(1u16..300, 1..5);
    let step = prop_oneof![
        (parts(), any::<bool>()).prop_map(|(parts, indirect)| Step::Send(parts, indirect)),
        (parts(), any::<bool>()).prop_map(|(parts, indirect)| Step::Offer(parts, indirect)),
        Just(Step::ShowDevice),
        (1u16..300).prop_map(Step::Take),
        Just(Step::Discard),
        (0u16..900).prop_map(Step::Put),
        Just(Step::ShowGuest),
        Just(Step::Collect),
    ];
    proptest::collection::vec(step, 1..if cfg!(miri) { 20 } else { 200 })
}

/// What both ends must agree on.
#[derive(Default)]
struct Oracle {
    /// Packets that the guest sent: added, shown to the device.
    added: VecDeque<Vec<u8>>,
    shown: VecDeque<Vec<u8>>,
    /// Rooms of receive buffers: added, shown.
    rooms_added: VecDeque<u32>,
    rooms: VecDeque<u32>,
    /// What the guest is to receive: written, shown.
    written: VecDeque<Vec<u8>>,
    due: VecDeque<Vec<u8>>,
    /// Transmit buffers that come back: used, shown.
    used: usize,
    returned: usize,
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 13) as u8).collect()
}

/// Runs the steps over a transmit and a receive queue and compares each with the oracle.
fn run(steps: Vec<Step>, features: Features, base: u32) {
    let options = DriverOptions { base, ..DriverOptions::new(features, 8, 4096) };
    let mut sender = Driver::new(options).expect("a possible ring");
    let mut receiver = Driver::new(options).expect("a possible ring");
    let mut transmit = sender.device(1).expect("the driver's ring");
    let mut receive = receiver.device(0).expect("the driver's ring");
    let is_mergeable = features.has(Features::MRG_RXBUF);
    let mut oracle = Oracle::default();
    for (seed, step) in steps.into_iter().enumerate() {
        match step {
            Step::Send(parts, indirect) => {
                let packet = bytes(parts.iter().map(|len| usize::from(*len)).sum(), seed);
                let mut rest = &packet[..];
                let mut all = vec![Part::Bytes(&[0; 12])];
                for len in parts {
                    let (part, behind) = rest.split_at(usize::from(len));
                    all.push(Part::Bytes(part));
                    rest = behind;
                }
                if sender.add(&all, indirect).is_some() {
                    oracle.added.push_back(packet);
                }
            }
            Step::Offer(parts, indirect) => {
                let parts: Vec<u32> = parts
                    .iter()
                    .enumerate()
                    .map(|(at, len)| u32::from(*len) + if at == 0 { 12 } else { 0 })
                    .collect();
                let all: Vec<Part<'_>> = parts.iter().map(|len| Part::Room(*len)).collect();
                if receiver.add(&all, indirect).is_some() {
                    oracle.rooms_added.push_back(parts.iter().sum());
                }
            }
            Step::ShowDevice => {
                sender.publish();
                receiver.publish();
                oracle.shown.append(&mut oracle.added);
                oracle.rooms.append(&mut oracle.rooms_added);
            }
            Step::Take(frame) => {
                let taken = take_all(&mut transmit, usize::from(frame)).map(|(_, packet)| packet);
                oracle.used += usize::from(taken.is_some());
                assert_eq!(taken, oracle.shown.pop_front());
            }
            Step::Discard => {
                let offered = transmit.offered().expect("well-formed").map(|offer| offer.len as usize);
                assert_eq!(offered, oracle.shown.pop_front().map(|packet| packet.len()));
                transmit.discard();
                oracle.used += usize::from(offered.is_some());
            }
            Step::Put(len) => {
                let packet = bytes(usize::from(len), seed);
                let needed = u32::from(len) + 12;
                let (mut room, mut buffers) = (0, 0);
                while room < needed && buffers < oracle.rooms.len() && (is_mergeable || buffers == 0) {
                    room += oracle.rooms[buffers];
                    buffers += 1;
                }
                match put(&mut receive, &packet) {
                    Put::Done => {
                        assert!(room >= needed);
                        let header = NetHeader::default().to_bytes(buffers as u16);
                        let whole = [&header[..12], &packet].concat();
                        let mut rest = &whole[..];
                        for room in oracle.rooms.drain(..buffers) {
                            let (here, behind) = rest.split_at(rest.len().min(room as usize));
                            oracle.written.push_back(here.to_vec());
                            rest = behind;
                        }
                    }
                    Put::Full => assert!(room < needed && (is_mergeable || oracle.rooms.is_empty())),
                    Put::TooLong => assert!(room < needed && (!is_mergeable || buffers > 0)),
                }
            }
            Step::ShowGuest => {
                let _ = transmit.publish();
                let _ = receive.publish();
                oracle.due.append(&mut oracle.written);
                oracle.returned += std::mem::take(&mut oracle.used);
            }
            Step::Collect => {
                let received: Vec<_> =
                    std::iter::from_fn(|| receiver.used()).map(|used| used.written).collect();
                assert_eq!(received, oracle.due.drain(..).collect::<Vec<_>>());
                let returned = std::iter::from_fn(|| sender.used()).count();
                assert_eq!(returned, std::mem::take(&mut oracle.returned));
            }
        }
        assert_eq!(transmit.has_waiting(), !oracle.shown.is_empty());
        assert_eq!(transmit.waiting() > 0, transmit.has_waiting());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, failure_persistence: None, ..Default::default() })]

    /// A split ring begins close to the wrap of its 16-bit indexes.
    #[test]
    fn a_split_ring_does_what_a_list_of_packets_does(
        steps in steps(), base in 0xfff0u32..0x1_0000, events: bool, mergeable: bool,
    ) {
        let mut features = BASIC;
        if events { features = features.with(Features::EVENT_IDX) }
        if mergeable { features = features.with(Features::MRG_RXBUF) }
        run(steps, features, base);
    }

    /// A packed ring begins anywhere, with either wrap counter.
    #[test]
    fn a_packed_ring_does_what_a_list_of_packets_does(
        steps in steps(), index in 0u32..8, wrap: bool, events: bool, mergeable: bool,
    ) {
        let mut features = BASIC.with(Features::RING_PACKED);
        if events { features = features.with(Features::EVENT_IDX) }
        if mergeable { features = features.with(Features::MRG_RXBUF) }
        let position = index | if wrap { 0x8000 } else { 0 };
        run(steps, features, position | position << 16);
    }

    /// A guest that writes anything into its ring is served or refused; there is no panic, and work is bounded.
    #[test]
    fn rubbish_in_a_ring_breaks_nothing(
        writes in proptest::collection::vec((0u64..700, any::<[u8; 8]>()), 1..if cfg!(miri) { 8 } else { 60 }), packed: bool,
    ) {
        let features = BASIC.with(if packed { Features::RING_PACKED } else { Features(0) }).with(Features::MRG_RXBUF);
        let mut driver = driver(features, 8);
        let mut transmit = driver.device(1).expect("the driver's ring");
        let mut receive = driver.device(0).expect("the driver's ring");
        driver.send(NetHeader::default(), &[b"a packet"]);
        driver.publish();
        for (offset, bytes) in writes {
            driver.memory().write(crate::driver::GUEST_START + offset, &bytes);
            if let Ok(Some(offer)) = transmit.offered() {
                let mut packet = vec![0; offer.len as usize];
                prop_assert_eq!(transmit.take([&mut packet[..]]), offer.len);
            }
            let _ = receive.put(NetHeader::default(), [&[1; 200][..]], 200);
            let _ = (transmit.publish(), receive.publish(), transmit.allow_kicks(), receive.waiting());
        }
    }
}
