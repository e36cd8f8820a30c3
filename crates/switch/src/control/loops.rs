//! Finding loops: probes leave by each port, and a port where another's comes in is blocked.
//!
//! `forebay_policy::LoopGuard` decides; here is what it needs. The kernel programs note probes that come in, beside the
//! rings, so that they are found while a loop fills every ring. Looking costs one load while nothing came. Ports whose
//! stations move back and forth are probed at once: in a loop every station does.
//!
//! The rule it keeps: probes to netdevs are sent without the control lock, because a thousand of them take milliseconds.
//! Those to guests are for their workers to send, which get all of theirs at once.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use forebay_control::config::LoopConfig;
use forebay_control::port::PortState;
use forebay_control::vlan::VlanMode;
use forebay_control::{IfIndex, PortId};
use forebay_kernel::{LoopProbes, PROBE_BYTES, SeenProbe};
use forebay_policy::{Heard, Nanos};
use forebay_wire::Tag;
use forebay_xsk::TagEdit;

use super::port::Port;
use super::{Control, netdevs};
use crate::fdb::Flush;
use crate::vlan::PortVlans;
use crate::worker::{Command, ProbeToGuest};

/// When one looks for probes that were just sent, and then again.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(100);
/// How long after probes were sent they may be on their way through queues.
const UNDER_WAY: Nanos = Nanos(200_000_000);
/// Probes that are due within a tenth of the interval leave together, so that ports do not wake the thread one by one.
const TOGETHER: u64 = 10;
/// Moves of stations to a port, between two looks, from which on they may be moving back and forth.
const MOVES: u64 = 2;
/// When nothing is due.
const NEVER: Nanos = Nanos(u64::MAX);
/// How long a group is said to be several at the other end, after its last probe came back.
const ECHO_LASTS: Nanos = Nanos(10_000_000_000);

/// Where a port's probes leave.
enum Way {
    Netdev(IfIndex),
    /// By the worker that fills the queues of this port's guest.
    Guest(usize, PortId),
}

fn way_of(port: &Port) -> Option<Way> {
    match (&port.guest, &port.attachment) {
        (Some(guest), _) => guest.is_running().then_some(Way::Guest(port.worker, port.id)),
        (None, attachment) => attachment.as_ref().map(|attachment| Way::Netdev(attachment.ifindex)),
    }
}

/// A probe, and the netdev that it is to leave by.
pub(super) type OutgoingProbe = (IfIndex, [u8; PROBE_BYTES]);

/// What the switch knows of loops besides its ports.
pub(super) struct Loops {
    probes: Arc<LoopProbes>,
    detects: bool,
    interval: Nanos,
    /// Names of ports that are never blocked.
    spared: HashSet<String>,
    nonces: RandomState,
    /// Probes that were sent, which numbers the nonces.
    sent: u64,
    last_sent: Nanos,
    /// What was there at the last look: probes that had come in, moves of stations, the snapshot.
    seen: u64,
    moves: u64,
    serial: Option<u64>,
    next_look: Nanos,
    /// When a port has something to do next, and whether one is blocked, as the last survey found.
    due: Nanos,
    is_any_blocked: bool,
}

impl Loops {
    pub(super) fn new(probes: LoopProbes, config: &LoopConfig) -> Self {
        Self {
            seen: probes.total(),
            probes: Arc::new(probes),
            detects: config.detect,
            interval: interval(config.interval_ms),
            spared: config.never_block.iter().cloned().collect(),
            nonces: RandomState::new(),
            sent: 0,
            last_sent: Nanos(0),
            moves: 0,
            serial: None,
            next_look: Nanos(0),
            due: NEVER,
            is_any_blocked: false,
        }
    }

    pub(super) fn set(&mut self, detects: bool, interval_ms: u32) {
        (self.detects, self.interval) = (detects, interval(interval_ms));
        self.serial = None;
    }

    /// Where workers note probes that come from guests.
    pub(super) fn notes(&self) -> Arc<LoopProbes> {
        Arc::clone(&self.probes)
    }

    /// Probes that have come in under this id so far.
    pub(super) fn baseline(&self, id: PortId) -> u64 {
        self.probes.count(id.0)
    }

    /// How many probes left by a port, and how many came in.
    pub(super) fn counts(&self, port: &Port) -> [u64; 2] {
        [port.probing.sent, self.probes.count(port.id.0).wrapping_sub(port.probing.baseline)]
    }

    /// How long one may wait before [`Control::find_loops`].
    pub(super) fn pause(&self, now: Nanos) -> Nanos {
        Nanos(self.next_look.since(now))
    }

