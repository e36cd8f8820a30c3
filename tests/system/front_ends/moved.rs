//! What a front end says of its guest beside queues: that it has moved here, and its MTU.

use std::time::Duration;

use forebay_testbed::frame::{Frame, tags_of};
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::wait;

use super::{LIMIT, Scene, guest, join, mac, quiet};
use crate::harness::{Outcome, Suite};

const REVERSE_ARP: [u8; 2] = [0x80, 0x35];
const SHORT: Duration = Duration::from_millis(200);

pub fn register(suite: &mut Suite) {
    suite.once("a_guest_that_has_moved_is_announced_and_learned", announced);
    suite.once("a_guest_sends_and_receives_packets_as_long_as_its_mtu", jumbo);
}

/// A frame that announces this station.
fn announces(frame: &[u8], station: [u8; 6]) -> bool {
    let at = 12 + 4 * tags_of(frame).len();
    frame[6..12] == station && frame[at..at + 2] == REVERSE_ARP
}

fn announced() -> Outcome {
    let scene = Scene::new(4, quiet())?;
    scene.add("vm1", &["--vlan", "access:10"])?;
    // One host is in the guest's VLAN, one has it with tags, one is in another, and the guest came from the fourth.
    for (host, mode) in [("h1", "access:10"), ("h2", "trunk:10,20"), ("h3", "access:20"), ("h4", "access:10")]
    {
        scene.client().ok(&["port", "set", host, "--vlan", mode])?;
    }
    let mut sockets = scene.hosts[..3].iter().map(FrameSocket::open).collect::<Result<Vec<_>, _>>()?;
    let before = FrameSocket::open(&scene.hosts[3])?;
    before.send(&Frame::marked(mac(1), [0xff; 6], 1).build())?;
    let place = || {
        let entries = scene.client().fdb().unwrap_or_default();
        entries.into_iter().find(|entry| entry.mac.0 == mac(1)).map(|entry| (entry.port, entry.vlan.get()))
    };
    wait::until("the guest where it was", LIMIT, || place() == Some(("h4".to_owned(), 10)))?;
    let mut guest = guest()?;
    join(&mut guest, &scene, "vm1")?;
    guest.announce(mac(1))?;
    wait::until("the guest where it is", LIMIT, || place() == Some(("vm1".to_owned(), 10)))?;
    for (socket, vids) in sockets[..2].iter_mut().zip([vec![], vec![10]]) {
        let frames = socket.collect(1, LIMIT, |frame| announces(frame, mac(1)))?;
        let tags: Vec<u16> = frames.iter().flat_map(|frame| tags_of(frame)).map(|(_, vid)| vid).collect();
        assert_eq!((frames.len(), tags), (1, vids));
    }
    // What comes behind it in the same way has no announcement before it.
    let none = sockets[2].collect(1, SHORT, |frame| announces(frame, mac(1)))?;
    assert!(none.is_empty(), "another VLAN: {none:?}");
    // A front end that asks for ever costs others a bounded number of frames.
    for _ in 0..200 {
        guest.announce(mac(1))?;
    }
    let many =
        sockets[0].collect(200, LIMIT.min(Duration::from_secs(2)), |frame| announces(frame, mac(1)))?;
    assert!(many.len() < 100, "{} of 200 announcements went out", many.len());
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

fn jumbo() -> Outcome {
    let scene = Scene::new(1, quiet())?;
    scene.hosts[0].set_mtu(scene.lab.switch(), 9000)?;
    scene.add("vm1", &["--mtu", "9000"])?;
    let mut guest = guest()?;
    join(&mut guest, &scene, "vm1")?;
    assert_eq!(scene.client().port("vm1")?.mtu, 9000);
    assert_eq!(guest.config(10, 2)?, 9000u16.to_le_bytes());
    let mut socket = FrameSocket::open(&scene.hosts[0])?;
    let there = Frame::marked(mac(1), scene.hosts[0].mac(), 7).payload_bytes(9000).build();
    let back = Frame::marked(scene.hosts[0].mac(), mac(1), 8).payload_bytes(9000).build();
    wait::until("a long packet from the guest", LIMIT, || {
        guest.transmit(&there);
        socket.collect(1, SHORT, |frame| frame == there).is_ok_and(|frames| frames.len() == 1)
    })?;
    socket.send(&back)?;
    wait::until("a long packet for the guest", LIMIT, || {
        std::iter::from_fn(|| guest.receive()).any(|packet| packet == back)
    })?;
    guest.set_mtu(4000)?;
    wait::until("the MTU that the front end has set", LIMIT, || {
        scene.client().port("vm1").is_ok_and(|port| port.mtu == 4000)
    })?;
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}
