//! The kernel's side of the switch: BPF programs and their maps, the collector, netlink, feature probes.
//!
//! The rule this crate keeps: it detaches only what it attached. Everything it makes hangs on a file descriptor or on
//! the private network namespace, so that it goes away with the process, however that ends.

mod accounts;
mod counters;
mod cycles;
mod datapath;
mod error;
mod grace;
mod hints;
mod layout;
mod link;
pub mod netlink;
mod object;
pub mod probe;

pub use accounts::{Accounts, RingAccount, RingRule};
pub use counters::KernelCounters;
pub use cycles::cycles;
pub use datapath::{CollectorProgram, Datapath, RingOwner, XdpProgram, XdpVariant};
pub use error::DatapathError;
pub use grace::{ShortGracePeriods, grace_period};
pub use hints::{HintsError, HintsOptions};
pub use layout::{
    Bank, COLLECTORS, CollectorEnds, LAYOUT_MARK, MARK_BYTES, OWN_LAYOUTS, PortConfig, source_port,
};
pub use link::{NetdevLink, program_name};
pub use object::{DatapathOptions, LICENCE};
