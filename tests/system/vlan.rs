//! VLANs: transparent, access and trunk ports; and isolated ports, which are VLANs' poor relation.

use std::time::Duration;

use forebay_testbed::frame::{BROADCAST, Frame, TPID_C, TPID_S, tags_of};
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::tagged::Tagged;
use forebay_testbed::{Host, Result, wait};

use crate::bed::{Bed, CONGESTION, with_offload};
use crate::harness::{Outcome, Subject, Suite};
use crate::wire::Wire;

/// Enough for segments that the kernel would cut elsewhere.
const TAGGED_BYTES: u64 = 64 << 20;
/// Within which a decision is repeated by the kernel.
const FLOW_LIMIT: Duration = Duration::from_secs(5);

pub fn register(suite: &mut Suite) {
    suite.everywhere("tagged_hosts_talk_through_transparent_ports", tagged_hosts);
    suite.on_forebay("hosts_on_access_ports_reach_their_own_vlan_only", access_ports);
    suite.on_forebay("a_trunk_tags_its_vlans_and_leaves_the_native_one_untagged", trunk);
    suite.on_forebay("a_packet_of_a_vlan_the_port_does_not_carry_is_dropped_and_counted", not_allowed);
    suite.on_forebay("an_access_port_takes_no_tags", access_takes_no_tags);
    suite.on_forebay("an_access_port_takes_tags_where_it_is_told_to", access_takes_tags);
    suite.on_forebay("a_second_tag_does_not_become_the_vlan_behind_a_trunk", native);
    suite.on_netdevs("a_second_tag_does_not_become_the_vlan_in_the_kernel_either", native_in_the_kernel);
    suite.on_forebay("the_same_station_in_two_vlans_is_two_entries", same_mac_two_vlans);
    suite.everywhere("isolated_ports_reach_only_ports_that_are_not", isolated);
}

pub fn tagged_hosts(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    for (protocol, vid) in [(TPID_C, 5), (TPID_S, 600)] {
        let _tags =
            hosts[..2].iter().map(|host| Tagged::start(host, protocol, vid)).collect::<Result<Vec<_>>>()?;
        for payload in [56, 1400, 4000] {
            let ping = Ping::new(hosts[1].v4()).payload_bytes(payload);
            let (report, counted) = bed.watch(|_| ping.from(&hosts[0]))?;
            assert!(report.is_complete(), "{protocol:#x} {vid}, {payload} bytes: {report:?}\n{counted}");
            counted.no_drops();
        }
        let untagged = Ping::new(hosts[2].v4()).count(1).in_vain().from(&hosts[0])?;
        assert_eq!(untagged.received, 0, "the third has no tag");
        let ((), counted) = bed.watch(|lab| {
            let _server = IperfServer::start(lab, &hosts[1])?;
            let report = Iperf::bytes(TAGGED_BYTES).v6(true).run(&hosts[0], &hosts[1])?;
            assert!(report.is_complete(TAGGED_BYTES), "{report:?}");
            Ok(())
        })?;
        counted.no_drops_but(&CONGESTION);
    }
    Ok(())
}

pub fn access_ports(subject: Subject) -> Outcome {
    let mut bed = Bed::new(subject)?;
    let hosts = bed.lab.hosts(4, subject.kind())?;
    for (host, vlan) in hosts.iter().zip(["access:10", "access:10", "access:20", "access:20"]) {
        bed.attach_vlan(host, vlan)?;
    }
    let (reports, counted) = bed.watch(|_| {
        let within = [Ping::new(hosts[1].v4()).from(&hosts[0])?, Ping::new(hosts[3].v6()).from(&hosts[2])?];
        Ok((within, Ping::new(hosts[2].v4()).count(1).in_vain().from(&hosts[0])?))
    })?;
    let (within, across) = reports;
    assert!(within.iter().all(|report| report.is_complete()), "{within:?}");
    assert_eq!(across.received, 0);
    counted.no_drops();
    Ok(())
}

