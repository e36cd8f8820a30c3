//! Which netdev each port of an earlier daemon belongs to.
//!
//! The port's pinned link says so, whatever the netdev is called by now. A port without a link had no netdev, or its netdev
//! is gone: then it gets the netdev of its name, unless that is another port's, or waits for one.

use std::collections::{HashMap, HashSet};

use forebay_control::port::{PortAddRefused, PortSpec};
use forebay_control::saved::fit::FittedPort;
use forebay_control::{IfIndex, PortId};
use forebay_kernel::netlink::Link;

use crate::control::Change;
use crate::control::attach;
use crate::control::plan::{Plan, no_such_netdev};

impl Change<'_> {
    /// Makes ports again that an earlier process had; those whose netdev is not there wait for it.
    /// `left` has the port and the netdev's index of each link that is left.
    pub(super) fn adopt_ports(&mut self, ports: &[FittedPort], left: &[(u16, IfIndex)]) {
        let found = self.find_netdevs(true).map(|found| found.by_name).unwrap_or_default();
        let netdevs: Vec<Link> = found.into_values().collect();
        let named: Vec<_> = ports.iter().map(|port| (port.was, &port.port.spec)).collect();
        let netdevs = assign(&named, left, &netdevs);
        let taken: HashSet<IfIndex> = netdevs.values().map(|netdev| netdev.ifindex).collect();
        self.datapath.forget_near_ports_but(|ifindex| taken.contains(&ifindex));
        let mut plans = Vec::new();
        for FittedPort { id, was, port, .. } in ports {
            let (id, spec) = (*id, port.spec.clone());
            if spec.is_guest() {
                plans.extend(self.adopt_guest(id, spec));
                continue;
            }
            let netdev = netdevs.get(was).copied().ok_or_else(|| no_such_netdev(&spec.netdev));
            // Our own program may sit on the netdev still.
            let mode = self.pool.mode();
            let fitted = self.without_lock(|| {
                netdev.and_then(|netdev| Ok((netdev.clone(), attach::fit_again(&spec, netdev, mode)?)))
            });
            plans.push(self.reserve(id, spec, fitted, true));
        }
        let mut refused = Vec::new();
        for id in self.carry_out(plans, &mut refused) {
            if self.ports[&id].spec.is_group() && self.regroup(id).is_err() {
                tracing::warn!(port = self.ports[&id].spec.port_name(), "members are missing");
            }
        }
        for PortAddRefused { netdev, error } in refused {
            tracing::warn!(netdev, %error, "the netdev's port is not taken over");
        }
    }
}

impl Change<'_> {
    /// A guest's socket, where it may connect again.
    fn adopt_guest(&mut self, id: PortId, spec: PortSpec) -> Option<Plan> {
        let port = spec.port_name().to_owned();
        let opened = self.open_guest(id, spec);
        opened.inspect_err(|error| tracing::warn!(port, %error, "the guest's port is not taken over")).ok()
    }
}

/// The netdev of each port that has one, by the ids that ports had.
fn assign<'a>(
    ports: &[(PortId, &PortSpec)],
    left: &[(u16, IfIndex)],
    netdevs: &'a [Link],
) -> HashMap<PortId, &'a Link> {
    let by_index: HashMap<IfIndex, &Link> = netdevs.iter().map(|netdev| (netdev.ifindex, netdev)).collect();
    let by_name: HashMap<&str, &Link> = netdevs.iter().map(|netdev| (netdev.name.as_str(), netdev)).collect();
    let linked: HashMap<u16, IfIndex> = left.iter().copied().collect();
    let mut owners = HashMap::new();
    let mut assigned = HashMap::new();
    let mut give = |id: PortId, netdev: Option<&&'a Link>| {
        let Some(netdev) = netdev else { return };
        if *owners.entry(netdev.ifindex).or_insert(id) == id {
            assigned.insert(id, *netdev);
        }
    };
    for (id, _) in ports {
        give(*id, linked.get(&id.0).and_then(|ifindex| by_index.get(ifindex)));
    }
    for (id, spec) in ports.iter().filter(|(id, _)| !linked.contains_key(&id.0)) {
        give(*id, by_name.get(spec.netdev.as_str()));
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn netdev(ifindex: u32, name: &str) -> Link {
        Link { ifindex: IfIndex(ifindex), name: name.to_owned(), ..Link::default() }
    }

    fn assigned(ports: &[(u16, &str)], left: &[(u16, u32)], netdevs: &[Link]) -> Vec<(u16, u32)> {
        let ports: Vec<_> = ports.iter().map(|(id, name)| (PortId(*id), PortSpec::new(*name))).collect();
        let ports: Vec<_> = ports.iter().map(|(id, spec)| (*id, spec)).collect();
        let left: Vec<_> = left.iter().map(|(id, ifindex)| (*id, IfIndex(*ifindex))).collect();
        let mut assigned: Vec<_> =
            assign(&ports, &left, netdevs).into_iter().map(|(id, netdev)| (id.0, netdev.ifindex.0)).collect();
        assigned.sort_unstable();
        assigned
    }

    #[test]
    fn a_link_goes_before_a_name() {
        let netdevs = [netdev(5, "b"), netdev(6, "a")];
        assert_eq!(assigned(&[(0, "a"), (1, "b")], &[(0, 5), (1, 6)], &netdevs), [(0, 5), (1, 6)]);
        assert_eq!(assigned(&[(0, "a"), (1, "b")], &[], &netdevs), [(0, 6), (1, 5)]);
    }

    #[test]
    fn a_port_without_a_link_does_not_get_the_netdev_of_another() {
        let netdevs = [netdev(5, "a")];
        assert_eq!(assigned(&[(0, "a"), (1, "x")], &[(1, 5)], &netdevs), [(1, 5)]);
        assert_eq!(assigned(&[(0, "a"), (1, "a")], &[], &netdevs), [(0, 5)], "the first of two of one name");
    }

    #[test]
    fn a_port_whose_linked_netdev_went_meanwhile_waits() {
        assert_eq!(assigned(&[(0, "a")], &[(0, 9)], &[netdev(5, "a")]), []);
    }
}
