//! A thousand ports.

use std::time::Duration;

use forebay_control::port::{Attach, PortSpec, PortState};
use forebay_lab::PortKind;
use forebay_lab::frame::{Frame, mark_of};
use forebay_lab::packet_io::FrameSocket;

use crate::bed::Bed;
use crate::harness::{Outcome, Subject, Suite};

const PORTS: usize = 1000;

pub fn register(suite: &mut Suite) {
    suite.heavy_once("a_thousand_ports_are_added_by_one_request_and_forward", thousand_ports);
}

fn thousand_ports() -> Outcome {
    let mut bed = Bed::new(Subject::Forebay(PortKind::VethTcx))?;
    let peers = bed.lab.bulk_veths(PORTS)?;
    let netdevs: Vec<String> = (1..=PORTS).map(|n| format!("p{n}")).collect();
    let netdevs: Vec<&str> = netdevs.iter().map(String::as_str).collect();
    let client = bed.client();
    client.add(&PortSpec { attach: Attach::Tcx, ..PortSpec::new("any") }, &netdevs)?;
    let ports = client.ports()?;
    assert_eq!(ports.len(), PORTS);
    assert!(
        ports.iter().all(|port| port.state == PortState::Up),
        "{:?}",
        ports.iter().find(|p| p.state != PortState::Up)
    );
    let (mut first, mut last) =
        (FrameSocket::open_on(&peers, "q1")?, FrameSocket::open_on(&peers, &format!("q{PORTS}"))?);
    let (stations, count) = ([[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]], 50);
    // The last one speaks first, so that nothing is flooded afterwards.
    last.send(&Frame::marked(stations[1], stations[0], 1).build())?;
    assert_eq!(first.collect(1, Duration::from_secs(5), |frame| mark_of(frame) == Some(1))?.len(), 1);
    let (arrived, counted) = bed.watch(|_| {
        for mark in 0..count {
            first.send(&Frame::marked(stations[0], stations[1], 100 + mark).build())?;
        }
        last.collect(50, Duration::from_secs(5), |frame| mark_of(frame).is_some_and(|mark| mark >= 100))
    })?;
    assert_eq!(arrived.len() as u32, count);
    let last_port = format!("p{PORTS}");
    let both = [("p1", "rx_packets", 50), ("p1", "forwarded_packets", 50), (&*last_port, "tx_packets", 50)];
    counted.exactly(&both);
    client.ok(&[&["port", "del"], &netdevs[..]].concat())?;
    assert_eq!(client.ports()?.len(), 0);
    let pool = client.pool()?;
    assert_eq!(pool.frames_free + pool.frames_posted + pool.frames_held, pool.frames_total, "{pool:?}");
    Ok(())
}
