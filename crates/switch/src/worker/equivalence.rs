//! Three answers to the same packets: that of a plain model, of a worker, and of the kernel programs.
//!
//! Random ports, VLANs, rules and packets out of so few values that they meet. Each packet comes to the kernel programs
//! first, to that for tcx where that for XDP passes it on; what they leave goes to the worker, whose proposal is put in, and
//! to the kernel programs once more. All who say where a packet goes must say the same, byte by byte; and who was told must
//! know.
//!
//! `FOREBAY_EQUIVALENCE_PACKETS` says how many packets, `FOREBAY_EQUIVALENCE_SEED` which.

mod oracle;
mod packets;
mod product;
mod random;
mod world;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_control::DropReason;
use forebay_flow::{Fields, Network, TagKinds, Unread};
use forebay_kernel::netlink::PrivateNetns;
use forebay_kernel::{FlowAction, FlowKey, FlowPath, FlowTag};

use oracle::{Copies, Oracle};
use packets::Packet;
use product::{MAX_PORTS, Product};
use random::Random;

use super::verdict::Verdict;

/// Without a word about it; a second or two in a debug build.
const PACKETS: u64 = 50_000;
/// After so many everything is another.
const WORLD: u64 = 2000;
/// After so many, one thing.
const CHANGE: u64 = 200;
/// Packets that come again and again; each twentieth is another.
const KNOWN: usize = 40;

/// `XDP_*`, include/uapi/linux/bpf.h.
const DROP: i32 = 1;
const PASS: i32 = 2;
const REDIRECT: i32 = 4;
/// `TC_ACT_REDIRECT`, include/uapi/linux/pkt_cls.h.
const TC_REDIRECT: i32 = 7;

/// `DEEPER_PORTS`, bpf/forebay.h.
const ASKS_PORTS: u16 = 16;

/// The key of flows that layer 2 decides.
fn outer_key(input: u16, packet: &Packet) -> FlowKey {
    let tag = packet.tci.map(|tci| tci & 0xfff);
    FlowKey::new(input, tag, packet.src, packet.dst).stacked(!packet.further.is_empty())
}

fn kinds(packet: &Packet) -> TagKinds {
    packet.further.iter().fold(TagKinds::NONE, |kinds, tpid| kinds.with(TagKinds::announced_by(*tpid)))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn kernel_and_user_space_send_every_packet_where_a_plain_model_does() {
    let packets = number("FOREBAY_EQUIVALENCE_PACKETS").unwrap_or(PACKETS);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let seed = number("FOREBAY_EQUIVALENCE_SEED").unwrap_or(clock);
    println!("seed {seed}, {packets} packets");
    match PrivateNetns::new("fb-test") {
        Ok(netns) => {
            let tally = netns.run(move || Run::new(seed).run(packets));
            println!("{tally:?}");
            let followed = tally.followed + tally.told;
            assert!(followed * 20 > packets, "few packets were followed: {tally:?}");
            assert!(tally.repeated * 1000 > packets, "few decisions were repeated: {tally:?}");
            assert!(tally.passed_on * 1000 > packets, "few packets were passed on: {tally:?}");
            assert!(tally.stacked * 1000 > packets, "few packets with further tags were followed: {tally:?}");
            assert!(tally.undecidable * 1000 > packets, "few packets were in doubt: {tally:?}");
        }
        Err(error) if error.errno() == Some(rustix::io::Errno::PERM.raw_os_error()) => {
            println!("SKIP: no CAP_SYS_ADMIN to make a network namespace");
        }
        Err(error) => panic!("{error}"),
    }
}

/// How packets fared.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// By the kernel: at first sight, and once it was told.
    followed: u64,
    told: u64,
    dropped: u64,
    deeper: u64,
    /// By tcx, to which XDP had passed them on.
    passed_on: u64,
    /// By the worker, as with one before.
    repeated: u64,
    /// By the kernel, of packets with further tags.
    stacked: u64,
    /// Dropped by the worker, because a rule might match what nobody can read.
    undecidable: u64,
}

/// Which packet it was, for those who look why.
#[derive(Clone, Copy)]
struct About<'a> {
    seed: u64,
    number: u64,
    input: u16,
    packet: &'a Packet,
}

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, number, input, packet } = self;
        write!(f, "seed {seed}, packet {number} at port {input}: {packet:?}")
    }
}

struct Run {
    seed: u64,
    random: Random,
    oracle: Oracle,
    product: Product,
    tally: Tally,
    /// The last flow ids that packets were given, by port and bytes.
    flow_ids: HashMap<(u16, Vec<u8>), u32>,
}

/// What the kernel did with a packet.
enum Followed {
    /// It would be the slow path's.
    No,
    /// It left like this.
    Yes(Copies),
    /// XDP passed it on with a tag, which is beside the packet in tcx: no trial can have that.
    PassedOn,
}

impl Run {
    fn new(seed: u64) -> Self {
        let oracle = Oracle { ports: Vec::new(), rules: Vec::new(), stations: HashMap::new() };
        Self {
            seed,
            random: Random(seed),
            oracle,
            product: Product::new(),
            tally: Tally::default(),
            flow_ids: HashMap::new(),
        }
    }

