//! One seed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::AddAssign;
use std::sync::Arc;

use forebay_control::PortId;
use forebay_control::rule::{RuleAction, RuleAdd};
use forebay_control::vlan::VlanMode;
use forebay_policy::Nanos;
use forebay_switch::memory::{MemoryOptions, MemoryPort, MemorySwitch, Sent, WayIn};

use crate::model::{BROADCAST, Packet, PortSettings, Settings, Stations};
use crate::random::Random;

const MAX_PORTS: usize = 8;
/// Stations; a few to each port.
const STATIONS: usize = 12;
/// Steps of a round, after which everything comes to rest.
const ROUND: usize = 300;
/// Packets that are looked at one by one at rest.
const PROBES: usize = 6;
/// Turns that everything takes to come to rest, at most.
const TURNS: usize = 10_000;
const DPORTS: [u16; 4] = [7, 53, 80, 443];
const MODES: [&str; 7] =
    ["all", "all", "access:10", "access:20", "access:10,tagged", "trunk:10,20", "trunk:20,native:10"];

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub sent: u64,
    /// Carried or dropped by flows.
    pub followed: u64,
    /// For want of room or frames.
    pub refused: u64,
    pub arrived: u64,
    pub changes: u64,
    /// Rubbish from the kernel, floods and garbled packets.
    pub faults: u64,
    pub probes: u64,
}

impl Tally {
    /// Everything was there that the simulation is about.
    pub fn is_rich(&self) -> bool {
        let often = [self.followed, self.arrived, self.probes].iter().all(|count| *count * 100 > self.sent);
        often && self.changes * 200 > self.sent && self.faults > 0 && self.refused > 0
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.followed += other.followed;
        self.refused += other.refused;
        self.arrived += other.arrived;
        self.changes += other.changes;
        self.faults += other.faults;
        self.probes += other.probes;
    }
}

/// A packet under way, and where it came in.
struct Flight {
    packet: Packet,
    input: PortId,
    /// Which settings were in force when it was sent.
    since: usize,
    /// Where it has arrived.
    arrived: BTreeSet<PortId>,
}

pub struct Run {
    seed: u64,
    random: Random,
    switch: MemorySwitch,
    settings: Settings,
    /// Settings since the last rest, the present ones last.
    history: Vec<Settings>,
    stations: Stations,
    /// At which port each station is.
    homes: Vec<PortId>,
    flights: HashMap<u32, Flight>,
    next_number: u32,
    /// Packets that arrived at each port since it was added.
    heard: BTreeMap<PortId, u64>,
    tally: Tally,
}

/// In these, free frames run out now and then: packets for an output are lost, and counted.
fn is_starved(seed: u64) -> bool {
    seed % 4 == 3
}

fn mac(station: usize) -> u64 {
    0x0200_0000_0000 | (station as u64 + 1)
}

impl Run {
    pub fn new(seed: u64) -> Self {
        let options = MemoryOptions {
            workers: 1 + (seed % 3) as usize,
            max_ports: MAX_PORTS as u16,
            frames: if is_starved(seed) { 512 } else { 8192 },
            ring_entries: 64,
            max_flows: 256,
            seed,
            ..MemoryOptions::default()
        };
        let switch = MemorySwitch::new(options).expect("memory and descriptors");
        let mut run = Self {
            seed,
            random: Random::new(seed),
            switch,
            settings: Settings::default(),
            history: vec![Settings::default()],
            stations: Stations::default(),
            homes: Vec::new(),
            flights: HashMap::new(),
            next_number: 0,
            heard: BTreeMap::new(),
            tally: Tally::default(),
        };
        (0..4).for_each(|_| run.add_port());
        run.homes = (0..STATIONS).map(|_| run.some_port()).collect();
        run.begin_round();
        run
    }

