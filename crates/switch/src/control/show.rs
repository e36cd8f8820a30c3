//! What the switch tells of itself: ports, counters, pool, and whether the sums hold.

use std::sync::atomic::Ordering;

use forebay_control::ApiError;
use forebay_control::eswitch::EswitchShow;
use forebay_control::memory::{MemoryOwner, Setup};
use forebay_control::pool::PoolShow;
use forebay_control::port::{AttachKind, PortShow};
use forebay_control::stats::{Balance, Lookups, PortStats, StatsCheck, StatsShow, WorkerStats, WorkersShow};

use forebay_policy::Lane;

use super::Control;
use super::counted::Counted;
use super::port::Port;
use super::port_guest::Guest;
use super::ring::{self, Rings};
use crate::pool_instance::{PoolInstance, Stock, SupplyGauge};
use crate::worker::Command;

/// Packets that one ring of a veth holds (VETH_RING_SIZE, drivers/net/veth.c, Linux 6.12).
const VETH_RING: u64 = 256;

impl Control {
    pub(crate) fn port_list(&self) -> Vec<PortShow> {
        self.ports.values().map(|port| self.show(port)).collect()
    }

    pub(crate) fn port_show(&self, name: &str) -> Result<PortShow, ApiError> {
        self.port_of(name).map(|port| self.show(port))
    }

    pub(super) fn show(&self, port: &Port) -> PortShow {
        port.show(self.counted(port).counters())
    }

    /// Everything counted for `port`, the later stages first.
    pub(super) fn counted(&self, port: &Port) -> Counted {
        let cells = port.cells.sum();
        let mut kernel = self.datapath.counters(port.id.0).since(&port.baseline);
        // What workers take from a guest comes through no program and no collector.
        let taken = port.guest.as_ref().map_or(0, Guest::taken_packets);
        kernel.slow_path_packets += taken;
        kernel.collected_packets += taken;
        Counted {
            tx_copies: port.cells.tx_copies(),
            cells,
            base: port.base,
            carried: self.flow_book().counters(port.id),
            sockets: port.rings.drops(),
            kernel,
            collector_lost: port.loss.lost_packets(),
            probes: self.loops.counts(port),
        }
    }

    /// Observes what the collector may have lost, for every port on a netdev.
    pub(super) fn observe_loss(&mut self) -> bool {
        let room = VETH_RING * (Lane::COUNT * self.workers.len()) as u64;
        let (mut settled, now) = (true, self.now());
        self.ports.on_netdevs_beside(|port| {
            let counters = self.datapath.counters(port.id.0).since(&port.baseline);
            settled &= port.loss.observe(counters, room, now);
        });
        settled
    }

    /// Says whether no packet is under way, so that a quiet switch shows exact sums. Readers look through
    /// [`crate::settled::lock_settled`], which waits between two looks without the lock.
    pub(crate) fn is_settled(&mut self) -> bool {
        self.audit();
        self.observe_loss() && !self.holds_frames()
    }

    /// Whether any port holds a frame, by the accounts.
    pub(super) fn holds_frames(&self) -> bool {
        self.datapath.accounts().pool_used() > 0
    }

    /// Has workers set accounts right that hold something and have not moved since the last look.
    pub(super) fn audit(&mut self) {
        if !self.holds_frames() {
            return;
        }
        let rings = self.ports.all_beside().map(|port| &mut port.rings).chain([self.pool.shared_rings_mut()]);
        for ring in rings.flat_map(Rings::serving_mut) {
            let taken = ring.account.taken();
            if ring.account.used() > 0 && ring.taken == taken {
                self.workers[ring.worker].send(Command::Audit(ring.slot));
            }
            ring.taken = taken;
        }
        for port in self.ports.values().filter(|port| port.underway.is_some() && port.used() > 0) {
            self.workers[port.worker].send(Command::AuditUnderway);
        }
    }

    pub(crate) fn stats(&self) -> StatsShow {
        let mut sum = self.retired;
        let mut ports = Vec::new();
        for port in self.ports.values() {
            let counted = self.counted(port);
            let name = port.spec.port_name().to_owned();
            ports.push(PortStats { id: port.id, name, counters: counted.counters() });
            sum += counted;
        }
        self.ports.leaving().for_each(|port| sum += self.counted(port));
        sum.sockets = ring::add(sum.sockets, self.pool.shared_drops());
        StatsShow { total: sum.counters(), ports, workers: self.worker_stats(), check: self.check(&sum) }
    }

