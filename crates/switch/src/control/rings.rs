//! Rings: opened, entered into the kernel's table, handed to workers, and taken back with every frame in them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use forebay_control::port::{AttachKind, PortSpec};
use forebay_control::{ApiError, ErrorCode, PortId};
use forebay_kernel::{Bank, RingOwner, RingRule, grace_period};
use forebay_policy::{Lane, Turn};
use forebay_xsk::{PortSocket, RxRing, XskError};

use super::kernel_error::refused;
use super::port::Port;
use super::ring::Ring;
use super::{Change, Control};
use crate::counters::RingGauge;
use crate::flood::PortFlood;
use crate::pool_instance::SupplyGauge;
use crate::worker::{
    Command, Emptied, Feed, Member, QUANTUM_BYTES, ServedSource, Slot, Source, SuppliedBy, Supply, XskSource,
};

/// Threads that close sockets side by side: each close waits for a grace period, and they can share one.
const CLOSERS: usize = 32;

/// A socket that nobody serves yet.
pub(super) struct Opened {
    pub(super) worker: usize,
    pub(super) socket: PortSocket,
    pub(super) ring: RxRing,
}

/// Rings that are to be opened on a collector.
pub(super) struct Wanted {
    pub(super) lane: Lane,
    pub(super) workers: Range<usize>,
    pub(super) depth: u32,
}

/// What becomes of an opened socket.
pub(super) struct Service {
    pub(super) bank: Bank,
    pub(super) feed: Feed,
    pub(super) depth: u32,
    pub(super) rule: RingRule,
    /// A supply of its own, and where it is counted.
    pub(super) own: Option<(SuppliedBy, SupplyGauge)>,
    /// A program has always written what lies below packets.
    pub(super) has_origin: bool,
}

impl Change<'_> {
    /// Opens rings on the collectors. Sockets look their netdev up in the namespace they are opened in, so this runs in
    /// the collectors'.
    pub(super) fn open_on_collectors(&mut self, wanted: Vec<Wanted>) -> Vec<Result<Vec<Opened>, XskError>> {
        let Some(queues) = self.pool.queues() else { return Vec::new() };
        let netns = Arc::clone(&self.netns);
        self.without_lock(|| {
            netns.run(move || {
                let open = |Wanted { lane, workers, depth }: Wanted| {
                    workers
                        .map(|worker| {
                            let (socket, ring) = PortSocket::bind(&queues[lane.index()][worker], depth)?;
                            Ok(Opened { worker, socket, ring })
                        })
                        .collect()
                };
                wanted.into_iter().map(open).collect()
            })
        })
    }

    /// Waits until workers have forgotten the ports.
    pub(super) fn dismiss(&mut self, ids: &[PortId]) {
        let (done, all_done) = mpsc::channel();
        for worker in &self.workers {
            ids.iter().for_each(|id| worker.send(Command::RemoveMember(*id, done.clone())));
        }
        drop(done);
        self.without_lock(|| while all_done.recv().is_ok() {});
    }

    /// Takes back rings in whose place others are, maybe on another collector: what programs sent before they saw the new
    /// ones arrives first, but for what a veth keeps in its queue longer than a grace period lasts.
    pub(super) fn retire_replaced(&mut self) {
        if self.leaving_rings().next().is_some() {
            self.without_lock(grace_period);
            self.retire();
        }
    }

    /// Takes back all rings that leave: the kernel delivers to them no more, what lies in them is served, their sockets
    /// are closed. Returns after a grace period, also if there are none.
    pub(super) fn retire(&mut self) {
        self.stop_delivery();
        self.without_lock(grace_period);
        let all_emptied = self.empty_rings();
        let emptied: Vec<Emptied> = self.without_lock(|| all_emptied.iter().collect());
        let closing = self.take_emptied(emptied);
        self.without_lock(|| close(closing));
    }
}

impl Control {
    /// Rings that leave, with what they were for.
    fn leaving_rings(&self) -> impl Iterator<Item = (Feed, &Ring)> {
        let ports = self.ports.values().chain(self.ports.leaving());
        let of_ports =
            ports.flat_map(|port| port.rings.leaving().iter().map(|ring| (Feed::Port(port.id), ring)));
        of_ports.chain(self.pool.shared_rings().leaving().iter().map(|ring| (Feed::Shared, ring)))
    }

    /// Has the kernel deliver to leaving rings no more.
    fn stop_delivery(&self) {
        for (feed, ring) in self.leaving_rings() {
            // The socket of a ring that has taken this one's place stays in the table.
            let is_its = |other: &Ring| other.bank == ring.bank && other.worker == ring.worker;
            if !self.rings_of(feed).iter().any(is_its) {
                self.datapath.clear_socket(ring.bank, owner_of(feed), ring.worker as u32);
            }
        }
    }

    /// Has workers serve what lies in leaving rings, and forget these; what they tell of each.
    fn empty_rings(&mut self) -> Receiver<Emptied> {
        let (done, all_done) = mpsc::channel();
        let leaving: Vec<(usize, Slot, bool)> = self
            .leaving_rings()
            .map(|(feed, ring)| {
                let is_replaced = self.rings_of(feed).iter().any(|other| other.worker == ring.worker);
                (ring.worker, ring.slot, is_replaced)
            })
            .collect();
        for (worker, slot, is_replaced) in leaving {
            self.workers[worker].retire(slot, is_replaced, done.clone());
        }
        all_done
    }

