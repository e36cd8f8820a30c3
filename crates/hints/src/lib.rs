//! Hints: what a device or an XDP program already knows about a packet, in a layout that BTF describes.
//!
//! ```text
//!   BTF ──► Btf ──► Layout ──► Plan ──► Hints
//!   bytes   types   checked    offsets  values of one packet
//! ```
//!
//! A program writes a struct of its own directly below the packet; the struct's last four bytes are the id of its layout.
//! Which hints it holds, in which order and at which offsets, is the program's choice. When the program is loaded, its BTF
//! is read into a [`Layout`], which is refused if it breaks the contract, and compiled into a [`Plan`]. While packets flow,
//! a packet's last four bytes choose the plan.
//!
//! The rule it keeps: whatever the bytes are, BTF's or a packet's, the answer is an error or a value, in bounded time;
//! nothing panics, nothing is read beyond the slice.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod btf;
#[cfg(any(test, feature = "fuzzing"))]
pub mod builder;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz_check;
mod layout;
mod plan;
pub mod program;
mod registry;

pub use btf::{Btf, BtfError, Field, TypeId};
pub use layout::{ContractError, Hint, Layout, Member};
pub use plan::{BELOW_BYTES, Hints, Plan, Values, id_of};
pub use registry::{Found, LayoutId, Registry};
