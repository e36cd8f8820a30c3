//! What is measured in the testbed: benchmarks beside other switches, and experiments.
//!
//! The program `forebay-lab` has both on its command line, and beside them a demo, a soak and a check of the estimated
//! memory. Hosts, contenders and readings are those of [`forebay_testbed`].
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bench;
pub mod experiment;
