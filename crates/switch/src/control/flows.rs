//! Flows as users change them, and what the kernel must be told for them.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use forebay_control::eswitch::Offload;
use forebay_control::flow::{FlowFlushReply, FlowTable, FlowsRefused};
use forebay_control::{ApiError, PortId};
use forebay_kernel::netlink::netdev_genl;
use forebay_kernel::reachable_peer;
use forebay_policy::Nanos;
use forebay_wire::mac;

use super::Control;
use super::port::Port;
use crate::flows::{FlowBook, FlowLimits};

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

    pub(crate) fn flow_flush(&self) -> Result<FlowFlushReply, ApiError> {
        self.generation()?;
        Ok(FlowFlushReply { flushed: self.flow_book().flush() })
    }

    /// Has the kernel follow flows, or not; those there are go.
    pub(super) fn set_offload(&mut self, offload: Offload) {
        if offload == self.offload() {
            return;
        }
        self.publication.set_carries_flows(offload == Offload::On);
        self.publication.void_flows(self.is_of_use());
        self.publish();
        self.flow_book().flush();
        tracing::info!(%offload, "the fast path was switched");
    }

    /// Has the kernel look flows up while that is of use; what it knew is void then, or if it was not so before.
    pub(super) fn look_up_flows_if_useful(&mut self) {
        let is_of_use = self.is_of_use();
        if is_of_use != self.publication.looks_up_flows() {
            self.publication.void_flows(is_of_use);
        }
    }

    /// To be followed, or to tell user space.
    pub(super) fn is_of_use(&self) -> bool {
        self.publication.carries_flows() || self.ports.values().any(Port::is_told)
    }

    /// Whether the kernel follows flows.
    pub(super) fn offload(&self) -> Offload {
        if self.publication.carries_flows() { Offload::On } else { Offload::Off }
    }

    pub(super) fn set_flow_limits(&self, limits: FlowLimits) {
        self.flow_book().set_limits(limits);
    }

    /// A thread that panicked while it held the lock has left counters that are still each in order.
    pub(super) fn flow_book(&self) -> MutexGuard<'_, FlowBook> {
        self.flows.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(self.shared.started.elapsed().as_nanos() as u64)
    }

    /// Looks whether captures have ended, of which nobody tells.
    pub(super) fn look_at_captures(&mut self) {
        let topology = self.shared.topology.load_full();
        let is_other =
            |port: &Port| topology.port(port.id).is_some_and(|entry| entry.is_captured != port.is_captured());
        if self.ports.values().any(is_other) {
            self.publish();
        }
    }

    /// Netdevs may take frames of XDP programs that did not, or no more; `None`: any of them. Says whether anything has
    /// changed.
    pub(super) fn follow_outputs(&mut self, changed: Option<BTreeSet<u32>>) -> bool {
        let Some(changed) = changed else {
            self.look_later(self.ports.keys().copied().collect::<Vec<_>>());
            return false;
        };
        let ids = changed.iter().filter_map(|ifindex| self.ports.by_ifindex.get(ifindex).copied());
        let mut is_other = false;
        for id in ids.collect::<Vec<_>>() {
            if self.may_look(id) {
                is_other |= self.look_at_output(id) | self.look_at_peer(id);
            }
        }
        if is_other {
            self.publish();
        }
        is_other
    }

    /// Asks the netdev of a port whether it takes frames of XDP programs; says whether that has changed.
    pub(super) fn look_at_output(&mut self, id: PortId) -> bool {
        let port = &self.ports[&id];
        let ifindex = port.attachment.as_ref().map(|attachment| attachment.ifindex);
        let takes = ifindex
            .filter(|ifindex| netdev_genl::xdp_features(*ifindex).is_ok_and(|features| features.ndo_xmit));
        if takes == port.takes_frames {
            return false;
        }
        if takes.is_none() {
            self.port_mut(id).takes_frames = None;
            self.publish();
        }
        // A driver may say that it does and refuse.
        let entered = self.datapath.set_output(id.0, takes);
        self.port_mut(id).takes_frames = takes.filter(|_| entered.is_ok());
        true
    }

    /// Looks where the netdev of a port leads; says whether that has changed.
    pub(super) fn look_at_peer(&mut self, id: PortId) -> bool {
        let redirects = self.flows.redirects_to_peers;
        let port = self.port_mut(id);
        let netdev = port.attachment.as_ref().filter(|_| redirects).map(|attachment| &attachment.netdev);
        let peer = netdev.and_then(reachable_peer).map(mac::from_bytes);
        let is_other = peer != port.peer;
        port.peer = peer;
        is_other
    }
}
