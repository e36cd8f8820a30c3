//! Random ports and rules, for the oracle and for the product.

use std::net::IpAddr;
use std::sync::Arc;

use forebay_control::vlan::VlanMode;
use forebay_control::{IfIndex, PortId};
use forebay_flow::{Classifier, Match, PortRange, Prefix, PrefixError};

use super::oracle::{Action, Mode, Port, Rule};
use super::packets::{ETHERTYPES, MACS, PORTS, PROTOS, V4, V6, VIDS};
use super::random::Random;
use crate::counters::PortCells;
use crate::output::Output;
use crate::rules::{ActiveRule, Doing, RuleCells, RuleSet};
use crate::topology::PortEntry;

const MAX_RULES: usize = 40;

pub(super) fn port(random: &mut Random) -> Port {
    let modes = [
        Mode::All,
        Mode::All,
        Mode::Access(10),
        Mode::Access(20),
        Mode::AccessTagged(10),
        Mode::Trunk(vec![10, 20], None),
        Mode::Trunk(vec![10, 30], Some(20)),
        Mode::Trunk(vec![20], Some(10)),
    ];
    Port {
        mode: modes[random.below(modes.len())].clone(),
        is_isolated: random.once_in(4),
        is_up: !random.once_in(12),
        mtu: if random.once_in(4) { 576 } else { 1500 },
        is_captured: random.once_in(20),
        takes_frames: !random.once_in(12),
        leaves_checksums: random.once_in(3),
    }
}

pub(super) fn entry(id: u16, port: &Port, ifindex: IfIndex) -> PortEntry {
    let list = |vids: &[u16]| vids.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let mode = match &port.mode {
        Mode::All => "all".to_owned(),
        Mode::Access(vid) => format!("access:{vid}"),
        Mode::AccessTagged(vid) => format!("access:{vid},tagged"),
        Mode::Trunk(vids, None) => format!("trunk:{}", list(vids)),
        Mode::Trunk(vids, Some(native)) => format!("trunk:{},native:{native}", list(vids)),
    };
    let mode: VlanMode = mode.parse().expect("a VLAN mode");
    PortEntry {
        output: port.is_up.then_some(Output::Memory { owner: 0, ifindex }),
        isolated: port.is_isolated,
        mtu: port.mtu as u32,
        takes_joints: false,
        completes_checksums: port.leaves_checksums,
        is_xdp: true,
        takes_frames: port.takes_frames,
        is_told: true,
        is_captured: port.is_captured,
        ..PortEntry::new(PortId(id), mode, Arc::new(PortCells::new(1)))
    }
}

fn network(random: &mut Random) -> (IpAddr, u8) {
    let address = if random.once_in(3) {
        IpAddr::from(random.one(&V6).to_be_bytes())
    } else {
        IpAddr::from(random.one(&V4))
    };
    let bits = if address.is_ipv4() {
        random.one(&[0, 8, 16, 23, 24, 31, 32])
    } else {
        random.one(&[0, 1, 16, 64, 112, 127, 128])
    };
    (address, bits)
}

fn range(random: &mut Random) -> (u16, u16) {
    let [a, b] = [random.one(&PORTS), random.one(&PORTS)];
    if random.once_in(2) { (a, a) } else { (a.min(b), a.max(b)) }
}

fn action(random: &mut Random, ports: u16) -> Action {
    let any = |random: &mut Random| random.below(ports.into()) as u16;
    match random.below(8) {
        0 | 1 => Action::Drop,
        2 | 3 => Action::Output(vec![any(random)]),
        4 => {
            let first = any(random);
            Action::Output(vec![first, (first + 1) % ports])
        }
        5 => Action::Mirror(any(random)),
        6 => Action::Mark(7),
        _ => Action::Normal,
    }
}

fn rule(random: &mut Random, id: u64, ports: u16) -> Rule {
    let is_deeper = random.below(3) > 0;
    let times = |times: usize| if is_deeper { times } else { usize::MAX };
    Rule {
        id,
        priority: random.below(4) as u32,
        in_port: random.maybe(5, |random| random.below(ports.into()) as u16),
        src_mac: random.maybe(6, |random| random.one(&MACS)),
        dst_mac: random.maybe(6, |random| random.one(&MACS)),
        vlan: random.maybe(6, |random| random.one(&VIDS)),
        ethertype: random.maybe(times(6), |random| random.one(&ETHERTYPES)),
        proto: random.maybe(times(2), |random| random.one(&PROTOS)),
        src: random.maybe(times(4), network),
        dst: random.maybe(times(4), network),
        src_ports: random.maybe(times(4), range),
        dst_ports: random.maybe(times(4), range),
        action: action(random, ports),
    }
}

fn prefix((address, bits): (IpAddr, u8)) -> Prefix {
    match Prefix::new(address, bits) {
        Ok(network) | Err(PrefixError::HostBits { network, .. }) => network,
        Err(error) => panic!("{error}"),
    }
}

fn matching(rule: &Rule) -> Match {
    let ports =
        |range: Option<(u16, u16)>| range.map(|(first, last)| PortRange::new(first, last).expect("in order"));
    Match {
        in_port: rule.in_port.map(u32::from),
        src_mac: rule.src_mac,
        dst_mac: rule.dst_mac,
        vlan: rule.vlan,
        ethertype: rule.ethertype,
        ip_proto: rule.proto,
        src: rule.src.map(prefix),
        dst: rule.dst.map(prefix),
        src_ports: ports(rule.src_ports),
        dst_ports: ports(rule.dst_ports),
    }
}

fn doing(action: &Action) -> Doing {
    match action {
        Action::Drop => Doing::Drop,
        Action::Output(ports) => Doing::Output(ports.iter().copied().map(PortId).collect()),
        Action::Normal => Doing::Normal,
        Action::Mark(mark) => Doing::Mark(*mark),
        Action::Mirror(port) => Doing::Mirror(PortId(*port)),
    }
}

/// Rules that can be, none of them twice.
pub(super) fn rules(random: &mut Random, ports: u16) -> (Vec<Rule>, RuleSet) {
    let (mut rules, mut active, mut classifier) = (Vec::new(), Vec::new(), Classifier::new());
    for id in 0..random.below(MAX_RULES + 1) as u64 {
        let rule = rule(random, id, ports);
        let cells = Arc::new(RuleCells::new(1));
        if classifier.insert(id, rule.priority, matching(&rule), ()).is_ok() {
            let what = ActiveRule { id, doing: doing(&rule.action), cells };
            active.push((rule.priority, matching(&rule), what));
            rules.push(rule);
        }
    }
    (rules, RuleSet::new(active).expect("few classes"))
}
