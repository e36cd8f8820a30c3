//! The same random frames with the fast path and without: they arrive at the same hosts as the same bytes, and the same
//! is counted.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::frame::{self, BROADCAST, Frame, TPID_C, TPID_S};
use forebay_testbed::{LabError, Result, wait};

use super::{Scene, port_name, station};
use crate::harness::{Outcome, Subject, Suite};
use crate::hostile::Random;

const SEED: u64 = 0x0f10_7e57_0000_0001;
const PORTS: usize = 6;
const STATIONS: usize = 8;
const PHASES: u64 = 100;
/// Less than rings and queues hold, whoever all of them are for.
const FRAMES_A_PHASE: usize = 200;
/// Between two changes of a port; as often a station moves.
const PHASES_A_CHANGE: u64 = 4;
/// Within which the switch has every frame that was sent.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
const MODES: [&str; 5] = ["all", "access:10", "trunk:10,20", "trunk:20,native:10", "trunk:10,20,native:20"];
const TAGS: [&[(u16, u16)]; 8] = [
    &[],
    &[],
    &[(TPID_C, 10)],
    &[(TPID_C, 20)],
    &[(TPID_C, 0xe00a)],
    &[(TPID_C, 0x6000)],
    &[(TPID_S, 10)],
    &[(TPID_C, 20), (TPID_C, 10)],
];

pub fn register(suite: &mut Suite) {
    suite.heavy_on_netdevs("with_the_fast_path_every_frame_goes_where_it_goes_without", same);
}

/// What became of each frame, by its mark: hosts and bytes.
type Fates = BTreeMap<u32, Vec<(usize, Vec<u8>)>>;

fn same(subject: Subject) -> Outcome {
    let [off, on] = std::thread::scope(|scope| {
        let runs = ["off", "on"]
            .map(|offload| scope.spawn(move || run(subject, offload).map_err(|e| e.to_string())));
        runs.map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let ((slow, slow_counted), (fast, fast_counted)) = (off?, on?);
    assert_eq!(slow_counted.total("offloaded_packets"), 0);
    for (mark, expected) in &slow {
        let found = fast.get(mark).unwrap_or(const { &Vec::new() });
        assert!(found == expected, "frame {mark} without: {expected:02x?}\nwith: {found:02x?}");
    }
    assert_eq!(slow.len(), fast.len(), "some frames arrived only with the fast path");
    let expected: Vec<_> = slow_counted.packets();
    let mut found = fast_counted.packets();
    found.retain(|(_, name, _)| *name != "offloaded_packets");
    assert_eq!(found, expected);
    for (port, name) in
        (0..PORTS).flat_map(|port| ["rx_bytes", "tx_bytes"].map(|name| (port_name(port), name)))
    {
        assert_eq!(fast_counted.get(&port, name), slow_counted.get(&port, name), "{port} {name}");
    }
    let (carried, sent) = (fast_counted.total("offloaded_packets"), PHASES * FRAMES_A_PHASE as u64);
    assert!(carried * 4 > sent, "{carried} of {sent} were carried by the kernel");
    Ok(())
}

fn run(subject: Subject, offload: &str) -> std::result::Result<(Fates, Moved), Box<dyn std::error::Error>> {
    let mut scene = Scene::new(subject, PORTS)?;
    let client = scene.client();
    client.ok(&["eswitch", "set", "offload", offload])?;
    let mut random = Random(SEED);
    let mut homes: Vec<usize> = (0..STATIONS).map(|station| station % PORTS).collect();
    let mut fates = Fates::new();
    let before = Reading::settled(&client)?;
    for phase in 0..PHASES {
        if phase % PHASES_A_CHANGE == 0 {
            change(&mut scene, &mut random)?;
        }
        if phase % PHASES_A_CHANGE == PHASES_A_CHANGE / 2 {
            homes[below(&mut random, STATIONS)] = below(&mut random, PORTS);
        }
        if phase % (PHASES_A_CHANGE / 2) == 0 {
            // From here on nothing that is learned depends on the order of frames.
            introduce(&mut scene, &homes)?;
            gather(&mut scene, &before, &mut fates)?;
        }
        for _ in 0..FRAMES_A_PHASE {
            let from = below(&mut random, STATIONS);
            let frame = draw(&mut random, from, scene.wire.mark());
            scene.wire.socket(homes[from]).send(&frame)?;
        }
        gather(&mut scene, &before, &mut fates)?;
    }
    let counted = Reading::settled(&client)?.since(&before);
    assert!(client.stats_check()?.balanced);
    Ok((fates, counted))
}

fn below(random: &mut Random, limit: usize) -> usize {
    // The upper bits are the better ones.
    (random.next() >> 33) as usize % limit
}

fn change(scene: &mut Scene, random: &mut Random) -> Result<()> {
    let port = below(random, PORTS);
    match below(random, 4) {
        0 => scene.set(port, &["--isolated", "on"]),
        1 => scene.set(port, &["--isolated", "off"]),
        _ => scene.set(port, &["--vlan", MODES[below(random, MODES.len())]]),
    }
}

fn with_tags(frame: Frame, tags: &[(u16, u16)]) -> Frame {
    tags.iter().fold(frame, |frame, (protocol, tci)| frame.tag(*protocol, *tci))
}

/// Every station speaks to all in every VLAN that it can.
fn introduce(scene: &mut Scene, homes: &[usize]) -> Result<()> {
    for (number, home) in homes.iter().enumerate() {
        for tags in TAGS {
            let frame = with_tags(Frame::marked(station(number), BROADCAST, scene.wire.mark()), tags);
            scene.wire.socket(*home).send(&frame.build())?;
        }
    }
    Ok(())
}

/// Mostly for stations; some for all, for nobody that is known, and for nobody at all.
fn draw(random: &mut Random, from: usize, mark: u32) -> Vec<u8> {
    let destination = match below(random, 20) {
        0 => BROADCAST,
        1 => station(STATIONS + below(random, 4)),
        2 => [1, 0x80, 0xc2, 0, 0, 0],
        _ => station(below(random, STATIONS)),
    };
    let tags = TAGS[below(random, TAGS.len())];
    let payload = 46 + below(random, 1400);
    with_tags(Frame::marked(station(from), destination, mark), tags).payload_bytes(payload).build()
}

/// What arrived, once the switch has had every frame and nothing is under way. A tap's pump may be late with one, and
/// counters stand still and balance until then.
fn gather(scene: &mut Scene, before: &Reading, fates: &mut Fates) -> Result<()> {
    let (client, sent) = (scene.client(), scene.wire.marks_used());
    let mut had = 0;
    let waited = wait::until("the switch to have every frame", SETTLE_LIMIT, || {
        had = Reading::settled(&client).map_or(had, |now| now.since(before).total("rx_packets"));
        had == sent
    });
    waited.map_err(|_| LabError::output("the switch", format!("it had {had} frames of {sent}")))?;
    for host in 0..PORTS {
        for bytes in scene.wire.drain(host)? {
            let mark = frame::mark_of(&bytes).expect("the hosts are silent");
            fates.entry(mark).or_default().push((host, bytes));
        }
    }
    Ok(())
}
