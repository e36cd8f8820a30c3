//! A port as the control side holds it.

use std::sync::{Arc, Weak};

use forebay_control::group::PciAddress;
use forebay_control::port::{AttachKind, PortShow, PortSpec, PortState};
use forebay_control::rss::RssSteering;
use forebay_control::{IfIndex, PortCounters, PortId};
use forebay_kernel::netlink::Link;
use forebay_kernel::{KernelCounters, Promiscuous, RingAccount, UnicastFilter};
use forebay_policy::{Backoff, Debounce, LaneChoice, Nanos};

use super::hints::{Hints, Programs};
use super::links::Links;
use super::port_carrying::Carrying;
use super::port_coalesce::{NetdevSettings, Sides};
use super::port_group::PortGroup;
use super::port_guest::Guest;
use super::port_loss::CollectorLoss;
use super::port_probing::Probing;
use super::port_rxq::Rxq;
use super::port_share::Share;
use super::ring::Rings;
use crate::counters::{LatencyCells, PortCells, RingGauge};
use crate::output::Output;
use crate::pool_instance::Stock;
use crate::topology::PortEntry;
use crate::vlan::PortVlans;
use crate::worker::{EXCHANGE_FRAMES, UnderwayAccount};

/// What a port holds of its netdev, while there is one.
pub(super) struct Attachment {
    pub(super) links: Links,
    pub(super) reception: Reception,
    pub(super) ifindex: IfIndex,
    /// The PCI function below, of a group's member.
    pub(super) function: Option<PciAddress>,
    /// Where the group names it.
    pub(super) position: usize,
    /// The netdev as it was last heard of.
    pub(super) netdev: Link,
    /// How its interrupts are moderated; held for its drop.
    pub(super) sides: Sides,
}

/// What the switch has its netdev receive, besides what is addressed to it; held for its drop.
#[derive(Default)]
pub(super) struct Reception {
    pub(super) everything: Option<Promiscuous>,
    pub(super) stations: Option<Arc<UnicastFilter>>,
}

/// Where a port's packets wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// In rings of its own on the collector.
    Collector,
    /// In the rings that ports share.
    Shared,
    /// In rings of its own on its netdev.
    Direct,
}

/// One port, from `port add` to `port del`, whatever happens to its netdev.
pub(super) struct Port {
    pub(super) id: PortId,
    /// The worker that serves it, if one does for all of its packets.
    pub(super) worker: usize,
    pub(super) spec: PortSpec,
    pub(super) kind: AttachKind,
    /// Of a port for a virtual machine.
    pub(super) guest: Option<Guest>,
    pub(super) completes_checksums: bool,
    pub(super) binding: Binding,
    /// Of a group, the leader's.
    pub(super) attachment: Option<Attachment>,
    /// Of a group, the other members', in the order of their PCI addresses.
    pub(super) followers: Vec<Attachment>,
    /// How interrupts of its netdevs are to be moderated.
    pub(super) coalescing: NetdevSettings,
    pub(super) group: PortGroup,
    pub(super) state: PortState,
    pub(super) reason: String,
    /// When to look again at a netdev that is there and cannot be attached to.
    pub(super) again: Backoff,
    /// How often its netdev may be looked at because that has changed.
    pub(super) looks: Debounce,
    pub(super) rings: Rings,
    /// Memory of its own, while it is bound directly and does not draw on the pool.
    pub(super) stock: Option<Stock>,
    /// Such memory while its last rings leave.
    pub(super) leaving_stock: Option<Stock>,
    pub(super) cells: Arc<PortCells>,
    /// Once it had hints.
    pub(super) latency: Option<Arc<LatencyCells>>,
    /// What the kernel had counted for this id before this port.
    pub(super) baseline: KernelCounters,
    pub(super) loss: CollectorLoss,
    pub(super) share: Share,
    /// Only of a virtual machine's port: the account of its frames that are on their way to other workers.
    pub(super) underway: Option<UnderwayAccount>,
    pub(super) rxq: Rxq,
    pub(super) hints: Programs,
    /// Alive while somebody captures it.
    pub(super) captured: Weak<()>,
    pub(super) lane: LaneChoice,
    pub(super) probing: Probing,
    pub(super) carrying: Carrying,
    /// What was counted before this process took the port over.
    pub(super) base: PortCounters,
    /// Its netdev, if that takes frames of XDP programs.
    pub(super) takes_frames: Option<IfIndex>,
    /// The station at its netdev's other end, if packets can be put there at once.
    pub(super) peer: Option<u64>,
}

impl Port {
    /// How the packet path sees it. `joins`: segments are joined for netdevs, too.
    pub(super) fn entry(&self, joins: bool) -> PortEntry {
        let usable = self.state.carries();
        PortEntry {
            id: self.id,
            output: self.output().filter(|_| usable),
            mode: self.spec.vlan.clone(),
            vlans: PortVlans::new(&self.spec.vlan),
            isolated: self.spec.isolated,
            is_blocked: self.state == PortState::Blocked,
            ways: self.ways(),
            home: self.has_one_worker().then_some(self.worker),
            steering: self.steering(),
            channels: self.group.tuning.workers.as_slice().into(),
            mtu: self.mtu(),
            takes_joints: self.takes_joints(joins),
            completes_checksums: self.completes_checksums,
            cells: Arc::clone(&self.cells),
            latency: self.latency.clone(),
            is_xdp: self.kind == AttachKind::Xdp,
            is_guest: self.guest.is_some(),
            takes_frames: self.takes_frames.is_some(),
            peer: self.peer,
            is_told: self.is_told(),
            last_flow_id_before: PortEntry::no_flow_ids(),
            is_captured: self.is_captured(),
            generation: 0,
        }
    }