    fn run(mut self, packets: u64) -> Tally {
        let mut recent: Vec<(u16, Packet)> = Vec::new();
        for number in 0..packets {
            if number % WORLD == 0 {
                recent.clear();
                self.flow_ids.clear();
                self.another_world();
            } else if number % CHANGE == 0 {
                self.change();
            }
            let input = self.random.below(self.oracle.ports.len()) as u16;
            let (input, packet) = if recent.len() > KNOWN && !self.random.once_in(20) {
                recent[self.random.below(recent.len())].clone()
            } else {
                recent.push((input, packets::packet(&mut self.random)));
                recent[recent.len() - 1].clone()
            };
            // Nothing comes in where the netdev is down.
            if self.oracle.ports[usize::from(input)].is_up {
                self.compare(number, input, &packet);
            }
        }
        self.tally
    }

    fn another_world(&mut self) {
        let count = 2 + self.random.below(usize::from(MAX_PORTS) - 1);
        self.oracle.ports = (0..count).map(|_| world::port(&mut self.random)).collect();
        self.forget_stations();
        self.other_rules();
    }

    fn other_rules(&mut self) {
        let (rules, set) = world::rules(&mut self.random, self.oracle.ports.len() as u16);
        self.oracle.rules = rules;
        self.product.set_rules(set, self.random.once_in(2), &self.oracle.ports);
    }

    fn forget_stations(&mut self) {
        self.oracle.stations.clear();
        self.product.forget_stations();
    }

    fn change(&mut self) {
        match self.random.below(5) {
            0 => self.other_rules(),
            1 => self.forget_stations(),
            _ => {
                let port = self.random.below(self.oracle.ports.len());
                self.oracle.ports[port] = world::port(&mut self.random);
                self.product.set_ports(&self.oracle.ports);
            }
        }
    }

    fn compare(&mut self, number: u64, input: u16, packet: &Packet) {
        let about = About { seed: self.seed, number, input, packet };
        let stations = self.oracle.stations.clone();
        let wanted = self.oracle.decide(packet, input);
        match self.kernel(input, packet, &about) {
            Followed::No => {}
            followed => {
                assert_eq!(
                    self.oracle.stations, stations,
                    "the kernel followed, and there was news, {about}"
                );
                self.tally.followed += 1;
                return self.check_followed(followed, &wanted, &about);
            }
        }
        let flow_id = self.flow_id(input, packet);
        let (copies, proposal) = self.product.decide(input, &packet.bytes, flow_id);
        if self.product.has_repeated() {
            assert_eq!(self.oracle.stations, stations, "repeated, and there was news, {about}");
            self.tally.repeated += 1;
        }
        if self.oracle.ports[usize::from(input)].leaves_checksums && packet.looks_unfinished {
            // It has finished the checksum; the addresses alone can be compared.
            let headers = |copies: &Copies| -> Copies {
                let header = |bytes: &[u8]| bytes[..bytes.len().min(18)].to_vec();
                copies.iter().map(|(port, bytes)| (*port, header(bytes))).collect()
            };
            self.check(&headers(&copies), &headers(&wanted), "the worker", &about);
        } else {
            self.check(&copies, &wanted, "the worker", &about);
        }
        let followed = self.kernel(input, packet, &about);
        let must = proposal.is_some_and(|proposal| {
            let fits = proposal.repeat.is_ok_and(|verdict| packet.bytes.len() <= verdict.max_length.into());
            fits && (proposal.deeper.is_none() || self.is_classed(packet))
        });
        assert_eq!(
            !matches!(followed, Followed::No),
            must,
            "whether the kernel followed once it was told {proposal:?}, {about}"
        );
        let is_undecidable = self.product.verdict() == Some(Verdict::Drop(DropReason::Undecidable));
        self.tally.undecidable += u64::from(is_undecidable);
        if !matches!(followed, Followed::No) {
            self.tally.told += 1;
            self.check_followed(followed, &wanted, &about);
        }
    }

    fn check_followed(&mut self, followed: Followed, wanted: &Copies, about: &About<'_>) {
        self.tally.stacked += u64::from(!about.packet.further.is_empty());
        match followed {
            Followed::No => {}
            Followed::Yes(copies) => self.check(&copies, wanted, "the kernel", about),
            Followed::PassedOn => self.tally.passed_on += 1,
        }
    }

    /// Programs leave alone what they cannot tell the class of.
    fn is_classed(&self, packet: &Packet) -> bool {
        let asks_ports = self.product.rules().asked() & ASKS_PORTS != 0;
        let is_read = match packet.unread {
            Unread::Nothing => true,
            Unread::Ports => !asks_ports,
            Unread::Transport | Unread::Everything => false,
        };
        is_read && !packet.is_extended
    }

    /// The flow id of a packet that comes to the worker, or 0: the one that the program gives it now, or gave it before
    /// all changed while it was on its way.
    fn flow_id(&mut self, input: u16, packet: &Packet) -> u32 {
        let place = (input, packet.bytes.clone());
        let told = self.told(input, packet);
        if told == 0 {
            self.flow_ids.get(&place).copied()
        } else {
            self.flow_ids.insert(place, told).or(Some(told))
        }
        .unwrap_or(0)
    }

