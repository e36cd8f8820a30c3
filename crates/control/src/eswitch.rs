//! The switch as a whole.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::words::words;

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

words!(SpoolMode: None => "none", Basic => "basic", Spp => "spp");

/// Whether the kernel programs repeat what user space has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// They do, for every flow that they can carry.
    #[default]
    On,
    /// Every packet goes through user space.
    Off,
}

words!(Offload: On => "on", Off => "off");

/// What may be changed of the switch; what isn't given stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EswitchSet {
    /// How ports share packet memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool_mode: Option<SpoolMode>,
    /// Whether the kernel programs repeat decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<Offload>,
}

/// What a change took, and the switch as it is then.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct EswitchSetReply {
    /// From the first step to the last; ports went on meanwhile.
    pub elapsed_us: u64,
    /// Packets that found no ring during the change, or no frame.
    pub lost_packets: u64,
    /// Ports that could not be bound as the mode wants it; they have rings on the collector.
    pub not_moved: Vec<PortNotMoved>,
    /// The switch as it is.
    pub eswitch: EswitchShow,
}

/// A port that a new mode could not be applied to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortNotMoved {
    /// The port's name.
    pub name: String,
    /// Why not.
    pub error: ApiError,
}

/// The running switch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct EswitchShow {
    /// How ports share packet memory.
    pub spool_mode: SpoolMode,
    /// Whether the kernel programs repeat decisions.
    pub offload: Offload,
    /// Flows that they have now.
    pub flows: u64,
    /// Workers.
    pub workers: u32,
    /// The collectors' netdevs: of the lane for ports that have few packets, and of that for those that have many.
    pub collectors: Vec<String>,
    /// Each collector's queues.
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
