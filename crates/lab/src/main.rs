//! The lab's command line: the demo, the soak, the benchmark, the experiments, and clearing up after a lab that was killed.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::process::ExitCode;

use clap::Parser;

mod channels;
mod cli;
mod demo;
mod estimate;
mod interrupt;
mod soak;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
