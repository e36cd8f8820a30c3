//! Flows as users change them, and what the kernel must be told for them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_control::eswitch::Offload;
use forebay_control::flow::{FlowTable, FlowsRefused};
use forebay_control::{IfIndex, PortId};
use forebay_kernel::netlink::Link;
use forebay_kernel::netlink::netdev_genl::{self, XdpFeatures};
use forebay_kernel::reachable_peer;
use forebay_policy::Nanos;
use forebay_wire::mac;

use super::flow_list::lock_book;
use super::port::Port;
use super::{Change, Control};
use crate::flows::{FlowBook, FlowKeeper, FlowLimits};

/// The kernel's flows: what is there, and the thread that sees to it.
pub(crate) struct Flows {
    book: Arc<Mutex<FlowBook>>,
    /// `None` once the switch has stopped.
    keeper: Option<FlowKeeper>,
    /// Packets may skip the switch's end of a veth.
    redirects_to_peers: bool,
}

impl Flows {
    /// Flows of this book, to which `keeper` sees.
    pub(crate) fn new(book: Arc<Mutex<FlowBook>>, keeper: FlowKeeper, redirects_to_peers: bool) -> Self {
        Self { book, keeper: Some(keeper), redirects_to_peers }
    }

    /// The book, for work without the control lock.
    pub(crate) fn shared_book(&self) -> Arc<Mutex<FlowBook>> {
        Arc::clone(&self.book)
    }

    /// The book, locked.
    pub(super) fn book(&self) -> MutexGuard<'_, FlowBook> {
        lock_book(&self.book)
    }

    /// Takes out the thread, which ends when it is dropped.
    pub(super) fn take_keeper(&mut self) -> Option<FlowKeeper> {
        self.keeper.take()
    }

    pub(super) fn redirects_to_peers(&self) -> bool {
        self.redirects_to_peers
    }
}

impl Control {
    pub(crate) fn flow_table(&self) -> FlowTable {
        let book = self.flow_book();
        let totals = book.totals();
        FlowTable {
            offload: self.offload(),
            entries: book.len(),
            max_entries: book.limits().max_entries,
            bytes: book.bytes(),
            installed_flows: totals.installed,
            refused: FlowsRefused {
                over_share: totals.over_share,
                over_rate: totals.over_rate,
                table_full: totals.table_full,
                no_slot: totals.no_slot,
            },
            invalidated_flows: totals.invalidated,
            idle_flows: totals.idle,
        }
    }

    /// Has the kernel look flows up while that is of use; what it knew is void then, or if it was not so before.
    pub(super) fn look_up_flows_if_useful(&mut self) {
        let is_of_use = self.is_of_use();
        if is_of_use != self.publication.looks_up_flows() {
            self.publication.void_flows(is_of_use);
        }
    }

    /// To be followed, to tell user space, or to take packets to a channel's worker.
    pub(super) fn is_of_use(&self) -> bool {
        self.publication.carries_flows() || self.ports.values().any(Port::is_told) || self.lead_to_channels()
    }

    /// Whether the kernel follows flows.
    pub(super) fn offload(&self) -> Offload {
        if self.publication.carries_flows() { Offload::On } else { Offload::Off }
    }

    pub(super) fn set_flow_limits(&self, limits: FlowLimits) {
        self.flow_book().set_limits(limits);
    }

    pub(super) fn flow_book(&self) -> MutexGuard<'_, FlowBook> {
        self.flows.book()
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(self.shared.started.elapsed().as_nanos() as u64)
    }

    /// The port's netdev, if that takes frames of XDP programs; says whether that has changed.
    pub(super) fn output_is(&mut self, id: PortId, takes: Option<IfIndex>) -> bool {
        if takes == self.ports[&id].takes_frames {
            return false;
        }
        if takes.is_none() {
            self.port_mut(id).takes_frames = None;
            self.publish();
        }
        // A driver may say that it does and refuse.
        let entered = self.datapath.set_output(id.0, takes);
        let takes = takes.filter(|_| entered.is_ok());
        self.ports.change_if(id, |port| std::mem::replace(&mut port.takes_frames, takes) != takes);
        true
    }

    /// The station at the other end of the port's netdev; says whether that has changed.
    pub(super) fn peer_is(&mut self, id: PortId, peer: Option<u64>) -> bool {
        let is_other = peer != self.ports[&id].peer;
        if is_other {
            self.port_mut(id).peer = peer;
        }
        is_other
    }
}

impl Change<'_> {
    /// Has the kernel follow flows, or not; those there are go.
    pub(super) fn set_offload(&mut self, offload: Offload) {
        if offload == self.offload() {
            return;
        }
        self.publication.set_carries_flows(offload == Offload::On);
        let is_of_use = self.is_of_use();
        self.publication.void_flows(is_of_use);
        self.publish();
        let book = self.flows.shared_book();
        self.without_lock(|| lock_book(&book).flush());
        tracing::info!(%offload, "the fast path was switched");
    }

    /// Netdevs may take frames of XDP programs that did not, or no more; `None`: any of them. Says whether anything has
    /// changed.
    pub(super) fn follow_outputs(&mut self, changed: Option<BTreeSet<IfIndex>>) -> bool {
        let Some(changed) = changed else {
            let all: Vec<PortId> = self.ports.keys().copied().collect();
            self.look_later(all);
            return false;
        };
        let ids = changed.iter().filter_map(|ifindex| self.ports.on(*ifindex));
        let mut is_other = false;
        for id in ids.collect::<Vec<_>>() {
            if self.may_look(id) {
                is_other |= self.look_at_output(id) | self.look_at_peer(id);
            }
        }
        is_other
    }

    /// Asks the netdev of a port whether it takes frames of XDP programs; says whether that has changed.
    pub(super) fn look_at_output(&mut self, id: PortId) -> bool {
        let port = &self.ports[&id];
        let one = port.attachment.as_ref().filter(|_| !port.spec.is_group());
        let netdev = one.map(|attachment| attachment.netdev.clone());
        let takes = self.without_lock(|| netdev.filter(takes_frames).map(|netdev| netdev.ifindex));
        self.output_is(id, takes)
    }

    /// Looks where the netdev of a port leads; says whether that has changed.
    pub(super) fn look_at_peer(&mut self, id: PortId) -> bool {
        let port = &self.ports[&id];
        let redirects = self.flows.redirects_to_peers() && !port.spec.is_group();
        let attachment = port.attachment.as_ref().filter(|_| redirects);
        let netdev = attachment.map(|attachment| attachment.netdev.clone());
        let peer = self.without_lock(|| netdev.as_ref().and_then(peer_of));
        self.peer_is(id, peer)
    }
}

/// Up to this MTU in bytes a frame lies in one buffer, whatever the driver that received it.
pub(super) const ONE_BUFFER_MTU: u32 = 1500;

/// Asks the kernel whether the netdev takes frames of XDP programs. A driver that takes only frames in one buffer loses
/// the others without a word, so it may have no long ones.
pub(super) fn takes_frames(netdev: &Link) -> bool {
    let takes = |found: XdpFeatures| found.ndo_xmit && (found.ndo_xmit_sg || netdev.mtu <= ONE_BUFFER_MTU);
    netdev_genl::xdp_features(netdev.ifindex).is_ok_and(takes)
}

/// Asks the kernel for the station at the netdev's other end, if packets can be put there at once.
pub(super) fn peer_of(netdev: &Link) -> Option<u64> {
    reachable_peer(netdev).map(mac::from_bytes)
}
