//! What the switch tells of itself: ports, counters, pool, and whether the sums hold.

use std::time::Duration;

use forebay_control::ApiError;
use forebay_control::eswitch::{EswitchShow, SpoolMode};
use forebay_control::memory::{MemoryOwner, Setup};
use forebay_control::pool::PoolShow;
use forebay_control::port::{AttachKind, PortShow};
use forebay_control::stats::{Balance, PortStats, StatsCheck, StatsShow, WorkerStats};

use super::Control;
use super::port::{Counted, Port};
use crate::worker::Command;

/// Packets that one ring of a veth holds (VETH_RING_SIZE, drivers/net/veth.c, Linux 6.12).
const VETH_RING: u64 = 256;
/// How long packets in the collector get before they count as lost, and how often one looks.
const SETTLE_PAUSE: Duration = Duration::from_millis(2);
const SETTLE_LOOKS: u32 = 5;

impl Control {
    pub(crate) fn port_list(&mut self) -> Vec<PortShow> {
        self.settle_all();
        self.ports.values().map(|port| self.show(port)).collect()
    }

    pub(crate) fn port_show(&mut self, name: &str) -> Result<PortShow, ApiError> {
        self.settle_all();
        self.port_of(name).map(|port| self.show(port))
    }

    pub(super) fn show(&self, port: &Port) -> PortShow {
        port.show(self.counted(port).counters(), self.rx_ring_depth)
    }

    /// Everything counted for `port`, the later stages first.
    fn counted(&self, port: &Port) -> Counted {
        let cells = port.cells.sum();
        Counted {
            tx_offered: port.cells.tx_offered(),
            cells,
            sockets: port.socket_statistics(),
            kernel: self.datapath.counters(port.id.0).since(&port.baseline),
            collector_lost: port.loss.lost_packets(),
        }
    }

    /// Observes what the collector may have lost, for every port.
    pub(super) fn observe_loss(&mut self) -> bool {
        let room = VETH_RING * self.workers.len() as u64;
        let mut settled = true;
        for port in self.ports.values_mut() {
            let counters = self.datapath.counters(port.id.0).since(&port.baseline);
            settled &= port.loss.observe(counters, room);
        }
        settled
    }

