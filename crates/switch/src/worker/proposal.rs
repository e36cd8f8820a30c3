//! Decisions that the kernel could repeat, proposed to the thread that installs them.
//!
//! The rule it keeps: generations are noted before the state is looked at that they stand for. Those of ports and of the
//! switch come with the snapshot; those of stations are read before the forwarding table is.
//!
//! A decision is proposed again while packets of its kind go on coming: at most once in [`PAUSE`] by each worker, so
//! that what was refused or lost has another chance, and nobody is kept busy by it. What the kernel cannot repeat is
//! told the same way, with why, so that users see it.

use std::sync::Arc;

use forebay_control::{DropReason, PortId};
use forebay_flow::Class;
use forebay_kernel::{
    FlowAction, FlowCount, FlowKey, FlowPath, FlowTag, FlowVerdict, Generations, StationSlot,
};
use forebay_policy::Nanos;
use forebay_wire::Tag;
use forebay_xsk::TagEdit;
use rtrb::Producer;

use super::classify::Headers;
use super::verdict::Verdict;
use crate::attention::Attention;
use crate::rules::{Doing, Ruling};
use crate::topology::{PortEntry, Topology};

/// Proposals under way from one worker.
pub(crate) const PROPOSALS: usize = 2048;
/// How long a worker remembers what it proposed.
pub(super) const PAUSE: Nanos = Nanos(100_000_000);
/// Recent proposals that it remembers.
const RECENT: usize = 2048;
/// Bytes that an Ethernet header and a tag add to the MTU.
const ETHERNET: u32 = 14;
const TAG: u32 = 4;

/// A decision, for the kernel to repeat or for users to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proposal {
    pub(crate) key: FlowKey,
    pub(crate) repeat: Result<FlowVerdict, Unrepeatable>,
    /// The VLAN that the packets are in.
    pub(crate) vid: u16,
    /// Why they are dropped, if they are.
    pub(crate) reason: Option<DropReason>,
    /// What came through user space since the last proposal of the same.
    pub(crate) carried: FlowCount,
    /// The rule that says so, by id.
    pub(crate) rule: Option<u64>,
    /// What was looked at behind their addresses, and the flow that says to look there.
    pub(crate) deeper: Option<(Class, FlowKey)>,
    /// Where the kernel cannot: to be told that it is the same again, or to take it to a channel's worker.
    pub(crate) tell: Option<FlowVerdict>,
}

/// Where packets go that the kernel cannot send there by itself, and why it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unrepeatable {
    /// `None`: to all ports of their VLAN.
    pub(crate) output: Option<PortId>,
    pub(crate) why: Why,
}

/// Why the kernel cannot repeat a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Captured,
    Copies,
    Flooded,
    Guest,
    NoOutput,
    Off,
}

impl Why {
    /// For users.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Why::Captured => "the port is captured",
            Why::Copies => "more than one copy",
            Why::Flooded => "flooded",
            Why::Guest => "the output is a virtual machine",
            Why::NoOutput => "the output is down",
            Why::Off => "the fast path is off",
        }
    }
}

/// The stations' part of what a decision relies upon, noted before it is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guard {
    source: StationSlot,
    destination: StationSlot,
    sum: u64,
}

impl Guard {
    /// Whether both stations are where they were.
    #[inline]
    pub(super) fn holds(&self, generations: &Generations) -> bool {
        let now = generations.of_station(self.source).wrapping_add(generations.of_station(self.destination));
        self.sum == now
    }

    #[inline]
    pub(super) fn begin(generations: &Generations, headers: &Headers) -> Self {
        let slots = [headers.src, headers.dst].map(|mac| generations.station(headers.vid, mac));
        let sum = slots.iter().fold(0u64, |sum, slot| sum.wrapping_add(generations.of_station(*slot)));
        Self { source: slots[0], destination: slots[1], sum }
    }
}

/// A decision as it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made<'r> {
    pub(super) verdict: Verdict,
    pub(super) ruling: Ruling<'r>,
    /// A rule wants copies besides.
    pub(super) has_copies: bool,
    /// The packet, and those since the last such decision that repeated it.
    pub(super) carried: FlowCount,
}

/// A worker's end.
pub(crate) struct Proposals {
    ring: Producer<Proposal>,
    keeper: Arc<Attention>,
    recent: Box<[Recent]>,
}

/// What was proposed last of the keys that share a place here.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    digest: u64,
    proposed: Nanos,
    carried: FlowCount,
}

