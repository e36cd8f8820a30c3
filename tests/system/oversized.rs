//! One packet that claims to become thousands: it costs its own port that packet, and no other port anything.

use std::time::Duration;

use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::gso::GsoFlood;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{PortKind, wait};

use crate::bed::{Bed, CONGESTION};
use crate::harness::{Outcome, Subject, Suite};

/// Pings of the victims during each flood.
const PINGS: u32 = 300;
/// A packet of 64 KB in parts of this size is let in: 110 of them.
const SMALLEST: u16 = 600;
const FLOOD_LIMIT: Duration = Duration::from_secs(10);

pub fn register(suite: &mut Suite) {
    suite.heavy_on_forebay("packets_cut_into_tiny_parts_cost_no_other_port_a_ping", tiny_parts);
}

/// The first host sends to the second, while the third pings the fourth.
fn tiny_parts(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 4)?;
    FrameSocket::open(&hosts[1])?.send(&Frame::marked(hosts[1].mac(), BROADCAST, 1).build())?;
    assert!(Ping::new(hosts[3].v4()).from(&hosts[2])?.is_complete());
    for gso_size in [1, 8, 64, SMALLEST] {
        let client = bed.client();
        let received = || client.stats().map(|stats| stats.ports[0].counters.rx_packets);
        let before = received()?;
        let (report, counted) = bed.watch(|_| {
            let flood = GsoFlood::start(&hosts[0], &hosts[1], gso_size)?;
            wait::until("the flood to arrive", FLOOD_LIMIT, || received().is_ok_and(|now| now > before))?;
            let report =
                Ping::new(hosts[3].v4()).count(PINGS).every(Duration::from_millis(2)).from(&hosts[2])?;
            assert!(flood.finish()? > 0);
            Ok(report)
        })?;
        assert!(report.is_complete(), "gso_size {gso_size}: {report:?}\n{counted}");
        for port in ["h3", "h4"] {
            for drop in CONGESTION {
                assert_eq!(counted.moved(port, drop), Some(0), "{drop} on {port}\n{counted}");
            }
        }
        let oversized = counted.moved("h1", "rx_too_big").unwrap_or(0);
        // An XDP port's sender cuts them itself: there is no way to hand its port a long one.
        let is_refused = subject.kind() != PortKind::VethXdp && gso_size < SMALLEST;
        assert_eq!(oversized > 0, is_refused, "gso_size {gso_size}\n{counted}");
        let pool = client.pool()?;
        assert!(pool.ports.iter().all(|port| port.used == 0), "{pool:?}");
        assert_eq!(counted.moved("h1", "over_threshold"), Some(0), "gso_size {gso_size}\n{counted}");
    }
    Ok(())
}
