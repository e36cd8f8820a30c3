//! The switch: ports, workers, the burst loop, forwarding and counters. No unsafe code.
//!
//! Two halves. The *packet path* is [`worker`](self): one thread for each queue of the collector, fed by snapshots. The
//! *control side* is [`Switch`]: it owns ports and kernel objects, follows netdevs as they come and go, and hands
//! workers a new snapshot when something has changed.
//!
//! The rule this crate keeps: a packet ends in exactly one place and is counted there.
#![forbid(unsafe_code)]

mod admission;
mod attention;
mod calls;
mod capture;
mod changes;
mod channels;
mod collector;
mod control;
mod counters;
mod error;
mod fdb;
mod flood;
mod flows;
mod guests;
mod layouts;
mod long_queues;
pub mod memory;
mod news;
mod output;
mod pool_instance;
pub mod private_file;
mod publication;
mod rate;
mod rules;
mod settled;
mod shared;
mod supervise;
mod switch;
mod topology;
mod vlan;
mod worker;

pub use channels::plan as plan_channels;
pub use error::SwitchError;
pub use switch::{Handover, Switch};
