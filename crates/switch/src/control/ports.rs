//! Ports come and go: many in one request, each answered for itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc;

use forebay_control::port::{
    AttachKind, PortAdd, PortAddRefused, PortAddReply, PortDelRefused, PortDelReply, PortSet, PortShow,
    PortSpec, PortState,
};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::netlink::{Link, link};
use forebay_kernel::{PortConfig, ShortGracePeriods, grace_period};
use forebay_policy::Deficit;
use forebay_xsk::{PortSocket, RxRing, XskError};

use super::attach::{self, Fitting};
use super::port::{CollectorLoss, Port, PortQueue};
use super::{Control, netdevs, share};
use crate::counters::{PortCells, RingGauge};
use crate::fdb::Flush;
use crate::worker::{Channel, Command, QUANTUM_BYTES};

/// Threads that close sockets side by side: each close waits for a grace period, and they can share one.
const CLOSERS: usize = 32;
/// From this many ports in one request on, grace periods are shortened for all of the machine.
const MANY: usize = 16;

/// A port that may be added, before anything was made for it.
struct Plan {
    id: PortId,
    spec: PortSpec,
    netdev: Link,
    fitting: Fitting,
}

/// The sockets of one port, by worker.
type Sockets = Vec<(usize, PortSocket, RxRing)>;

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

    /// Checks a wish and reserves id, name and netdev for it.
    fn plan(&mut self, spec: PortSpec, netdevs: &HashMap<String, Link>) -> Result<Plan, ApiError> {
        let collector = self.collector()?;
        spec.validate()?;
        let netdev = netdevs.get(&spec.netdev).ok_or_else(|| no_such_netdev(&spec.netdev))?;
        if netdev.ifindex == collector.ifindex {
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
        let fitting = attach::fit(&spec, netdev)?;
        let id = self.free_id()?;
        self.ids_by_name.insert(spec.port_name().to_owned(), id);
        self.ids_by_ifindex.insert(netdev.ifindex, id);
        Ok(Plan { id, netdev: netdev.clone(), spec, fitting })
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

    /// Makes sockets for all plans at once, shows workers the new ports, then lets packets in, one port after the
    /// other. Whatever fails is undone.
    fn carry_out(&mut self, plans: Vec<Plan>, refused: &mut Vec<PortAddRefused>) -> Vec<PortId> {
        let _short = short_grace_periods(plans.len());
        let (mut waiting, mut added, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (plan, sockets) in self.open_sockets(plans) {
            let Plan { id, spec, netdev, fitting } = plan;
            match self.install(id, spec, fitting, sockets) {
                Ok(()) => waiting.push((id, netdev, fitting)),
                Err(error) => failed.push((id, netdev, error)),
            }
        }
        self.publish();
        for (id, netdev, fitting) in waiting {
            match self.attach(id, netdev.clone(), fitting) {
                Ok(()) => added.push(id),
                Err(error) => failed.push((id, netdev, error)),
            }
        }
        self.publish();
        self.remove(failed.iter().map(|(id, ..)| *id).collect());
        for (id, netdev, error) in failed {
            self.ids_by_name.retain(|_, taken| *taken != id);
            self.ids_by_ifindex.remove(&netdev.ifindex);
            refused.push(PortAddRefused { netdev: netdev.name, error });
        }
        added
    }

    /// Sockets look their netdev up in the namespace they are opened in, so this runs in the collector's.
    fn open_sockets(&self, plans: Vec<Plan>) -> Vec<(Plan, Result<Sockets, XskError>)> {
        let Some(collector) = &self.collector else { return Vec::new() };
        let depth = self.rx_ring_depth;
        let wanted: Vec<Vec<_>> = plans
            .iter()
            .map(|plan| self.workers_of(plan.id, plan.fitting.kind))
            .map(|workers| workers.map(|worker| (worker, Arc::clone(&collector.queues[worker]))).collect())
            .collect();
        let opened = collector.netns.run(move || {
            let open = |queues: Vec<(usize, Arc<_>)>| {
                queues
                    .into_iter()
                    .map(|(worker, queue)| {
                        PortSocket::bind(&queue, depth).map(|(socket, ring)| (worker, socket, ring))
                    })
                    .collect::<Result<Sockets, _>>()
            };
            wanted.into_iter().map(open).collect::<Vec<_>>()
        });
        plans.into_iter().zip(opened).collect()
    }

    /// A tcx port's packets go to one worker. An XDP port's frames take the queue of the CPU they arrive on, so every
    /// worker has a socket for it.
    fn workers_of(&self, id: PortId, kind: AttachKind) -> std::ops::Range<usize> {
        match kind {
            AttachKind::Tcx => {
                let worker = usize::from(id.0) % self.workers.len();
                worker..worker + 1
            }
            AttachKind::Xdp => 0..self.workers.len(),
        }
    }

    /// Makes the port, served by its workers but without its netdev's packets so far.
    fn install(
        &mut self,
        id: PortId,
        spec: PortSpec,
        fitting: Fitting,
        sockets: Result<Sockets, XskError>,
    ) -> Result<(), ApiError> {
        let sockets = sockets.map_err(|error| {
            ApiError::new(ErrorCode::KernelRefused, error.to_string()).with_remedy("see `forebay doctor`")
        })?;
        let mut port = Port {
            id,
            kind: fitting.kind,
            completes_checksums: fitting.completes_checksums,
            spec,
            attachment: None,
            state: PortState::NetdevMissing,
            reason: String::new(),
            queues: Vec::new(),
            cells: Arc::new(PortCells::new(self.workers.len())),
            baseline: self.datapath.counters(id.0),
            loss: CollectorLoss::default(),
            share: share::DEFAULT,
        };
        let served = sockets.into_iter().try_for_each(|(worker, socket, ring)| {
            port.queues.push(self.serve(id, worker, socket, ring, &port.cells)?);
            Ok(())
        });
        self.ports.insert(id, port);
        served
    }

    /// Hands one socket to the kernel's table and to its worker.
    fn serve(
        &self,
        id: PortId,
        worker: usize,
        socket: PortSocket,
        ring: RxRing,
        cells: &Arc<PortCells>,
    ) -> Result<PortQueue, ApiError> {
        use std::os::fd::AsFd as _;
        let queue = worker as u32;
        self.datapath.set_socket(id.0, queue, socket.as_fd()).map_err(|error| attach::refused(&error))?;
        let (socket, gauge) = (Arc::new(socket), Arc::new(RingGauge::default()));
        let account = self.datapath.ring_account(id.0, queue);
        account.set_rule(share::DEFAULT.rule(self.rx_ring_depth));
        self.workers[worker].send(Command::Add(Box::new(Channel {
            port: id,
            ring,
            socket: Arc::clone(&socket),
            gauge: Arc::clone(&gauge),
            account: account.clone(),
            cells: Arc::clone(cells),
            flood: self.shared.flood.port_bucket(),
            deficit: Deficit::new(QUANTUM_BYTES),
        })));
        Ok(PortQueue { worker, socket, gauge, taken: account.taken(), account })
    }

    /// Puts the program on `netdev` and lets its packets in. Workers must have been shown what `fitting` says.
    pub(super) fn attach(&mut self, id: PortId, netdev: Link, fitting: Fitting) -> Result<(), ApiError> {
        let port = self.ports.get_mut(&id).expect("the caller has just looked it up");
        let queue = port.queues.first().map_or(0, |queue| queue.worker as u16);
        let config = PortConfig { port_id: id.0, queue, reserved: 0 };
        self.datapath.set_port(netdev.ifindex, config).map_err(|error| attach::refused(&error))?;
        let link = attach::attach(&self.datapath, &netdev, fitting)
            .inspect_err(|_| self.datapath.clear_port(netdev.ifindex))?;
        self.ids_by_ifindex.insert(netdev.ifindex, id);
        netdevs::take(port, link, netdev);
        Ok(())
    }

    pub(crate) fn port_del(&mut self, names: &[String]) -> Result<PortDelReply, ApiError> {
        self.collector()?;
        let mut reply = PortDelReply::default();
        let mut ids = Vec::new();
        for name in names {
            match self.id_of(name) {
                Ok(id) if ids.contains(&id) => {}
                Ok(id) => {
                    ids.push(id);
                    reply.deleted.push(name.clone());
                }
                Err(error) => reply.refused.push(PortDelRefused { name: name.clone(), error }),
            }
        }
        self.remove(ids);
        Ok(reply)
    }

    /// Removes ports so that every frame they hold comes back: no more packets in, wait until none is under way,
    /// empty their rings, close their sockets.
    fn remove(&mut self, ids: Vec<PortId>) {
        let _short = short_grace_periods(ids.len());
        let mut leaving = Vec::new();
        for id in ids {
            let Some(mut port) = self.ports.remove(&id) else { continue };
            self.detach(&mut port);
            for queue in &port.queues {
                self.datapath.clear_socket(id.0, queue.worker as u32);
            }
            self.ids_by_name.remove(port.spec.port_name());
            leaving.push(port);
        }
        if leaving.is_empty() {
            return;
        }
        self.publish();
        grace_period();
        self.empty_rings(&leaving);
        for port in &mut leaving {
            self.shared.fdb.flush(Flush { port: Some(port.id.0), vid: None, with_static: true });
            self.retired += self.settle(port);
        }
        close(leaving);
    }

    /// Takes the program off the port's netdev, if it has one.
    pub(super) fn detach(&mut self, port: &mut Port) {
        if let Some(attachment) = port.attachment.take() {
            self.datapath.clear_port(attachment.ifindex);
            self.ids_by_ifindex.remove(&attachment.ifindex);
        }
    }

    fn empty_rings(&self, leaving: &[Port]) {
        let (done, all_done) = mpsc::channel();
        for port in leaving {
            for queue in &port.queues {
                self.workers[queue.worker].send(Command::Remove(port.id, done.clone()));
            }
        }
        drop(done);
        while all_done.recv().is_ok() {}
    }

    pub(crate) fn port_set(&mut self, name: &str, change: PortSet) -> Result<PortShow, ApiError> {
        self.collector()?;
        let id = self.id_of(name)?;
        let port = self.ports.get_mut(&id).expect("names lead to ports");
        if let Some(vlan) = change.vlan {
            port.spec.vlan = vlan;
            self.shared.fdb.flush(Flush { port: Some(id.0), vid: None, with_static: false });
        }
        if let Some(isolated) = change.isolated {
            port.spec.isolated = isolated;
        }
        self.publish();
        self.port_show(name)
    }
}

/// For `ports` at once, where waiting for each would take long.
pub(super) fn short_grace_periods(ports: usize) -> Option<ShortGracePeriods> {
    (ports >= MANY).then(ShortGracePeriods::begin)
}

/// Drops ports, whose sockets each wait for the kernel's readers, side by side.
fn close(mut ports: Vec<Port>) {
    let share = ports.len().div_ceil(CLOSERS).max(1);
    std::thread::scope(|scope| {
        while !ports.is_empty() {
            let some = ports.split_off(ports.len().saturating_sub(share));
            scope.spawn(move || drop(some));
        }
    });
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
