//! Experiments: what sharing one pool costs and what it is worth, measured on this machine beside published figures.
//!
//! Each is a command of the lab with a report of its own: `thousand` ports on one pool, `memory` of a port over depths
//! and modes, `adjustable` receive queues under a web server's load, `starvation` of quiet ports by a loud one, the
//! `threshold` that keeps it from happening, and `hints` in layouts that change; of the fast path in the kernel, whether
//! anything arrives where it must not (`misdelivery`), whether it obeys every change (`changes`), and a hundred thousand
//! `flows`; of several workers, what it is worth that packets go to the one where they leave (`steering`);
//! of the control side, how long requests wait for others (`waits`), and for another daemon (`takeover`).
//!
//! Of virtual machines: `guests` measures what many idle ones cost, `guest_flood` what one that floods costs others, and
//! `guest_kills` what others notice when machines or their daemon are killed. `moderation` measures what moderation of
//! interrupts gains, and what it costs an exchange, `moderation_scale` what it costs for many machines, and
//! `moderation_loads` how policies respond to loads.
//!
//! The rule they keep: a claim is a difference between two readings in the same run, memory is counted with the
//! kernel's, and what the daemon does not offer is named in the report and not passed over.

pub mod adjustable;
pub mod changes;
pub mod flows;
pub mod guest_flood;
pub mod guest_kills;
pub mod guests;
pub mod hints;
mod listen;
pub mod memory;
pub mod misdelivery;
pub mod moderation;
pub mod moderation_loads;
pub mod moderation_scale;
mod numbered;
mod published;
mod report;
pub mod restart;
mod setup;
pub mod starvation;
pub mod steering;
pub mod takeover;
pub mod thousand;
pub mod threshold;
pub mod waits;

pub use report::{Cell, Chart, OutputOptions, Report, Series, Shape, Table};
pub use setup::{Policy, Refill, Setup};

/// The processor that switches; who sends a flood is on the other.
const WORKER_CPU: usize = 1;
/// The processor of who sends and measures.
const SENDER_CPU: usize = 0;

/// Bytes as megabytes; a difference may be negative.
fn megabytes(bytes: f64) -> f64 {
    bytes / 1e6
}

/// How much more `after` is than `before`.
fn growth(before: u64, after: u64) -> f64 {
    after as f64 - before as f64
}