    /// Takes all leaving rings out, with what they had been given. What the kernel dropped at them stays counted.
    fn take_emptied(&mut self, emptied: Vec<Emptied>) -> Vec<(Ring, Option<Box<Supply>>)> {
        let mut rings = self.pool.shared_rings_mut().take_leaving();
        for port in self.ports.all_and_leaving() {
            port.leaving_stock = None;
            rings.append(&mut port.rings.take_leaving());
        }
        let emptied = emptied.into_iter().filter_map(|one| Some(((one.worker, one.slot), one.supply?)));
        let mut supplies: BTreeMap<(usize, Slot), Box<Supply>> = emptied.collect();
        let with_supply = |ring: Ring| {
            let supply = supplies.remove(&(ring.worker, ring.slot));
            (ring, supply)
        };
        rings.into_iter().map(with_supply).collect()
    }

    /// A tcx port's packets go to its worker. An XDP port's frames take the queue of the CPU they arrive on, and a group's
    /// packets are steered, so every worker has a ring for those.
    pub(super) fn workers_of(&self, worker: usize, kind: AttachKind, spec: &PortSpec) -> Range<usize> {
        match kind {
            AttachKind::Tcx if !spec.is_group() => worker..worker + 1,
            AttachKind::VhostUser => worker..worker,
            AttachKind::Tcx | AttachKind::Xdp => 0..self.workers.len(),
        }
    }

    /// Has a worker serve `opened`, and the kernel deliver to it.
    pub(super) fn serve(&mut self, opened: Opened, service: Service) -> Result<Ring, ApiError> {
        let Opened { worker, socket, ring } = opened;
        let Service { bank, feed, depth, rule, own, has_origin } = service;
        let (owner, queue) = (owner_of(feed), worker as u32);
        self.datapath.set_socket(bank, owner, queue, socket.as_fd()).map_err(|error| refused(&error))?;
        let (socket, gauge) = (Arc::new(socket), Arc::new(RingGauge::default()));
        let account = self.datapath.ring_account(owner, queue);
        account.set_rule(rule);
        let (supply, gauge_of_supply) = match own {
            Some((supply, gauge)) => (supply, Some(gauge)),
            None => (SuppliedBy::Collector(collector_of(bank)), None),
        };
        let is_calm = feed != Feed::Shared && self.instance()?.is_calm(bank);
        let slot = self.workers[worker].serve(ServedSource {
            feed,
            source: Source::Xsk(XskSource {
                ring,
                socket: Some(Arc::clone(&socket)),
                supply,
                has_origin,
                reads_headers: true,
            }),
            gauge: Arc::clone(&gauge),
            account: Some(account.clone()),
            turn: Turn::new(QUANTUM_BYTES),
            is_calm,
        });
        let taken = account.taken();
        Ok(Ring { worker, slot, bank, depth, socket, gauge, account, taken, supply: gauge_of_supply })
    }

    /// Has the port's own rings on the collector served.
    pub(super) fn serve_port(&mut self, id: PortId, opened: Vec<Opened>) -> Result<Vec<Ring>, ApiError> {
        let port = &self.ports[&id];
        let bank = Bank::Collector(self.instance()?.intake(port.lane.lane()).number);
        let depth = port.rxq.depth;
        let rule = port.share.rule(depth);
        let mut rings = Vec::new();
        for opened in opened {
            let service = Service { bank, feed: Feed::Port(id), depth, rule, own: None, has_origin: true };
            rings.push(self.serve(opened, service)?);
        }
        Ok(rings)
    }

    /// Tells all workers of the port, so that they count its packets whichever ring these come through.
    pub(super) fn enrol(&self, port: &Port) {
        for (number, worker) in self.workers.iter().enumerate() {
            let underway = port.underway.clone().filter(|_| number == port.worker);
            let member = Member {
                underway,
                cells: Arc::clone(&port.cells),
                flood: PortFlood::new(&self.shared.flood),
                moves: self.shared.moves.bucket(),
                tap: None,
            };
            worker.send(Command::AddMember(port.id, Box::new(member)));
        }
    }

    fn rings_of(&self, feed: Feed) -> &[Ring] {
        match feed {
            Feed::Port(id) => self.ports.get(&id).map_or(&[], |port| port.rings.serving()),
            Feed::Shared => self.pool.shared_rings().serving(),
        }
    }
}

fn collector_of(bank: Bank) -> u8 {
    match bank {
        Bank::Collector(number) => number,
        Bank::Direct => unreachable!("a ring on a port's own netdev has a supply of its own"),
    }
}

fn owner_of(feed: Feed) -> RingOwner {
    match feed {
        Feed::Port(id) => RingOwner::Port(id.0),
        Feed::Shared => RingOwner::Shared,
    }
}

/// Closes sockets, which each wait for the kernel's readers, side by side. What they had been given goes back to where it
/// came from.
fn close(mut rings: Vec<(Ring, Option<Box<Supply>>)>) {
    let share = rings.len().div_ceil(CLOSERS).max(1);
    std::thread::scope(|scope| {
        while !rings.is_empty() {
            let some = rings.split_off(rings.len().saturating_sub(share));
            scope.spawn(move || some.into_iter().for_each(|(ring, supply)| close_one(ring, supply)));
        }
    });
}

fn close_one(ring: Ring, supply: Option<Box<Supply>>) {
    let socket = Arc::into_inner(ring.socket).expect("its worker has forgotten the ring");
    if let (Some(closed), Some(supply)) = (socket.close(), supply) {
        let Supply { fill, mut magazine, .. } = *supply;
        fill.reclaim(closed).for_each(|frame| magazine.put(frame));
    }
}

pub(super) fn no_socket(error: &XskError) -> ApiError {
    ApiError::new(ErrorCode::KernelRefused, error.to_string()).with_remedy("see `forebay doctor`")
}
