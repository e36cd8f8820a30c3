//! The verbs that look at memory: occupancy and estimate.

use std::thread::available_parallelism;

use clap::{Args, Subcommand, ValueEnum};
use forebay_control::eswitch::SpoolMode;
use forebay_control::memory::Wish;
use forebay_control::port::AttachKind;

use super::Json;

/// `forebay pool occupancy`
#[derive(Debug, Subcommand)]
pub enum OccupancyCommand {
    /// Note what every port holds now and the most it held
    Snapshot,
    /// Show the last snapshot, in bytes as current/max; its JSON has the shape of `devlink -j sb occupancy show`
    Show {
        /// Only this port
        #[arg(value_name = "PORT")]
        port: Option<String>,
        /// How to print.
        #[command(flatten)]
        json: Json,
    },
    /// Begin the watermark of all ports, or of one, anew
    Clearmax {
        /// Only this port
        #[arg(value_name = "PORT")]
        port: Option<String>,
    },
}

/// Arguments of `pool estimate`.
#[derive(Debug, Args)]
pub struct EstimateArgs {
    /// Ports
    #[arg(long, value_name = "N")]
    pub ports: u32,
    /// Packets that an RX ring holds: a power of two from 64 to 4096
    #[arg(long, value_name = "D", default_value_t = 1024)]
    pub depth: u32,
    /// How ports share packet memory
    #[arg(long, value_enum, default_value_t = Mode::Spp)]
    pub mode: Mode,
    /// How ports are attached; an XDP port has an RX ring at every worker
    #[arg(long, value_enum, default_value_t = AttachTo::Tcx)]
    pub attach: AttachTo,
    /// Receive queues of each netdev, for --mode none
    #[arg(long, value_name = "Q", default_value_t = 1)]
    pub queues: u32,
    /// Workers
    #[arg(long, value_name = "W", default_value_t = 1)]
    pub workers: u32,
    /// Frames of the shared pool [default: 16384]
    #[arg(long, value_name = "F")]
    pub frames: Option<u32>,
    /// Bytes of a frame: 2048 or 4096
    #[arg(long, value_name = "S", default_value_t = 2048)]
    pub frame_size: u32,
    /// CPUs of the machine [default: this one's]
    #[arg(long, value_name = "C")]
    pub cpus: Option<u32>,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// A spool mode, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// A memory of its own for every port
    None,
    /// One RX ring for all ports
    Basic,
    /// An RX ring per port on one shared pool
    Spp,
}

/// An attachment, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AttachTo {
    /// At tcx ingress
    Tcx,
    /// As native XDP
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