const STATIONS: [[u8; 6]; 4] =
    [[2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2], [2, 0, 0, 0, 9, 3], [2, 0, 0, 0, 9, 4]];

/// Host 0 on a trunk of 10 and 20 with native 1; hosts 1, 2 and 3 on access ports of 10, 20 and 1.
fn trunk_bed(subject: Subject) -> Result<(Bed, Vec<Host>, Wire)> {
    let mut bed =
        Bed::new(subject).map_err(|error| forebay_testbed::LabError::output("the bed", error.to_string()))?;
    let hosts = bed.lab.hosts(4, subject.kind())?;
    for (host, vlan) in hosts.iter().zip(["trunk:10,20,native:1", "access:10", "access:20", "access:1"]) {
        bed.attach_vlan(host, vlan)?;
    }
    let wire = Wire::new(&hosts)?;
    Ok((bed, hosts, wire))
}

pub fn trunk(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = trunk_bed(subject)?;
    let broadcast = |from: usize| move |mark| Frame::marked(STATIONS[from], BROADCAST, mark);
    // From the trunk: each VLAN to its access port, without the tag.
    for (tag, to) in [(Some(10), 1), (Some(20), 2), (None, 3)] {
        let shape = |mark| match tag {
            Some(vid) => broadcast(0)(mark).tag(TPID_C, vid),
            None => broadcast(0)(mark),
        };
        let (arrived, counted) = wire.deliver(&mut bed, 0, shape, &[to])?;
        assert_eq!(tags_of(&arrived[0]), [], "from the trunk to {to}");
        counted.no_drops();
    }
    // To the trunk: with the tag, but for the native VLAN.
    for (from, tags) in [(1, vec![(TPID_C, 10)]), (2, vec![(TPID_C, 20)]), (3, vec![])] {
        let (arrived, counted) = wire.deliver(&mut bed, from, broadcast(from), &[0])?;
        assert_eq!(tags_of(&arrived[0]), tags, "from {from} to the trunk");
        counted.no_drops();
    }
    Ok(())
}

pub fn not_allowed(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = trunk_bed(subject)?;
    let foreign = |protocol, vid| move |mark| Frame::marked(STATIONS[0], BROADCAST, mark).tag(protocol, vid);
    for (from, port, vid, reason) in [
        (0, "h1", 30, "vlan_not_allowed"),
        (1, "h2", 20, "tagged_at_access"),
        (1, "h2", 10, "tagged_at_access"),
    ] {
        let (_, counted) = wire.deliver(&mut bed, from, foreign(TPID_C, vid), &[])?;
        counted.exactly(&[(port, "rx_packets", 1), (port, reason, 1)]);
    }
    Ok(())
}

/// Host 0 on the port in question; host 1 on a trunk of 10 and 20, host 2 on one whose native VLAN is 10, host 3 on an
/// access port of 20, which nothing from VLAN 10 may reach.
fn hopping_bed(
    subject: Subject,
    vlan: &str,
) -> std::result::Result<(Bed, Vec<Host>, Wire), Box<dyn std::error::Error>> {
    let mut bed = Bed::new(subject)?;
    let hosts = bed.lab.hosts(4, subject.kind())?;
    for (host, vlan) in hosts.iter().zip([vlan, "trunk:10,20", "trunk:20,native:10", "access:20"]) {
        bed.attach_vlan(host, vlan)?;
    }
    let wire = Wire::new(&hosts)?;
    Ok((bed, hosts, wire))
}

/// A broadcast of host 0 with these tags.
fn shout_with(tags: &[(u16, u16)]) -> impl Fn(u32) -> Frame + Copy {
    move |mark| {
        let frame = Frame::marked(STATIONS[0], BROADCAST, mark);
        tags.iter().fold(frame, |frame, (protocol, vid)| frame.tag(*protocol, *vid))
    }
}