    pub fn run(mut self, packets: u64) -> Tally {
        while self.tally.sent < packets {
            (0..ROUND).for_each(|_| self.step());
            self.rest();
            (0..PROBES).for_each(|_| self.probe());
            self.switch.sweep();
            self.begin_round();
        }
        self.tally
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..600 => self.send_any(),
            600..850 => {
                let worker = self.random.below(self.workers());
                self.switch.turn(worker);
            }
            850..910 => self.switch.keep(),
            910..960 => {
                let port = self.some_port();
                self.hear(port);
            }
            960..970 => self.switch.sweep(),
            970..975 => self.switch.advance(Nanos(50_000_000)),
            975..985 => self.fault(),
            _ => self.change(),
        }
    }

    fn workers(&self) -> usize {
        1 + (self.seed % 3) as usize
    }

    fn some_port(&mut self) -> PortId {
        let ports: Vec<PortId> = self.settings.ports.keys().copied().collect();
        self.random.one(&ports)
    }

    // What comes in.

    fn send_any(&mut self) {
        let station = self.random.below(STATIONS);
        let packet = self.packet_from(station);
        self.send(packet, self.homes[station]);
    }

    /// A host sends what its port takes, mostly.
    fn packet_from(&mut self, station: usize) -> Packet {
        let port = &self.settings.ports[&self.homes[station]];
        let tag = match &port.vlan {
            VlanMode::Access(_) => None,
            VlanMode::AccessTagged(own) => self.random.one(&[None, Some(own.get())]),
            VlanMode::All | VlanMode::Trunk { .. } => self.random.one(&[None, None, Some(10), Some(20)]),
        };
        let dst = if self.random.once_in(20) { BROADCAST } else { mac(self.random.below(STATIONS)) };
        self.next_number += 1;
        Packet { number: self.next_number, src: mac(station), dst, tag, dport: self.random.one(&DPORTS) }
    }

    fn send(&mut self, packet: Packet, input: PortId) -> Sent {
        let since = self.history.len() - 1;
        if let Some(vid) = self.settings.vlan_of(&packet, input) {
            self.stations.speaks(vid, packet.src, input);
        }
        let bytes: Arc<[u8]> = packet.bytes(packet.tag).into();
        let number = packet.number;
        self.flights.insert(number, Flight { packet, input, since, arrived: BTreeSet::new() });
        let sent = self.switch.send(input, &bytes);
        self.tally.sent += 1;
        self.tally.followed += u64::from(sent == Sent::Followed);
        self.tally.refused += u64::from(sent == Sent::Refused);
        sent
    }

    fn fault(&mut self) {
        self.tally.faults += 1;
        let port = self.some_port();
        match self.random.below(3) {
            0 => self.switch.send_rubbish(port, 0x1000 << self.random.below(40)),
            1 => {
                let length = self.random.below(40);
                let bytes: Vec<u8> = (0..length).map(|_| self.random.below(256) as u8).collect();
                self.switch.send(port, &bytes.into());
            }
            // More than the port's ring holds.
            _ => (0..200).for_each(|_| {
                let station = self.random.below(STATIONS);
                let packet = Packet { dport: 53, ..self.packet_from(station) };
                self.send(packet, self.homes[station]);
            }),
        }
    }

    // What changes.

    fn change(&mut self) {
        self.tally.changes += 1;
        match self.random.below(10) {
            0..4 => self.change_port(),
            4 => self.add_port(),
            5 => self.remove_port(),
            6 => self.change_rules(),
            7 => {
                self.switch.flush_stations();
                self.stations.forget(None);
            }
            8 => {
                let station = self.random.below(STATIONS);
                self.homes[station] = self.some_port();
            }
            _ => {
                let carries = !self.random.once_in(4);
                self.switch.set_offload(carries);
            }
        }
        self.history.push(self.settings.clone());
    }

    fn some_vlan(&mut self) -> VlanMode {
        self.random.one(&MODES).parse().expect("a VLAN mode")
    }

    fn change_port(&mut self) {
        let (id, vlan) = (self.some_port(), self.some_vlan());
        let (isolated, is_up) = (self.random.once_in(4), !self.random.once_in(6));
        assert!(self.switch.set_port(id, vlan.clone(), isolated, is_up));
        self.settings.ports.insert(id, PortSettings { vlan, isolated, is_up });
        self.stations.forget(Some(id));
    }

    fn add_port(&mut self) {
        let vlan = self.some_vlan();
        let workers = self.workers();
        let options = MemoryPort {
            vlan: vlan.clone(),
            isolated: false,
            way_in: self.random.one(&[WayIn::Ring, WayIn::Queue]),
            worker: self.random.below(workers),
            owner: self.random.below(workers),
        };
        if let Some(id) = self.switch.add_port(options) {
            self.settings.ports.insert(id, PortSettings { vlan, isolated: false, is_up: true });
            self.heard.insert(id, 0);
        }
    }

    fn remove_port(&mut self) {
        if self.settings.ports.len() <= 2 {
            return;
        }
        let id = self.some_port();
        // What has left is heard before the port goes; what waits in it is its own loss.
        self.hear(id);
        self.settings.ports.remove(&id);
        self.switch.remove_port(id).expect("it was there");
        self.heard.remove(&id);
        self.stations.forget(None);
        for station in 0..STATIONS {
            if self.homes[station] == id {
                self.homes[station] = self.some_port();
            }
        }
    }

    fn change_rules(&mut self) {
        let count = self.random.below(3);
        self.settings.dropped = (0..count).map(|_| self.random.one(&DPORTS)).collect();
        let rule = |dport: &u16| {
            let mut rule = RuleAdd::new(10, RuleAction::Drop);
            rule.ip_proto = Some("udp".parse().expect("a protocol"));
            rule.dport = Some(dport.to_string().parse().expect("a port"));
            rule
        };
        let rules: Vec<RuleAdd> = self.settings.dropped.iter().map(rule).collect();
        self.switch.set_rules(&rules);
    }

    // What comes out.

    fn hear_all(&mut self) {
        let ports: Vec<PortId> = self.settings.ports.keys().copied().collect();
        ports.into_iter().for_each(|port| self.hear(port));
    }

    fn hear(&mut self, port: PortId) {
        while let Some(bytes) = self.switch.receive(port) {
            self.tally.arrived += 1;
            *self.heard.entry(port).or_default() += 1;
            self.check_arrival(port, &bytes);
        }
    }

    fn check_arrival(&mut self, port: PortId, bytes: &[u8]) {
        let seed = self.seed;
        // Garbled packets have no number that was given.
        let number = Packet::number_in(bytes);
        let Some(flight) = number.and_then(|number| self.flights.get_mut(&number)) else { return };
        let Flight { packet, input, since, arrived } = flight;
        assert!(arrived.insert(port), "seed {seed}: {packet:?} arrived at {port:?} twice");
        let said = self.history[*since..].iter().filter_map(|settings| {
            let tag = settings.leaves(packet, *input, port)?;
            let vid = settings.vlan_of(packet, *input)?;
            self.stations.may_reach(vid, packet.dst, port).then_some(tag)
        });
        let tags: BTreeSet<Option<u16>> = said.collect();
        assert!(
            tags.iter().any(|tag| packet.bytes(*tag) == bytes),
            "seed {seed}: {packet:?} from {input:?} must not arrive at {port:?} like this: {bytes:02x?}\n\
             tags that it may have there: {tags:?}\nsettings since: {:?}",
            &self.history[*since..],
        );
    }

    // At rest.

    fn rest(&mut self) {
        // Outputs have room for so much, and receivers take it.
        for _ in 0..TURNS {
            let rests = self.switch.settle(1);
            self.hear_all();
            if rests {
                break;
            }
        }
        let (seed, balance) = (self.seed, self.switch.balance());
        assert!(self.switch.settle(1), "seed {seed}: workers find no rest");
        assert_eq!(balance.missing(), 0, "seed {seed}: {balance:?}");
        let ports: Vec<PortId> = self.settings.ports.keys().copied().collect();
        for port in ports {
            let counters = self.switch.counters(port).expect("the port is there");
            let heard = self.heard[&port];
            assert_eq!(counters.tx_packets, heard, "seed {seed}: {port:?} sent, and was heard");
            let ended = counters.forwarded_packets + counters.flooded_packets;
            assert_eq!(
                counters.rx_packets,
                ended + counters.drops.input(),
                "seed {seed}: {port:?} {counters:?}"
            );
        }
    }

    /// One packet, with nothing else under way.
    fn probe(&mut self) {
        self.begin_round();
        self.tally.probes += 1;
        let station = self.random.below(STATIONS);
        let packet = self.packet_from(station);
        let input = self.homes[station];
        let (seed, number) = (self.seed, packet.number);
        let vid = self.settings.vlan_of(&packet, input);
        let is_up = self.settings.ports[&input].is_up;
        let known = vid.and_then(|vid| self.stations.known_at(vid, packet.dst));
        let sent = self.send(packet.clone(), input);
        if self.random.once_in(2) {
            self.switch.keep();
        }
        self.rest();
        let flight = &self.flights[&number];
        let ports = self.settings.ports.keys().copied();
        let may: BTreeSet<PortId> =
            ports.filter(|port| is_up && self.settings.leaves(&packet, input, *port).is_some()).collect();
        let wanted = match known {
            _ if packet.dst == BROADCAST => Some(may),
            Some(port) => Some(may.into_iter().filter(|member| *member == port).collect()),
            None => None,
        };
        if let (Some(wanted), Some(_), true) = (wanted, vid, is_up && !is_starved(seed)) {
            let settings = &self.settings;
            assert_eq!(
                flight.arrived, wanted,
                "seed {seed}: {packet:?} from {input:?} ({sent:?})\n{settings:?}"
            );
        }
        if let (Some(vid), true) = (vid, sent != Sent::Refused && is_up) {
            self.stations.is_at(vid, packet.src, input);
        }
    }

    /// What is past no longer counts.
    fn begin_round(&mut self) {
        self.flights.clear();
        self.history = vec![self.settings.clone()];
    }
}
