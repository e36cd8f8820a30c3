use super::*;

/// Ports 0, 1, 2, 5 in VLAN 10, 3 and 4 in VLAN 20; 1 and 2 are isolated. Station n is at port n and known.
fn first() -> State {
    let port = |vlan, isolated| Port { exists: true, vlan, isolated };
    let ports = [(10, false), (10, true), (10, true), (20, false), (20, false), (10, false)];
    let stations = (0..6).map(|port| Station { port, is_known: true });
    State { ports: ports.map(|(vlan, isolated)| port(vlan, isolated)).into(), stations: stations.collect() }
}

fn stamp(changes_done: u32, port: u16, to: u16) -> Stamp {
    Stamp { number: 1, changes_done, vlan: 10, port, from: port, to }
}

fn hear(history: &History, stamp: Stamp, at: u16) -> (Oracle, Option<Violation>) {
    let mut oracle = Oracle::default();
    assert_eq!(oracle.hear(history, at, &stamp.frame(), None), Some(stamp));
    let found = Violation::ALL.into_iter().find(|violation| oracle.count(*violation) > 0);
    (oracle, found)
}

fn violation(history: &History, stamp: Stamp, at: u16) -> Option<Violation> {
    hear(history, stamp, at).1
}

#[test]
fn a_packet_at_its_stations_port_is_direct_and_one_for_everybody_is_flooded() {
    let history = History::new(first());
    assert_eq!(hear(&history, stamp(0, 0, 1), 1).0.direct, 1);
    assert_eq!(hear(&history, stamp(0, 0, EVERYBODY), 5).0.flooded, 1);
    // In the VLAN of port 0, nobody has heard station 3.
    assert_eq!(hear(&history, stamp(0, 0, 3), 1).0.flooded, 1);
}

#[test]
fn each_kind_of_violation_is_found() {
    let history = History::new(first());
    assert_eq!(violation(&history, stamp(0, 0, 3), 3), Some(Violation::OtherVlan));
    assert_eq!(violation(&history, stamp(0, 0, EVERYBODY), 4), Some(Violation::OtherVlan));
    assert_eq!(violation(&history, stamp(0, 1, 2), 2), Some(Violation::IsolatedPeer));
    assert_eq!(violation(&history, stamp(0, 1, EVERYBODY), 2), Some(Violation::IsolatedPeer));
    assert_eq!(violation(&history, stamp(0, 0, 1), 5), Some(Violation::FloodedThoughKnown));
    assert_eq!(violation(&history, stamp(0, 0, EVERYBODY), 0), Some(Violation::BackToSender));
    assert_eq!(violation(&history, stamp(0, 99, 1), 1), Some(Violation::NotSent));
    history.begin(|state| state.ports[1].exists = false);
    history.complete();
    assert_eq!(violation(&history, stamp(1, 0, 1), 1), Some(Violation::NoPort));
}

#[test]
fn a_tag_and_a_frame_that_nobody_sent_are_found() {
    let (history, mut oracle) = (History::new(first()), Oracle::default());
    oracle.hear(&history, 1, &stamp(0, 0, 1).frame(), Some((0x8100, 10)));
    oracle.hear(&history, 1, &[0; 60], None);
    assert_eq!([Violation::Tagged, Violation::NotSent].map(|one| oracle.count(one)), [1, 1]);
    assert_eq!((oracle.received(), oracle.examples.len()), (2, 2));
}

#[test]
fn while_a_station_moves_both_ports_are_right_and_afterwards_only_the_new_one() {
    let history = History::new(first());
    history.begin(|state| state.stations[1].port = 5);
    let sent_before = stamp(history.changes_done(), 0, 1);
    assert_eq!([1, 5].map(|at| violation(&history, sent_before, at)), [None, None]);
    history.complete();
    assert_eq!([1, 5].map(|at| violation(&history, sent_before, at)), [None, None]);
    let sent_after = stamp(history.changes_done(), 0, 1);
    assert_eq!(violation(&history, sent_after, 1), Some(Violation::WrongPort));
    assert_eq!(violation(&history, sent_after, 5), None);
    // Not flooded at any time: the switch knew it all along.
    assert_eq!(violation(&history, sent_before, 2), Some(Violation::FloodedThoughKnown));
}

#[test]
fn a_packet_is_flooded_from_when_its_station_is_forgotten_until_it_is_surely_known() {
    let history = History::new(first());
    history.begin(|state| state.stations[1].is_known = false);
    history.complete();
    let unknown = stamp(history.changes_done(), 0, 1);
    history.begin(|state| state.stations[1].is_known = true);
    assert_eq!(violation(&history, unknown, 2), None);
    assert_eq!(violation(&history, stamp(history.changes_done(), 0, 1), 2), None);
    history.complete();
    assert_eq!(violation(&history, unknown, 2), None);
    assert_eq!(
        violation(&history, stamp(history.changes_done(), 0, 1), 2),
        Some(Violation::FloodedThoughKnown)
    );
}

#[test]
fn two_states_that_each_say_no_do_not_say_yes_together() {
    let history = History::new(first());
    // Port 5 leaves the VLAN; then port 0, where the packet is from, follows: never while station 5 was unknown there.
    history.begin(|state| state.ports[5].vlan = 20);
    history.complete();
    let sent = stamp(history.changes_done(), 0, 1);
    history.begin(|state| state.ports[0].vlan = 20);
    assert_eq!(violation(&history, sent, 1), None);
    history.complete();
    let later = stamp(history.changes_done(), 0, 1);
    assert_eq!(violation(&history, later, 1), Some(Violation::OtherVlan));
    assert_eq!(hear(&history, later, 5).0.flooded, 1);
}
