//! Packets for a container's own address skip the switch's end of its veth, as long as nobody there has a say.

use forebay_control::flow::FlowEntry;
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::{PortKind, Result, wait};

use super::{INSTALL_LIMIT, Scene, flow_list, shout, tell};
use crate::bed::{Bed, with_offload};
use crate::harness::{Outcome, Subject, Suite};

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("what_is_for_a_containers_address_is_handed_to_it", handed);
    suite.on_netdevs("hosts_hear_each_other_when_packets_are_handed_to_them", heard);
    suite.on_netdevs("a_qdisc_at_an_output_is_obeyed", |subject| obeyed(subject, qdisc));
    suite.on_netdevs("a_classifier_at_an_output_is_obeyed", |subject| obeyed(subject, classifier));
    suite.on_netdevs("an_xdp_program_in_a_container_is_obeyed", xdp);
    suite.on_netdevs("nothing_is_handed_over_where_the_configuration_says_no", switched_off);
}

/// To host 1's own address.
fn to_host(scene: &Scene) -> impl Fn(u32) -> Frame + Copy + use<> {
    let (src, dst) = (scene.hosts[0].mac(), scene.hosts[1].mac());
    move |mark| Frame::marked(src, dst, mark)
}

/// Hosts whose own addresses the switch has learned.
fn scene(subject: Subject, config: &str) -> std::result::Result<Scene, Box<dyn std::error::Error>> {
    let mut scene = Scene::with(subject, config, 3, |bed, hosts| bed.attach(hosts))?;
    introduce(&mut scene)?;
    Ok(scene)
}

fn introduce(scene: &mut Scene) -> Result<()> {
    for host in 0..3 {
        let others: Vec<usize> = (0..3).filter(|other| *other != host).collect();
        let src = scene.hosts[host].mac();
        let shape = |mark| Frame::marked(src, BROADCAST, mark);
        scene.wire.pass(&mut scene.bed, host, shape, &others)?;
    }
    Ok(())
}

fn is_handed(flow: &FlowEntry) -> bool {
    flow.reason.as_ref().is_some_and(|reason| reason.contains("handed"))
}

/// Sends frames, each of which must arrive, until they are handed over, or until they are carried and are not.
fn until_handed(scene: &mut Scene, wanted: bool) -> Outcome {
    let shape = to_host(scene);
    let outcome = wait::until("the flow to be as it should", INSTALL_LIMIT, || {
        let flow = scene.until_carried(0, shape, &[1]).expect("frames arrive");
        is_handed(&flow) == wanted
    });
    Ok(outcome?)
}

fn packets_out(scene: &Scene) -> Result<u64> {
    let shown = scene.bed.lab.switch().run("cat", &["/sys/class/net/h2/statistics/tx_packets"])?;
    Ok(shown.stdout.trim().parse().expect("a number"))
}

