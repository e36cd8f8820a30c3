//! Bursts: the switch is stopped while frames pile up, so that it has to deal with many at once.

use std::time::Duration;

use forebay_testbed::frame::{self, BROADCAST, Frame, TPID_C, TPID_S};
use forebay_testbed::{Host, Lab, Result};

use crate::bed::{Bed, Oracle, while_stopped};
use crate::harness::{Outcome, Subject, Suite};
use crate::wire::Wire;

const STATIONS: [[u8; 6]; 3] = [[2, 0, 0, 0, 8, 1], [2, 0, 0, 0, 8, 2], [2, 0, 0, 0, 8, 3]];
const TAGS: [&[(u16, u16)]; 4] = [&[], &[(TPID_C, 10)], &[(TPID_S, 20)], &[(TPID_S, 20), (TPID_C, 10)]];
/// Fewer than an RX ring holds.
const BURST: u32 = 240;
const ARRIVAL_LIMIT: Duration = Duration::from_secs(3);

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("a_burst_of_everything_arrives_unchanged_where_it_should", everything);
    suite.on_forebay("a_burst_to_one_port_is_not_hurt_by_what_another_refuses", refusals);
    suite.on_netdevs("a_burst_to_a_port_that_is_down_reaches_the_others", port_down);
    suite.on_netdevs("a_flooded_packet_with_a_tag_and_as_long_as_the_mtu_reaches_every_port", tagged_flood);
}

fn with_tags(frame: Frame, tags: &[(u16, u16)]) -> Frame {
    tags.iter().fold(frame, |frame, (protocol, vid)| frame.tag(*protocol, *vid))
}

/// Three silent hosts whose stations the switch knows in every VLAN.
fn known_stations(
    subject: Subject,
) -> std::result::Result<(Bed, Vec<Host>, Wire), Box<dyn std::error::Error>> {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let mut wire = Wire::new(&hosts)?;
    for (from, station) in STATIONS.into_iter().enumerate() {
        let others: Vec<usize> = (0..3).filter(|host| *host != from).collect();
        for tags in TAGS {
            let shape = |mark| with_tags(Frame::marked(station, BROADCAST, mark), tags);
            let _ = wire.deliver(&mut bed, from, shape, &others)?;
        }
    }
    Ok((bed, hosts, wire))
}

/// Sends the frames while the switch is stopped, lets it go on after `meanwhile`, and returns what `to` gets.
fn burst(
    bed: &mut Bed,
    wire: &mut Wire,
    frames: &[Vec<u8>],
    to: usize,
    expected: usize,
    meanwhile: impl FnOnce(&Lab) -> Result<()>,
) -> Result<(Vec<Vec<u8>>, Oracle)> {
    let pid = bed.forebay().daemon().pid();
    bed.watch(|lab| {
        while_stopped(pid, || {
            frames.iter().try_for_each(|bytes| wire.socket(0).send(bytes))?;
            meanwhile(lab)
        })?;
        let marks: Vec<_> = frames.iter().map(|bytes| frame::mark_of(bytes)).collect();
        wire.socket(to).collect(expected, ARRIVAL_LIMIT, |bytes| marks.contains(&frame::mark_of(bytes)))
    })
}

/// Sorted, so that only frames of one protocol keep their order.
fn by_protocol(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.sort_by_key(|bytes| [bytes[12], bytes[13]]);
    frames
}

/// Every third frame to each station and to all, in all protocols and many lengths.
fn frame_of_everything(number: u32, mark: u32) -> Vec<u8> {
    let destination = [STATIONS[1], STATIONS[2], BROADCAST][(number % 3) as usize];
    let frame = Frame::marked(STATIONS[0], destination, mark);
    let frame = with_tags(frame, TAGS[(number / 3 % 4) as usize]);
    frame.payload_bytes(4 + (number * 37 % 1400) as usize).build()
}

