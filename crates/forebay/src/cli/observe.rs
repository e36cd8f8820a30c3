//! The verbs that look at memory and queues: occupancy, estimate, `queue-get`, `napi-get`.

use std::thread::available_parallelism;

use clap::{Args, Subcommand, ValueEnum};
use forebay_control::eswitch::SpoolMode;
use forebay_control::memory::Wish;
use forebay_control::port::AttachKind;

use super::Json;

/// `forebay pool occupancy`
#[derive(Debug, Subcommand)]
pub enum OccupancyCommand {
    /// Record how much every port holds now, and the most that it held; replaces the last snapshot
    Snapshot,
    /// Show the last snapshot: the bytes that each port held then, and the most that it held until then
    ///
    /// With --json it has the shape of `devlink -j sb occupancy show`.
    Show {
        /// Show only this port
        #[arg(value_name = "PORT")]
        port: Option<String>,
        /// How to print.
        #[command(flatten)]
        json: Json,
    },
    /// Forget the most that all ports held, or that one port held, and begin again
    Clearmax {
        /// Clear only this port
        #[arg(value_name = "PORT")]
        port: Option<String>,
    },
}

/// Arguments of `queue-get` and `napi-get`.
#[derive(Debug, Args)]
pub struct NetdevArgs {
    /// Show only this port's
    #[arg(value_name = "PORT")]
    pub port: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `pool estimate`.
#[derive(Debug, Args)]
pub struct EstimateArgs {
    /// Number of ports
    #[arg(long, value_name = "N")]
    pub ports: u32,
    /// Packets that an RX ring holds: a power of two from 64 to 4096
    #[arg(long, value_name = "D", default_value_t = 1024)]
    pub depth: u32,
    /// How ports share packet memory
    #[arg(long, value_enum, default_value_t = Mode::Spp)]
    pub mode: Mode,
    /// Where the kernel hands packets to the switch; an XDP port has one RX ring for each worker
    #[arg(long, value_enum, default_value_t = AttachTo::Tcx)]
    pub attach: AttachTo,
    /// With --mode none: number of receive queues of each netdev
    #[arg(long, value_name = "Q", default_value_t = 1)]
    pub queues: u32,
    /// Number of workers
    #[arg(long, value_name = "W", default_value_t = 1)]
    pub workers: u32,
    /// Number of frames in the shared pool [default: 16384]
    #[arg(long, value_name = "F")]
    pub frames: Option<u32>,
    /// Number of bytes in a frame: 2048 or 4096
    #[arg(long, value_name = "S", default_value_t = 2048)]
    pub frame_size: u32,
    /// Number of CPUs of the machine [default: those of this machine]
    #[arg(long, value_name = "C")]
    pub cpus: Option<u32>,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// A spool mode, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Every port has its own memory
    None,
    /// All ports share one RX ring
    Basic,
    /// Every port has its own RX ring, and all rings share one pool
    Spp,
}

/// An attachment, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AttachTo {
    /// At the netdev's tcx ingress hook
    Tcx,
    /// At the netdev's driver, as native XDP
    Xdp,
}

impl EstimateArgs {
    /// What is to be estimated.
    pub(crate) fn wish(&self) -> Wish {
        Wish {
            spool_mode: match self.mode {
                Mode::None => SpoolMode::None,
                Mode::Basic => SpoolMode::Basic,
                Mode::Spp => SpoolMode::Spp,
            },
            attach: match self.attach {
                AttachTo::Tcx => AttachKind::Tcx,
                AttachTo::Xdp => AttachKind::Xdp,
            },
            ports: self.ports,
            queues: self.queues,
            cpus: self.cpus.unwrap_or_else(|| available_parallelism().map_or(1, |cpus| cpus.get() as u32)),
            depth: self.depth,
            workers: self.workers,
            frames: self.frames,
            frame_size: self.frame_size,
        }
    }
}
