//! What a configuration costs: the packet memory, and what the kernel and the daemon need besides.
//!
//! One list of parts, so that what is said before anything runs (`forebay pool estimate`) and what the daemon says of
//! itself (`forebay pool show`) cannot disagree. Each part names its source: a file of Linux and the size there, or that
//! it was measured (docs/memory.md says how, and how near the sum is).
//!
//! ```text
//!   Wish (ports, depth, mode, …) ─ checked ─► Setup ─► Parts ─► Estimate
//!                                               ▲
//!            the running switch, as it is bound ┘
//! ```

mod flows;
mod frames;
mod parts;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::eswitch::SpoolMode;
use crate::port::AttachKind;

pub use flows::{FLOW_WAYS, FlowShape};
pub use frames::{LANES, MAGAZINE_FRAMES, fill_entries, least_frames, shared_frames};

/// What is set up, or would be: all that memory depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// How ports share packet memory.
    pub spool_mode: SpoolMode,
    /// Ports attached by tcx.
    pub tcx_ports: u32,
    /// Ports attached by XDP.
    pub xdp_ports: u32,
    /// RX rings that ports have, each with a socket of its own.
    pub rings: u32,
    /// Entries of a port's RX ring; the ring that ports share in `basic` is as deep as the fill ring.
    pub depth: u32,
    /// Workers, each with a queue of each collector.
    pub workers: u32,
    /// Frames of the collector's pool.
    pub frames: u32,
    /// Bytes of one frame.
    pub frame_size: u32,
    /// Ports that the tables have room for.
    pub max_ports: u32,
    /// Kernel flows that there is room for.
    pub flows: FlowShape,
}

impl Setup {
    /// All parts, none of them empty.
    pub fn parts(&self) -> Vec<MemoryPart> {
        parts::of(self)
    }

    /// What one owner holds.
    pub fn bytes_of(&self, owner: MemoryOwner) -> u64 {
        sum(&self.parts(), owner)
    }

    fn ports(&self) -> u32 {
        self.tcx_ports + self.xdp_ports
    }
}

fn sum(parts: &[MemoryPart], owner: MemoryOwner) -> u64 {
    parts.iter().filter(|part| part.owner == owner).map(|part| part.bytes).sum()
}

/// Whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryOwner {
    /// The daemon's, visible in its own figures (`VmRSS`).
    User,
    /// The kernel's on the daemon's behalf, visible only in the machine's (`Slab`, `VmallocUsed`, `Percpu`, `PageTables`).
    Kernel,
}

impl fmt::Display for MemoryOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MemoryOwner::User => "user",
            MemoryOwner::Kernel => "kernel",
        })
    }
}

/// One part of the cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// What it is.
    pub name: Cow<'static, str>,
    /// Whose it is.
    pub owner: MemoryOwner,
    /// How many there are.
    pub count: u64,
    /// Bytes of one.
    pub bytes_each: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Where the size is from: a file of Linux, or a measurement.
    pub source: Cow<'static, str>,
}

/// What somebody wants to know the cost of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// How ports share packet memory.
    pub spool_mode: SpoolMode,
    /// How ports are attached.
    pub attach: AttachKind,
    /// Ports.
    pub ports: u32,
    /// Entries of an RX ring.
    pub depth: u32,
    /// Receive queues of each netdev, at most one a worker; a port that is bound directly has a ring on each.
    pub queues: u32,
    /// Workers.
    pub workers: u32,
    /// Frames of the collector's pool; the default of the configuration unless given.
    pub frames: Option<u32>,
    /// Bytes of one frame.
    pub frame_size: u32,
    /// CPUs of the machine.
    pub cpus: u32,
}

