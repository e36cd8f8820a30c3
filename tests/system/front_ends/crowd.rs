//! A guest whose buffers are few has some for each port that sends to it.

use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::wait;
use forebay_vhost::Features;
use forebay_vhost::driver::FrontEnd;

use super::{LIMIT, RING, Scene, guest, guest_with, join, mac, pass, quiet};
use crate::harness::{Outcome, Suite};

/// More frames than the guest has buffers.
const MANY: u32 = 3 * RING as u32;
/// Buffers that nobody need share.
const HALF: u64 = RING as u64 / 2;
/// As many as flooded copies of one port, and what one port sends to the guest, may take at most.
const FLOODED: u64 = HALF + HALF / 8;
const SENT: u64 = HALF + HALF / 2;

pub fn register(suite: &mut Suite) {
    suite.once("copies_of_a_flood_leave_a_guests_buffers_to_what_is_meant_for_it", || {
        for features in [Features::default(), Features::RING_PACKED] {
            flooded(features)?;
        }
        Ok(())
    });
    suite.once("a_port_that_fills_a_guests_buffers_leaves_some_to_others", || {
        for features in [Features::default(), Features::RING_PACKED] {
            filled(features)?;
        }
        Ok(())
    });
}

/// A guest that is at leisure, one that is loud, and one that talks with the first.
struct Guests {
    victim: FrontEnd,
    loud: FrontEnd,
    friend: FrontEnd,
}

impl Guests {
    /// Ports `vm1` to `vm3`, whose stations the switch knows.
    fn new(scene: &Scene, features: Features) -> Result<Guests, Box<dyn std::error::Error>> {
        let mut guests = Guests { victim: guest_with(features)?, loud: guest()?, friend: guest()? };
        let Guests { victim, loud, friend } = &mut guests;
        for (port, guest) in [("vm1", &mut *victim), ("vm2", &mut *loud), ("vm3", &mut *friend)] {
            scene.add(port, &[])?;
            join(guest, scene, port)?;
        }
        pass(victim, friend, 1, 3)?;
        pass(friend, victim, 3, 1)?;
        pass(loud, friend, 2, 3)?;
        guests.take_all(scene)?;
        Ok(guests)
    }

    fn take_all(&mut self, scene: &Scene) -> Outcome {
        Reading::settled(scene.client())?;
        for guest in [&mut self.victim, &mut self.loud, &mut self.friend] {
            while guest.receive().is_some() {}
        }
        Ok(())
    }
}

/// Sends frames, and says which counters moved when the switch is done with them.
fn send(scene: &Scene, from: &mut FrontEnd, frame: &Frame, count: u32) -> forebay_testbed::Result<Moved> {
    let before = Reading::settled(scene.client())?;
    let frame = frame.build();
    for _ in 0..count {
        wait::until("room for a packet", LIMIT, || from.transmit(&frame))?;
    }
    wait::until("the switch to take all packets", LIMIT, || from.transmit_backlog() == 0)?;
    Ok(Reading::settled(scene.client())?.since(&before))
}

/// Packets that left for the victim, and those that were dropped for it, because of a share or for want of buffers.
fn at_the_victim(moved: &Moved) -> [u64; 3] {
    ["tx_packets", "tx_over_share", "tx_full"].map(|counter| moved.get("vm1", counter))
}

fn flooded(features: Features) -> Outcome {
    let scene = Scene::new(0, quiet())?;
    let mut guests = Guests::new(&scene, features)?;
    let nobody = mac(99);
    let meant = Frame::marked(mac(3), mac(1), 7);
    for (round, to) in [nobody, BROADCAST, nobody].into_iter().enumerate() {
        let moved = send(&scene, &mut guests.loud, &Frame::marked(mac(2), to, 1), MANY)?;
        let [sent, over_share, full] = at_the_victim(&moved);
        assert!((HALF..=FLOODED).contains(&sent), "round {round}: {moved}");
        assert_eq!((over_share, full), (u64::from(MANY) - sent, 0), "round {round}: {moved}");
        // The victim has taken nothing yet.
        let moved = send(&scene, &mut guests.friend, &meant, 8)?;
        assert_eq!(at_the_victim(&moved), [8, 0, 0], "round {round}: {moved}");
        // One that asks for its address.
        let request = Frame::marked(mac(3), BROADCAST, 7);
        let moved = send(&scene, &mut guests.friend, &request, 1)?;
        assert_eq!(at_the_victim(&moved), [1, 0, 0], "round {round}: {moved}");
        let received = std::iter::from_fn(|| guests.victim.receive());
        let meant = meant.build();
        assert_eq!(received.filter(|packet| *packet == meant).count(), 8, "round {round}");
        guests.take_all(&scene)?;
    }
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}

fn filled(features: Features) -> Outcome {
    let scene = Scene::new(0, quiet())?;
    let mut guests = Guests::new(&scene, features)?;
    for round in 0..3 {
        let moved = send(&scene, &mut guests.loud, &Frame::marked(mac(2), mac(1), 1), MANY)?;
        let [sent, over_share, full] = at_the_victim(&moved);
        assert_eq!((sent, over_share, full), (SENT, u64::from(MANY) - SENT, 0), "round {round}: {moved}");
        // Half of what is free for another port.
        let moved = send(&scene, &mut guests.friend, &Frame::marked(mac(3), mac(1), 7), MANY)?;
        let left = u64::from(RING) - SENT;
        assert_eq!(
            at_the_victim(&moved),
            [left / 2, u64::from(MANY) - left / 2, 0],
            "round {round}: {moved}"
        );
        guests.take_all(&scene)?;
    }
    assert!(scene.client().stats_check()?.balanced);
    Ok(())
}
