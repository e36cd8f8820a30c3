//! What the kernel carries is counted as if user space had carried it; what must be looked at comes to user space.

use std::time::Duration;

use forebay_control::flow::{FlowRuns, TagAction};
use forebay_control::stats::WorkersShow;
use forebay_testbed::PortKind;
use forebay_testbed::frame::{Frame, TPID_C};
use forebay_testbed::programs::watch::Watch;
use forebay_testbed::wait;

use super::{Scene, flow_list, flow_of, port_name, station, tell};
use crate::harness::{Outcome, Subject, Suite};

const FRAMES: u64 = 100;
const LIMIT: Duration = Duration::from_secs(5);

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("what_was_decided_once_the_kernel_carries", carries);
    suite.on_netdevs("what_is_dropped_for_good_is_dropped_in_the_kernel", drops);
    suite.on_netdevs("a_captured_port_comes_to_user_space", captured);
}

fn carries(subject: Subject) -> Outcome {
    const PAYLOAD: usize = 200;
    let mut scene = Scene::new(subject, 3)?;
    let client = scene.client();
    scene.introduce()?;
    let to = |from, to| move |mark| tell(from, to)(mark).payload_bytes(PAYLOAD);
    for (from, at) in [(0, 1), (1, 0)] {
        let (_, counted) = scene.wire.deliver(&mut scene.bed, from, to(from, at), &[at])?;
        let [input, output] = [from, at].map(port_name);
        counted.exactly(&[
            (&input, "rx_packets", 1),
            (&input, "forwarded_packets", 1),
            (&input, "offloaded_packets", 0),
            (&output, "tx_packets", 1),
        ]);
    }
    for (from, at) in [(0, 1), (1, 0)] {
        let frame = to(from, at)(0).build();
        let flow = wait::until_some("the flow", LIMIT, || flow_of(&flow_list(&client).ok()?, from, &frame))?;
        let said = (flow.action, flow.tag, flow.runs, flow.packets);
        let by = if subject.kind() == PortKind::VethXdp { FlowRuns::Xdp } else { FlowRuns::Tcx };
        assert_eq!(said, (format!("output:{}", port_name(at)), TagAction::Keep, by, 0));
    }

    client.json::<WorkersShow>(&["stats", "--workers", "--clear"])?;
    let frames: Vec<_> = (0..FRAMES).map(|_| to(0, 1)(scene.wire.mark()).build()).collect();
    let (arrived, counted) = scene.bed.watch(|_| {
        frames.iter().try_for_each(|bytes| scene.wire.socket(0).send(bytes))?;
        scene.wire.socket(1).collect(frames.len(), LIMIT, |bytes| bytes[6..12] == station(0))
    })?;
    assert!(arrived == frames, "{} of {FRAMES} arrived unchanged and in order", arrived.len());
    counted.exactly(&[
        ("h1", "rx_packets", FRAMES),
        ("h1", "forwarded_packets", FRAMES),
        ("h1", "offloaded_packets", FRAMES),
        ("h2", "tx_packets", FRAMES),
    ]);
    let bytes = FRAMES * frames[0].len() as u64;
    assert_eq!(
        (counted.moved("h1", "rx_bytes"), counted.moved("h2", "tx_bytes")),
        (Some(bytes), Some(bytes))
    );
    let shown: WorkersShow = client.json(&["stats", "--workers"])?;
    assert_eq!(shown.workers.iter().map(|worker| worker.packets).sum::<u64>(), 0, "{shown:?}");
    let check = client.stats_check()?;
    assert!(check.balanced, "{check:?}");
    let flow = flow_of(&flow_list(&client)?, 0, &frames[0]).ok_or("the flow is gone")?;
    assert_eq!((flow.packets, flow.bytes), (FRAMES, bytes));
    Ok(())
}

/// Frames that are dropped for what they are: after the first the kernel does it, for the same reason.
fn drops(subject: Subject) -> Outcome {
    const RESERVED: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 0];
    let mut scene = Scene::with(subject, "", 4, |bed, hosts| {
        bed.attach_isolated(&hosts[..2])?;
        bed.attach(&hosts[2..])
    })?;
    let client = scene.client();
    for (host, station_number, vlan) in [("h2", 1, "0"), ("h3", 2, "10"), ("h1", 9, "0")] {
        let mac = mac_text(station_number);
        client.ok(&["fdb", "add", &mac, "--port", host, "--vlan", vlan])?;
    }
    // What it does not carry any more stays said of it.
    scene.set(2, &["--vlan", "trunk:20"])?;
    type Shape = Box<dyn Fn(u32) -> Frame>;
    let cases: [(&'static str, Shape); 4] = [
        ("isolated", Box::new(tell(0, 1))),
        ("vlan_not_allowed", Box::new(|mark| tell(0, 2)(mark).tag(TPID_C, 10))),
        ("same_port", Box::new(tell(0, 9))),
        ("reserved_address", Box::new(|mark| Frame::marked(station(0), RESERVED, mark))),
    ];
    for (reason, shape) in &cases {
        let (_, counted) = scene.wire.deliver(&mut scene.bed, 0, shape, &[])?;
        counted.exactly(&[("h1", "rx_packets", 1), ("h1", reason, 1), ("h1", "offloaded_packets", 0)]);
        let flow = scene.until_carried(0, shape, &[])?;
        assert_eq!((&*flow.action, flow.reason.as_deref()), ("drop", Some(*reason)));
        let ((), counted) = scene.bed.watch(|_| {
            (0..FRAMES).try_for_each(|_| {
                let mark = scene.wire.mark();
                scene.wire.socket(0).send(&shape(mark).build())
            })
        })?;
        let counters = ["rx_packets", reason, "offloaded_packets"];
        counted.exactly(&counters.map(|counter| ("h1", counter, FRAMES)));
    }
    for host in 1..4 {
        assert_eq!(scene.wire.drain(host)?, Vec::<Vec<u8>>::new(), "host {host} should have got nothing");
    }
    Ok(())
}

fn mac_text(number: usize) -> String {
    forebay_control::MacAddr(station(number)).to_string()
}

fn captured(subject: Subject) -> Outcome {
    const DISCARD: u16 = 9;
    let mut scene = Scene::new(subject, 2)?;
    let client = scene.client();
    scene.introduce()?;
    for _ in 0..2 {
        scene.until_carried(0, tell(0, 1), &[1])?;
        let watch = Watch::start(&client, "h1", 2, Vec::new())?;
        wait::until("the capture to begin", LIMIT, || watch.has_begun())?;
        // What a capture counts.
        let frame = Frame::udp4(
            (station(0), [10, 66, 9, 1], 7),
            (station(1), [10, 66, 9, 2], DISCARD),
            b"as long as a frame is",
        );
        let bytes = frame.build();
        let (arrived, counted) = scene.bed.watch(|_| {
            (0..FRAMES).try_for_each(|_| scene.wire.socket(0).send(&bytes))?;
            scene.wire.socket(1).collect(FRAMES as usize, LIMIT, |frame| frame == bytes)
        })?;
        assert_eq!(arrived.len() as u64, FRAMES);
        counted.exactly(&[
            ("h1", "rx_packets", FRAMES),
            ("h1", "forwarded_packets", FRAMES),
            ("h1", "offloaded_packets", 0),
            ("h2", "tx_packets", FRAMES),
        ]);
        let seen = watch.finish()?;
        assert_eq!(seen.compared + seen.bare, FRAMES, "{seen:?}");
    }
    scene.until_carried(0, tell(0, 1), &[1])?;
    Ok(())
}
