//! Bounds: of frames' lengths, of flows' time, of the table.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_control::MacAddr;
use forebay_control::fdb::FdbEntry;
use forebay_control::flow::{FlowEntry, FlowTable};
use forebay_testbed::frame::{self, TPID_C, TPID_S};
use forebay_testbed::{Result, wait};
use nix::sys::signal::Signal;

use super::{Scene, flow_list, port_name, station, tell};
use crate::bed::Oracle;
use crate::harness::{Outcome, Subject, Suite};

const LIMIT: Duration = Duration::from_secs(10);

pub fn register(suite: &mut Suite) {
    suite.on_netdevs("too_long_is_too_long", too_long);
    suite.on_netdevs("a_smaller_mtu_is_obeyed_although_there_is_a_flow", smaller_mtu);
    suite.on_netdevs("flows_go_when_nothing_is_carried_and_keep_stations_known", idle);
    suite.on_netdevs("a_reload_changes_how_long_flows_last", reload);
    suite.heavy_on_netdevs("one_port_cannot_fill_the_table", shares);
}

fn reload(subject: Subject) -> Outcome {
    let config = |seconds: u32| format!("[flows]\nidle_seconds = {seconds}\n");
    let mut scene = Scene::with(subject, &config(3600), 2, |bed, hosts| bed.attach(hosts))?;
    scene.introduce()?;
    scene.until_carried(0, tell(0, 1), &[1])?;
    std::fs::write(scene.bed.lab.path("forebay.toml"), config(1))?;
    scene.bed.forebay().daemon().signal(Signal::SIGHUP);
    wait::until("idle flows to go", LIMIT, || table(&mut scene).is_ok_and(|table| table.entries == 0))?;
    assert!(table(&mut scene)?.idle_flows > 0);
    Ok(())
}

const JUMBO: u32 = 9000;
const MTU: usize = 1500;
const TAGS: [&[(u16, u16)]; 5] =
    [&[], &[(TPID_C, 10)], &[(TPID_S, 10)], &[(TPID_S, 20), (TPID_C, 10)], &[(TPID_C, 10), (TPID_C, 20)]];

fn long(tags: &[(u16, u16)], payload: usize, mark: u32) -> Vec<u8> {
    let frame = tags.iter().fold(tell(0, 1)(mark), |frame, (protocol, tci)| frame.tag(*protocol, *tci));
    frame.payload_bytes(payload).build()
}

/// Which lengths arrive with which tags, of those about as long as the MTU allows; each frame unchanged.
fn lengths(scene: &mut Scene) -> Result<(Vec<(usize, usize)>, Oracle)> {
    let mut sent = BTreeMap::new();
    for (number, tags) in TAGS.iter().enumerate() {
        for payload in MTU - 10..MTU + 10 {
            let mark = scene.wire.mark();
            sent.insert(mark, ((number, payload), long(tags, payload, mark)));
        }
    }
    let Scene { bed, wire, .. } = scene;
    let ((), counted) = bed.watch(|_| sent.values().try_for_each(|(_, bytes)| wire.socket(0).send(bytes)))?;
    let mut arrived = Vec::new();
    for bytes in wire.drain(1)? {
        let Some((case, expected)) = frame::mark_of(&bytes).and_then(|mark| sent.get(&mark)) else {
            continue;
        };
        assert!(bytes == *expected, "{case:?} is another frame now");
        arrived.push(*case);
    }
    arrived.sort_unstable();
    Ok((arrived, counted))
}

fn too_long(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject, 2)?;
    scene.hosts[0].set_mtu(scene.bed.lab.switch(), JUMBO)?;
    let client = scene.client();
    for vid in ["0", "10"] {
        client.ok(&["fdb", "add", &MacAddr(station(1)).to_string(), "--port", "h2", "--vlan", vid])?;
    }
    client.ok(&["eswitch", "set", "offload", "off"])?;
    let (slow, slow_counted) = lengths(&mut scene)?;
    for (number, tags) in TAGS.iter().enumerate().take(2) {
        let longest = slow.iter().filter(|case| case.0 == number).map(|case| case.1).max();
        assert_eq!(longest, Some(MTU), "with {tags:x?}");
    }
    client.ok(&["eswitch", "set", "offload", "on"])?;
    scene.until_carried(0, tell(0, 1), &[1])?;
    scene.until_carried(0, |mark| tell(0, 1)(mark).tag(TPID_C, 10), &[1])?;
    let (fast, counted) = lengths(&mut scene)?;
    assert_eq!(slow, fast);
    for (port, counter) in [
        ("h1", "rx_packets"),
        ("h1", "rx_bytes"),
        ("h2", "tx_packets"),
        ("h2", "tx_bytes"),
        ("h2", "tx_too_big"),
    ] {
        let [slow, fast] = [&slow_counted, &counted].map(|counted| counted.moved(port, counter));
        assert_eq!(slow, fast, "{port} {counter}\n{counted}");
    }
    let carried = counted.moved("h1", "offloaded_packets");
    let short = fast.iter().filter(|(number, _)| *number < 2).count() as u64;
    assert!(carried >= Some(short), "{carried:?} of {short}\n{counted}");
    Ok(())
}

