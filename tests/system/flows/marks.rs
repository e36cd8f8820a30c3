//! A rule that marks packets: the output's queueing discipline tells them by it, whichever way they went.

use forebay_control::flow::FlowRuns;
use forebay_testbed::Result;
use forebay_testbed::frame::Frame;
use forebay_testbed::programs::iperf::{Iperf, IperfServer};

use super::{INSTALL_LIMIT, Scene, flow_list, station, tell};
use crate::bed::{Bed, with_offload};
use crate::harness::{Outcome, Subject, Suite};

/// Matches what has the mark 7, in classic BPF: `ld mark; jeq #7; ret #-1; ret #0`.
const HAS_MARK_7: &str = "4,32 0 0 4294963220,21 0 1 7,6 0 0 4294967295,6 0 0 0";
const FRAMES: usize = 64;
const STREAM_BYTES: u64 = 64 << 20;

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("marked_packets_are_told_by_their_mark", told);
    suite.on_netdevs("a_marked_stream_is_told_by_its_mark", |subject| {
        stream(subject, "join_segments = false")
    });
    suite.on_netdevs("a_marked_stream_of_joined_segments_is_told_by_its_mark", |subject| {
        stream(subject, "join_segments = true")
    });
}

/// At h2: class 1:20 for what is marked, class 1:10 for the rest.
fn classes(bed: &Bed) -> Result<()> {
    let commands: [&[&str]; 4] = [
        &["qdisc", "add", "dev", "h2", "root", "handle", "1:", "htb", "default", "10"],
        &["class", "add", "dev", "h2", "parent", "1:", "classid", "1:10", "htb", "rate", "10gbit"],
        &["class", "add", "dev", "h2", "parent", "1:", "classid", "1:20", "htb", "rate", "10gbit"],
        &[
            "filter", "add", "dev", "h2", "parent", "1:", "protocol", "all", "bpf", "bytecode", HAS_MARK_7,
            "flowid", "1:20",
        ],
    ];
    commands.iter().try_for_each(|command| bed.lab.switch().run("tc", command).map(drop))
}

/// Packets (`pkt`) or `bytes` that each class has sent: of the unmarked, of the marked.
fn sent(bed: &Bed, unit: &str) -> Result<[u64; 2]> {
    let shown = bed.lab.switch().run("tc", &["-s", "class", "show", "dev", "h2"])?.stdout;
    Ok(["class htb 1:10", "class htb 1:20"].map(|class| {
        let of_class = shown.split(class).nth(1).expect("the class");
        let words: Vec<&str> = of_class.split_whitespace().collect();
        let at = words.iter().position(|word| *word == unit).expect("a count");
        words[at - 1].parse().expect("a number")
    }))
}

/// That of these many frames from host 1 to host 2 each arrived, and was told to be of this class.
fn all_are_of_class(scene: &mut Scene, class: usize, shape: impl Fn(u32) -> Frame) -> Outcome {
    let before = sent(&scene.bed, "pkt")?;
    let frames: Vec<_> = (0..FRAMES).map(|_| shape(scene.wire.mark()).build()).collect();
    frames.iter().try_for_each(|bytes| scene.wire.socket(0).send(bytes))?;
    let arrived = scene.wire.socket(1).collect(FRAMES, INSTALL_LIMIT, |bytes| bytes[6..12] == station(0))?;
    assert_eq!(arrived.len(), FRAMES);
    let mut wanted = before;
    wanted[class] += FRAMES as u64;
    assert_eq!(sent(&scene.bed, "pkt")?, wanted);
    Ok(())
}

fn told(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject, 2)?;
    let client = scene.client();
    scene.introduce()?;
    classes(&scene.bed)?;
    client.ok(&["eswitch", "set", "offload", "off"])?;
    all_are_of_class(&mut scene, 0, tell(0, 1))?;
    client.ok(&["flow", "add", "--priority", "5", "--in-port", "h1", "--action", "mark:7"])?;
    all_are_of_class(&mut scene, 1, tell(0, 1))?;
    // Few frames go by the packet socket.
    let before = sent(&scene.bed, "pkt")?;
    scene.wire.pass(&mut scene.bed, 0, tell(0, 1), &[1])?;
    assert_eq!(sent(&scene.bed, "pkt")?, [before[0], before[1] + 1]);
    client.ok(&["flow", "add", "--priority", "6", "--in-port", "h1", "--action", "mark:8"])?;
    all_are_of_class(&mut scene, 0, tell(0, 1))?;
    client.ok(&["flow", "del", "2"])?;

    client.ok(&["eswitch", "set", "offload", "on"])?;
    scene.until_carried(0, tell(0, 1), &[1])?;
    // Frames between drivers have no mark.
    let marked = flow_list(&client)?.flows.into_iter().find(|flow| flow.rule == Some(1)).expect("a flow");
    assert_eq!(marked.runs, FlowRuns::Tcx);
    all_are_of_class(&mut scene, 1, tell(0, 1))
}

fn stream(subject: Subject, setting: &str) -> Outcome {
    let mut bed = with_offload(|| Bed::with_config(subject, &format!("[switch]\n{setting}\n")))?;
    let hosts = bed.lab.hosts(2, subject.kind())?;
    bed.attach(&hosts)?;
    classes(&bed)?;
    bed.client().ok(&["eswitch", "set", "offload", "off"])?;
    let rule =
        ["flow", "add", "--priority", "5", "--in-port", "h1", "--ip-proto", "tcp", "--action", "mark:7"];
    bed.client().ok(&rule)?;
    let _server = IperfServer::start(&bed.lab, &hosts[1])?;
    // When the kernel counts, it does not know how many packets a joint one is.
    let before = sent(&bed, "bytes")?;
    let report = Iperf::bytes(STREAM_BYTES).run(&hosts[0], &hosts[1])?;
    assert!(report.is_complete(STREAM_BYTES), "{report:?}");
    let after = sent(&bed, "bytes")?;
    let (unmarked, marked) = (after[0] - before[0], after[1] - before[1]);
    let counted = format!("{marked} of the stream's bytes are marked, {unmarked} are not");
    assert!(marked > STREAM_BYTES / 2 && unmarked < 10_000, "{counted}");
    Ok(())
}
