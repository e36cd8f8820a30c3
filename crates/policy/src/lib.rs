//! Pure decisions: state, time and an observation in, a decision out.
//!
//! What the switch decides by rule rather than by mechanism lives here: how much flooding a port may cause, how
//! much of the pool it may hold, and how many of a guest's buffers, which way its packets take, whose turn it is and how
//! long, how many frames lie ready for the kernel, how much of the flow table it may have, when what failed is tried again,
//! how often what changes is looked at, how a port's channels lie on its members and the machine's processors, which worker
//! takes a channel's packets, and when a guest is called for what it was shown.
//!
//! The rule it keeps: a policy reads no clock, makes no system call and logs nothing, and on the packet path it allocates
//! nothing. Time is an argument ([`Nanos`]), so the same object decides in the switch, in a test and in a simulation, and decides the
//! same each time.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod backoff;
mod bucket;
mod channels;
mod debounce;
mod deficit;
mod flow_share;
mod histogram;
mod lane;
mod linger;
mod loops;
pub mod moderation;
mod nanos;
mod odometer;
mod pace;
mod placement;
mod refill;
mod ring_share;
mod rss;
mod run_list;
mod share;
mod spread;
mod stations;
mod threshold;
mod turn;
mod watch;
mod watchdog;

pub use backoff::Backoff;
pub use bucket::TokenBucket;
pub use channels::{Channels, Home};
pub use debounce::Debounce;
pub use deficit::Deficit;
pub use flow_share::{FlowRefusal, FlowShare};
pub use histogram::Buckets;
pub use lane::{Lane, LaneChoice};
pub use linger::Linger;
pub use loops::{Heard, LoopGuard};
pub use nanos::Nanos;
pub use odometer::Odometer;
pub use pace::{Pace, Served};
pub use placement::Placement;
pub use refill::{Poll, Refill, RefillRule};
pub use ring_share::{RingShare, Sender};
pub use rss::{part_slots, workers_of_channels};
pub use run_list::RunList;
pub use share::{Part, SharedRate};
pub use spread::{Node, Processors, spread};
pub use stations::{StationLimit, StationLimits};
pub use threshold::{Admission, ONE_PACKET, Occupancy, Taking, Th, Threshold};
pub use turn::{Piece, Standing, Turn};
pub use watch::Watch;
pub use watchdog::Watchdog;