/// With what tags a broadcast with these tags arrives at hosts 1 and 2, which are behind trunks.
fn arrives_with((bed, wire): (&mut Bed, &mut Wire), tags: &[(u16, u16)]) -> Result<[Vec<(u16, u16)>; 2]> {
    let (arrived, counted) = wire.deliver(bed, 0, shout_with(tags), &[1, 2])?;
    counted.no_drops();
    Ok([tags_of(&arrived[0]), tags_of(&arrived[1])])
}

const IN_10: (u16, u16) = (TPID_C, 10);
const IN_20: (u16, u16) = (TPID_C, 20);
const PRIORITY: (u16, u16) = (TPID_C, 0);
const SERVICE: (u16, u16) = (TPID_S, 20);

pub fn access_takes_no_tags(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = hopping_bed(subject, "access:10")?;
    let plain = [vec![IN_10], vec![]];
    assert_eq!(arrives_with((&mut bed, &mut wire), &[])?, plain);
    assert_eq!(arrives_with((&mut bed, &mut wire), &[PRIORITY])?, plain, "it names no VLAN");
    let refused: [&[(u16, u16)]; 9] = [
        &[IN_10],
        &[IN_20],
        &[IN_10, IN_20],
        &[PRIORITY, IN_20],
        &[PRIORITY, PRIORITY],
        &[SERVICE],
        &[SERVICE, IN_20],
        &[(TPID_S, 0)],
        &[PRIORITY, SERVICE],
    ];
    for tags in refused {
        let (_, counted) = wire.deliver(&mut bed, 0, shout_with(tags), &[])?;
        counted.exactly(&[("h1", "rx_packets", 1), ("h1", "tagged_at_access", 1)]);
    }
    Ok(())
}

pub fn access_takes_tags(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = hopping_bed(subject, "access:10,tagged")?;
    let plain = [vec![IN_10], vec![]];
    for tags in [&[][..], &[PRIORITY], &[IN_10]] {
        assert_eq!(arrives_with((&mut bed, &mut wire), tags)?, plain, "{tags:x?}");
    }
    // A tag that stays is behind that of VLAN 10, where the trunk's native VLAN has none otherwise.
    for (tags, inner) in [
        (&[IN_10, IN_20][..], IN_20),
        (&[PRIORITY, IN_20], IN_20),
        (&[SERVICE], SERVICE),
        (&[IN_10, SERVICE], SERVICE),
    ] {
        let stacked = || vec![IN_10, inner];
        assert_eq!(arrives_with((&mut bed, &mut wire), tags)?, [stacked(), stacked()], "{tags:x?}");
    }
    let (_, counted) = wire.deliver(&mut bed, 0, shout_with(&[IN_20]), &[])?;
    counted.exactly(&[("h1", "rx_packets", 1), ("h1", "vlan_not_allowed", 1)]);
    Ok(())
}

/// From a trunk that carries VLAN 10 only.
pub fn native(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = hopping_bed(subject, "trunk:native:10")?;
    for (tags, wanted) in native_cases() {
        assert_eq!(arrives_with((&mut bed, &mut wire), tags)?, wanted, "{tags:x?}");
    }
    Ok(())
}

type TrunkTags = [Vec<(u16, u16)>; 2];

