//! Decisions that the kernel could repeat, proposed to the thread that installs them.
//!
//! The rule it keeps: generations are noted before the state is looked at that they stand for. Those of ports and of the
//! switch come with the snapshot; those of stations are read before the forwarding table is.
//!
//! A decision is proposed again while packets of its kind go on coming: at most once in [`PAUSE`] by each worker, so
//! that what was refused or lost has another chance, and nobody is kept busy by it. What the kernel cannot repeat is
//! told the same way, with why, so that users see it.

#[cfg(test)]
mod tests;

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