    /// What workers did since the start or since it was cleared.
    pub(crate) fn workers(&self) -> WorkersShow {
        self.workers_since_start().since(&self.workers_cleared)
    }

    pub(crate) fn workers_clear(&mut self) -> WorkersShow {
        let now = self.workers_since_start();
        let shown = now.since(&self.workers_cleared);
        self.workers_cleared = now;
        shown
    }

    fn workers_since_start(&self) -> WorkersShow {
        let elapsed_ns = self.shared.started.elapsed().as_nanos() as u64;
        WorkersShow { elapsed_ns, workers: self.worker_stats() }
    }

    fn worker_stats(&self) -> Vec<WorkerStats> {
        let cells = self.shared.workers.iter().zip(&self.workers).enumerate();
        cells
            .map(|(index, (cell, handle))| WorkerStats {
                worker: index as u32,
                cpu: handle.cpu,
                iterations: cell.iterations.get(),
                busy_iterations: cell.busy_iterations.get(),
                busy_cycles: cell.busy_cycles.get(),
                idle_cycles: cell.idle_cycles.get(),
                batches: cell.batches.get(),
                batch_sizes: std::array::from_fn(|size| cell.batch_sizes[size].get()),
                lookups: Lookups {
                    known: cell.known.get(),
                    unknown: cell.unknown.get(),
                    group: cell.group.get(),
                    repeated: cell.repeated.get(),
                    cached: cell.cached.get(),
                    classified: cell.classified.get(),
                },
                packets: cell.packets.get(),
                copies: cell.copies.get(),
                departed: cell.departed.get(),
                sleeps: cell.sleeps.get(),
                lingers: cell.lingers.get(),
                linger_ns: cell.linger_ns.get(),
                strays: cell.strays.get(),
                bad_descriptors: cell.bad_descriptors.get(),
                busy_ns: cell.busy_ns.get(),
            })
            .collect()
    }

    /// The equations that hold when nothing is under way. Each compares numbers that different parties counted.
    fn check(&self, sum: &Counted) -> StatsCheck {
        let (cells, kernel) = (&sum.cells, &sum.kernel);
        let pool = self.pool();
        let ports = || self.ports.values().chain(self.ports.leaving());
        let [shared_used, shared_seen] = self.pool.shared_frames();
        let used = ports().map(Port::used).sum::<u64>() + shared_used;
        let seen = ports().map(Port::seen).sum::<u64>() + shared_seen;
        let strays: u64 = self.shared.workers.iter().map(|cell| cell.strays.get()).sum();
        let found = pool.frames_free + pool.frames_posted + seen;
        let queues = self.supply_gauges().count() as u64;
        let rx_ring_full = sum.sockets.rx_ring_full + self.pool.drain_ring_full();
        let kept = kept_by_kernel(pool.frames_total.saturating_sub(found), rx_ring_full, queues);
        StatsCheck::new(vec![
            Balance::new(
                "slow path packets = collected + refused + over_threshold + ring_full + too_big + lost in the collector",
                kernel.slow_path_packets,
                kernel.collected_packets
                    + kernel.refused_packets
                    + kernel.over_threshold_packets
                    + kernel.ring_full_packets
                    + kernel.too_big_packets
                    + sum.collector_lost,
            ),
            Balance::new(
                "collected = received by workers + no_frame + rx_ring_full + unclaimed + strays",
                kernel.collected_packets,
                cells.rx_packets
                    + sum.sockets.rx_dropped
                    + sum.sockets.rx_ring_full
                    + kernel.unclaimed_packets
                    + strays,
            ),
            Balance::new(
                "received by workers = forwarded + flooded + dropped on input",
                cells.rx_packets,
                cells.forwarded_packets + cells.flooded_packets + cells.drops.input(),
            ),
            Balance::new(
                "copies made = transmitted + dropped on output",
                sum.tx_copies,
                cells.tx_packets + cells.drops.output(),
            ),
            Balance::new(
                "frames = free + posted + in RX rings + kept by the kernel",
                pool.frames_total,
                found + kept,
            ),
            Balance::new("frames that the ports' accounts hold = in RX rings", used, seen),
            Balance::new(
                "carried by the kernel = transmitted by it + dropped by it",
                sum.carried.rx_packets,
                sum.carried.tx_packets + sum.carried.drops.input(),
            ),
        ])
    }

