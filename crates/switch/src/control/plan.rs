//! Ports that were asked for: checked, with id, name and netdev reserved, before anything is made for them.

use std::collections::HashMap;

use forebay_control::port::{PortAdd, PortAddRefused, PortAddReply, PortShow, PortSpec, PortState};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::netlink::{Link, link};
use forebay_vhost::DeviceOptions;

use super::attach::{self, Fitting};
use super::port::Port;
use super::port_guest::Guest;
use super::{Change, Control};
use crate::guests::Meeting;

/// Netdevs that are not there and are named in one line of the log.
const NAMES_LOGGED: usize = 8;

/// A port that may be added, before anything was made for it.
pub(super) struct Plan {
    pub(super) id: PortId,
    pub(super) spec: PortSpec,
    /// The netdev to attach to, or why there is none for now.
    pub(super) netdev: Result<Link, ApiError>,
    pub(super) fitting: Fitting,
    /// The port is also made when it cannot be attached now.
    pub(super) may_wait: bool,
    /// The worker that serves it, if one does for all of its packets.
    pub(super) worker: usize,
    /// Of a virtual machine's port, what is to be served.
    pub(super) guest: Option<(Guest, Meeting, DeviceOptions)>,
}

/// Netdevs as one request finds them.
pub(super) struct Found {
    pub(super) by_name: HashMap<String, Link>,
    /// Names of netdevs that ports without a netdev wait for.
    awaited: HashMap<String, PortId>,
}

impl Change<'_> {
    pub(crate) fn port_add(&mut self, request: PortAdd) -> PortAddReply {
        let mut reply = PortAddReply::default();
        let mut found = match self.find_netdevs(request.wait) {
            Ok(found) => found,
            Err(error) => return refuse_all(request, &error),
        };
        let mut plans = Vec::new();
        for spec in request.ports {
            let netdev = spec.asked_for().to_owned();
            match self.plan(spec, &mut found, request.wait) {
                Ok(plan) => plans.push(plan),
                Err(error) => reply.refused.push(PortAddRefused { netdev, error }),
            }
        }
        let mut added = self.carry_out(plans, &mut reply.refused);
        added.retain(|id| self.is_gathered(*id, request.wait, &mut reply.refused));
        reply.added = added.iter().filter_map(|id| self.ports.get(id)).map(|port| self.show(port)).collect();
        reply
    }

    /// Lists netdevs. Where ports may wait, a list that cannot be had is asked for again later.
    pub(super) fn find_netdevs(&mut self, may_wait: bool) -> Result<Found, ApiError> {
        let listed = match self.without_lock(link::list) {
            Err(error) if may_wait => {
                tracing::warn!(%error, "netdevs cannot be listed; ports wait until they can");
                let now = self.now();
                self.put_off.list_again(now);
                Vec::new()
            }
            listed => listed.map_err(|error| ApiError::new(ErrorCode::KernelRefused, error.to_string()))?,
        };
        let by_name = listed.into_iter().map(|netdev| (netdev.name.clone(), netdev)).collect();
        let waiting = self.ports.values().filter(|port| port.attachment.is_none());
        let names = |port: &Port| {
            if port.spec.is_group() { port.spec.group.clone() } else { vec![port.spec.netdev.clone()] }
        };
        let awaited = waiting.flat_map(|port| names(port).into_iter().map(|name| (name, port.id))).collect();
        Ok(Found { by_name, awaited })
    }

    /// Checks a wish and reserves id, name and netdev for it.
    fn plan(&mut self, spec: PortSpec, found: &mut Found, may_wait: bool) -> Result<Plan, ApiError> {
        self.instance()?;
        spec.validate()?;
        if spec.is_guest() {
            return self.plan_guest(spec);
        }
        if spec.is_group() {
            return self.plan_group(spec, found);
        }
        let netdev = found.by_name.get(&spec.netdev);
        self.refuse_taken(&spec, netdev, &found.awaited)?;
        let netdev = netdev.ok_or_else(|| no_such_netdev(&spec.netdev));
        let mode = self.pool.mode();
        let fitted = self.without_lock(|| {
            netdev.and_then(|netdev| Ok((netdev.clone(), attach::fit(&spec, netdev, mode)?)))
        });
        let fitted = if may_wait { fitted } else { Ok(fitted?) };
        let id = self.free_id()?;
        if fitted.is_err() {
            found.awaited.insert(spec.netdev.clone(), id);
        }
        Ok(self.reserve(id, spec, fitted, may_wait))
    }
}

