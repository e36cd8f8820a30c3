use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const RING: u32 = 256;
const VICTIM: Sender = to_it(1);

const fn to_it(port: u16) -> Sender {
    Sender { port, is_flooded: false }
}

const fn flooded(port: u16) -> Sender {
    Sender { port, is_flooded: true }
}

/// A ring whose guest takes packets in their order.
struct Ring {
    share: RingShare,
    /// Who sent what the guest has not taken, and how many buffers that has.
    held: VecDeque<(Sender, u32)>,
    free: u32,
}

impl Ring {
    fn new(buffers: u32) -> Self {
        Self { share: RingShare::default(), held: VecDeque::new(), free: buffers }
    }

    /// Puts in a packet as a switch does. Says whether it went in.
    fn put(&mut self, sender: Sender, buffers: u32) -> bool {
        let may = self.share.is_open() || self.share.admits(sender, buffers, self.free);
        let is_put = may && buffers <= self.free;
        if is_put {
            self.share.take(sender, buffers);
            self.held.push_back((sender, buffers));
            self.free -= buffers;
        }
        is_put
    }

    /// Puts in packets of each sender in turn until none goes in.
    fn saturate(&mut self, senders: &[Sender]) {
        while senders.iter().filter(|sender| self.put(**sender, 1)).count() > 0 {}
    }

    /// The guest takes a number of packets.
    fn take(&mut self, packets: usize) {
        let taken = self.held.drain(..packets.min(self.held.len()));
        self.free += taken.map(|(_, buffers)| buffers).sum::<u32>();
    }

    fn held_by(&self, sender: Sender) -> u32 {
        self.held.iter().filter(|(holder, _)| *holder == sender).map(|(_, buffers)| buffers).sum()
    }
}

#[test]
fn ports_that_send_all_they_can_leave_a_part_of_the_shared_half() {
    for (ports, left) in [(1, 64), (2, 43), (3, 32), (7, 16), (15, 8), (31, 4)] {
        let senders: Vec<Sender> = (10..10 + ports).map(to_it).collect();
        let mut ring = Ring::new(RING);
        ring.saturate(&senders);
        // As many as are free, rounded in favour of whoever asks first.
        assert!((left - 1..=left).contains(&ring.free), "{ports} ports leave {}", ring.free);
        assert!(ring.put(VICTIM, 1), "{ports} ports");
    }
}

#[test]
fn flooded_copies_have_an_eighth_of_that() {
    for (ports, left) in [(1, 113), (8, 64), (24, 32)] {
        let senders: Vec<Sender> = (10..10 + ports).map(flooded).collect();
        let mut ring = Ring::new(RING);
        ring.saturate(&senders);
        assert!((left..=left + 8).contains(&ring.free), "{ports} ports leave {}", ring.free);
        let before = ring.free;
        ring.saturate(&[VICTIM]);
        assert!(ring.held_by(VICTIM).abs_diff(before / 2) <= 1, "{ports} ports");
    }
}

#[test]
fn a_port_that_floods_has_room_for_what_is_meant_for_the_guest_and_the_other_way_round() {
    let mut ring = Ring::new(RING);
    ring.saturate(&[flooded(10)]);
    assert!(!ring.put(flooded(10), 1) && ring.put(to_it(10), 1));
    let mut ring = Ring::new(RING);
    ring.saturate(&[to_it(10)]);
    assert!(!ring.put(to_it(10), 1));
    // An ARP request for the guest, also of the port that sends most.
    assert!(ring.put(flooded(10), 1) && ring.put(flooded(11), 1));
}

#[test]
fn half_of_the_ring_is_for_all_without_a_question() {
    let mut ring = Ring::new(RING);
    assert!(!ring.share.is_open(), "it has not been looked at");
    for _ in 0..RING / 2 {
        assert!(ring.put(flooded(10), 1));
    }
    assert!(!ring.share.is_open());
    ring.take(1);
    assert!(ring.put(flooded(10), 1) && !ring.share.is_open(), "as many as are free above the half");
}

#[test]
fn a_guest_that_takes_packets_gets_all_that_it_has_time_for() {
    for burst in [1, 3, 64] {
        let mut ring = Ring::new(RING);
        let (mut put, mut taken) = (0u32, 0u32);
        for _ in 0..4000 {
            while ring.put(to_it(10), 1) {
                put += 1;
            }
            assert!(ring.free >= RING / 4 - 1, "{}", ring.free);
            taken += burst.min(ring.held.len() as u32);
            ring.take(burst as usize);
        }
        assert!(put >= taken, "{burst}: {put} of {taken}");
        assert!(!ring.held.is_empty(), "{burst}");
    }
}

#[test]
fn what_a_port_put_in_before_a_turn_of_the_ring_still_counts_after_it() {
    let loud = [to_it(10), to_it(11), to_it(12)];
    let mut ring = Ring::new(RING);
    for _ in 0..4 * RING {
        ring.saturate(&loud);
        assert!(ring.free >= RING / 8 - 1, "{}", ring.free);
        ring.take(1);
    }
}

#[test]
fn a_long_packet_is_let_in_if_all_its_buffers_are_of_the_senders_share() {
    let mut ring = Ring::new(RING);
    ring.saturate(&[flooded(10)]);
    let free = ring.free;
    assert!((100..RING / 2).contains(&free), "{free}");
    assert!(ring.put(VICTIM, 40), "the first one");
    assert!(!ring.put(VICTIM, 40), "40 and 40 are more than {} that are free", ring.free);
    assert!(ring.put(VICTIM, 10));
    assert_eq!(ring.free, free - 50);
}

