//! Packets of every size a link may carry.

use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;

use crate::bed::{Bed, CONGESTION};
use crate::harness::{Outcome, Subject, Suite};

/// IPv4 and ICMP headers.
const IPV4_PING_HEADERS: u32 = 28;
/// IPv6 and ICMPv6 headers.
const IPV6_PING_HEADERS: u32 = 48;
/// The smallest MTU IPv6 works with (RFC 8200).
const IPV6_MIN_MTU: u32 = 1280;

pub fn register(suite: &mut Suite) {
    suite.everywhere("a_packet_as_long_as_the_mtu_passes_for_every_mtu", mtus);
    suite.everywhere("fragments_of_a_20000_byte_datagram_pass", fragments);
    suite.heavy_everywhere("tcp_carries_data_in_jumbo_frames", jumbo_tcp);
}

pub fn mtus(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    // Down to the smallest last: below 1280 the kernel takes IPv6 away from a netdev.
    for mtu in [9000, 4000, 1794, 1793, 1500, 1280, 576, 68] {
        hosts.iter().try_for_each(|host| host.set_mtu(bed.lab.switch(), mtu))?;
        let longest = Ping::new(hosts[1].v4()).payload_bytes(mtu - IPV4_PING_HEADERS).whole();
        let (report, counted) = bed.watch(|_| longest.from(&hosts[0]))?;
        assert!(report.is_complete(), "MTU {mtu}: {report:?}");
        counted.no_drops();
        if mtu >= IPV6_MIN_MTU {
            let longest = Ping::new(hosts[1].v6()).payload_bytes(mtu - IPV6_PING_HEADERS).whole();
            assert!(longest.from(&hosts[0])?.is_complete(), "IPv6, MTU {mtu}");
        }
    }
    Ok(())
}

pub fn fragments(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    for v6 in [false, true] {
        let long = Ping::new(hosts[1].address(v6)).payload_bytes(20_000);
        let (report, counted) = bed.watch(|_| long.from(&hosts[0]))?;
        assert!(report.is_complete(), "IPv6 {v6}: {report:?}");
        counted.no_drops();
    }
    Ok(())
}

fn jumbo_tcp(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    hosts.iter().try_for_each(|host| host.set_mtu(bed.lab.switch(), 9000))?;
    let bytes = 64 << 20;
    for reverse in [false, true] {
        let (report, counted) = bed.watch(|lab| {
            let _server = IperfServer::start(lab, &hosts[1])?;
            Iperf::bytes(bytes).reverse(reverse).run(&hosts[0], &hosts[1])
        })?;
        assert!(report.is_complete(bytes), "{report:?}");
        counted.no_drops_but(&CONGESTION);
    }
    Ok(())
}
