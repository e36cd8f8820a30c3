//! The switch as a whole.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How ports share packet memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpoolMode {
    /// A memory of its own for every port.
    None,
    /// One RX ring for all ports.
    Basic,
    /// An RX ring per port on one shared pool.
    #[default]
    Spp,
}

impl SpoolMode {
    /// The word in every output.
    pub const fn name(self) -> &'static str {
        match self {
            SpoolMode::None => "none",
            SpoolMode::Basic => "basic",
            SpoolMode::Spp => "spp",
        }
    }
}

impl fmt::Display for SpoolMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The running switch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct EswitchShow {
    /// How ports share packet memory.
    pub spool_mode: SpoolMode,
    /// Workers.
    pub workers: u32,
    /// The receiving end of the collector.
    pub collector: String,
    /// The collector's queues.
    pub queues: u32,
    /// Ports there are.
    pub ports: u32,
    /// Ports there may be.
    pub max_ports: u32,
    /// Seconds since start.
    pub uptime_seconds: u64,
    /// The daemon's version.
    pub version: String,
    /// The daemon's process id.
    pub pid: u32,
}