fn handed(subject: Subject) -> Outcome {
    let mut scene = scene(subject, "")?;
    let can = subject.kind() == PortKind::VethTcx;
    until_handed(&mut scene, can)?;
    let shape = to_host(&scene);
    let before = packets_out(&scene)?;
    let ((), counted) = {
        let Scene { bed, wire, .. } = &mut scene;
        let mark = wire.mark();
        bed.watch(|_| {
            wire.socket(0).send(&shape(mark).build())?;
            wire.expect_one(1, mark).map(drop)
        })?
    };
    counted.exactly(&[
        ("h1", "rx_packets", 1),
        ("h1", "offloaded_packets", 1),
        ("h1", "forwarded_packets", 1),
        ("h2", "tx_packets", 1),
    ]);
    let skipped = packets_out(&scene)? == before;
    assert_eq!(skipped, can, "whether it passed the switch's end");
    // A station behind the container's address, as behind a bridge in it, is for the netdev to sort out.
    scene.wire.pass(&mut scene.bed, 1, shout(1), &[0, 2])?;
    let behind = scene.until_carried(0, tell(0, 1), &[1])?;
    assert!(!is_handed(&behind), "{behind:?}");
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

fn heard(subject: Subject) -> Outcome {
    let (mut bed, hosts) = with_offload(|| Bed::with_hosts(subject, 2))?;
    let client = bed.client();
    let both = |wanted: usize| {
        let list = flow_list(&client).expect("flows are listed");
        list.flows.iter().filter(|flow| is_handed(flow) && flow.packets > 0).count() >= wanted
    };
    let wanted = if subject.kind() == PortKind::VethTcx { 2 } else { 0 };
    wait::until("packets to be handed over both ways", INSTALL_LIMIT, || {
        let ping = Ping::new(hosts[1].v4()).count(3).from(&hosts[0]).expect("ping runs");
        assert!(ping.is_complete(), "{ping:?}");
        both(wanted)
    })?;
    for target in [hosts[1].address(false), hosts[1].address(true)] {
        assert!(Ping::new(target).count(20).payload_bytes(1400).from(&hosts[0])?.is_complete());
    }
    assert!(client.stats_check()?.balanced);
    Ok(())
}

/// `change` puts something in the way, and says what takes it away again.
fn obeyed(subject: Subject, change: impl FnOnce(&mut Scene) -> Result<&'static [&'static str]>) -> Outcome {
    let mut scene = scene(subject, "")?;
    let can = subject.kind() == PortKind::VethTcx;
    until_handed(&mut scene, can)?;
    let back = change(&mut scene)?;
    scene.bed.lab.switch().run("tc", back)?;
    until_handed(&mut scene, can)
}

fn qdisc(scene: &mut Scene) -> Result<&'static [&'static str]> {
    let before = packets_out(scene)?;
    scene.bed.lab.switch().run("tc", &["qdisc", "add", "dev", "h2", "root", "pfifo"])?;
    until_handed(scene, false).expect("frames pass the qdisc");
    assert!(packets_out(scene)? > before);
    Ok(&["qdisc", "del", "dev", "h2", "root"])
}

/// Everything that leaves by h2 goes to host 2 instead.
fn classifier(scene: &mut Scene) -> Result<&'static [&'static str]> {
    let switch = scene.bed.lab.switch();
    switch.run("tc", &["qdisc", "add", "dev", "h2", "clsact"])?;
    let everything = ["u32", "match", "u32", "0", "0"];
    let to_another = ["action", "mirred", "egress", "redirect", "dev", "h3"];
    let filter = ["filter", "add", "dev", "h2", "egress", "protocol", "all"];
    switch.run("tc", &[&filter[..], &everything, &to_another].concat())?;
    let shape = to_host(scene);
    let arrives_there = wait::until("frames to go where the filter sends them", INSTALL_LIMIT, || {
        let mark = scene.wire.mark();
        scene.wire.socket(0).send(&shape(mark).build()).expect("a frame can be sent");
        let is_it = |bytes: &[u8]| forebay_testbed::frame::mark_of(bytes) == Some(mark);
        let found = scene.wire.socket(2).collect(1, std::time::Duration::from_millis(200), is_it);
        !found.expect("the socket works").is_empty()
    });
    arrives_there?;
    Ok(&["qdisc", "del", "dev", "h2", "clsact"])
}

fn xdp(subject: Subject) -> Outcome {
    let mut scene = scene(subject, "")?;
    let can = subject.kind() == PortKind::VethTcx;
    until_handed(&mut scene, can)?;
    if subject.kind() == PortKind::Tap {
        // The container's end is not the port's other end.
        return Ok(());
    }
    let sink = Sink::attach(scene.hosts[1].netns(), "eth0")?;
    // It lets these frames pass.
    until_handed(&mut scene, false)?;
    drop(sink);
    until_handed(&mut scene, can)
}

fn switched_off(subject: Subject) -> Outcome {
    let mut scene = scene(subject, "[flows]\nredirect_peer = false\n")?;
    until_handed(&mut scene, false)
}
