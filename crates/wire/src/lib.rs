//! Bytes to headers and back: Ethernet, VLAN, IP, checksums.
//!
//! The switch asks two questions of a packet: where does it want to go ([`parse::frame`]), and is its transport
//! checksum finished ([`unfinished::complete_checksum`])? This crate answers both from bytes that a hostile or broken
//! sender wrote, and nothing else.
//!
//! The rule it keeps: every function is pure, allocates nothing, and is total. Any byte string gets an answer, none
//! gets a panic, and the work for one packet is bounded by named constants ([`locate::MAX_TAGS`],
//! [`locate::MAX_EXTENSIONS`], [`locate::MAX_OPTIONS`], [`stack::MAX_FURTHER_TAGS`]) and by the packet's own length.
//!
//! ```text
//!  bytes ──► parse::frame ──► FrameInfo or BadFrame                        every packet
//!  bytes ──► stack::behind_tags ──► network::network ──► NetworkInfo         packets that rules look deeper into
//!  bytes ──► locate::segment ──► unfinished::complete_checksum             packets whose sender left work undone
//!               │                       └─► checksum, crc32c
//!               └─ ethernet → vlan … → ipv4 | ipv6 → l4
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ack;
mod bytes;
pub mod chain;
pub mod checksum;
pub mod cut;
pub mod ethernet;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz_check;
pub mod ipv4;
pub mod ipv6;
pub mod l4;
pub mod locate;
pub mod mac;
pub mod net_header;
pub mod network;
pub mod parse;
pub mod run;
pub mod stack;
#[cfg(test)]
mod testing;
pub mod unfinished;
pub mod vlan;

pub use network::{NetworkInfo, PlainIpv4, Unread, network, plain_ipv4};
pub use parse::{BadFrame, FrameInfo, frame};
pub use stack::{TagKinds, behind_tags};
pub use unfinished::{Completion, Verdict, complete_checksum, verify_l4};
pub use vlan::Tag;
