//! Requests, responses, errors and configuration shared by the daemon and its clients.
//!
//! Everything that crosses the API, stands in the configuration file or is printed by the command line is a type
//! of this crate, so that the three cannot disagree. The crate is pure: it opens nothing, asks no clock and logs
//! nothing; what the daemon can be asked to do is the [`SwitchControl`] trait, which the switch implements.
//!
//! ```text
//!   command line ─┐                        ┌─ implements SwitchControl: the switch
//!                 ├─ these types as JSON ──┤
//!   curl, others ─┘                        └─ configuration file (TOML) at start and on SIGHUP
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod capture;
pub mod channels;
pub mod coalesce;
pub mod config;
pub mod counters;
pub mod doctor;
pub mod error;
pub mod eswitch;
pub mod fdb;
pub mod flow;
pub mod group;
pub mod hints;
pub mod id;
pub mod memory;
pub mod netdev_queue;
pub mod occupancy;
pub mod page_pool;
pub mod physical;
pub mod pool;
pub mod port;
pub mod processors;
pub mod rss;
pub mod rule;
pub mod rxq;
pub mod saved;
pub mod stats;
pub mod switch_control;
pub mod vhost_user;
pub mod vlan;
mod words;

pub use config::Config;
pub use counters::{DropReason, Drops, PortCounters};
pub use error::{ApiError, ErrorCode};
pub use id::{IfIndex, MacAddr, PortId, QueueId, Vid};
pub use switch_control::{SwitchControl, ThreadTurns};
