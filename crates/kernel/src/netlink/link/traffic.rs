//! What has come in and left by a netdev.

use forebay_control::IfIndex;
use netlink_bindings::rt_link;

use super::header_of;
use crate::netlink::error::NetlinkError;
use crate::netlink::socket;

/// What the kernel has counted at a netdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Bytes of these packets.
    pub rx_bytes: u64,
    /// Packets that left.
    pub tx_packets: u64,
    /// Bytes of these packets.
    pub tx_bytes: u64,
}

impl Traffic {
    fn of(stats: &rt_link::RtnlLinkStats64) -> Self {
        let rt_link::RtnlLinkStats64 { rx_packets, rx_bytes, tx_packets, tx_bytes, .. } = *stats;
        Self { rx_packets, rx_bytes, tx_packets, tx_bytes }
    }
}

/// Packets and bytes of the netdev with this index.
pub fn traffic(ifindex: IfIndex) -> Result<Traffic, NetlinkError> {
    let request = rt_link::Request::new().op_getlink_do(&header_of(ifindex));
    let mut found = Traffic::default();
    socket::exchange(&request, |(_, attributes)| {
        found = attributes.get_stats64().map(|stats| Traffic::of(&stats)).unwrap_or_default();
    })
    .map_err(|error| error.of("read the counters of", ifindex))?;
    Ok(found)
}
