//! The forebay daemon and command line.
//!
//! The only place that wires things together: the command line, the HTTP API on the unix socket, the configuration
//! file and signals all end in calls of [`forebay_control::SwitchControl`], and only [`wiring`] names the switch that
//! implements it. A library besides the binary, so that tests and fuzz targets reach the router.
//!
//! ```text
//!  forebay port add … ─► client ─► unix socket ─► api ─┐
//!  forebay run ─► daemon ─► configuration, signals ────┴─► SwitchControl ─► (wiring) ─► the switch
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod api;
pub mod cli;
mod client;
mod commands;
mod daemon;
mod log;
mod output;
mod pcapng;
mod preflight;
mod privileges;
mod socket;
mod table;
#[cfg(test)]
mod temp_dir;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
pub mod wiring;

use std::process::ExitCode;

use clap::Parser;

/// Reads the command line, does what it says, and returns the exit status: 0 done, 1 refused, 2 wrong usage.
pub fn main() -> ExitCode {
    commands::run(cli::Cli::parse())
}
