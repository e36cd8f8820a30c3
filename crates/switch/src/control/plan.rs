//! Ports that were asked for: checked, with id, name and netdev reserved, before anything is made for them.

use std::collections::HashMap;

use forebay_control::port::{PortAdd, PortAddRefused, PortAddReply, PortSpec};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::netlink::{Link, link};

use super::Control;
use super::attach::{self, Fitting};

/// A port that may be added, before anything was made for it.
pub(super) struct Plan {
    pub(super) id: PortId,
    pub(super) spec: PortSpec,
    /// `None`: it is not there, and is waited for.
    pub(super) netdev: Option<Link>,
    pub(super) fitting: Fitting,
}

impl Control {
    pub(crate) fn port_add(&mut self, request: PortAdd) -> PortAddReply {
        let mut reply = PortAddReply::default();
        let netdevs: HashMap<String, Link> = match link::list() {
            Ok(all) => all.into_iter().map(|netdev| (netdev.name.clone(), netdev)).collect(),
            Err(error) => {
                return refuse_all(request, &ApiError::new(ErrorCode::KernelRefused, error.to_string()));
            }
        };
        let mut plans = Vec::new();
        for spec in request.ports {
            let netdev = spec.netdev.clone();
            match self.plan(spec, &netdevs) {
                Ok(plan) => plans.push(plan),
                Err(error) => reply.refused.push(PortAddRefused { netdev, error }),
            }
        }
        let added = self.carry_out(plans, &mut reply.refused);
        reply.added = added.iter().filter_map(|id| self.ports.get(id)).map(|port| self.show(port)).collect();
        reply
    }

    /// Makes ports again that an earlier process had, under the same ids; those whose netdev is not there wait for it.
    pub(super) fn adopt_ports(&mut self, ports: Vec<(PortId, PortSpec)>) {
        let netdevs = link::list().unwrap_or_default().into_iter();
        let netdevs: HashMap<String, Link> = netdevs.map(|netdev| (netdev.name.clone(), netdev)).collect();
        let mut plans = Vec::new();
        for (id, spec) in ports {
            let netdev = netdevs.get(&spec.netdev);
            // Our own program may sit there still.
            let fitting = netdev.map_or_else(
                || Ok(attach::fit_nothing(&spec)),
                |netdev| attach::fit_again(&spec, netdev, self.mode),
            );
            match fitting {
                Ok(fitting) => {
                    self.ids_by_name.insert(spec.port_name().to_owned(), id);
                    if let Some(netdev) = netdev {
                        self.ids_by_ifindex.insert(netdev.ifindex, id);
                    }
                    plans.push(Plan { id, netdev: netdev.cloned(), spec, fitting });
                }
                Err(error) => tracing::warn!(port = spec.port_name(), %error, "it is not taken over"),
            }
        }
        let mut refused = Vec::new();
        self.carry_out(plans, &mut refused);
        for PortAddRefused { netdev, error } in refused {
            tracing::warn!(netdev, %error, "its port is not taken over");
        }
    }

    /// Checks a wish and reserves id, name and netdev for it.
    fn plan(&mut self, spec: PortSpec, netdevs: &HashMap<String, Link>) -> Result<Plan, ApiError> {
        let intakes = self.generation()?.intakes();
        spec.validate()?;
        let netdev = netdevs.get(&spec.netdev).ok_or_else(|| no_such_netdev(&spec.netdev))?;
        if intakes.iter().any(|intake| intake.collector.pair.ends.transmit_ifindex == netdev.ifindex) {
            let error =
                ApiError::new(ErrorCode::NetdevRefused, format!("`{}` is the switch's own", netdev.name));
            return Err(error.with_field("netdev").with_value(&netdev.name));
        }
        if let Some(id) = self.ids_by_ifindex.get(&netdev.ifindex) {
            return Err(self.already_port(*id, &netdev.name));
        }
        if self.ids_by_name.contains_key(spec.port_name()) {
            let message = format!("another port is called `{}`", spec.port_name());
            return Err(ApiError::new(ErrorCode::NameTaken, message)
                .with_field("name")
                .with_value(spec.port_name())
                .with_remedy("give another with --name"));
        }
        let fitting = attach::fit(&spec, netdev, self.mode)?;
        let id = self.free_id()?;
        self.ids_by_name.insert(spec.port_name().to_owned(), id);
        self.ids_by_ifindex.insert(netdev.ifindex, id);
        Ok(Plan { id, netdev: Some(netdev.clone()), spec, fitting })
    }

    fn already_port(&self, id: PortId, netdev: &str) -> ApiError {
        let name = self.ports.get(&id).map_or(netdev, |port| port.spec.port_name());
        ApiError::new(ErrorCode::AlreadyPort, format!("`{netdev}` is a port already, called `{name}`"))
            .with_field("netdev")
            .with_value(netdev)
            .with_remedy(format!("delete it first: forebay port del {name}"))
    }

    fn free_id(&mut self) -> Result<PortId, ApiError> {
        let taken = self.ids_by_name.len() as u32;
        if taken >= self.max_ports {
            return Err(ApiError::new(ErrorCode::TooManyPorts, format!("there are {taken} ports already"))
                .with_limit(self.max_ports)
                .with_remedy("raise switch.max_ports in the configuration and restart"));
        }
        let used: std::collections::HashSet<PortId> = self.ids_by_name.values().copied().collect();
        loop {
            let id = PortId(self.next_id as u16);
            self.next_id = (self.next_id + 1) % self.max_ports;
            if !used.contains(&id) {
                return Ok(id);
            }
        }
    }
}

fn refuse_all(request: PortAdd, error: &ApiError) -> PortAddReply {
    let refuse = |spec: PortSpec| PortAddRefused { netdev: spec.netdev, error: error.clone() };
    PortAddReply { added: Vec::new(), refused: request.ports.into_iter().map(refuse).collect() }
}

fn no_such_netdev(name: &str) -> ApiError {
    ApiError::new(
        ErrorCode::NoSuchNetdev,
        format!("there is no netdev `{name}` in the switch's network namespace"),
    )
    .with_field("netdev")
    .with_value(name)
    .with_remedy("see `ip link`; a netdev in another namespace is moved with `ip link set NETDEV netns PID`")
}