    fn mtu(&self) -> u32 {
        match &self.guest {
            Some(guest) => guest.mtu.into(),
            None => self.attachments().map(|attachment| attachment.netdev.mtu).min().unwrap_or(0),
        }
    }

    fn takes_joints(&self, joins: bool) -> bool {
        let is_virtual = |at: &Attachment| !at.netdev.has_parent_device();
        match &self.guest {
            Some(guest) => guest.takes_joints(),
            // A virtual netdev has no queue of its own in which packets that came another way could overtake.
            None => joins && self.attachment.is_some() && self.attachments().all(is_virtual),
        }
    }

    fn output(&self) -> Option<Output> {
        match (&self.guest, &self.attachment) {
            (Some(_), _) => Some(Output::Guest { owner: self.worker }),
            (None, Some(attachment)) => Some(Output::Netdev(attachment.ifindex)),
            (None, None) => None,
        }
    }

    /// One worker serves all of its packets.
    fn has_one_worker(&self) -> bool {
        match self.kind {
            AttachKind::Tcx => !self.spec.is_group(),
            AttachKind::VhostUser => true,
            AttachKind::Xdp => false,
        }
    }

    /// What its packets go to workers by, once there is a table.
    pub(super) fn steering(&self) -> Option<RssSteering> {
        (self.spec.is_group() && !self.group.tuning.workers.is_empty()).then_some(self.group.rss.steering)
    }

    /// What it holds of all of its netdevs, the leader first.
    pub(super) fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.attachment.iter().chain(&self.followers)
    }

    /// What it holds of one of its netdevs.
    pub(super) fn attachment_of(&mut self, ifindex: IfIndex) -> Option<&mut Attachment> {
        self.attachment.iter_mut().chain(&mut self.followers).find(|attachment| attachment.ifindex == ifindex)
    }

    /// Its program writes our hints, flow ids among them.
    pub(super) fn is_told(&self) -> bool {
        self.kind == AttachKind::Xdp && matches!(self.hints.hints(), Hints::On)
    }

    /// Somebody captures it.
    pub(super) fn is_captured(&self) -> bool {
        self.captured.strong_count() > 0
    }

    /// The workers that serve it.
    fn workers(&self) -> Vec<u32> {
        match self.guest {
            Some(_) => vec![self.worker as u32],
            None => self.rings.serving().iter().map(|ring| ring.worker as u32).collect(),
        }
    }

    /// Frames that lie in its RX rings or are on their way to other workers, as its workers last saw them.
    pub(super) fn seen(&self) -> u64 {
        let underway = self.underway.as_ref().map(|underway| &*underway.gauge);
        self.rings.all().map(|ring| &*ring.gauge).chain(underway).map(|gauge| gauge.used.get()).sum()
    }

    /// Frames that one of its accounts has room for at most.
    pub(super) fn depth(&self) -> u32 {
        if self.underway.is_some() { EXCHANGE_FRAMES as u32 } else { self.rxq.depth }
    }

    /// Its accounts that stay, and what its workers saw of each.
    pub(super) fn accounts(&self) -> impl Iterator<Item = (&RingAccount, &RingGauge)> {
        let underway = self.underway.iter().map(|underway| (&underway.account, &*underway.gauge));
        self.rings.serving().iter().map(|ring| (&ring.account, &*ring.gauge)).chain(underway)
    }

    /// Looks at how much it takes; its id, if its rings should be in the other lane.
    pub(super) fn observe_lane(&mut self, now: Nanos) -> Option<PortId> {
        let taken =
            self.rings.serving().iter().fold(0u64, |sum, ring| sum.wrapping_add(ring.account.taken()));
        let changed = self.binding == Binding::Collector && self.lane.observe(taken, now);
        changed.then_some(self.id)
    }

    /// Frames that its accounts say it holds.
    pub(super) fn used(&self) -> u64 {
        self.rings.used() + self.underway.as_ref().map_or(0, |underway| underway.account.used())
    }

    /// None of its rings is to get packets any more; they are to be emptied and closed.
    pub(super) fn leave_rings(&mut self) {
        self.rings.replace(Vec::new());
        self.leaving_stock = self.stock.take().or(self.leaving_stock.take());
    }

    /// Most frames that lay there at once.
    pub(super) fn max(&self) -> u64 {
        self.accounts().map(|(_, gauge)| gauge.max()).sum()
    }

    pub(super) fn show(&self, counters: PortCounters) -> PortShow {
        let netdev = self.attachment.as_ref().map(|attachment| &attachment.netdev);
        let reception = self.attachment.as_ref().map(|attachment| &attachment.reception);
        PortShow {
            id: self.id,
            name: self.spec.port_name().to_owned(),
            netdev: self.netdevs(),
            vhost_user: self
                .guest
                .as_ref()
                .zip(self.spec.vhost_user.as_ref())
                .map(|(guest, asked)| guest.show(asked)),
            members: if self.spec.is_group() { self.members() } else { Vec::new() },
            ifindex: netdev.map(|netdev| netdev.ifindex),
            attach: self.kind,
            requested: self.spec.attach,
            state: self.state,
            state_reason: self.reason.clone(),
            vlan: self.spec.vlan.clone(),
            isolated: self.spec.isolated,
            mtu: match &self.guest {
                Some(guest) => guest.mtu.into(),
                None => netdev.map_or(0, |netdev| netdev.mtu),
            },
            promiscuous: reception.is_some_and(|reception| reception.everything.is_some()),
            unicast_filter: reception
                .and_then(|reception| Some(reception.stations.as_ref()?.stations() as u32)),
            worker: self.workers(),
            rx_ring_depth: self.rings.serving().first().map_or(0, |ring| ring.depth),
            counters,
        }
    }
}
