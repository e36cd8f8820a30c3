//! Tags as the kernel edits them: as user space does it, to the byte.

use std::collections::BTreeMap;

use forebay_control::MacAddr;
use forebay_control::vlan::VlanMode;
use forebay_testbed::frame::{self, TPID_C, TPID_S};
use forebay_testbed::{Result, wait};

use super::{INSTALL_LIMIT, Scene, flow_list, flow_of, port_name, station, tell};
use crate::bed::Oracle;
use crate::harness::{Outcome, Subject, Suite};

const MODES: [&str; 9] = [
    "all",
    "access:10",
    "access:20",
    "access:10,tagged",
    "access:20,tagged",
    "trunk:10,20",
    "trunk:20,native:10",
    "trunk:10,native:20",
    "trunk:10,20,native:1",
];
/// Priority 7 and the drop eligible bit are to stay.
const TAGS: [&[(u16, u16)]; 11] = [
    &[],
    &[(TPID_C, 0)],
    &[(TPID_C, 0xe000)],
    &[(TPID_C, 10)],
    &[(TPID_C, 20)],
    &[(TPID_C, 0xe00a)],
    &[(TPID_C, 0x7014)],
    &[(TPID_S, 10)],
    &[(TPID_S, 20), (TPID_C, 10)],
    &[(TPID_C, 10), (TPID_C, 20)],
    &[(TPID_C, 0), (TPID_C, 20)],
];
const VIDS: [u16; 4] = [0, 1, 10, 20];

pub fn register(suite: &mut Suite) {
    suite.heavy_on_netdevs("tags_are_edited_by_the_kernel_as_by_user_space", edits);
}

/// One frame: hosts from and to, and which of the tags.
type Case = (usize, usize, usize);

fn cases() -> impl Iterator<Item = Case> {
    let to = MODES.len()..2 * MODES.len();
    let pairs = (0..MODES.len()).flat_map(move |from| to.clone().map(move |to| (from, to)));
    pairs.flat_map(|(from, to)| (0..TAGS.len()).map(move |tags| (from, to, tags)))
}

fn build((from, to, tags): Case, mark: u32) -> Vec<u8> {
    let frame =
        TAGS[tags].iter().fold(tell(from, to)(mark), |frame, (protocol, tci)| frame.tag(*protocol, *tci));
    frame.payload_bytes(100).build()
}

/// Whether a port takes frames with these tags.
fn takes(mode: &str, tags: &[(u16, u16)]) -> bool {
    let vid = tags.first().filter(|(protocol, _)| *protocol == TPID_C).map_or(0, |(_, tci)| tci & 0xfff);
    match mode.parse().expect("a mode of this test") {
        VlanMode::All => true,
        VlanMode::Access(_) => matches!(tags, [] | [(TPID_C, 0 | 0xe000)]),
        VlanMode::AccessTagged(own) => [0, own.get()].contains(&vid),
        VlanMode::Trunk { native, .. } if vid == 0 => native.is_some(),
        VlanMode::Trunk { vids, native } => vids.into_iter().chain(native).any(|own| own.get() == vid),
    }
}

/// Where each frame arrived, and as what.
type Arrivals = BTreeMap<Case, Vec<(usize, Vec<u8>)>>;

fn round(scene: &mut Scene) -> Result<(Arrivals, Oracle)> {
    let marks: BTreeMap<u32, Case> = cases().map(|case| (scene.wire.mark(), case)).collect();
    let Scene { bed, wire, .. } = scene;
    let ((), counted) = bed.watch(|_| {
        marks.iter().try_for_each(|(mark, case)| wire.socket(case.0).send(&build(*case, *mark)))
    })?;
    let mut arrivals = Arrivals::new();
    for host in 0..2 * MODES.len() {
        for bytes in wire.drain(host)? {
            let mark = frame::mark_of(&bytes).expect("the hosts are silent");
            let Some(case) = marks.get(&mark) else { continue };
            arrivals.entry(*case).or_default().push((host, without_mark(bytes, mark)));
        }
    }
    Ok((arrivals, counted))
}

fn without_mark(mut bytes: Vec<u8>, mark: u32) -> Vec<u8> {
    let at = bytes.windows(4).skip(12).position(|window| window == mark.to_be_bytes());
    let at = 12 + at.expect("a marked frame has its mark");
    bytes[at..at + 4].fill(0);
    bytes
}

fn assert_same(slow: &Arrivals, fast: &Arrivals) {
    for case @ (from, to, tags) in cases() {
        let [slow, fast] = [slow, fast].map(|arrivals| arrivals.get(&case));
        let pair = format!("from {} to {}", MODES[from], MODES[to - MODES.len()]);
        assert!(slow == fast, "{pair} with {:x?}:\nslow {slow:02x?}\nfast {fast:02x?}", TAGS[tags]);
    }
}

fn edits(subject: Subject) -> Outcome {
    let mut scene = Scene::new(subject, 2 * MODES.len())?;
    let client = scene.client();
    client.ok(&["eswitch", "set", "offload", "off"])?;
    for (to, vid) in (MODES.len()..2 * MODES.len()).flat_map(|to| VIDS.map(|vid| (to, vid.to_string()))) {
        let mac = MacAddr(station(to)).to_string();
        client.ok(&["fdb", "add", &mac, "--port", &port_name(to), "--vlan", &vid])?;
    }
    // What a port does not carry any more stays said of it: such frames are for nobody.
    for (port, mode) in MODES.iter().cycle().enumerate().take(2 * MODES.len()) {
        scene.set(port, &["--vlan", mode])?;
    }
    let (slow, counted) = round(&mut scene)?;
    assert_eq!(counted.total("offloaded_packets"), Some(0));
    assert!(slow.iter().all(|((_, to, _), arrived)| matches!(&arrived[..], [(at, _)] if at == to)));
    assert!(slow.len() * 3 > cases().count(), "{} of {} arrived", slow.len(), cases().count());

    client.ok(&["eswitch", "set", "offload", "on"])?;
    let taken = |(from, _, tags): &Case| takes(MODES[*from], TAGS[*tags]);
    wait::until("flows for all frames", INSTALL_LIMIT, || {
        let (fast, _) = round(&mut scene).expect("frames can be sent");
        assert_same(&slow, &fast);
        let list = flow_list(&client).expect("the daemon answers");
        cases().filter(taken).all(|case| flow_of(&list, case.0, &build(case, 0)).is_some())
    })?;
    let (fast, counted) = round(&mut scene)?;
    assert_same(&slow, &fast);
    for (from, mode) in MODES.iter().enumerate() {
        let followed = cases().filter(taken).filter(|case| case.0 == from);
        let moved = counted.moved(&port_name(from), "offloaded_packets");
        assert_eq!(moved, Some(followed.count() as u64), "from {mode}\n{counted}");
    }
    Ok(())
}
