//! An uplink, which has XDP, and a container, which has not: XDP passes on what tcx is to carry.

use forebay_control::flow::FlowRuns;
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Dut as _, Forebay, ForebayOptions, ports_of};
use forebay_testbed::frame::TPID_C;
use forebay_testbed::programs::iperf::{Iperf, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{Host, Lab, PortKind, Result, wait};

use super::checksums::are_connected;
use super::{INSTALL_LIMIT, Scene, tell};
use crate::bed::{Bed, CONGESTION, with_offload};
use crate::harness::{Outcome, Subject, Suite, ensure_program};
use crate::wire::Wire;

const FRAMES: usize = 100;
const STREAM_BYTES: u64 = 64 << 20;
const SUBJECT: Subject = Subject::Forebay(PortKind::VethXdp);
const UPLINK: usize = 0;
const CONTAINER: usize = 1;
const OTHER_UPLINK: usize = 2;

pub fn register(suite: &mut Suite) {
    suite.once("each_flow_is_carried_by_the_program_that_its_output_takes", carried);
    suite.heavy_once("a_stream_from_an_uplink_reaches_a_container_in_large_packets", merged);
    suite.once("packets_of_a_veth_are_merged_while_it_is_an_xdp_port", merged_while_a_port);
    suite.once("a_killed_daemon_leaves_an_uplink_and_a_container_connected", killed);
}

fn hosts(lab: &mut Lab) -> Result<Vec<Host>> {
    let kinds = [("h1", PortKind::VethXdp), ("h2", PortKind::VethTcx), ("h3", PortKind::VethXdp)];
    kinds.into_iter().map(|(name, kind)| lab.host(name, kind)).collect()
}

fn connected() -> std::result::Result<(Bed, Vec<Host>), Box<dyn std::error::Error>> {
    with_offload(|| {
        let mut bed = Bed::new(SUBJECT)?;
        let hosts = hosts(&mut bed.lab)?;
        bed.attach(&hosts)?;
        Ok((bed, hosts))
    })
}

fn carried() -> Outcome {
    let (bed, hosts) = connected()?;
    let wire = Wire::new(&hosts)?;
    let mut scene = Scene { bed, hosts, wire };
    scene.introduce()?;
    let pairs = [
        (UPLINK, CONTAINER, FlowRuns::Tcx),
        (UPLINK, OTHER_UPLINK, FlowRuns::Xdp),
        (CONTAINER, UPLINK, FlowRuns::Tcx),
    ];
    for (from, to, runs) in pairs {
        for tags in [&[][..], &[0], &[0, 0]] {
            let shape = |mark| tags.iter().fold(tell(from, to)(mark), |frame, vid| frame.tag(TPID_C, *vid));
            assert_eq!(scene.until_carried(from, shape, &[to])?.runs, runs, "{from} to {to}, {tags:?}");
            let frames: Vec<_> = (0..FRAMES).map(|_| shape(scene.wire.mark()).build()).collect();
            let (arrived, counted) = scene.bed.watch(|_| {
                frames.iter().try_for_each(|bytes| scene.wire.socket(from).send(bytes))?;
                scene.wire.socket(to).collect(FRAMES, INSTALL_LIMIT, |bytes| frames.contains(&bytes.to_vec()))
            })?;
            assert!(arrived == frames, "{} of {FRAMES} arrived unchanged and in order", arrived.len());
            let [input, output] = [from, to].map(super::port_name);
            counted.exactly(&[
                (&input, "rx_packets", FRAMES as u64),
                (&input, "forwarded_packets", FRAMES as u64),
                (&input, "offloaded_packets", FRAMES as u64),
                (&output, "tx_packets", FRAMES as u64),
            ]);
        }
    }
    Ok(())
}

fn merged() -> Outcome {
    let (mut bed, hosts) = connected()?;
    let _server = IperfServer::start(&bed.lab, &hosts[CONTAINER])?;
    let before = hosts[CONTAINER].netns().received_packets("eth0")?;
    let (report, counted) =
        bed.watch(|_| Iperf::bytes(STREAM_BYTES).run(&hosts[UPLINK], &hosts[CONTAINER]))?;
    assert!(report.is_complete(STREAM_BYTES), "{report:?}");
    counted.no_drops_but(&CONGESTION);
    let [sent, carried] =
        ["rx_packets", "offloaded_packets"].map(|name| counted.moved("h1", name).unwrap_or(0));
    assert!(carried * 10 > sent * 9 && sent > STREAM_BYTES / 3000, "{counted}");
    // A large packet counts as one.
    let arrived = hosts[CONTAINER].netns().received_packets("eth0")? - before;
    assert!(arrived * 2 < sent, "{sent} packets arrived as {arrived}");
    Ok(())
}

/// Whether the kernel merges packets that come in at h1.
fn merges(lab: &Lab) -> Result<bool> {
    let shown = lab.switch().run("ethtool", &["-k", "h1"])?.stdout;
    Ok(shown.lines().any(|line| line.starts_with("generic-receive-offload: on")))
}

fn merged_while_a_port() -> Outcome {
    ensure_program()?;
    for has_handover in [false, true] {
        let mut lab = Lab::new("uplink")?;
        let pins = BpfFs::mount(&lab)?;
        let hosts = hosts(&mut lab)?;
        let options = || match has_handover {
            true => ForebayOptions::default().handing_over(&pins),
            false => ForebayOptions::default(),
        };
        let mut daemon = Forebay::start(&lab, options())?;
        daemon.add_ports(&ports_of(&hosts[..1]))?;
        assert!(merges(&lab)?, "handover: {has_handover}");
        if has_handover {
            daemon.kill()?;
            assert!(merges(&lab)?, "the kernel still forwards");
            daemon = Forebay::start(&lab, options())?;
            assert!(merges(&lab)?);
        }
        daemon.delete_port("h1")?;
        assert!(!merges(&lab)?, "handover: {has_handover}");
        // What an administrator set stays.
        lab.switch().ethtool("h1", &["gro", "on"])?;
        daemon.add_ports(&ports_of(&hosts[..1]))?;
        daemon.stop()?;
        assert!(merges(&lab)?, "handover: {has_handover}");
        assert!(pins.pinned().is_empty(), "{:?}", pins.pinned());
    }
    Ok(())
}

fn killed() -> Outcome {
    ensure_program()?;
    let mut lab = Lab::new("uplink")?;
    let pins = BpfFs::mount(&lab)?;
    let hosts = hosts(&mut lab)?;
    hosts[UPLINK].knows(&hosts[CONTAINER])?;
    hosts[CONTAINER].knows(&hosts[UPLINK])?;
    let start = |lab: &Lab| Forebay::start(lab, ForebayOptions::default().offloaded().handing_over(&pins));
    let mut daemon = start(&lab)?;
    daemon.add_ports(&ports_of(&hosts))?;
    let answers =
        || Ping::new(hosts[CONTAINER].v4()).count(1).from(&hosts[UPLINK]).is_ok_and(|it| it.is_complete());
    for _ in 0..2 {
        wait::until("flows between both", INSTALL_LIMIT, || {
            answers() && are_connected(daemon.client(), &hosts[..2])
        })?;
        daemon.kill()?;
        assert!(answers(), "both programs go on");
        daemon = start(&lab)?;
    }
    assert!(daemon.client().stats_check()?.balanced);
    daemon.stop()?;
    assert!(pins.pinned().is_empty(), "{:?}", pins.pinned());
    Ok(())
}
