//! The forwarding database: learning, moving, ageing, static entries, limits; and what is flooded.

use std::ops::Range;
use std::time::Duration;

use forebay_control::MacAddr;
use forebay_control::fdb::{FdbEntry, FdbKind};
use forebay_testbed::dut::Client;
use forebay_testbed::frame::{BROADCAST, Frame, mark_of};
use forebay_testbed::{Result, wait};

use crate::bed::Bed;
use crate::harness::{Outcome, Subject, Suite};
use crate::wire::Wire;

/// How long one waits for more of a flood.
const PAUSE: Duration = Duration::from_millis(5);

pub fn register(suite: &mut Suite) {
    suite.everywhere("an_address_is_learned_and_its_packets_are_no_longer_flooded", learning);
    suite.everywhere("a_station_that_moves_is_found_at_its_new_port", moving);
    suite.on_forebay("an_entry_without_traffic_is_forgotten", ageing);
    suite.on_forebay("a_static_entry_does_not_move", static_entries);
    suite.on_forebay("a_mac_flood_costs_the_flooder_only", mac_flood);
    suite.on_forebay("stations_that_move_back_and_forth_are_held_and_a_migration_is_not", moves);
    suite.on_forebay("eight_ports_that_fill_the_table_leave_room_for_a_new_host", full_table);
    suite.on_forebay("five_ports_that_flood_cost_a_quiet_one_no_broadcast", five_floods);
    suite.on_forebay("a_port_that_floods_is_limited_and_others_are_not", flood_limit);
    suite.on_forebay("link_local_group_addresses_are_not_forwarded", reserved_addresses);
    suite.on_forebay("a_packet_to_a_station_behind_its_own_port_is_not_sent_back", same_port);
}

/// Station `n`; no host has its address.
fn station(n: u16) -> [u8; 6] {
    let [high, low] = n.to_be_bytes();
    [2, 0xaa, 0, 0, high, low]
}

fn shout(n: u16) -> impl Fn(u32) -> Frame {
    move |mark| Frame::marked(station(n), BROADCAST, mark)
}

fn tell(from: u16, to: u16) -> impl Fn(u32) -> Frame {
    move |mark| Frame::marked(station(from), station(to), mark)
}

fn entry_of(client: &Client, n: u16) -> Result<Option<(String, FdbKind)>> {
    let entries = client.fdb()?.into_iter();
    let mut found = entries.filter(|entry| entry.mac == MacAddr(station(n)));
    Ok(found.next().map(|entry| (entry.port, entry.kind)))
}

pub fn learning(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let mut wire = Wire::new(&hosts)?;
    let (_, counted) = wire.deliver(&mut bed, 0, tell(1, 2), &[1, 2])?;
    let flooded = [("h1", "rx_packets", 1), ("h1", "flooded_packets", 1)];
    counted.exactly(&[&flooded[..], &[("h2", "tx_packets", 1), ("h3", "tx_packets", 1)]].concat());
    let (_, counted) = wire.deliver(&mut bed, 1, tell(2, 1), &[0])?;
    counted.exactly(&[("h2", "rx_packets", 1), ("h2", "forwarded_packets", 1), ("h1", "tx_packets", 1)]);
    let (_, counted) = wire.deliver(&mut bed, 0, tell(1, 2), &[1])?;
    counted.exactly(&[("h1", "rx_packets", 1), ("h1", "forwarded_packets", 1), ("h2", "tx_packets", 1)]);
    if subject != Subject::Bridge {
        let client = bed.client();
        assert_eq!(entry_of(&client, 1)?, Some(("h1".to_owned(), FdbKind::Learned)));
        assert_eq!(entry_of(&client, 2)?, Some(("h2".to_owned(), FdbKind::Learned)));
    }
    Ok(())
}

pub fn moving(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let mut wire = Wire::new(&hosts)?;
    wire.deliver(&mut bed, 0, shout(1), &[1, 2])?.1.no_drops();
    wire.deliver(&mut bed, 2, tell(3, 1), &[0])?.1.no_drops();
    wire.deliver(&mut bed, 1, shout(1), &[0, 2])?.1.no_drops();
    wire.deliver(&mut bed, 2, tell(3, 1), &[1])?.1.no_drops();
    Ok(())
}

pub fn ageing(subject: Subject) -> Outcome {
    let mut bed = Bed::with_config(subject, "[fdb]\nageing_seconds = 2\n")?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    wire.deliver(&mut bed, 0, shout(1), &[1, 2])?.1.no_drops();
    let client = bed.client();
    assert!(entry_of(&client, 1)?.is_some());
    wait::until("the entry to age", Duration::from_secs(10), || {
        entry_of(&client, 1).is_ok_and(|entry| entry.is_none())
    })?;
    let (_, counted) = wire.deliver(&mut bed, 2, tell(3, 1), &[0, 1])?;
    assert_eq!(counted.moved("h3", "flooded_packets"), Some(1));
    Ok(())
}