impl Proposals {
    pub(crate) fn new(ring: Producer<Proposal>, keeper: Arc<Attention>) -> Self {
        Self { ring, keeper, recent: vec![Recent::default(); RECENT].into_boxed_slice() }
    }

    /// Tells what was decided about a packet of `port`, and whether the kernel can do the same.
    pub(super) fn make(
        &mut self,
        topology: &Topology,
        port: &PortEntry,
        headers: Headers,
        made: Made<'_>,
        guard: Guard,
        now: Nanos,
    ) {
        if made.ruling.is_unread || port.is_guest {
            // No program reads such packets either.
            return;
        }
        let tag = headers.tag.map(|tag| tag.vid);
        let outer = FlowKey::new(port.id.0, tag, headers.src, headers.dst).stacked(headers.is_stacked());
        let deeper = made.ruling.class.map(|class| (class, outer));
        let key = deeper.map_or(outer, |(class, outer)| outer.deeper(class));
        // What has changed since the last proposal makes another one of it.
        let generations = topology.generation() ^ port.generation.rotate_left(20) ^ guard.sum.rotate_left(40);
        let Some(carried) = self.is_news(key.digest() ^ generations, made.carried, now) else { return };
        let reason = match made.verdict {
            // The next packet may have another fate.
            Verdict::Drop(reason) | Verdict::Refused(reason, _) if !is_lasting(reason) => return,
            Verdict::Drop(reason) | Verdict::Refused(reason, _) => Some(reason),
            Verdict::Forward(_) | Verdict::Flood => None,
        };
        let verdict = |(action, output, max_length): (_, u64, _)| FlowVerdict {
            action,
            max_length,
            source: guard.source,
            destination: guard.destination,
            decided: [guard.sum, port.generation, output]
                .iter()
                .fold(topology.generation(), |sum, part| sum.wrapping_add(*part)),
        };
        let repeat = repeatable(topology, port, headers, &made).map(verdict);
        let tell = if repeat.is_err() {
            let told = told(topology, port, headers, &made);
            told.or_else(|| led(topology, port, &made)).map(verdict)
        } else {
            None
        };
        if deeper.is_some() && (repeat.is_ok() || tell.is_some()) {
            self.push(look_deeper(topology, port, outer, headers.vid));
        }
        let rule = made.ruling.rule.map(|rule| rule.id);
        self.push(Proposal { key, repeat, vid: headers.vid, reason, carried, rule, deeper, tell });
    }

    /// When the ring is full, the next packet of the kind that comes later has another chance.
    fn push(&mut self, proposal: Proposal) {
        if self.ring.push(proposal).is_ok() {
            self.keeper.call();
        }
    }

    /// What was carried since the key was last proposed, if it is time to propose it again.
    fn is_news(&mut self, digest: u64, carried: FlowCount, now: Nanos) -> Option<FlowCount> {
        let recent = &mut self.recent[digest as usize % RECENT];
        if recent.digest != digest {
            *recent = Recent { digest, ..Recent::default() };
        }
        recent.carried.packets += carried.packets;
        recent.carried.bytes += carried.bytes;
        let is_known = recent.proposed.0 > 0 && now.0.saturating_sub(recent.proposed.0) < PAUSE.0;
        if is_known {
            return None;
        }
        recent.proposed = now;
        Some(std::mem::take(&mut recent.carried))
    }
}

/// The flow that says to look behind the addresses. It relies on no station.
fn look_deeper(topology: &Topology, port: &PortEntry, key: FlowKey, vid: u16) -> Proposal {
    let ports = port.generation.wrapping_mul(2);
    let verdict = FlowVerdict {
        action: FlowAction::Deeper { classes: topology.rules().asked() },
        max_length: u16::MAX,
        source: StationSlot::default(),
        destination: StationSlot::default(),
        decided: topology.generation().wrapping_add(ports),
    };
    let carried = FlowCount::default();
    Proposal { key, repeat: Ok(verdict), vid, reason: None, carried, rule: None, deeper: None, tell: None }
}