    fn probe(&mut self, port: &mut Port, now: Nanos) -> Option<(Way, [u8; PROBE_BYTES])> {
        let way = way_of(port)?;
        let vids = probed_vlans(&port.spec.vlan);
        let vid = *vids.get(port.probing.turn % vids.len().max(1))?;
        port.probing.turn = port.probing.turn.wrapping_add(1);
        let tag = match PortVlans::new(&port.spec.vlan).egress(vid, None, false) {
            TagEdit::Push(tag) => Some(tag),
            _ => None,
        };
        self.sent += 1;
        self.last_sent = now;
        port.probing.sent += 1;
        port.probing.passed = port.guest.is_some().then(|| port.cells.passed());
        // 0 is no nonce.
        let nonce = self.nonces.hash_one(self.sent).max(1);
        port.probing.guard.sends(nonce, vid, now, self.interval);
        Some((way, self.probes.frame(port.id.0, tag, nonce)))
    }
}

fn interval(ms: u32) -> Nanos {
    Nanos(u64::from(ms) * 1_000_000)
}

/// The VLANs that probes of a port are sent in, one after the other.
fn probed_vlans(mode: &VlanMode) -> Vec<u16> {
    match mode {
        VlanMode::All => vec![0],
        VlanMode::Access(vid) | VlanMode::AccessTagged(vid) => vec![vid.get()],
        VlanMode::Trunk { vids, native } => {
            let mut vids: Vec<u16> = native.iter().chain(vids).map(|vid| vid.get()).collect();
            vids.sort_unstable();
            vids.dedup();
            vids
        }
    }
}

impl Control {
    /// Looks for loops, blocks and releases ports, and returns the probes that netdevs are to send.
    pub(super) fn find_loops(&mut self, now: Nanos) -> Vec<OutgoingProbe> {
        let moves: u64 = self.shared.workers.iter().map(|cell| cell.moves.get()).sum();
        let serial = self.shared.topology.load().serial();
        let is_same = (self.loops.serial, self.loops.moves) == (Some(serial), moves);
        if is_same && self.loops.probes.total() == self.loops.seen && now < self.loops.next_look {
            return Vec::new();
        }
        let mut is_due = self.loops.due <= now;
        if self.loops.serial.replace(serial) != Some(serial) {
            self.follow_ports(now);
            is_due = true;
        }
        if std::mem::replace(&mut self.loops.moves, moves) != moves {
            self.observe_moves(now);
            is_due = true;
        }
        let total = self.loops.probes.total();
        if std::mem::replace(&mut self.loops.seen, total) != total {
            self.hear_probes(now);
            is_due = true;
        }
        let outgoing = if is_due { self.survey(now) } else { Vec::new() };
        self.loops.next_look = self.next_look(now);
        outgoing
    }

    /// Probes go where packets go.
    fn follow_ports(&mut self, now: Nanos) {
        let mut changed = Vec::new();
        for port in self.ports.all_beside() {
            let carries = port.state.carries() || port.state == PortState::Blocked;
            if self.loops.detects && carries && way_of(port).is_some() {
                port.probing.guard.starts(now);
            } else {
                port.probing.guard.stops();
                changed.extend((port.state == PortState::Blocked).then_some(port.id));
            }
        }
        self.show_blocked(&changed);
    }

    fn observe_moves(&mut self, now: Nanos) {
        for port in self.ports.all_beside() {
            let moves = port.cells.moves();
            let moved = moves.wrapping_sub(std::mem::replace(&mut port.probing.moves, moves));
            if moved >= MOVES {
                port.probing.guard.hurry(now);
            }
        }
    }

    /// Whether nothing has passed a guest's port since its last probe, so that nothing goes round there. A probe costs a guest
    /// an interrupt.
    fn rests(port: &Port) -> bool {
        port.probing.passed.is_some_and(|passed| passed == port.cells.passed())
    }

    /// Blocks ports for probes that have come in.
    fn hear_probes(&mut self, now: Nanos) {
        let ids: Vec<PortId> = self.ports.keys().copied().collect();
        let mut blocked = Vec::new();
        for id in ids {
            let probes: Vec<SeenProbe> = self.loops.probes.take(id.0).collect();
            let hears = probes.into_iter().filter(|probe| self.hear(id, *probe, now)).count();
            blocked.extend((hears > 0).then_some(id));
        }
        self.loops.is_any_blocked |= !blocked.is_empty();
        self.show_blocked(&blocked);
    }

    /// Whether the port is blocked for this probe. One of its own tells of a loop that does not lead through the switch.
    fn hear(&mut self, id: PortId, probe: SeenProbe, now: Nanos) -> bool {
        // Something comes in there: of two ports that hear each other both are to send.
        if let Some(port) = self.ports.beside(id).filter(|port| Self::rests(port)) {
            port.probing.passed = None;
            port.probing.guard.hurry(now);
        }
        let from = PortId(probe.from);
        if from == id {
            self.hear_echo(id, probe, now);
            return false;
        }
        let Some(sender) = self.ports.get(&from) else { return false };
        let (guard, sender) = (sender.probing.guard, sender.spec.port_name().to_owned());
        let (interval, spared) = (self.loops.interval, &self.loops.spared);
        let Some(port) = self.ports.beside(id).filter(|port| !spared.contains(port.spec.port_name())) else {
            return false;
        };
        let tag = probe.tci.map(Tag::from_tci);
        let Ok(vid) = PortVlans::new(&port.spec.vlan).ingress(tag, false) else { return false };
        let heard = Heard { nonce: probe.nonce, vid, sender_is_lower: from < id };
        let is_new = port.probing.guard.hears(&guard, heard, now, interval);
        if is_new {
            port.probing.reason = format!(
                "loop: what leaves by port `{sender}` comes in here; the port recovers when it does not"
            );
            let name = port.spec.port_name();
            tracing::warn!(port = name, from = sender, vlan = vid, "blocked, because there is a loop");
            // Stations were heard where the loop brought their packets.
            self.shared.fdb.flush(Flush { port: Some(from.0), vid: None, with_static: false });
        }
        is_new
    }