pub fn static_entries(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let mut wire = Wire::new(&hosts)?;
    let client = bed.client();
    let mac = MacAddr(station(1)).to_string();
    client.ok(&["fdb", "add", &mac, "--port", "h2"])?;
    // The station speaks from another port: its packet is forwarded, its entry stays.
    wire.deliver(&mut bed, 0, shout(1), &[1, 2])?.1.no_drops();
    assert_eq!(entry_of(&client, 1)?, Some(("h2".to_owned(), FdbKind::Static)));
    wire.deliver(&mut bed, 2, tell(3, 1), &[1])?.1.no_drops();
    client.ok(&["fdb", "flush"])?;
    assert!(entry_of(&client, 1)?.is_some(), "a flush forgets learned entries only");
    client.ok(&["fdb", "del", &mac])?;
    assert_eq!(entry_of(&client, 1)?, None);
    Ok(())
}

pub fn mac_flood(subject: Subject) -> Outcome {
    const SOURCES: u16 = 1000;
    const PORTION: usize = 50;
    const LIMIT: usize = 100;
    let config = format!("[fdb]\nmax_entries_per_port = {LIMIT}\n");
    let mut bed = Bed::with_config(subject, &config)?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    wire.deliver(&mut bed, 1, shout(2), &[0, 2])?.1.no_drops();
    wire.deliver(&mut bed, 2, shout(3), &[0, 1])?.1.no_drops();
    let (arrived, counted) = bed.watch(|_| {
        let mut arrived = 0;
        // In portions, so that no queue on the way is too short.
        for first in (0..SOURCES).step_by(PORTION) {
            for n in (first..SOURCES).take(PORTION) {
                let frame = Frame::marked(station(1000 + n), station(2), u32::from(n) + 1_000_000).build();
                wire.socket(0).send(&frame)?;
            }
            let is_ours = |frame: &[u8]| frame[6..8] == [2, 0xaa];
            arrived += wire.socket(1).collect(PORTION, Duration::from_secs(5), is_ours)?.len();
        }
        Ok(arrived)
    })?;
    assert_eq!(arrived, usize::from(SOURCES), "excess is forwarded all the same");
    counted.no_drops();
    let entries = bed.client().fdb()?;
    assert_eq!(entries.iter().filter(|entry| entry.port == "h1").count(), LIMIT);
    let client = bed.client();
    assert!(entry_of(&client, 2)?.is_some() && entry_of(&client, 3)?.is_some(), "others keep their entries");
    Ok(())
}

/// Says hello from many stations of one host, in portions, so that no queue on the way is too short.
fn hello(wire: &mut Wire, from: usize, ear: usize, stations: Range<u16>) -> Result<()> {
    const PORTION: usize = 50;
    for first in stations.clone().step_by(PORTION) {
        let portion = first..stations.end.min(first + PORTION as u16);
        let mark = wire.mark();
        for n in portion.clone() {
            wire.socket(from).send(&Frame::marked(station(n), BROADCAST, mark).build())?;
        }
        let is_ours = |frame: &[u8]| mark_of(frame) == Some(mark);
        let heard = wire.socket(ear).collect(portion.len(), Duration::from_secs(10), is_ours)?;
        assert_eq!(heard.len(), portion.len());
    }
    Ok(())
}

fn moves(subject: Subject) -> Outcome {
    const MIGRATES: u16 = 300;
    const STATIONS: u16 = 2000;
    const ROUNDS: u64 = 4;
    let mut bed = Bed::with_config(subject, "[fdb]\nmoves_per_second = 1\nburst_moves = 500\n")?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    let client = bed.client();
    let is_at = |entry: &FdbEntry, port: &str| entry.port == port && entry.mac.0[..2] == station(0)[..2];
    let stations_at =
        |port: &str| client.fdb().map(|fdb| fdb.iter().filter(|entry| is_at(entry, port)).count());
    // Machines that migrate do so at once.
    hello(&mut wire, 0, 2, 0..MIGRATES)?;
    hello(&mut wire, 1, 2, 0..MIGRATES)?;
    assert_eq!(stations_at("h2")?, usize::from(MIGRATES));
    // Two ports of one tenant that want to keep the others' flows void.
    for _ in 0..ROUNDS / 2 {
        hello(&mut wire, 0, 2, 0..STATIONS)?;
        hello(&mut wire, 1, 2, 0..STATIONS)?;
    }
    let [h1, h2] = [client.port("h1")?.counters, client.port("h2")?.counters];
    // Each bucket holds 500, and gains one a second.
    assert!(h1.moved_packets <= 600 && h2.moved_packets <= 600, "{h1:?} {h2:?}");
    assert!(h2.move_limited_packets >= u64::from(STATIONS), "{h2:?}");
    Ok(())
}

