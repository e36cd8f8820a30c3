use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use forebay_control::IfIndex;
use forebay_flow::{Class, TagKinds};

use super::*;
use crate::StationSlot;

fn table(max_flows: u32) -> FlowTable {
    FlowTable::detached(max_flows, 1).expect("memory")
}

fn verdict() -> FlowVerdict {
    FlowVerdict {
        action: FlowAction::Output {
            port_id: 2,
            ifindex: IfIndex(9),
            tag: FlowTag::Set(7),
            path: FlowPath::Peer,
            mark: 70_000,
        },
        max_length: 1514,
        source: StationSlot(1),
        destination: StationSlot(2),
        decided: 5,
    }
}

#[test]
fn a_key_gives_back_what_it_was_made_of() {
    for tag in [None, Some(0), Some(1), Some(4095)] {
        let key = FlowKey::new(65_535, tag, 0x0211_2233_4455, 0xffff_ffff_fffe);
        assert_eq!((key.port_id(), key.tag()), (65_535, tag));
        assert_eq!((key.src(), key.dst()), (0x0211_2233_4455, 0xffff_ffff_fffe));
        let stacked = key.stacked(true);
        assert!(stacked.is_stacked() && !key.is_stacked() && stacked != key);
        assert_eq!((stacked.tag(), stacked.src(), stacked.stacked(false)), (tag, key.src(), key));
    }
}

#[test]
fn what_was_put_in_is_found_and_nothing_else() {
    let mut table = table(1000);
    let key = |station| FlowKey::new(1, None, station, 1);
    let numbers: HashMap<u64, FlowNumber> = (0..500)
        .map(|n| (n, table.insert(key(n), &verdict(), FlowNote::default()).expect("a place")))
        .collect();
    for (station, number) in &numbers {
        assert_eq!(table.find(key(*station)), Some(*number));
    }
    assert!((500..2000).all(|station| table.find(key(station)).is_none()));
    assert_eq!(table.find(FlowKey::new(2, None, 1, 1)), None, "another port");
    assert_eq!(table.find(FlowKey::new(1, Some(0), 1, 1)), None, "another tag");
}

#[test]
fn a_place_is_not_used_again_before_it_is_reclaimed() {
    let mut table = table(1);
    let key = FlowKey::new(1, None, 1, 2);
    let mut places = Vec::new();
    while let Ok(number) = table.insert(key, &verdict(), FlowNote::default()) {
        table.remove(number);
        assert!(!places.contains(&number));
        assert_eq!(table.find(key), None);
        places.push(number);
    }
    let left = table.take_left();
    assert_eq!(left, places);
    table.reclaim(&left);
    assert!(
        places.contains(&table.insert(key, &verdict(), FlowNote::default()).expect("a place that was left"))
    );
}

#[test]
fn a_version_is_even_but_while_its_flow_is_written() {
    let mut table = table(10);
    let number = table.insert(FlowKey::new(1, None, 1, 2), &verdict(), FlowNote::default()).expect("a place");
    let version = |table: &FlowTable| table.flow(number).version.load(Relaxed);
    let before = version(&table);
    assert_eq!(before % 2, 0);
    write(table.flow(number), |flow| assert_eq!(flow.version.load(Relaxed), before + 1));
    table.remove(number);
    assert_eq!(version(&table) % 2, 0);
    assert!(version(&table) > before);
}

#[test]
fn a_version_that_a_killed_process_left_odd_is_odd_while_its_flow_is_written() {
    let mut table = table(10);
    let number = table.insert(FlowKey::new(1, None, 1, 2), &verdict(), FlowNote::default()).expect("a place");
    let flow = table.flow(number);
    flow.version.fetch_add(1, Relaxed);
    write(flow, |flow| assert_eq!(flow.version.load(Relaxed) % 2, 1));
    assert_eq!(flow.version.load(Relaxed) % 2, 0);
}

#[test]
fn stripes_add_up() {
    let table = table(10);
    let number = FlowNumber(3);
    for stripe in 0..table.shape.stripes {
        let [packets, bytes, ..] = table.counts.get((stripe * table.shape.places() + 3) as usize);
        packets.store(u64::from(stripe) + 1, Relaxed);
        bytes.store(100, Relaxed);
    }
    assert_eq!(table.count(number), FlowCount { packets: 3, bytes: 200 });
}

#[test]
fn at_its_limit_the_table_has_a_place_for_nearly_every_flow() {
    let mut table = table(10_000);
    let refused = (0..10_000u64)
        .filter(|n| {
            table
                .insert(
                    FlowKey::new(1, None, n.wrapping_mul(0x9e37_79b9_7f4a), 1),
                    &verdict(),
                    FlowNote::default(),
                )
                .is_err()
        })
        .count();
    // 51 of them on average, whatever the secret.
    assert!(refused < 100, "{refused}");
}

