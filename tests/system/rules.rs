//! Rules and captures over every port kind, by user space: what leaves, in how many copies, and who sees it.

use std::time::Duration;

use forebay_testbed::dut::Client;
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::programs::watch;
use forebay_testbed::{Host, Result, wait};

use crate::bed::Bed;
use crate::harness::{Outcome, Subject, Suite};
use crate::wire::Wire;

/// Stations of the hosts, in their order.
const STATIONS: [[u8; 6]; 4] =
    [[2, 0, 0, 0, 8, 1], [2, 0, 0, 0, 8, 2], [2, 0, 0, 0, 8, 3], [2, 0, 0, 0, 8, 4]];
const LIMIT: Duration = Duration::from_secs(10);

pub fn register(suite: &mut Suite) {
    suite.on_forebay("a_rule_drops_mirrors_and_sends_elsewhere", actions);
    suite.on_forebay("a_rule_of_an_input_port_is_asked_of_that_ports_packets_alone", input_port);
    suite.on_forebay("a_capture_has_what_a_port_sends_and_nothing_else", captured);
}

/// Silent hosts, whose stations the switch knows.
fn scene(
    subject: Subject,
    count: usize,
) -> std::result::Result<(Bed, Vec<Host>, Wire), Box<dyn std::error::Error>> {
    let (mut bed, hosts) = Bed::with_hosts(subject, count)?;
    let mut wire = Wire::new(&hosts)?;
    for (from, station) in STATIONS.into_iter().enumerate().take(count) {
        let others: Vec<usize> = (0..count).filter(|host| *host != from).collect();
        wire.pass(&mut bed, from, |mark| Frame::marked(station, BROADCAST, mark), &others)?;
    }
    Ok((bed, hosts, wire))
}

fn frame(from: usize, to: usize) -> impl Fn(u32) -> Frame {
    move |mark| Frame::marked(STATIONS[from], STATIONS[to], mark)
}

/// Asks for a rule, and says its id.
fn add(client: &Client, words: &[&str]) -> Result<String> {
    let said: serde_json::Value = client.json(&[&["flow", "add", "--priority", "10"], words].concat())?;
    Ok(said["id"].to_string())
}

fn actions(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = scene(subject, 4)?;
    let client = bed.client();
    let text = |station: usize| STATIONS[station].map(|byte| format!("{byte:02x}")).join(":");
    let received = [("h1", "rx_packets", 1), ("h1", "forwarded_packets", 1)];
    let all = |sent: &[&'static str]| -> Vec<(&str, &'static str, u64)> {
        let sent = sent.iter().map(|port| (*port, "tx_packets", 1));
        received.into_iter().chain(sent).collect()
    };
    for (action, to, moved) in [
        ("drop", &[][..], vec![("h1", "rx_packets", 1), ("h1", "by_rule", 1)]),
        ("mirror:h4", &[1, 3], all(&["h2", "h4"])),
        ("mirror:h2", &[1], all(&["h2"])),
        ("output:h3", &[2], all(&["h3"])),
        ("output:h3,h4,h2", &[1, 2, 3], all(&["h2", "h3", "h4"])),
        ("normal", &[1], all(&["h2"])),
        ("mark:7", &[1], all(&["h2"])),
    ] {
        let id = add(&client, &["--dst-mac", &text(1), "--action", action])?;
        for _ in 0..2 {
            let (_, counted) = wire.deliver(&mut bed, 0, frame(0, 1), to)?;
            counted.exactly(&moved);
            // Another station's packets are none of the rule's.
            wire.pass(&mut bed, 1, frame(1, 2), &[2])?;
        }
        client.ok(&["flow", "del", &id])?;
        wire.pass(&mut bed, 0, frame(0, 1), &[1])?;
    }
    assert!(client.stats_check()?.balanced);
    Ok(())
}

fn input_port(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = scene(subject, 4)?;
    let client = bed.client();
    add(&client, &["--in-port", "h1", "--action", "mirror:h4"])?;
    wire.pass(&mut bed, 0, frame(0, 1), &[1, 3])?;
    wire.pass(&mut bed, 2, frame(2, 1), &[1])?;
    // What is flooded leaves once at the mirror's port.
    wire.pass(&mut bed, 0, |mark| Frame::marked(STATIONS[0], BROADCAST, mark), &[1, 2, 3])?;
    assert!(client.stats_check()?.balanced);
    Ok(())
}

fn captured(subject: Subject) -> Outcome {
    const PACKETS: usize = 5;
    let (mut bed, _hosts, mut wire) = scene(subject, 3)?;
    let client = bed.client();
    let file = bed.lab.path("captured.pcapng");
    let words =
        ["capture", "h1", "--seconds", "60", "-c", &PACKETS.to_string(), "-w", &file.to_string_lossy()];
    let marks = std::thread::scope(|scope| -> std::result::Result<_, Box<dyn std::error::Error>> {
        let capture = scope.spawn(|| client.ok(&words));
        // The file begins with what describes the port.
        wait::until("the capture to begin", LIMIT, || file.metadata().is_ok_and(|file| file.len() > 0))?;
        let mut marks = Vec::new();
        while !capture.is_finished() {
            let mark = wire.mark();
            marks.push(mark);
            wire.socket(0).send(&frame(0, 1)(mark).build())?;
            wire.expect_one(1, mark)?;
            // Packets to the port, and between others, are not captured.
            wire.pass(&mut bed, 1, frame(1, 0), &[0])?;
            wire.pass(&mut bed, 2, frame(2, 1), &[1])?;
        }
        capture.join().expect("it does not panic")?;
        Ok(marks)
    })?;
    let seen = watch::packets(&std::fs::read(&file)?[..])?;
    let sent: Vec<Vec<u8>> = marks.into_iter().take(PACKETS).map(|mark| frame(0, 1)(mark).build()).collect();
    assert_eq!(seen, sent);
    Ok(())
}
