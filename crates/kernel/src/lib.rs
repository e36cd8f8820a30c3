//! The kernel's side of the switch: BPF programs and their maps, the collector, netlink, feature probes.
//!
//! The rule this crate keeps: it detaches only what it attached. Everything it makes hangs on a file descriptor or on
//! the private network namespace, so that it goes away with the process, however that ends.
#![deny(unsafe_code)]

mod accounts;
mod adoption;
mod classes;
mod counters;
mod cycles;
mod datapath;
mod error;
#[cfg(test)]
mod fixtures;
mod flows;
mod generations;
mod grace;
mod hash;
mod hints;
mod layout;
mod left;
mod link;
mod long_queue;
pub mod machine;
mod mapped;
mod memberships;
mod merging;
pub mod netlink;
mod object;
mod peer;
mod pins;
pub mod probe;
mod probes;
mod promiscuous;
pub mod queues;
mod stations;
mod steering;
#[cfg(any(test, feature = "testing"))]
pub mod trial;
mod unicast_filter;

pub use accounts::{Accounts, RingAccount, RingRule};
pub use classes::{ClassTable, asked_classes};
pub use counters::KernelCounters;
pub use cycles::cycles;
pub use datapath::{CollectorProgram, Datapath, QueueAccounts, RingOwner, XdpProgram, XdpVariant};
pub use error::DatapathError;
pub use flows::{
    AdoptedFlow, FlowAction, FlowCount, FlowKey, FlowNote, FlowNumber, FlowPath, FlowTable, FlowTag,
    FlowVerdict, NoPlace,
};
pub use generations::{Generations, StationSlot};
pub use grace::{ShortGracePeriods, grace_period};
pub use hints::{HintsError, HintsOptions};
pub use layout::{
    Bank, COLLECTORS, CollectorEnds, LAYOUT_ORIGIN, ORIGIN_BYTES, OWN_LAYOUTS, PortConfig, source_port,
};
pub use link::{NetdevLink, program_name};
pub use long_queue::{LONG_HEADER_BYTES, LongQueue, LongQueueError};
pub use merging::Merging;
pub use object::{DatapathOptions, PORT_PROGRAM};
pub use peer::reachable_peer;
pub use pins::Pins;
pub use probes::{LoopProbes, PROBE_BYTES, PROBE_ETHERTYPE, PROBE_GROUP, SeenProbe};
pub use promiscuous::Promiscuous;
pub use stations::{LeftStations, LeftStationsError, StationBucket, StationMemory};
pub use steering::SteeredStations;
pub use unicast_filter::UnicastFilter;
