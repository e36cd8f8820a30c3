//! What changes is obeyed by the next frame, whatever flows there are.

use forebay_control::MacAddr;
use forebay_testbed::dut::Dut;
use forebay_testbed::frame::TPID_C;
use forebay_testbed::{Result, frame, wait};

use super::{INSTALL_LIMIT, Scene, flow_list, port_name, shout, station, tell};
use crate::harness::{Outcome, Subject, Suite};

pub fn register(suite: &mut Suite) {
    suite.heavy_on_netdevs("a_station_that_moves_is_found_by_the_first_packet", moves);
    suite.on_netdevs("a_ports_changed_vlans_are_obeyed_by_the_first_packet", |subject| again(subject, vlans));
    suite.on_netdevs("a_ports_changed_isolation_is_obeyed_by_the_first_packet", |subject| {
        again(subject, isolation)
    });
    suite.on_netdevs("a_port_that_carries_a_vlan_again_is_obeyed_by_the_first_packet", |subject| {
        again(subject, carries_again)
    });
    suite.on_netdevs("a_port_deleted_and_added_is_obeyed_by_the_first_packet", |subject| {
        again(subject, ports)
    });
    suite.on_netdevs("forgotten_flows_are_not_followed_any_more", |subject| again(subject, flush));
    suite.on_netdevs("a_fast_path_switched_off_carries_nothing", |subject| again(subject, switched_off));
}

/// 200 moves between two hosts. A station tells of its move by a frame of a kind that was carried before it left.
fn moves(subject: Subject) -> Outcome {
    const STATIONS: usize = 20;
    const ROUNDS: usize = 10;
    const FIRST: usize = 10;
    let stations = || FIRST..FIRST + STATIONS;
    let mut scene = Scene::new(subject, 3)?;
    scene.introduce()?;
    for station in stations() {
        scene.wire.pass(&mut scene.bed, 1, tell(station, 0), &[0])?;
    }
    for round in 0..ROUNDS {
        let [at, next] = if round % 2 == 0 { [1, 2] } else { [2, 1] };
        until_all_carried(&mut scene, 0, stations().map(|station| (0, station)), at)?;
        until_all_carried(&mut scene, at, stations().map(|station| (station, 0)), 0)?;
        let first = scene.wire.mark();
        let ((), counted) = scene.bed.watch(|_| {
            for station in stations() {
                for (from, shape, to) in [(next, (station, 0), 0), (0, (0, station), next)] {
                    let mark = scene.wire.mark();
                    scene.wire.socket(from).send(&tell(shape.0, shape.1)(mark).build())?;
                    scene.wire.expect_one(to, mark)?;
                }
            }
            Ok(())
        })?;
        let late: Vec<_> =
            scene.wire.drain(at)?.into_iter().filter_map(|bytes| frame::mark_of(&bytes)).collect();
        assert!(late.iter().all(|mark| *mark < first), "round {round}: some went to where the station was");
        let all = STATIONS as u64;
        let both = |port, received, sent| {
            [
                (port, "rx_packets", received),
                (port, "forwarded_packets", received),
                (port, "tx_packets", sent),
            ]
        };
        counted.exactly(&[both("h1", all, all), both(&port_name(next), all, all)].concat());
    }
    Ok(())
}

/// Sends all these frames, from and to stations, until the kernel carries all of them.
fn until_all_carried(
    scene: &mut Scene,
    from: usize,
    frames: impl Iterator<Item = (usize, usize)> + Clone,
    to: usize,
) -> Result<()> {
    wait::until("the kernel to carry all frames", INSTALL_LIMIT, || {
        let sent = scene.bed.watch(|_| {
            frames.clone().try_for_each(|(source, destination)| {
                let mark = scene.wire.mark();
                scene.wire.socket(from).send(&tell(source, destination)(mark).build())?;
                scene.wire.expect_one(to, mark).map(drop)
            })
        });
        let ((), counted) = sent.expect("frames pass before there are flows as afterwards");
        counted.moved(&port_name(from), "offloaded_packets") == Some(frames.clone().count() as u64)
    })
}

fn again(subject: Subject, change: fn(&mut Scene) -> Outcome) -> Outcome {
    const ROUNDS: usize = 5;
    let mut scene = Scene::new(subject, 3)?;
    scene.introduce()?;
    (0..ROUNDS).try_for_each(|_| change(&mut scene))
}

fn carried(scene: &mut Scene) -> Result<()> {
    scene.until_carried(0, tell(0, 1), &[1]).map(drop)
}

fn passes(scene: &mut Scene, to: &[usize]) -> Result<()> {
    scene.wire.pass(&mut scene.bed, 0, tell(0, 1), to).map(drop)
}