impl Change<'_> {
    /// A port whose members are looked for when it is made.
    fn plan_group(&mut self, spec: PortSpec, found: &mut Found) -> Result<Plan, ApiError> {
        self.refuse_name(&spec)?;
        for member in &spec.group {
            if let Some(id) = found.awaited.get(member) {
                return Err(self.already_port(*id, member));
            }
        }
        let id = self.free_id()?;
        found.awaited.extend(spec.group.iter().map(|member| (member.clone(), id)));
        let none = no_such_netdev(spec.asked_for());
        Ok(self.reserve(id, spec, Err(none), true))
    }

    /// Looks for the members of a port that was made. One that may not wait for them is removed and refused.
    fn is_gathered(&mut self, id: PortId, may_wait: bool, refused: &mut Vec<PortAddRefused>) -> bool {
        if !self.ports.get(&id).is_some_and(|port| port.spec.is_group()) {
            return true;
        }
        let name = self.ports[&id].spec.port_name().to_owned();
        match self.regroup(id) {
            Err(error) if !may_wait => {
                self.remove(&[id]);
                refused.push(PortAddRefused { netdev: name, error });
                false
            }
            _ => true,
        }
    }
}

impl Control {
    pub(super) fn reserve(
        &mut self,
        id: PortId,
        spec: PortSpec,
        fitted: Result<(Link, Fitting), ApiError>,
        may_wait: bool,
    ) -> Plan {
        let ifindex = fitted.as_ref().ok().map(|(netdev, _)| netdev.ifindex);
        let worker = self.ports.reserve(id, spec.port_name(), ifindex);
        let fitting = fitted.as_ref().map_or_else(|_| attach::fit_nothing(&spec), |(_, fitting)| *fitting);
        Plan { id, spec, netdev: fitted.map(|(netdev, _)| netdev), fitting, may_wait, worker, guest: None }
    }

    /// Whether the netdev or the name is somebody's already.
    fn refuse_taken(
        &self,
        spec: &PortSpec,
        netdev: Option<&Link>,
        awaited: &HashMap<String, PortId>,
    ) -> Result<(), ApiError> {
        let ifindex = netdev.map(|netdev| netdev.ifindex);
        let mut own = self.instance()?.intakes().iter().map(|intake| &intake.collector.pair.ends);
        if own.any(|ends| Some(ends.transmit_ifindex) == ifindex) {
            let message = format!("`{}` is part of the switch: it is a collector's netdev", spec.netdev);
            let error = ApiError::new(ErrorCode::NetdevRefused, message);
            let error = error.with_field("netdev").with_value(&spec.netdev);
            return Err(error.with_remedy("add another netdev"));
        }
        let attached = ifindex.and_then(|ifindex| self.ports.on(ifindex));
        if let Some(id) = attached.or_else(|| awaited.get(&spec.netdev).copied()) {
            return Err(self.already_port(id, &spec.netdev));
        }
        self.refuse_name(spec)
    }

    pub(super) fn refuse_name(&self, spec: &PortSpec) -> Result<(), ApiError> {
        if self.ports.is_taken(spec.port_name()) {
            let message = format!("another port is called `{}`", spec.port_name());
            return Err(ApiError::new(ErrorCode::NameTaken, message)
                .with_field("name")
                .with_value(spec.port_name())
                .with_remedy("give another with --name"));
        }
        Ok(())
    }

    pub(super) fn already_port(&self, id: PortId, netdev: &str) -> ApiError {
        let name = self.ports.get(&id).map_or(netdev, |port| port.spec.port_name());
        ApiError::new(ErrorCode::AlreadyPort, format!("`{netdev}` is a port already, called `{name}`"))
            .with_field("netdev")
            .with_value(netdev)
            .with_remedy(format!("delete it first: forebay port del {name}"))
    }

    pub(super) fn free_id(&mut self) -> Result<PortId, ApiError> {
        self.ports.free_id().ok_or_else(|| {
            let max_ports = self.ports.max_ports();
            ApiError::new(ErrorCode::TooManyPorts, format!("there are {max_ports} ports already"))
                .with_limit(max_ports)
                .with_remedy("raise switch.max_ports in the configuration and restart")
        })
    }
}

fn refuse_all(request: PortAdd, error: &ApiError) -> PortAddReply {
    let refuse =
        |spec: PortSpec| PortAddRefused { netdev: spec.asked_for().to_owned(), error: error.clone() };
    PortAddReply { added: Vec::new(), refused: request.ports.into_iter().map(refuse).collect() }
}

/// One line, however many ports wait.
pub(crate) fn log_missing(added: &[PortShow]) {
    let missing = added.iter().filter(|port| port.state == PortState::NetdevMissing);
    let names: Vec<&str> = missing.map(|port| port.netdev.as_str()).collect();
    if !names.is_empty() {
        let (count, first) = (names.len(), names[..names.len().min(NAMES_LOGGED)].join(" "));
        tracing::info!(count, first, "ports wait for netdevs that are not there");
    }
}

pub(super) fn no_such_netdev(name: &str) -> ApiError {
    ApiError::new(
        ErrorCode::NoSuchNetdev,
        format!("there is no netdev `{name}` in the switch's network namespace"),
    )
    .with_field("netdev")
    .with_value(name)
    .with_remedy(format!(
        "`ip link` lists the netdevs; to move one here from another namespace, run there: \
         ip link set {name} netns PID, with the daemon's process id"
    ))
}