    /// The flow id that a program with hints would give to the packet, or 0.
    fn told(&mut self, input: u16, packet: &Packet) -> u32 {
        if packet.tci.is_some() {
            return 0;
        }
        let outer = outer_key(input, packet);
        let key = self.key(input, packet).filter(|key| *key == outer || self.is_classed(packet));
        key.and_then(|key| self.product.told(key)).unwrap_or(0)
    }

    fn check(&self, copies: &Copies, wanted: &Copies, who: &str, about: &About<'_>) {
        let Oracle { ports, rules, stations } = &self.oracle;
        let shown = |copies: &Copies| {
            let shown = copies.iter().map(|(port, bytes)| format!("{port}: {}", packets::hex(bytes)));
            shown.collect::<Vec<_>>()
        };
        assert!(
            copies == wanted,
            "{who} said {:?}, and not {:?} (the worker: {:?}), {about}\n{ports:?}\n{rules:#?}\n{stations:x?}",
            shown(copies),
            shown(wanted),
            self.product.verdict()
        );
    }

    /// What the kernel does: where it goes is what the flow says whose counter moved, and how is what came out.
    fn kernel(&mut self, input: u16, packet: &Packet, about: &About<'_>) -> Followed {
        let key = self.key(input, packet);
        let before = key.and_then(|key| self.product.flow(key)).map(|(_, count)| count);
        let missed = self.product.missed(input);
        let tried = self.product.run(input, &packet.bytes);
        let (mut verdict, mut out) = (tried.verdict, tried.packet.to_vec());
        let is_passed_on = verdict == PASS;
        if is_passed_on {
            assert_eq!(out, packet.bytes, "passed on, and changed, {about}");
            if packet.tci.is_some() {
                return Followed::PassedOn;
            }
            let tried = self.product.run_tcx(input, &packet.bytes);
            assert_eq!(tried.verdict, TC_REDIRECT, "passed on to nobody, {about}");
            (verdict, out) = (REDIRECT, tried.packet.to_vec());
            self.tally.passed_on += 1;
        }
        let after = key.and_then(|key| self.product.flow(key));
        if self.product.missed(input) > missed {
            assert_eq!(after.map(|(_, count)| count), before, "missed, and counted, {about}");
            assert_eq!(out, packet.bytes, "missed, and changed, {about}");
            return Followed::No;
        }
        let (flow, [packets, bytes]) = after.unwrap_or_else(|| panic!("followed no flow, {about}"));
        let [packets_before, bytes_before] = before.expect("it was there");
        let moved = [packets - packets_before, bytes - bytes_before];
        assert_eq!(moved, [1, packet.bytes.len() as u64], "not this flow's counters moved, {about}");
        match (verdict, flow.action) {
            (REDIRECT, FlowAction::Output { port_id, path, tag, .. }) => {
                let is_unfinished =
                    self.oracle.ports[usize::from(input)].leaves_checksums && packet.looks_unfinished;
                let must_be_passed_on = path != FlowPath::Frames || is_unfinished;
                assert_eq!(is_passed_on, must_be_passed_on, "whether tcx followed it, {about}");
                self.check_length(port_id, packet, about);
                // The tag that tcx puts on is beside the packet, where no trial shows it.
                if let (true, FlowTag::Set(vid)) = (is_passed_on, tag) {
                    out.splice(12..12, [0x81, 0, (vid >> 8) as u8, vid as u8]);
                }
                Followed::Yes(vec![(port_id, out)])
            }
            (DROP, FlowAction::Drop { .. }) => {
                self.tally.dropped += 1;
                Followed::Yes(Vec::new())
            }
            other => panic!("{other:?}, {about}"),
        }
    }

    fn check_length(&self, output: u16, packet: &Packet, about: &About<'_>) {
        let tag = if packet.tci.is_some() { 4 } else { 0 };
        let longest = self.oracle.ports[usize::from(output)].mtu + 14 + tag;
        assert!(packet.bytes.len() <= longest, "longer than the output sends, {about}");
    }

    /// The key of the flow that packets like this one follow.
    fn key(&mut self, input: u16, packet: &Packet) -> Option<FlowKey> {
        let outer = outer_key(input, packet);
        let (flow, _) = self.product.flow(outer)?;
        if !matches!(flow.action, FlowAction::Deeper { .. }) {
            return Some(outer);
        }
        self.tally.deeper += 1;
        let network = packet.ip.map(|ip| match (ip.src, ip.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Network::v4(src, dst, ip.proto, ip.ports),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Network::v6(src, dst, ip.proto, ip.ports),
            _ => unreachable!("both are of one version"),
        });
        let (ethertype, vlan) = (packet.ethertype, 0);
        let (tags, unread) = (kinds(packet), packet.unread);
        let fields = Fields { in_port: 0, vlan, src_mac: 0, dst_mac: 0, ethertype, tags, network, unread };
        Some(outer.deeper(self.product.rules().classes().of(&fields)))
    }
}
