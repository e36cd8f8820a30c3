//! Ports that have many packets, moved out of the way of those that have few, and back.

use forebay_control::PortId;
use forebay_policy::Nanos;

use super::Change;
use super::attach::Fitting;
use super::port::Binding;

/// Ports that change lane in one go: each costs a socket, and other changes wait meanwhile.
const AT_ONCE: usize = 32;

impl Change<'_> {
    /// Looks at what ports take and gives those that should be in the other lane rings there.
    pub(super) fn sort_into_lanes(&mut self, now: Nanos) {
        let mut ids: Vec<PortId> = Vec::new();
        self.ports.on_netdevs_beside(|port| {
            if ids.len() < AT_ONCE {
                ids.extend(port.observe_lane(now));
            }
        });
        if ids.is_empty() {
            return;
        }
        for id in ids {
            let port = &self.ports[&id];
            let (name, lane, fitting) = (port.spec.port_name(), port.lane.lane(), Fitting::of(port));
            tracing::debug!(port = name, ?lane, "changes lane");
            if let Err(error) = self.rebind(id, fitting, Binding::Collector) {
                let port = self.ports[&id].spec.port_name();
                tracing::warn!(port, %error, "a port could not change lane");
                self.port_mut(id).lane.undo(now);
            }
        }
        self.retire_replaced();
    }
}
