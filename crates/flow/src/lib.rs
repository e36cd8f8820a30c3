//! Rules over packets, and how to look them up.
//!
//! A rule is a [`Match`], a priority and an action. This crate says which rules make sense ([`Match::check`]),
//! which of many a packet falls under ([`Classifier`]), when that can be said from the packet's first header
//! already ([`Classifier::classify_l2`]), and how little of what lies deeper a program in the kernel has to tell
//! apart ([`Classes`]). It knows nothing of maps, sockets or actions: the action is a type parameter.
//!
//! The rule it keeps: every lookup gives what trying all rules in order would give, highest priority first and, of
//! equal ones, lowest id first. The lookups allocate nothing; tests compare each of them with that definition.
//!
//! ```text
//!   rules ──► Classifier ── classify(fields) ────► rule                     any packet
//!                  │  └──── classify_l2(fields) ─► rule, or "look deeper"
//!                  ├──► UnreadClassifier ────────► rule, or doubt          a packet that is not read in full
//!                  └──► Classes ── of(fields) ───► Class                    same class, same layer 2: same rule
//!                             └─ networks, runs of ports, … for kernel maps
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod classes;
mod classifier;
mod family;
mod fields;
mod group;
mod hash;
mod intervals;
mod key;
mod l2;
mod matching;
mod port_range;
mod prefix;
mod rank;
#[cfg(test)]
mod testing;
mod unread;

pub use classes::{Class, Classes, MAX_CLASSES, TooManyClasses};
pub use classifier::{Classifier, InsertError, L2Outcome, Rule};
pub use family::Family;
pub use fields::{Fields, Network};
pub use forebay_wire::{TagKinds, Unread};
pub use matching::{Match, MatchError};
pub use port_range::{PortRange, PortRangeError};
pub use prefix::{Prefix, PrefixError};
pub use unread::{UnreadClassifier, UnreadOutcome};
