//! Ordinary programs between ordinary hosts, with the network settings the kernel gave them.

use forebay_control::stats::WorkerStats;
use forebay_testbed::capture::{Capture, ChecksumReport, report};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::programs::{udp, web};
use forebay_testbed::{Host, Lab, PortKind, Result};

use crate::bed::{Bed, CONGESTION};
use crate::harness::{Checked, Outcome, Subject, Suite};

/// Enough for the window to open and for thousands of large segments.
const STREAM_BYTES: u64 = 64 << 20;
/// Packets a capture holds at most.
pub const CAPTURE_LIMIT: u32 = 20_000;

pub fn register(suite: &mut Suite) {
    suite.everywhere("every_pair_pings_over_ipv4_and_ipv6", every_pair_pings);
    suite.everywhere("each_ping_is_counted_once_on_the_way_there_and_back", pings_are_counted);
    suite.on_forebay("two_workers_carry_everything_between_their_ports", two_workers);
    suite.heavy_everywhere("tcp_carries_data_both_ways_with_default_offloads", tcp_both_ways);
    suite.everywhere("udp_datagrams_of_every_size_arrive", udp_datagrams);
    suite.everywhere("a_web_server_answers_every_request", web_server);
}

/// Pings between every two hosts over one family; all must be answered.
pub fn ping_all(hosts: &[Host], v6: bool) -> Result<()> {
    for from in hosts {
        for to in hosts.iter().filter(|to| to.name() != from.name()) {
            let report = Ping::new(to.address(v6)).from(from)?;
            assert!(report.is_complete(), "{} to {}: {report:?}", from.name(), to.address(v6));
        }
    }
    Ok(())
}

pub fn two_workers(subject: Subject) -> Outcome {
    let workers = carried_by_two_workers(subject)?;
    assert!(workers.len() == 2 && workers.iter().all(|worker| worker.packets > 0), "{workers:?}");
    Ok(())
}

/// What the workers did. With the fast path one of them may have nothing to do: the kernel carries all packets but the first
/// ones, and those come to the worker whose turn it is for the processor that they were sent from.
pub fn carried_by_two_workers(subject: Subject) -> Checked<Vec<WorkerStats>> {
    const BYTES: u64 = 64 << 20;
    let mut bed = Bed::with_config(subject, "[switch]\nworkers = 2\n")?;
    let hosts = bed.lab.hosts(4, subject.kind())?;
    bed.attach(&hosts)?;
    let ((), counted) = bed.watch(|_| {
        ping_all(&hosts, false)?;
        ping_all(&hosts, true)
    })?;
    counted.no_drops();
    let (report, counted) = bed.watch(|lab| {
        let _server = IperfServer::start(lab, &hosts[1])?;
        Iperf::bytes(BYTES).run(&hosts[0], &hosts[1])
    })?;
    assert!(report.is_complete(BYTES), "{report:?}");
    counted.no_drops_but(&CONGESTION);
    Ok(bed.client().stats()?.workers)
}

fn every_pair_pings(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 4)?;
    let ((), counted) = bed.watch(|_| {
        ping_all(&hosts, false)?;
        ping_all(&hosts, true)
    })?;
    counted.no_drops();
    Ok(())
}

fn pings_are_counted(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let [one, two, _] = &hosts[..] else { unreachable!("three hosts were made") };
    one.knows(two)?;
    two.knows(one)?;
    // The first exchange teaches the switch where both are.
    ping_all(&hosts[..2], true)?;
    // Over IPv6 the kernel reports group memberships when it likes; those are flooded, pings are not.
    let (report, counted) = bed.watch(|_| Ping::new(two.v6()).count(20).from(one))?;
    assert!(report.is_complete(), "{report:?}");
    let forwarded = ["h1", "h2", "h3"].map(|port| counted.moved(port, "forwarded_packets").unwrap_or(0));
    assert!(subject == Subject::Bridge || forwarded == [20, 20, 0], "{counted}");
    counted.no_drops();
    // Over IPv4 alone there is nothing else on the wire.
    for host in &hosts {
        host.netns().set("ipv6/conf/eth0/disable_ipv6", "1")?;
    }
    let (report, counted) = bed.watch(|_| Ping::new(two.v4()).count(20).from(one))?;
    assert!(report.is_complete(), "{report:?}");
    let both = |port| [(port, "rx_packets", 20), (port, "tx_packets", 20), (port, "forwarded_packets", 20)];
    counted.exactly(&[both("h1"), both("h2")].concat());
    Ok(())
}