#[test]
fn half_full_the_table_has_a_place_for_every_flow() {
    let mut table = table(10_000);
    for n in 0..5000 {
        table.insert(FlowKey::new(1, None, n << 8, 1), &verdict(), FlowNote::default()).expect("a place");
    }
}

#[test]
fn classes_have_places_of_their_own_in_a_key() {
    let class =
        Class { ethertype: 1, src: 2, dst: 3, sport: 4, dport: 5, proto: 6, tags: TagKinds::from_bits(3) };
    let FlowKey([to, from, low, high]) = FlowKey::new(9, Some(3), 1, 2).deeper(class);
    assert_eq!([to, from], FlowKey::new(9, Some(3), 1, 2).0[..2]);
    // bpf/forebay.h
    assert_eq!(low, 2 | 3 << 16 | 4 << 32 | 5 << 48);
    assert_eq!(high, 6 | 1 << 16 | 1 << 32 | 3 << 48);
    assert_ne!(FlowKey::new(9, None, 1, 2).deeper(Class::default()), FlowKey::new(9, None, 1, 2));
}

#[test]
fn an_adopted_table_is_read_as_it_was_written() {
    let mut table = table(100);
    let output = |tag, path, mark| FlowAction::Output { port_id: 2, ifindex: IfIndex(9), tag, path, mark };
    let written = [
        (output(FlowTag::Set(7), FlowPath::Peer, 70_000), FlowNote { vid: 7, reason: 0 }),
        (output(FlowTag::Keep, FlowPath::Frames, 0), FlowNote { vid: 4094, reason: 0 }),
        (output(FlowTag::Remove, FlowPath::Packets, u32::MAX), FlowNote { vid: 7, reason: 0 }),
        (FlowAction::Drop { port_id: 2 }, FlowNote { vid: 7, reason: 11 }),
        (FlowAction::Tell { port_id: 2, flow_id: u32::MAX }, FlowNote { vid: 7, reason: 0 }),
        (FlowAction::Steer { port_id: 2, queue: 300 }, FlowNote { vid: 7, reason: 0 }),
        (FlowAction::Deeper { classes: 21 }, FlowNote { vid: 7, reason: 0 }),
    ];
    let mut wanted = HashMap::new();
    for ((action, note), src) in written.into_iter().zip(1..) {
        let (key, verdict) = (FlowKey::new(3, Some(9), src, 2), FlowVerdict { action, ..verdict() });
        let number = table.insert(key, &verdict, note).expect("a place");
        table.note_settled(number, FlowCount { packets: src, bytes: 4 });
        wanted.insert(number, (key, verdict, note, src));
    }
    let left = table.insert(FlowKey::new(3, None, 5, 6), &verdict(), FlowNote::default()).expect("a place");
    table.remove(left);
    table.take_left();
    let adopted = table.adopt();
    assert_eq!(adopted.len(), wanted.len());
    for AdoptedFlow { number, key, verdict, note } in adopted {
        let packets = table.settled(number).packets;
        assert_eq!((key, verdict, note, packets), wanted[&number]);
    }
    assert_eq!(table.take_left(), [left], "given up once more");
}

#[test]
fn a_place_that_a_killed_process_was_writing_is_given_up_and_can_be_used_again() {
    for action in [NONE, OUTPUT, LEFT] {
        let mut table = table(10);
        let key = FlowKey::new(1, None, 1, 2);
        let whole = table.insert(FlowKey::new(1, None, 3, 4), &verdict(), FlowNote::default());
        let torn = table.insert(key, &verdict(), FlowNote::default()).expect("a place");
        let flow = table.flow(torn);
        flow.version.fetch_add(1, Relaxed);
        // Half of the new words are there.
        flow.key[0].store(7, Relaxed);
        flow.says.action.store(action, Relaxed);
        let adopted: Vec<_> = table.adopt().iter().map(|flow| flow.number).collect();
        assert_eq!(adopted, [whole.expect("a place")]);
        assert_eq!(table.take_left(), [torn]);
        assert_eq!(table.flow(torn).version.load(Relaxed) % 2, 0);
        table.reclaim(&[torn]);
        assert_eq!(table.find(key), None);
        let again = table.insert(key, &verdict(), FlowNote::default()).expect("a place");
        assert_eq!(table.find(key), Some(again));
    }
}

#[test]
fn a_reclaimed_place_begins_at_zero() {
    let mut table = table(10);
    let number = table.insert(FlowKey::new(1, None, 1, 2), &verdict(), FlowNote::default()).expect("a place");
    set(table.count_in(1, number), FlowCount { packets: 5, bytes: 6 });
    table.note_settled(number, FlowCount { packets: 5, bytes: 6 });
    table.remove(number);
    table.reclaim(&[number]);
    assert_eq!((table.count(number), table.settled(number)), Default::default());
}