#[test]
fn what_the_ring_has_no_room_for_is_the_rings_to_say() {
    let mut share = RingShare::default();
    assert!(share.admits(VICTIM, 1, 100));
    share.take(VICTIM, 100);
    assert!(share.admits(flooded(9), 1, 0), "a full ring");
    assert!(share.admits(flooded(9), 11, 10), "too few for this packet");
    assert!(!share.admits(flooded(9), 10, 10), "enough, and not for flooded copies");
}

#[test]
fn senders_that_come_late_have_one_share_together() {
    let mut ring = Ring::new(4096);
    ring.saturate(&[flooded(1)]);
    let early: Vec<Sender> = (100..100 + SENDERS as u16 - 2).map(to_it).collect();
    assert!(early.iter().all(|sender| ring.put(*sender, 1)));
    // One place is left.
    let free = ring.free;
    let late: Vec<Sender> = (1000..5000).map(to_it).collect();
    let put = late.iter().filter(|sender| ring.put(**sender, 1)).count() as u32;
    assert!(put.abs_diff(free / 2) <= 1, "{put} of {free}");
    assert!(!ring.put(to_it(9000), 1) && ring.put(early[0], 1));
}

#[test]
fn a_guest_that_gives_fewer_buffers_than_before_is_asked_anew_after_a_second() {
    const FEW: u32 = 100;
    let mut ring = Ring::new(RING);
    ring.saturate(&[VICTIM]);
    ring.take(RING as usize);
    // From now on it keeps the others, and takes each packet at once.
    ring.free = FEW;
    while ring.put(VICTIM, 1) {
        ring.take(1);
    }
    let look = |ring: &mut Ring, ns| {
        let free = ring.free;
        ring.share.look(Nanos(ns), || free);
        ring.put(VICTIM, 1)
    };
    assert!(!look(&mut ring, 5 * STILL), "it gave a buffer since the last look");
    assert!(!look(&mut ring, 6 * STILL - 1));
    assert!(look(&mut ring, 6 * STILL));
    ring.saturate(&[VICTIM]);
    assert!(ring.free.abs_diff(FEW / 4) <= 1, "{}", ring.free);
}

#[test]
fn a_ring_that_is_open_is_not_looked_at() {
    let mut ring = Ring::new(RING);
    assert!(ring.put(VICTIM, 1) && ring.share.is_open());
    ring.share.look(Nanos(STILL), || panic!("nobody wants to know"));
}

#[test]
fn a_guest_that_gives_buffers_every_second_is_not_asked_anew() {
    let mut ring = Ring::new(RING);
    ring.saturate(&[to_it(10)]);
    for second in 1..20 {
        ring.take(1);
        ring.saturate(&[to_it(10)]);
        let free = ring.free;
        ring.share.look(Nanos::from_secs(second), || free);
    }
    assert!(ring.free >= RING / 4, "{}", ring.free);
}

/// How many buffers at least are free after these numbers of loud ports and floods have sent all they can. The order in which
/// they send does not matter.
fn least_left(buffers: u32, loud: usize, floods: usize) -> f64 {
    let leaves = 0.5_f64.powi(loud as i32) * (8.0_f64 / 9.0).powi(floods as i32);
    f64::from(buffers / 2 + 1) * leaves - 1.0
}

proptest! {
    /// Whatever loud ports send, one after the other or in turn, and the guest takes, and when.
    #[test]
    fn a_quiet_port_finds_room_beside_any_others(
        (loud, floods) in (0..4usize, 0..4usize),
        steps in prop::collection::vec((0..8usize, 0..600usize, 0..70usize), 1..60),
        buffers in 64..1024u32,
    ) {
        let mut senders: Vec<Sender> = (10..10 + loud as u16).map(to_it).collect();
        senders.extend((20..20 + floods as u16).map(flooded));
        let mut ring = Ring::new(buffers);
        for (who, packets, taken) in steps {
            for packet in 0..packets {
                // One of them, or all in turn.
                let who = if who < senders.len() { who } else { packet % senders.len().max(1) };
                if let Some(sender) = senders.get(who) {
                    ring.put(*sender, 1);
                }
            }
            if ring.held_by(VICTIM) == 0 {
                let left = least_left(buffers, loud, floods);
                prop_assert!(f64::from(ring.free) >= left, "{} of {left}", ring.free);
                prop_assert!(ring.put(VICTIM, 1), "{} are free", ring.free);
            }
            ring.take(taken);
        }
    }
}

#[test]
fn each_port_that_comes_after_the_others_takes_half_of_what_is_left() {
    let mut ring = Ring::new(RING);
    for left in [64, 32, 16, 8, 4, 2, 1, 0] {
        ring.saturate(&[to_it(10 + left as u16)]);
        assert_eq!(ring.free, left);
    }
    assert!(!ring.put(VICTIM, 1), "until the guest takes packets");
}

#[test]
fn a_guest_that_gives_few_buffers_is_left_alone() {
    for (buffers, taken) in [(13, 13), (63, 63), (64, 48)] {
        let mut ring = Ring::new(buffers);
        ring.saturate(&[VICTIM]);
        assert_eq!(ring.held.len(), taken, "{buffers}");
    }
}