fn smaller_mtu(subject: Subject) -> Outcome {
    const SMALL: u32 = 600;
    let mut scene = Scene::new(subject, 2)?;
    let client = scene.client();
    scene.introduce()?;
    let of = |payload: u32| move |mark| tell(0, 1)(mark).payload_bytes(payload as usize);
    scene.until_carried(0, of(SMALL + 1), &[1])?;
    scene.hosts[1].set_mtu(scene.bed.lab.switch(), SMALL)?;
    wait::until("the port to have its new MTU", LIMIT, || {
        client.port("h2").is_ok_and(|port| port.mtu == SMALL)
    })?;
    for _ in 0..3 {
        let (_, counted) = scene.wire.deliver(&mut scene.bed, 0, of(SMALL + 1), &[])?;
        let forwarded =
            [("h1", "rx_packets", 1), ("h1", "forwarded_packets", 1), ("h1", "offloaded_packets", 0)];
        counted.exactly(&[&forwarded[..], &[("h2", "tx_too_big", 1)]].concat());
        scene.until_carried(0, of(SMALL), &[1])?;
    }
    Ok(())
}

fn idle(subject: Subject) -> Outcome {
    // Twice the time after which a silent station is forgotten.
    const TRAFFIC: Duration = Duration::from_secs(4);
    let config = "[flows]\nidle_seconds = 1\n[fdb]\nageing_seconds = 2\n";
    let mut scene = Scene::with(subject, config, 3, |bed, hosts| bed.attach(hosts))?;
    let client = scene.client();
    scene.introduce()?;
    scene.until_carried(0, tell(0, 1), &[1])?;
    scene.until_carried(1, tell(1, 0), &[0])?;
    let begun = Instant::now();
    let mut sent = 0;
    let is_known = |known: &[FdbEntry], n| known.iter().any(|entry| entry.mac == MacAddr(station(n)));
    let (known, counted) = scene.bed.watch(|_| {
        wait::until_some("a silent station to be forgotten", 5 * TRAFFIC, || {
            let frames = [(0, 1), (1, 0)].map(|(from, to)| {
                let mark = scene.wire.mark();
                scene.wire.socket(from).send(&tell(from, to)(mark).build()).expect("a frame can be sent");
                scene.wire.expect_one(to, mark).expect("a host's socket works")
            });
            sent += frames.len() as u64 / 2;
            client.fdb().ok().filter(|known| begun.elapsed() > TRAFFIC && !is_known(known, 2))
        })
    })?;
    assert!(is_known(&known, 0) && is_known(&known, 1), "{known:?}\n{counted}");
    let all = |port| {
        ["rx_packets", "forwarded_packets", "tx_packets", "offloaded_packets"].map(|name| (port, name, sent))
    };
    counted.exactly(&[all("h1"), all("h2")].concat());

    let before = table(&mut scene)?;
    wait::until("idle flows to go", LIMIT, || table(&mut scene).is_ok_and(|table| table.entries == 0))?;
    let after = table(&mut scene)?;
    assert_eq!((after.idle_flows - before.idle_flows, before.entries), (2, 2), "{before:?} {after:?}");
    wait::until("stations to be forgotten", LIMIT, || client.fdb().is_ok_and(|entries| entries.is_empty()))?;
    Ok(())
}

fn table(scene: &mut Scene) -> Result<FlowTable> {
    Ok(flow_list(&scene.client())?.table)
}

/// One port has ever more stations that all talk to one other; a third one is quiet.
fn shares(subject: Subject) -> Outcome {
    const MAX: u64 = 1024;
    const RATE: u64 = 100;
    const STATIONS: usize = 800;
    const PORTION: usize = 100;
    const FIRST: usize = 1000;
    let config = format!("[flows]\nmax_entries = {MAX}\ninstalls_per_second = {RATE}\n");
    let mut scene = Scene::with(subject, &config, 3, |bed, hosts| bed.attach(hosts))?;
    scene.introduce()?;
    let client = scene.client();
    let begun = Instant::now();
    wait::until("the port to have its share", 3 * LIMIT, || {
        for first in (FIRST..FIRST + STATIONS).step_by(PORTION) {
            let frames: Vec<_> =
                (first..first + PORTION).map(|from| tell(from, 1)(scene.wire.mark()).build()).collect();
            frames.iter().for_each(|bytes| scene.wire.socket(0).send(bytes).expect("a frame can be sent"));
            let is_ours = |bytes: &[u8]| frames.iter().any(|frame| frame == bytes);
            let arrived = scene.wire.socket(1).collect(PORTION, LIMIT, is_ours);
            assert_eq!(arrived.expect("the socket works").len(), PORTION, "some frames did not arrive");
        }
        let table = flow_list(&client).expect("the daemon answers").table;
        let most = RATE * (begun.elapsed().as_secs() + 2);
        assert!(table.entries <= (MAX / 2).min(most), "after {:?}: {table:?}", begun.elapsed());
        table.refused.over_share > 0
    })?;
    let list = flow_list(&client)?;
    let refused = list.table.refused;
    assert!(refused.over_rate > 0 && refused.table_full == 0, "{refused:?}");
    let is_ours = |flow: &&FlowEntry| flow.in_port == port_name(0) && flow.runs.is_kernel();
    assert_eq!(list.flows.iter().filter(is_ours).count() as u64, MAX / 2, "{:?}", list.table);
    scene.until_carried(2, tell(2, 1), &[1])?;
    scene.until_carried(1, tell(1, 2), &[2])?;
    assert!(scene.bed.client().stats_check()?.balanced);
    Ok(())
}
