//! What a port with several members has besides them.

use super::port_rss::Rss;
use super::received::Received;
use super::tuning::Tuning;

/// What a group has besides its members; of another port, nothing.
#[derive(Default)]
pub(super) struct PortGroup {
    /// What was set for its channels.
    pub(super) tuning: Tuning,
    /// What its members' queues have received while they were there.
    pub(super) received: Received,
    /// How its packets are spread over workers.
    pub(super) rss: Rss,
    /// Why a member is missing.
    pub(super) missing: String,
}