fn full_table(subject: Subject) -> Outcome {
    const ATTACKERS: usize = 8;
    const STATIONS: u16 = 30;
    let mut bed = Bed::with_config(subject, "[fdb]\nmax_entries = 80\nmax_entries_per_port = 10\n")?;
    let hosts = bed.lab.hosts(ATTACKERS + 2, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    bed.client().ok(&["fdb", "flush"])?;
    for attacker in 0..ATTACKERS {
        let first = attacker as u16 * STATIONS;
        hello(&mut wire, attacker, ATTACKERS, first..first + STATIONS)?;
    }
    let (new, other) = (1000, ATTACKERS + 1);
    let client = bed.client();
    assert!(client.port("h1")?.counters.not_learned_packets > 0, "the attackers have all they may have");
    wire.deliver(&mut bed, ATTACKERS, shout(new), &(0..ATTACKERS).chain([other]).collect::<Vec<_>>())?
        .1
        .no_drops();
    let (_, counted) = wire.deliver(&mut bed, other, tell(1001, new), &[ATTACKERS])?;
    assert_eq!(counted.moved("h10", "forwarded_packets"), Some(1), "{counted}");
    Ok(())
}

fn five_floods(subject: Subject) -> Outcome {
    const FLOODERS: usize = 5;
    const FLOOD: u32 = 50;
    const SHOUTS: u32 = 60;
    const BETWEEN: usize = 30;
    // What five ports may flood is more than their worker floods for four.
    let mut bed = Bed::with_config(subject, "[flood]\ncopies_per_second = 2000\nburst_copies = 100\n")?;
    let hosts = bed.lab.hosts(FLOODERS + 2, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    let (quiet, ear) = (FLOODERS, FLOODERS + 1);
    let is_flood = |frame: &[u8]| mark_of(frame) == Some(1_000_000);
    let ((), counted) = bed.watch(|_| {
        (0..SHOUTS).try_for_each(|_| {
            // What is heard of the flood tells the time, by the limit on it.
            let mut heard = 0;
            while heard < BETWEEN {
                for flooder in 0..FLOODERS {
                    let frame = Frame::marked(station(10 + flooder as u16), BROADCAST, 1_000_000).build();
                    (0..FLOOD).try_for_each(|_| wire.socket(flooder).send(&frame))?;
                }
                heard += wire.socket(ear).collect(BETWEEN, PAUSE, is_flood)?.len();
            }
            let mark = wire.mark();
            wire.socket(quiet).send(&shout(2)(mark).build())
        })
    })?;
    let quiet = hosts[quiet].name();
    assert_eq!(counted.moved(quiet, "flood_limited"), Some(0), "{counted}");
    assert_eq!(counted.moved(quiet, "flooded_packets"), counted.moved(quiet, "rx_packets"), "{counted}");
    assert!(counted.moved("h1", "flood_limited") > Some(0), "{counted}");
    Ok(())
}

fn flood_limit(subject: Subject) -> Outcome {
    const SHOUTS: u32 = 200;
    const BURST: u64 = 40;
    let config = format!("[flood]\ncopies_per_second = 1\nburst_copies = {BURST}\n");
    let mut bed = Bed::with_config(subject, &config)?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach(&hosts)?;
    let mut wire = Wire::new(&hosts)?;
    let ((), counted) =
        bed.watch(|_| (0..SHOUTS).try_for_each(|mark| wire.socket(0).send(&shout(1)(mark + 5000).build())))?;
    let (flooded, limited) = (counted.moved("h1", "flooded_packets"), counted.moved("h1", "flood_limited"));
    assert_eq!(flooded.zip(limited).map(|(a, b)| a + b), Some(SHOUTS.into()), "{counted}");
    // Each is two copies; the bucket may gain some while the test runs. What the host sent by itself before it was silent
    // has taken some, too.
    let passed = flooded.unwrap_or(0);
    let all = bed.client().port("h1")?.counters.flooded_packets;
    assert!((BURST / 2..BURST).contains(&all), "{all} passed: {counted}");
    assert_eq!(counted.total("tx_packets"), Some(2 * passed));
    counted.no_drops_but(&["flood_limited"]);
    wire.deliver(&mut bed, 1, shout(2), &[0, 2])?.1.no_drops();
    Ok(())
}

pub fn reserved_addresses(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let mut wire = Wire::new(&hosts)?;
    let to_group = |last| move |mark| Frame::marked(station(1), [1, 0x80, 0xc2, 0, 0, last], mark);
    for last in 0..=0x0f {
        let (_, counted) = wire.deliver(&mut bed, 0, to_group(last), &[])?;
        counted.exactly(&[("h1", "rx_packets", 1), ("h1", "reserved_address", 1)]);
    }
    for last in [0x10, 0x21] {
        wire.deliver(&mut bed, 0, to_group(last), &[1])?.1.no_drops();
    }
    Ok(())
}

pub fn same_port(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let mut wire = Wire::new(&hosts)?;
    wire.deliver(&mut bed, 0, shout(1), &[1])?.1.no_drops();
    let (_, counted) = wire.deliver(&mut bed, 0, tell(2, 1), &[])?;
    counted.exactly(&[("h1", "rx_packets", 1), ("h1", "same_port", 1)]);
    Ok(())
}
