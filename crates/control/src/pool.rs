//! The pool of packet memory: how much there is and who holds it.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::words::words;

/// How the pool is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolPolicy {
    /// Dynamic Thresholds as published.
    #[default]
    Dt,
    /// The same with a part of the pool kept from them, for ports that hold no more than a first burst.
    Headroom,
}

words!(PoolPolicy: Dt => "dt", Headroom => "headroom");

/// What may be changed of the pool; what isn't given stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSet {
    /// How it is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PoolPolicy>,
    /// Frames in it, from 1024 to 1048576: a new pool beside the old one, which is drained and released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u32>,
}

/// The pool as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolShow {
    /// How it is shared.
    pub policy: PoolPolicy,
    /// Bytes of one frame.
    pub frame_size: u32,
    /// All frames.
    pub frames_total: u64,
    /// Frames nobody holds.
    pub frames_free: u64,
    /// Frames posted in fill rings, for the kernel to write into.
    pub frames_posted: u64,
    /// Frames with a packet in them: in RX rings, at workers, in transmission.
    pub frames_held: u64,
    /// Frames that ports may hold together: all but what fill rings and workers keep.
    pub frames_shared: u64,
    /// Of these, frames that thresholds leave to ports below a first burst.
    pub frames_headroom: u64,
    /// Bytes of the pool.
    pub bytes_total: u64,
    /// Whether it lies in huge pages.
    pub huge_pages: bool,
    /// Bytes that the kernel allocates for us besides, computed from what is bound.
    pub kernel_bytes: u64,
    /// Each port's account.
    pub ports: Vec<PoolPort>,
}

/// How much of the pool an RX ring of a port may hold; devlink-sb's two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum PoolThreshold {
    /// α times what is free, with α = 2^(th−10).
    Dynamic {
        /// From 3 to 16.
        th: u8,
    },
    /// A fixed amount.
    Static {
        /// In bytes; whole frames of it count.
        bytes: u64,
    },
}

impl Default for PoolThreshold {
    /// As much as is free.
    fn default() -> Self {
        PoolThreshold::Dynamic { th: 10 }
    }
}

impl fmt::Display for PoolThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolThreshold::Dynamic { th } => f.pad(&format!("dynamic {th}")),
            PoolThreshold::Static { bytes } => f.pad(&format!("static {bytes}")),
        }
    }
}

/// What may be changed of a port's part in the pool; what isn't given stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolPortSet {
    /// Its threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<PoolThreshold>,
    /// Frames it may hold whatever its threshold says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<u32>,
}

impl PoolPortSet {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        *self == PoolPortSet::default()
    }
}

/// One port's account with the pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolPort {
    /// The port's name.
    pub name: String,
    /// Frames it holds.
    pub used: u64,
    /// The most it held since it was added.
    pub max: u64,
    /// Its threshold.
    pub threshold: PoolThreshold,
    /// Frames it may hold whatever its threshold says, as long as the pool has any.
    pub reserve: u32,
    /// Frames one RX ring of it may hold at this moment.
    pub limit: u64,
    /// Packets lost because it held its share of the pool.
    pub drops_over_threshold: u64,
    /// Packets lost because the pool had no frame.
    pub drops_no_frame: u64,
    /// Packets lost because its RX ring was full.
    pub drops_rx_ring_full: u64,
}
