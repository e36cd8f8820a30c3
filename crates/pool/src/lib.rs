//! Frames of packet memory: who owns them, where the free ones lie, how a packet is made of them.
//!
//! The rule this crate keeps: a frame is in exactly one place. [`Frame`] is move-only, so a program that
//! compiles cannot hold one twice; the kernel's rings take frames by value and give them back by value.
//!
//! ```text
//!   Arena (one mapping) ──► Pool (free frames, shared) ⇄ Magazine (a worker's own) ⇄ rings, Burst
//! ```
#![deny(unsafe_code)]

mod arena;
mod burst;
mod frame;
mod ledger;
mod magazine;
mod prefetch;
mod store;
mod sync;

pub use arena::{Arena, ArenaError, FrameSize};
pub use burst::{Burst, MAX_SEGMENTS_PER_PACKET, PacketSegments, Segment};
pub use frame::Frame;
pub use ledger::Ledger;
pub use magazine::Magazine;
pub use prefetch::prefetch;
pub use store::Pool;