    pub(crate) fn pool(&self) -> PoolShow {
        let stocks = || self.stocks();
        let gauges = || self.supply_gauges();
        let frames_free = stocks().map(|stock| u64::from(stock.pool.free())).sum::<u64>()
            + gauges().map(SupplyGauge::free).sum::<u64>()
            + self.exchange_frames();
        let frames_posted = gauges().map(SupplyGauge::posted).sum::<u64>();
        let frames_total = stocks().map(|stock| u64::from(stock.pool.total())).sum::<u64>();
        PoolShow {
            policy: self.pool.policy(),
            frame_size: self.frame_bytes(),
            frames_total,
            frames_free,
            frames_posted,
            frames_held: frames_total.saturating_sub(frames_free + frames_posted),
            frames_shared: self.datapath.accounts().pool_size(),
            frames_headroom: self.datapath.accounts().headroom(),
            bytes_total: stocks().map(|stock| stock.arena.len_bytes() as u64).sum(),
            huge_pages: stocks().all(|stock| stock.arena.has_huge_pages()),
            kernel_bytes: self.kernel_bytes(),
            ports: self.ports.values().map(|port| self.pool_port(port)).collect(),
        }
    }

    /// Free frames that workers keep for packets they hand over.
    fn exchange_frames(&self) -> u64 {
        self.exchange_levels.iter().map(|level| u64::from(level.load(Ordering::Relaxed))).sum()
    }

    /// All packet memory: the pool, and that of ports which have their own.
    fn stocks(&self) -> impl Iterator<Item = &Stock> {
        let ports = self.ports.values().chain(self.ports.leaving());
        self.pool.stocks().chain(ports.flat_map(|port| port.stock.iter().chain(&port.leaving_stock)))
    }

    fn supply_gauges(&self) -> impl Iterator<Item = &SupplyGauge> {
        let rings = self.ports.values().chain(self.ports.leaving()).flat_map(|port| port.rings.all());
        self.pool.gauges().chain(rings.filter_map(|ring| ring.supply.as_ref()))
    }

    /// What the kernel allocates for what is bound and attached now, by the formula of `forebay pool estimate`. Rings of
    /// different depths count as so many of their average.
    fn kernel_bytes(&self) -> u64 {
        let Some(instance) = self.pool.current() else { return 0 };
        let attached = |kind| self.ports.values().filter(|port| port.kind == kind).count() as u32;
        let rings = || {
            self.ports
                .values()
                .map(|port| &port.rings)
                .chain([self.pool.shared_rings()])
                .flat_map(Rings::serving)
        };
        let depths: u32 = rings().map(|ring| ring.depth).sum();
        let setup = Setup {
            spool_mode: self.pool.mode(),
            tcx_ports: attached(AttachKind::Tcx),
            xdp_ports: attached(AttachKind::Xdp),
            rings: rings().count() as u32,
            depth: depths.checked_div(rings().count() as u32).unwrap_or(self.pool.rxq().depth),
            workers: self.workers.len() as u32,
            frames: instance.stock.pool.total(),
            frame_size: self.frame_bytes(),
            max_ports: self.ports.max_ports(),
            flows: self.datapath.flow_shape(),
        };
        setup.bytes_of(MemoryOwner::Kernel)
    }

    pub(crate) fn eswitch(&self) -> EswitchShow {
        let intakes = self.pool.current().into_iter().flat_map(PoolInstance::intakes);
        let flows = self.flow_table();
        EswitchShow {
            spool_mode: self.pool.mode(),
            offload: flows.offload,
            flows: flows.entries,
            workers: self.workers.len() as u32,
            collectors: intakes.map(|intake| intake.collector.pair.name.clone()).collect(),
            queues: self.workers.len() as u32,
            ports: self.ports.len() as u32,
            max_ports: self.ports.max_ports(),
            uptime_seconds: u64::from(self.shared.now_s()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        }
    }
}

/// Frames that the kernel has although they are in no ring: of a packet that found its RX ring full, until the next one to
/// the same queue, which gets it (`xp_free`, net/xdp/xsk_buff_pool.c, Linux 6.18). So it is one a queue at most, and more
/// that are `missing` are lost.
fn kept_by_kernel(missing: u64, rx_ring_full: u64, queues: u64) -> u64 {
    missing.min(rx_ring_full.min(queues))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_keeps_a_frame_a_queue_and_only_after_an_rx_ring_was_full() {
        for (missing, rx_ring_full, queues, kept) in
            [(1, 0, 2, 0), (1, 7, 2, 1), (3, 7, 2, 2), (2, 1, 2, 1), (0, 7, 2, 0)]
        {
            assert_eq!(
                kept_by_kernel(missing, rx_ring_full, queues),
                kept,
                "{missing} {rx_ring_full} {queues}"
            );
        }
    }
}