    /// What a group sends by its leader comes in by another member. Stations behind other ports then seem to be behind the
    /// group. A station beyond it could pretend that, so nothing but a word about it follows.
    fn hear_echo(&mut self, id: PortId, probe: SeenProbe, now: Nanos) {
        let Some(port) = self.ports.beside(id).filter(|port| port.spec.is_group()) else { return };
        let tag = probe.tci.map(Tag::from_tci);
        let Ok(vid) = PortVlans::new(&port.spec.vlan).ingress(tag, false) else { return };
        let heard = Heard { nonce: probe.nonce, vid, sender_is_lower: false };
        if port.probing.guard.knows(heard, now) && port.probing.echoed.replace(now).is_none() {
            netdevs::judge_again(port);
            tracing::warn!(
                port = port.spec.port_name(),
                reason = port.reason,
                "a group is not one at the other end"
            );
        }
    }

    /// Looks at all ports once: thousands of them are not in any cache. Releases those whose loop is gone, forgets echoes of
    /// groups whose probes do not come back any more, and has those probed that are due. Returns what netdevs are to send.
    fn survey(&mut self, now: Nanos) -> Vec<OutgoingProbe> {
        let Self { ports, loops, .. } = self;
        let (interval, slack) = (loops.interval, loops.interval.0 / TOGETHER);
        // What is blocked stays so while others' probes come in there, so guests may rest only while nothing is.
        let may_rest = !std::mem::take(&mut loops.is_any_blocked);
        loops.due = NEVER;
        let (mut released, mut due) = (Vec::new(), Vec::new());
        for port in ports.all_beside() {
            if port.probing.guard.release(now, interval) {
                tracing::info!(port = port.spec.port_name(), "released, because the loop is gone");
                released.push(port.id);
            }
            loops.is_any_blocked |= port.probing.guard.is_blocked();
            if may_rest && port.probing.guard.may_skip(now, interval) && Self::rests(port) {
                port.probing.guard.skips(now, interval);
            } else if port.probing.guard.is_due(now, slack) {
                due.extend(loops.probe(port, now));
            }
            loops.due = port.probing.guard.next(interval).map_or(loops.due, |next| next.min(loops.due));
            if port.probing.echoed.is_some_and(|at| now.since(at) > ECHO_LASTS.0) {
                port.probing.echoed = None;
                netdevs::judge_again(port);
            }
        }
        if !released.is_empty() {
            self.ports.all_beside().for_each(|port| port.probing.passed = None);
        }
        self.show_blocked(&released);
        self.send_probes(due)
    }

    /// Has workers and users see which ports are blocked.
    fn show_blocked(&mut self, changed: &[PortId]) {
        if changed.is_empty() {
            return;
        }
        for id in changed {
            self.ports.get_mut(id).into_iter().for_each(netdevs::judge_again);
        }
        self.publish();
        for id in changed {
            self.shared.fdb.flush(Flush { port: Some(id.0), vid: None, with_static: false });
        }
    }

    /// Has workers send the probes to guests, and returns those that netdevs are to send.
    fn send_probes(&self, probes: Vec<(Way, [u8; PROBE_BYTES])>) -> Vec<OutgoingProbe> {
        let (mut outgoing, mut to_guests) = (Vec::new(), BTreeMap::<usize, Vec<ProbeToGuest>>::new());
        for (way, probe) in probes {
            match way {
                Way::Netdev(ifindex) => outgoing.push((ifindex, probe)),
                Way::Guest(worker, port) => to_guests.entry(worker).or_default().push((port, probe)),
            }
        }
        for (worker, probes) in to_guests {
            self.workers[worker].send(Command::ProbeGuests(probes.into()));
        }
        outgoing
    }

    fn next_look(&self, now: Nanos) -> Nanos {
        let loops = &self.loops;
        let after = |pause: Duration| Nanos(now.0 + pause.as_nanos() as u64);
        let idle = loops.due.max(after(SOON));
        match now.since(loops.last_sent) {
            _ if loops.sent == 0 => idle,
            0 => idle.min(after(SOON)),
            since if since < UNDER_WAY.0 => idle.min(after(LATER)),
            _ => idle,
        }
    }
}