fn everything(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = known_stations(subject)?;
    for (to, not_for) in [(1, STATIONS[2]), (2, STATIONS[1])] {
        let frames: Vec<_> = (0..BURST).map(|number| frame_of_everything(number, wire.mark())).collect();
        let expected: Vec<_> = frames.iter().filter(|bytes| bytes[..6] != not_for).cloned().collect();
        let departed = bed.client().stats()?.workers[0].departed;
        let (arrived, counted) = burst(&mut bed, &mut wire, &frames, to, expected.len(), |_| Ok(()))?;
        assert_eq!(arrived.len(), expected.len(), "{counted}");
        for (arrived, expected) in by_protocol(arrived).iter().zip(by_protocol(expected)) {
            assert!(*arrived == expected, "changed or overtaken: {arrived:02x?}\nexpected: {expected:02x?}");
        }
        counted.no_drops();
        assert!(bed.client().stats()?.workers[0].departed > departed, "no run of the departure program");
    }
    Ok(())
}

fn refusals(subject: Subject) -> Outcome {
    const SMALL_MTU: u32 = 600;
    let (mut bed, hosts, mut wire) = known_stations(subject)?;
    hosts[1].set_mtu(bed.lab.switch(), SMALL_MTU)?;
    let lengths = [100, 900];
    let frames: Vec<_> = (0..BURST)
        .map(|number| {
            let length = lengths[(number / 2 % 2) as usize];
            Frame::marked(STATIONS[0], STATIONS[1 + (number % 2) as usize], wire.mark())
                .payload_bytes(length)
                .build()
        })
        .collect();
    let expected: Vec<_> = frames.iter().filter(|bytes| bytes[..6] == STATIONS[2]).cloned().collect();
    let (arrived, counted) = burst(&mut bed, &mut wire, &frames, 2, expected.len(), |_| Ok(()))?;
    assert!(
        arrived == expected,
        "{} of {} arrived unchanged and in order\n{counted}",
        arrived.len(),
        expected.len()
    );
    let quarter = u64::from(BURST) / 4;
    let received = [("h1", "rx_packets", 4 * quarter), ("h1", "forwarded_packets", 4 * quarter)];
    let sent =
        [("h2", "tx_packets", quarter), ("h2", "tx_too_big", quarter), ("h3", "tx_packets", 2 * quarter)];
    counted.exactly(&[&received[..], &sent].concat());
    Ok(())
}

fn port_down(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = known_stations(subject)?;
    let frames: Vec<_> =
        (0..BURST).map(|_| Frame::marked(STATIONS[0], BROADCAST, wire.mark()).build()).collect();
    let pull = |lab: &Lab| lab.switch().ip(&["link", "set", "h2", "down"]).map(drop);
    let (arrived, counted) = burst(&mut bed, &mut wire, &frames, 2, frames.len(), pull)?;
    assert!(arrived == frames, "{} of {BURST} arrived unchanged and in order\n{counted}", arrived.len());
    let all = u64::from(BURST);
    assert_eq!(counted.moved("h1", "flooded_packets"), Some(all), "{counted}");
    assert_eq!((counted.moved("h2", "tx_packets"), counted.moved("h3", "tx_packets")), (Some(0), Some(all)));
    Ok(())
}

/// A flooded packet is the same one for each port, behind other packets than in the burst before.
fn tagged_flood(subject: Subject) -> Outcome {
    const MTU: usize = 1500;
    const FLOODED: u32 = 40;
    let (mut bed, hosts, mut wire) = known_stations(subject)?;
    // So that its own packet socket takes the frames.
    hosts[0].set_mtu(bed.lab.switch(), 2000)?;
    let mut plain = Vec::new();
    let mut long = Vec::new();
    for number in 0..BURST / 2 {
        plain.push(Frame::marked(STATIONS[0], STATIONS[1], wire.mark()).payload_bytes(1000).build());
        let tags = TAGS[(1 + number % 2) as usize];
        if number < FLOODED {
            long.push(
                with_tags(Frame::marked(STATIONS[0], BROADCAST, wire.mark()), tags)
                    .payload_bytes(MTU)
                    .build(),
            );
        }
    }
    for to in [1, 2] {
        let (_, counted) = burst(&mut bed, &mut wire, &plain, 1, plain.len(), |_| Ok(()))?;
        counted.no_drops();
        let (arrived, counted) = burst(&mut bed, &mut wire, &long, to, long.len(), |_| Ok(()))?;
        counted.no_drops();
        assert_eq!(by_protocol(arrived), by_protocol(long.clone()));
    }
    Ok(())
}
