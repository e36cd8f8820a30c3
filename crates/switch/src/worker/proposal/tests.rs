use forebay_control::PortId;
use rtrb::RingBuffer;

use super::*;
use crate::rules::{ActiveRule, RuleCells};
use crate::topology::tests::entry;

fn headers(tag: Option<Tag>) -> Headers {
    Headers { input: PortId(0), dst: 2, src: 4, vid: 10, tag, tag_is_out: false, ethertype: 0x0800, mark: 0 }
}

fn made(verdict: Verdict) -> Made<'static> {
    Made {
        verdict,
        ruling: Ruling::default(),
        has_copies: false,
        carried: FlowCount { packets: 1, bytes: 100 },
    }
}

/// While the kernel carries flows.
fn carrying<const PORTS: usize>(ports: [PortEntry; PORTS]) -> Topology {
    let mut topology = Topology::new(ports);
    topology.set_rules(Arc::default(), 1);
    topology.set_flows(true, 0);
    topology
}

fn proposals() -> (Proposals, rtrb::Consumer<Proposal>) {
    let (producer, consumer) = RingBuffer::new(PROPOSALS);
    (Proposals::new(producer, Arc::new(Attention::new().expect("an eventfd"))), consumer)
}

#[test]
fn the_same_decision_is_proposed_once_in_a_while_with_what_came_meanwhile() {
    let generations = Generations::detached(4).expect("memory");
    let (mut proposals, mut consumer) = proposals();
    let topology = carrying([entry(0, "all"), entry(1, "all")]);
    let guard = Guard::begin(&generations, &headers(None));
    let port = topology.port(PortId(0)).expect("it is there");
    for at in [1, 2, PAUSE.0, PAUSE.0 + 1] {
        let decided = made(Verdict::Forward(PortId(1)));
        proposals.make(&topology, port, headers(None), decided, guard, Nanos(at));
    }
    let carried = std::iter::from_fn(|| consumer.pop().ok()).map(|proposal| proposal.carried);
    let count = |packets| FlowCount { packets, bytes: packets * 100 };
    assert_eq!(carried.collect::<Vec<_>>(), [count(1), count(3)]);
}

#[test]
fn what_depends_on_the_moment_is_not_told() {
    let generations = Generations::detached(4).expect("memory");
    let (mut proposals, mut consumer) = proposals();
    let topology = carrying([entry(0, "all"), entry(1, "all")]);
    let guard = Guard::begin(&generations, &headers(None));
    let port = topology.port(PortId(0)).expect("it is there");
    for (at, reason) in (1..).zip(DropReason::ALL) {
        let later = Nanos(at * 2 * PAUSE.0);
        proposals.make(&topology, port, headers(None), made(Verdict::Drop(reason)), guard, later);
    }
    let told: Vec<_> = std::iter::from_fn(|| consumer.pop().ok()?.reason).collect();
    assert_eq!(told.len(), 5, "{told:?}");
}

#[test]
fn what_the_kernel_cannot_do_says_why() {
    let captured = PortEntry { is_captured: true, ..entry(0, "all") };
    let xdp = PortEntry { is_xdp: true, ..entry(1, "all") };
    let down = PortEntry { output: None, ..entry(2, "all") };
    let topology = carrying([captured, xdp, down, entry(3, "all")]);
    let why = |from: u16, made: Made<'_>| {
        let port = topology.port(PortId(from)).expect("it is there");
        repeatable(&topology, port, headers(None), &made).err().map(|cannot| cannot.why)
    };
    let to = |port| made(Verdict::Forward(PortId(port)));
    assert_eq!(why(0, to(3)), Some(Why::Captured));
    assert_eq!(why(1, to(2)), Some(Why::NoOutput));
    assert_eq!(why(1, made(Verdict::Flood)), Some(Why::Flooded));
    assert_eq!(why(1, Made { has_copies: true, ..to(3) }), Some(Why::Copies));
    assert_eq!((why(1, to(3)), why(3, to(1))), (None, None));
}

#[test]
fn packets_under_a_rule_with_a_channel_are_led_to_its_worker() {
    let cells = Arc::new(RuleCells::new(1));
    let group = PortEntry { channels: [0, 2].into(), ..entry(0, "all") };
    let topology = carrying([group, entry(1, "all")]);
    let port = topology.port(PortId(0)).expect("it is there");
    let led_to = |channel, verdict| {
        let rule = ActiveRule { id: 1, doing: Doing::Channel(channel), cells: Arc::clone(&cells) };
        let ruling = Ruling { rule: Some(&rule), ..Ruling::default() };
        led(&topology, port, &Made { ruling, ..made(verdict) }).map(|(action, ..)| action)
    };
    let steer = |port_id, queue| Some(FlowAction::Steer { port_id, queue });
    assert_eq!(led_to(1, Verdict::Forward(PortId(1))), steer(1, 2));
    assert_eq!(led_to(0, Verdict::Flood), steer(0, 0));
    assert_eq!(led_to(2, Verdict::Flood), None, "it has two channels");
    assert_eq!(led(&topology, port, &made(Verdict::Flood)), None, "no rule");
}

#[test]
fn frames_go_between_drivers_where_both_can_and_no_mark_is_to_be_set() {
    let xdp = PortEntry { is_xdp: true, ..entry(0, "all") };
    let deaf = PortEntry { takes_frames: false, ..entry(1, "all") };
    let beside = PortEntry { peer: Some(headers(None).dst), ..deaf.clone() };
    let marked = Headers { mark: 7, ..headers(None) };
    assert_eq!(path(&xdp, &entry(1, "all"), headers(None)), FlowPath::Frames);
    assert_eq!(path(&xdp, &entry(1, "all"), marked), FlowPath::Packets);
    assert_eq!(path(&xdp, &deaf, headers(None)), FlowPath::Packets);
    assert_eq!(path(&xdp, &beside, headers(None)), FlowPath::Peer);
    assert_eq!(path(&xdp, &beside, marked), FlowPath::Peer);
    assert_eq!(path(&entry(0, "all"), &entry(1, "all"), headers(None)), FlowPath::Packets);
}

#[test]
fn a_tag_does_not_count_towards_the_mtu() {
    assert_eq!(longest(&entry(1, "all"), None), 1514);
    assert_eq!(longest(&entry(1, "all"), Some(Tag::from_tci(5))), 1518);
    assert_eq!(longest(&PortEntry { mtu: 65_535, ..entry(1, "all") }, None), u16::MAX);
}