/// Whether a host's checksums may come unfinished: a guest agrees to finish them (VIRTIO_NET_F_GUEST_CSUM).
fn takes_unfinished(host: &Host) -> bool {
    host.kind() == PortKind::Guest
}

/// Packets with a checksum as the host takes it.
fn right(report: &ChecksumReport, takes_unfinished: bool) -> u64 {
    report.good + report.either + if takes_unfinished { report.unfinished } else { 0 }
}

fn tcp_both_ways(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    for v6 in [false, true] {
        for reverse in [false, true] {
            check_stream(&mut bed, subject, &hosts[0], &hosts[1], v6, reverse)?;
        }
    }
    Ok(())
}

/// One stream, captured where it arrives.
pub fn check_stream(
    bed: &mut Bed,
    subject: Subject,
    client: &Host,
    server: &Host,
    v6: bool,
    reverse: bool,
) -> Outcome {
    let (sender, receiver) = if reverse { (server, client) } else { (client, server) };
    // Long packets leave as their senders left them; an XDP port's sender finishes and cuts them itself.
    let may_be_unfinished = takes_unfinished(receiver) || sender.kind() != PortKind::VethXdp;
    let ((), counted) = bed.watch(|lab| {
        let checksums = stream(lab, client, server, receiver, v6, reverse)?;
        if subject != Subject::Bridge {
            let wrong = checksums.bad + if may_be_unfinished { 0 } else { checksums.unfinished };
            assert_eq!(wrong, 0, "{checksums:?}");
            assert!(checksums.packets > 100 && right(&checksums, may_be_unfinished) > 0, "{checksums:?}");
        }
        Ok(())
    })?;
    // A sender that fills a ring is slowed down by the loss: that is TCP at work, not a fault.
    counted.no_drops_but(&CONGESTION);
    Ok(())
}

pub fn stream(
    lab: &Lab,
    client: &Host,
    server: &Host,
    receiver: &Host,
    v6: bool,
    reverse: bool,
) -> Result<ChecksumReport> {
    let _server = IperfServer::start(lab, server)?;
    let capture = Capture::start(lab, receiver.netns(), "eth0", "tcp", CAPTURE_LIMIT)?;
    let report = Iperf::bytes(STREAM_BYTES).v6(v6).reverse(reverse).run(client, server)?;
    assert!(report.is_complete(STREAM_BYTES), "{report:?}");
    capture.verify()
}

fn udp_datagrams(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    for v6 in [false, true] {
        for bytes in [4, 18, 1400] {
            let capture = Capture::start(&bed.lab, hosts[1].netns(), "eth0", "udp port 5000", 100)?;
            let (arrived, counted) = bed.watch(|_| udp::transfer(&hosts[0], &hosts[1], v6, 100, bytes))?;
            assert_eq!(arrived, 100, "datagrams of {bytes} bytes, IPv6: {v6}");
            let checksums = report(&capture.filled()?);
            if subject != Subject::Bridge {
                assert_eq!(
                    right(&checksums, takes_unfinished(&hosts[1])),
                    100,
                    "{bytes} bytes, IPv6: {v6}: {checksums:?}"
                );
            }
            counted.no_drops();
        }
    }
    Ok(())
}

fn web_server(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 2)?;
    let _server = web::WebServer::start(&bed.lab, &hosts[1], 100_000)?;
    for v6 in [false, true] {
        let (report, counted) = bed.watch(|_| web::fetch(&hosts[0], &hosts[1], v6, 300))?;
        assert_eq!((report.complete, report.failed), (300, 0), "{report:?}");
        counted.no_drops_but(&CONGESTION);
    }
    Ok(())
}