/// Action, generation of the port it goes to, and longest packet; or why each packet must be decided about.
fn repeatable(
    topology: &Topology,
    port: &PortEntry,
    headers: Headers,
    made: &Made<'_>,
) -> Result<(FlowAction, u64, u16), Unrepeatable> {
    let forward = |id| {
        topology
            .port(id)
            .and_then(|output| Some((output, output.way_out(headers.src, headers.dst, Some(port))?)))
    };
    let (output, found) = match made.verdict {
        Verdict::Forward(id) => (Some(id), forward(id)),
        Verdict::Flood | Verdict::Drop(_) | Verdict::Refused(..) => (None, None),
    };
    let no = |why| Err(Unrepeatable { output, why });
    match (made.verdict, found) {
        _ if !topology.carries_flows() => no(Why::Off),
        _ if port.is_captured => no(Why::Captured),
        _ if made.has_copies => no(Why::Copies),
        (Verdict::Drop(_), _) => Ok((FlowAction::Drop { port_id: port.id.0 }, port.generation, u16::MAX)),
        (Verdict::Refused(_, id), _) => {
            let generation = topology.port(id).map_or(0, |port| port.generation);
            Ok((FlowAction::Drop { port_id: id.0 }, generation, u16::MAX))
        }
        (Verdict::Forward(id), Some((output, way))) => {
            let Some(ifindex) = way.ifindex() else { return no(Why::Guest) };
            let tag = flow_tag(headers.flow_egress(&output.vlans), headers.vid);
            let path = path(port, output, headers);
            let action = FlowAction::Output { port_id: id.0, ifindex, tag, path, mark: headers.mark };
            Ok((action, output.generation, longest(output, headers.tag)))
        }
        (Verdict::Forward(_), None) => no(Why::NoOutput),
        (Verdict::Flood, _) => no(Why::Flooded),
    }
}

/// How packets with these headers get from `port` to `output`. Frames between drivers have no mark.
fn path(port: &PortEntry, output: &PortEntry, headers: Headers) -> FlowPath {
    if port.is_xdp && output.takes_frames && headers.mark == 0 {
        FlowPath::Frames
    } else if output.peer == Some(headers.dst) {
        FlowPath::Peer
    } else {
        FlowPath::Packets
    }
}

/// As [`repeatable`], where user space does the same with each such packet and may be told so.
fn told(
    topology: &Topology,
    port: &PortEntry,
    headers: Headers,
    made: &Made<'_>,
) -> Option<(FlowAction, u64, u16)> {
    let port_id = match made.verdict {
        Verdict::Forward(id) | Verdict::Refused(_, id) => id,
        Verdict::Drop(_) => port.id,
        Verdict::Flood => return None,
    };
    let output = topology.port(port_id)?;
    let is_alike = port.is_told && headers.tag.is_none() && !made.has_copies && !port.is_captured;
    let action = FlowAction::Tell { port_id: port_id.0, flow_id: 0 };
    is_alike.then_some((action, output.generation, u16::MAX))
}

/// As [`repeatable`], where a rule has a channel's worker take each such packet.
fn led(topology: &Topology, port: &PortEntry, made: &Made<'_>) -> Option<(FlowAction, u64, u16)> {
    let Doing::Channel(channel) = made.ruling.rule?.doing else { return None };
    let worker = port.channels.get(channel as usize)?;
    let port_id = match made.verdict {
        Verdict::Forward(id) | Verdict::Refused(_, id) => id,
        Verdict::Drop(_) | Verdict::Flood => port.id,
    };
    let action = FlowAction::Steer { port_id: port_id.0, queue: *worker as u16 };
    Some((action, topology.port(port_id)?.generation, u16::MAX))
}

/// Dropped for what the packet is, or for what the port is where it would go, not for what happens to be going on.
pub(super) fn is_lasting(reason: DropReason) -> bool {
    use DropReason::{ByRule, Isolated, ReservedAddress, SamePort, VlanNotAllowed};
    matches!(reason, ByRule | Isolated | ReservedAddress | SamePort | VlanNotAllowed)
}

fn flow_tag(edit: TagEdit, vid: u16) -> FlowTag {
    match edit {
        TagEdit::Keep => FlowTag::Keep,
        TagEdit::Pop => FlowTag::Remove,
        TagEdit::Push(_) | TagEdit::Replace(_) => FlowTag::Set(vid),
    }
}

/// Longest packet, as it comes in, that `output` sends; one that is a VLAN tag longer for a second tag in it is left to
/// the slow path.
fn longest(output: &PortEntry, tag: Option<Tag>) -> u16 {
    let tag = if tag.is_some() { TAG } else { 0 };
    u16::try_from(output.mtu + ETHERNET + tag).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use forebay_control::PortId;
    use rtrb::RingBuffer;

    use super::*;
    use crate::rules::{ActiveRule, RuleCells};
    use crate::topology::tests::entry;

    fn headers(tag: Option<Tag>) -> Headers {
        Headers {
            input: PortId(0),
            dst: 2,
            src: 4,
            vid: 10,
            tag,
            tag_is_out: false,
            ethertype: 0x0800,
            mark: 0,
        }
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
}