    /// Gives packets under way a few milliseconds to arrive, so that a quiet switch shows exact sums. Under traffic
    /// something is always under way, and the wait is bounded.
    fn settle_all(&mut self) {
        for _ in 0..SETTLE_LOOKS {
            self.audit();
            if self.observe_loss() && !self.holds_frames() {
                return;
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
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
        for port in self.ports.values_mut() {
            for queue in &mut port.queues {
                let taken = queue.account.taken();
                if queue.account.used() > 0 && queue.taken == taken {
                    self.workers[queue.worker].send(Command::Audit(port.id));
                }
                queue.taken = taken;
            }
        }
    }

    /// The last word on a port that takes no more packets.
    pub(super) fn settle(&self, port: &mut Port) -> Counted {
        for _ in 0..2 {
            port.loss.observe(self.datapath.counters(port.id.0).since(&port.baseline), 0);
        }
        self.counted(port)
    }

    pub(crate) fn stats(&mut self) -> StatsShow {
        self.settle_all();
        let mut sum = self.retired;
        let mut ports = Vec::new();
        for port in self.ports.values() {
            let counted = self.counted(port);
            let name = port.spec.port_name().to_owned();
            ports.push(PortStats { id: port.id, name, counters: counted.counters() });
            sum += counted;
        }
        StatsShow { total: sum.counters(), ports, workers: self.worker_stats(), check: self.check(&sum) }
    }

    fn worker_stats(&self) -> Vec<WorkerStats> {
        let cells = self.shared.workers.iter().zip(&self.workers).enumerate();
        cells
            .map(|(index, (cell, handle))| WorkerStats {
                worker: index as u32,
                cpu: handle.cpu,
                iterations: cell.iterations.get(),
                batches: cell.batches.get(),
                packets: cell.packets.get(),
                copies: cell.copies.get(),
                departed: cell.departed.get(),
                sleeps: cell.sleeps.get(),
                busy_ns: cell.busy_ns.get(),
            })
            .collect()
    }

    /// The equations that hold when nothing is under way. Each compares numbers that different parties counted.
    fn check(&self, sum: &Counted) -> StatsCheck {
        let (cells, kernel) = (&sum.cells, &sum.kernel);
        let pool = self.pool();
        let used: u64 = pool.ports.iter().map(|port| port.used).sum();
        let seen: u64 = self.ports.values().map(Port::seen).sum();
        StatsCheck::new(vec![
            Balance::new(
                "offered by ports = collected + refused + over_threshold + lost in the collector",
                kernel.offered_packets,
                kernel.collected_packets
                    + kernel.refused_packets
                    + kernel.over_threshold_packets
                    + sum.collector_lost,
            ),
            Balance::new(
                "collected = received by workers + no_frame + rx_ring_full + unclaimed",
                kernel.collected_packets,
                cells.rx_packets
                    + sum.sockets.rx_dropped
                    + sum.sockets.rx_ring_full
                    + kernel.unclaimed_packets,
            ),
            Balance::new(
                "received by workers = forwarded + flooded + dropped on input",
                cells.rx_packets,
                cells.forwarded_packets + cells.flooded_packets + cells.drops.input(),
            ),
            Balance::new(
                "copies made = transmitted + dropped on output",
                sum.tx_offered,
                cells.tx_packets + cells.drops.output(),
            ),
            Balance::new(
                "frames = free + posted + in RX rings",
                pool.frames_total,
                pool.frames_free + pool.frames_posted + seen,
            ),
            Balance::new("frames that the ports' accounts hold = in RX rings", used, seen),
        ])
    }

    pub(crate) fn pool(&self) -> PoolShow {
        let pool = &self.shared.pool;
        let in_magazines: u64 = self.workers.iter().map(|worker| u64::from(worker.magazine_level())).sum();
        let frames_free = u64::from(pool.free()) + in_magazines;
        let frames_posted: u64 = self.shared.workers.iter().map(|cell| cell.fill_occupancy.get()).sum();
        let frames_total = u64::from(pool.total());
        PoolShow {
            frame_size: self.shared.arena.frame_size().bytes(),
            frames_total,
            frames_free,
            frames_posted,
            frames_held: frames_total.saturating_sub(frames_free + frames_posted),
            frames_shared: self.datapath.accounts().pool_size(),
            bytes_total: self.shared.arena.len_bytes() as u64,
            kernel_bytes: self.kernel_bytes(),
            ports: self.ports.values().map(|port| self.pool_port(port)).collect(),
        }
    }

    /// What the kernel allocates for what is bound and attached now, by the formula of `forebay pool estimate`.
    fn kernel_bytes(&self) -> u64 {
        let attached = |kind| self.ports.values().filter(|port| port.kind == kind).count() as u32;
        let setup = Setup {
            spool_mode: SpoolMode::Spp,
            tcx_ports: attached(AttachKind::Tcx),
            xdp_ports: attached(AttachKind::Xdp),
            rings: self.ports.values().map(|port| port.queues.len() as u32).sum(),
            depth: self.rx_ring_depth,
            workers: self.workers.len() as u32,
            frames: self.shared.pool.total(),
            frame_size: self.shared.arena.frame_size().bytes(),
            max_ports: self.max_ports,
        };
        setup.bytes_of(MemoryOwner::Kernel)
    }

    pub(crate) fn eswitch(&self) -> EswitchShow {
        EswitchShow {
            spool_mode: SpoolMode::Spp,
            workers: self.workers.len() as u32,
            collector: self.collector.as_ref().map_or_else(String::new, |collector| collector.name.clone()),
            queues: self.workers.len() as u32,
            ports: self.ports.len() as u32,
            max_ports: self.max_ports,
            uptime_seconds: u64::from(self.shared.now_s()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        }
    }
}