fn native_cases() -> [(&'static [(u16, u16)], TrunkTags); 7] {
    let stacked = |inner| [vec![IN_10, inner], vec![IN_10, inner]];
    let plain = || [vec![IN_10], vec![]];
    [
        (&[], plain()),
        (&[PRIORITY], plain()),
        (&[IN_10], plain()),
        (&[IN_10, IN_20], stacked(IN_20)),
        (&[PRIORITY, IN_20], stacked(IN_20)),
        (&[SERVICE], stacked(SERVICE)),
        (&[IN_10, SERVICE], stacked(SERVICE)),
    ]
}

/// The same for a station behind each trunk, until the kernel has carried what it carries.
pub fn native_in_the_kernel(subject: Subject) -> Outcome {
    let (mut bed, _hosts, mut wire) = with_offload(|| hopping_bed(subject, "trunk:native:10"))?;
    for (host, port) in [(1, "h2"), (2, "h3")] {
        let mac = STATIONS[host].map(|byte| format!("{byte:02x}")).join(":");
        bed.client().ok(&["fdb", "add", &mac, "--port", port, "--vlan", "10"])?;
        for (tags, wanted) in native_cases() {
            let tell = |mark| {
                let frame = Frame::marked(STATIONS[0], STATIONS[host], mark);
                tags.iter().fold(frame, |frame, (protocol, vid)| frame.tag(*protocol, *vid))
            };
            let pass = || {
                let (arrived, counted) = wire.deliver(&mut bed, 0, tell, &[host]).expect("it arrives");
                assert_eq!(tags_of(&arrived[0]), wanted[host - 1], "{tags:x?}");
                counted.moved("h1", "offloaded_packets") == Some(1)
            };
            wait::until("the kernel to carry it", FLOW_LIMIT, pass)?;
        }
    }
    Ok(())
}

pub fn same_mac_two_vlans(subject: Subject) -> Outcome {
    let (mut bed, hosts) = Bed::with_hosts(subject, 3)?;
    let mut wire = Wire::new(&hosts)?;
    let station = STATIONS[0];
    // The station is behind host 0 in VLAN 10 and behind host 1 in VLAN 20; host 2 asks for it in each.
    for (host, others, vid) in [(0, [1, 2], 10), (1, [0, 2], 20)] {
        let say = |mark| Frame::marked(station, BROADCAST, mark).tag(TPID_C, vid);
        wire.deliver(&mut bed, host, say, &others)?.1.no_drops();
    }
    for (host, vid) in [(0, 10), (1, 20)] {
        let ask = |mark| Frame::marked(STATIONS[2], station, mark).tag(TPID_C, vid);
        let (arrived, counted) = wire.deliver(&mut bed, 2, ask, &[host])?;
        assert_eq!(tags_of(&arrived[0]), [(TPID_C, vid)]);
        counted.no_drops();
    }
    // A service tag in transit stays what it is, with the customer tag inside.
    let stacked = |mark| Frame::marked(STATIONS[2], BROADCAST, mark).tag(TPID_S, 10).tag(TPID_C, 77);
    let (arrived, _) = wire.deliver(&mut bed, 2, stacked, &[0, 1])?;
    assert_eq!(tags_of(&arrived[0]), [(TPID_S, 10), (TPID_C, 77)]);
    Ok(())
}

pub fn isolated(subject: Subject) -> Outcome {
    let mut bed = Bed::new(subject)?;
    let hosts = bed.lab.hosts(3, subject.kind())?;
    bed.attach_isolated(&hosts[..2])?;
    bed.attach(&hosts[2..])?;
    let mut wire = Wire::new(&hosts)?;
    let shout = |from: usize| move |mark| Frame::marked(STATIONS[from], BROADCAST, mark);
    wire.deliver(&mut bed, 0, shout(0), &[2])?.1.no_drops();
    wire.deliver(&mut bed, 1, shout(1), &[2])?.1.no_drops();
    wire.deliver(&mut bed, 2, shout(2), &[0, 1])?.1.no_drops();
    // By now all are learned: from one isolated port to the other there is no way.
    let to_other = |mark| Frame::marked(STATIONS[0], STATIONS[1], mark);
    let (_, counted) = wire.deliver(&mut bed, 0, to_other, &[])?;
    counted.exactly(&[("h1", "rx_packets", 1), ("h1", "isolated", 1)]);
    let to_open = |mark| Frame::marked(STATIONS[0], STATIONS[2], mark);
    wire.deliver(&mut bed, 0, to_open, &[2])?.1.no_drops();
    Ok(())
}
