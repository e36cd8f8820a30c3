//! What the switch asks of the kernel about netdevs: which there are, what happens to them, what they can do.
//!
//! The rule this module keeps: nobody outside it sees a netlink message. Every call opens its own socket in the
//! network namespace of the calling thread, sends, waits for the kernel's verdict and closes; so a call means the
//! same wherever it runs, and [`PrivateNetns::run`] decides *where*. Nothing here belongs on the packet path.
//!
//! ```text
//!   link ──┐                                   netlink-bindings: bytes of a message, generated from the
//!   netdev ├─► socket::Exchange ─► kernel      kernel's own specifications
//!  offload ┤                                   netlink-sys: the socket
//! coalesce ┘
//!   monitor ◄─────────── RTNLGRP_LINK, RTNLGRP_TC
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod coalesce;
mod error;
pub mod link;
pub mod monitor;
pub mod netdev_genl;
mod netns;
pub mod offload;
mod socket;
mod sys;
mod xdp_monitor;

#[cfg(test)]
mod tests;

pub use error::NetlinkError;
pub use link::Link;
pub use monitor::{LinkEvent, LinkMonitor};
pub use netdev_genl::{RxMetadata, XdpFeatures};
pub use netns::PrivateNetns;
pub use xdp_monitor::XdpMonitor;
