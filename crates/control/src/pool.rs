//! The pool of packet memory: how much there is and who holds it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The pool as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolShow {
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
    /// Bytes of the pool.
    pub bytes_total: u64,
    /// Bytes that the kernel allocates for us besides, computed from what is bound.
    pub kernel_bytes: u64,
    /// Each port's account.
    pub ports: Vec<PoolPort>,
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
    /// Packets lost because the pool had no frame.
    pub drops_no_frame: u64,
    /// Packets lost because its RX ring was full.
    pub drops_rx_ring_full: u64,
}
