//! Kernel flows: decisions of workers, put where the kernel repeats them, and kept as long as they hold and are used.
//!
//! ```text
//!   worker ─ Proposal ─► ring ─┐
//!   worker ─ Proposal ─► ring ─┴─► keeper ─ install, count, take out ─► FlowBook ─► table in shared memory ◄─ programs
//!                                                                      ▲
//!                                     control: list, flush, counters ──┘
//! ```
//!
//! The rule it keeps: no packet is counted twice or not at all. A flow's counters are the kernel's; they become its
//! ports' when they are *settled*, and a place changes hands only after its last settling.

mod book;
mod keeper;

pub(crate) use book::{Entry, FlowBook, FlowLimits, SettledFlow, UserEntry};
pub(crate) use keeper::FlowKeeper;