fn vlans(scene: &mut Scene) -> Outcome {
    // The output leaves the VLAN: its station is unknown there, and flooding passes it by.
    carried(scene)?;
    scene.set(1, &["--vlan", "access:7"])?;
    passes(scene, &[2])?;
    scene.set(1, &["--vlan", "all"])?;
    passes(scene, &[1, 2])?;
    scene.introduce_one(1)?;
    // The input does: in its new VLAN nobody is known, and transparent ports get its number.
    carried(scene)?;
    scene.set(0, &["--vlan", "access:7"])?;
    let arrived = scene.wire.pass(&mut scene.bed, 0, tell(0, 1), &[1, 2])?;
    assert!(arrived.iter().all(|bytes| frame::tags_of(bytes) == [(TPID_C, 7)]), "{arrived:02x?}");
    scene.set(0, &["--vlan", "all"])?;
    passes(scene, &[1])?;
    // The output's tags change, and nothing else.
    carried(scene)?;
    scene.set(0, &["--vlan", "access:7"])?;
    scene.set(1, &["--vlan", "trunk:7"])?;
    let introduced = scene.wire.pass(&mut scene.bed, 1, |mark| shout(1)(mark).tag(TPID_C, 7), &[0, 2])?;
    assert_eq!(frame::tags_of(&introduced[0]), []);
    carried(scene)?;
    scene.set(1, &["--vlan", "access:7"])?;
    let arrived = scene.wire.pass(&mut scene.bed, 0, tell(0, 1), &[1, 2])?;
    assert_eq!([0, 1].map(|at| frame::tags_of(&arrived[at])), [vec![], vec![(TPID_C, 7)]]);
    scene.set(0, &["--vlan", "all"])?;
    scene.set(1, &["--vlan", "all"])?;
    Ok(scene.introduce()?)
}

fn isolation(scene: &mut Scene) -> Outcome {
    carried(scene)?;
    scene.set(1, &["--isolated", "on"])?;
    passes(scene, &[1])?;
    carried(scene)?;
    scene.set(0, &["--isolated", "on"])?;
    passes(scene, &[])?;
    let flow = scene.until_carried(0, tell(0, 1), &[])?;
    assert_eq!((&*flow.action, flow.reason.as_deref()), ("drop", Some("isolated")));
    scene.set(1, &["--isolated", "off"])?;
    passes(scene, &[1])?;
    scene.set(0, &["--isolated", "off"])?;
    Ok(passes(scene, &[1])?)
}

/// What a static entry says stays said when its port changes.
fn carries_again(scene: &mut Scene) -> Outcome {
    const VID: u16 = 10;
    let tagged = |mark| tell(0, 1)(mark).tag(TPID_C, VID);
    let mac = MacAddr(station(1)).to_string();
    scene.client().ok(&["fdb", "add", &mac, "--port", "h2", "--vlan", &VID.to_string()])?;
    scene.until_carried(0, tagged, &[1])?;
    scene.set(1, &["--vlan", "trunk:20"])?;
    scene.wire.pass(&mut scene.bed, 0, tagged, &[])?;
    let flow = scene.until_carried(0, tagged, &[])?;
    assert_eq!((&*flow.action, flow.reason.as_deref()), ("drop", Some("vlan_not_allowed")));
    scene.set(1, &["--vlan", "all"])?;
    scene.wire.pass(&mut scene.bed, 0, tagged, &[1])?;
    Ok(())
}

fn ports(scene: &mut Scene) -> Outcome {
    carried(scene)?;
    scene.bed.forebay().delete_port("h2")?;
    passes(scene, &[2])?;
    scene.bed.attach(&scene.hosts[1..2])?;
    passes(scene, &[1, 2])?;
    scene.introduce_one(1)?;
    // The input goes: nothing comes in any more.
    carried(scene)?;
    scene.bed.forebay().delete_port("h1")?;
    passes(scene, &[])?;
    scene.bed.attach(&scene.hosts[..1])?;
    Ok(passes(scene, &[1])?)
}

fn flush(scene: &mut Scene) -> Outcome {
    carried(scene)?;
    scene.client().ok(&["flow", "flush"])?;
    let (_, counted) = scene.wire.deliver(&mut scene.bed, 0, tell(0, 1), &[1])?;
    counted.exactly(&[
        ("h1", "rx_packets", 1),
        ("h1", "forwarded_packets", 1),
        ("h1", "offloaded_packets", 0),
        ("h2", "tx_packets", 1),
    ]);
    Ok(())
}

fn switched_off(scene: &mut Scene) -> Outcome {
    const FRAMES: u64 = 20;
    carried(scene)?;
    let client = scene.client();
    client.ok(&["eswitch", "set", "offload", "off"])?;
    let ((), counted) = scene.bed.watch(|_| {
        (0..FRAMES).try_for_each(|_| {
            let mark = scene.wire.mark();
            scene.wire.socket(0).send(&tell(0, 1)(mark).build())?;
            scene.wire.expect_one(1, mark).map(drop)
        })
    })?;
    counted.exactly(&[
        ("h1", "rx_packets", FRAMES),
        ("h1", "forwarded_packets", FRAMES),
        ("h1", "offloaded_packets", 0),
        ("h2", "tx_packets", FRAMES),
    ]);
    let list = flow_list(&client)?;
    assert!(list.flows.is_empty(), "{list:?}");
    client.ok(&["eswitch", "set", "offload", "on"])?;
    Ok(carried(scene)?)
}