impl Wish {
    /// The setup that keeps to the configuration's limits.
    ///
    /// # Errors
    /// What is outside its limits, with value, limit and way out.
    pub fn setup(&self) -> Result<Setup, String> {
        let config = self.config();
        config.validate()?;
        if self.ports > config.switch.max_ports {
            let max = config.switch.max_ports;
            return Err(format!(
                "ports is not valid (value: {}; limit: 0 to {max}); estimate several switches, one by one",
                self.ports
            ));
        }
        if !(1..=self.workers).contains(&self.queues) {
            let (queues, workers) = (self.queues, self.workers);
            return Err(format!(
                "queues is not valid (value: {queues}; limit: 1 to {workers}, one for each worker); choose a value within the limit, or more workers"
            ));
        }
        let is_xdp = self.attach == AttachKind::Xdp || self.spool_mode == SpoolMode::None;
        let (tcx_ports, xdp_ports) = if is_xdp { (0, self.ports) } else { (self.ports, 0) };
        Ok(Setup {
            spool_mode: self.spool_mode,
            tcx_ports,
            xdp_ports,
            rings: self.rings(),
            depth: self.depth,
            workers: self.workers,
            frames: self.frames(),
            frame_size: self.frame_size,
            max_ports: config.switch.max_ports,
            flows: FlowShape::new(config.flows.max_entries, self.cpus),
        })
    }

    /// What it costs.
    ///
    /// # Errors
    /// As [`Wish::setup`].
    pub fn estimate(&self) -> Result<Estimate, String> {
        let setup = self.setup()?;
        let parts = setup.parts();
        let (user, kernel) = (sum(&parts, MemoryOwner::User), sum(&parts, MemoryOwner::Kernel));
        let without = Wish { ports: 0, ..*self }.setup()?;
        let fixed = without.bytes_of(MemoryOwner::User) + without.bytes_of(MemoryOwner::Kernel);
        Ok(Estimate {
            spool_mode: self.spool_mode,
            ports: self.ports,
            rings: setup.rings,
            depth: self.depth,
            workers: self.workers,
            frames: setup.frames,
            frame_size: self.frame_size,
            user_bytes: user,
            kernel_bytes: kernel,
            total_bytes: user + kernel,
            bytes_a_port: (user + kernel - fixed) / u64::from(self.ports.max(1)),
            parts,
        })
    }

    /// A tcx port's packets go to one worker, an XDP port's to all; in `basic` ports have no ring of their own, and
    /// each worker has one for all of them.
    fn rings(&self) -> u32 {
        match (self.spool_mode, self.attach) {
            (SpoolMode::Basic, _) => self.workers,
            (SpoolMode::None, _) => self.ports.saturating_mul(self.queues),
            (SpoolMode::Spp, AttachKind::Tcx) => self.ports,
            (SpoolMode::Spp, AttachKind::VhostUser) => 0,
            (SpoolMode::Spp, AttachKind::Xdp) => self.ports.saturating_mul(self.workers),
        }
    }

    fn frames(&self) -> u32 {
        self.frames.unwrap_or(Config::default().pool.frames)
    }

    /// The configuration whose limits count.
    fn config(&self) -> Config {
        let mut config = Config::default();
        config.switch.workers = self.workers;
        config.pool.frame_size = self.frame_size;
        config.pool.rx_ring_depth = self.depth;
        config.pool.frames = self.frames();
        config
    }
}

/// What a configuration costs, before anything is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// How ports share packet memory.
    pub spool_mode: SpoolMode,
    /// Ports.
    pub ports: u32,
    /// RX rings.
    pub rings: u32,
    /// Entries of each.
    pub depth: u32,
    /// Workers.
    pub workers: u32,
    /// Frames of the collector's pool.
    pub frames: u32,
    /// Bytes of one frame.
    pub frame_size: u32,
    /// What the daemon holds, packet memory included.
    pub user_bytes: u64,
    /// What the kernel holds for it.
    pub kernel_bytes: u64,
    /// Both.
    pub total_bytes: u64,
    /// What one more port costs.
    pub bytes_a_port: u64,
    /// What the sums consist of.
    pub parts: Vec<MemoryPart>,
}
