//! Queues and NAPI instances of ports' netdevs, as the kernel tells them.

use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue};
use forebay_control::{ApiError, ErrorCode, IfIndex};
use forebay_kernel::netlink::{NetlinkError, netdev_genl};

use super::Control;

impl Control {
    /// Netdevs of this port, or of all ports.
    pub(crate) fn netdevs_of(&self, port: Option<&str>) -> Result<Vec<IfIndex>, ApiError> {
        let only = port.map(|name| self.id_of(name)).transpose()?;
        let is_meant = |id| only.is_none_or(|only| only == id);
        let ports = self.ports.values().filter(|port| is_meant(port.id));
        Ok(ports.flat_map(|port| port.attachments().map(|at| at.ifindex)).collect())
    }
}

/// Their queues. Asks the kernel, so the lock must be free.
pub(crate) fn queues_of(netdevs: &[IfIndex]) -> Result<Vec<NetdevQueue>, ApiError> {
    each(netdevs, netdev_genl::queues)
}

/// Their NAPI instances. Asks the kernel, so the lock must be free.
pub(crate) fn napis_of(netdevs: &[IfIndex]) -> Result<Vec<NetdevNapi>, ApiError> {
    each(netdevs, netdev_genl::napis)
}

/// What is told of each; nothing of one that is gone by now.
fn each<T>(
    netdevs: &[IfIndex],
    ask: impl Fn(IfIndex) -> Result<Vec<T>, NetlinkError>,
) -> Result<Vec<T>, ApiError> {
    let mut all = Vec::new();
    for netdev in netdevs {
        match ask(*netdev) {
            Ok(told) => all.extend(told),
            Err(NetlinkError::NoSuchNetdev { .. }) => {}
            Err(error) => return Err(ApiError::new(ErrorCode::KernelRefused, error.to_string())),
        }
    }
    Ok(all)
}
