//! What the command line offers, and where each word leads.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay_lab::bench;
use forebay_lab::experiment::{
    adjustable, changes, flows, hints, memory, misdelivery, restart, starvation, thousand, threshold, waits,
};
use forebay_testbed::{Result, clean};

use crate::interrupt::Interrupt;
use crate::{demo, estimate, interrupt, soak};

/// Hosts in network namespaces around a switch, with real traffic. Needs root, and leaves nothing behind.
#[derive(Debug, Parser)]
#[command(name = "forebay-lab", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch four hosts talk through Forebay (under three minutes)
    Demo(demo::DemoArgs),
    /// Measure Forebay, the kernel bridge and Open vSwitch in turn
    Bench(bench::BenchOptions),
    /// Compare what `forebay pool estimate` says with what a daemon with so many ports takes
    Estimate(estimate::EstimateArgs),
    /// Mixed traffic while ports come and go and the daemon is killed; looks for what is lost or left behind
    Soak(soak::SoakArgs),
    /// A thousand ports, or thousands, on one pool of 32 MB: memory, time to attach, idle CPU, and whether all are served
    Thousand(thousand::Options),
    /// Memory of a port over depths, queues and spool modes, beside Open vSwitch
    Memory(memory::Options),
    /// ab against nginx over depths, receive queues refilled statically and adaptively
    Adjustable(adjustable::Options),
    /// A flood on one port and what two others notice, in every spool mode
    Starvation(starvation::Options),
    /// What saturated ports hold, beside the formula, and what is left for a quiet one
    Threshold(threshold::Options),
    /// Hints in layouts that differ and change under load, each hash held against its packet
    Hints(hints::Options),
    /// The daemon is killed again and again under load, and another takes over: what do connections notice?
    Restart(restart::Options),
    /// Stations move, ports come and go, VLANs change under load: does anything arrive where it must not?
    Misdelivery(misdelivery::Options),
    /// One change after the other under a stream that the kernel carries: is each obeyed from when it is complete?
    Changes(changes::Options),
    /// A hundred thousand flows: memory, rate, installing, expiry, first packets, and a flood of 5-tuples
    Flows(flows::Options),
    /// How long requests wait while others about hundreds of ports run, in a daemon as a service
    Waits(waits::Options),
    /// Remove what a killed lab left behind
    Clean,
}

impl Cli {
    /// Does what was asked for; every lab is gone when this returns.
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Demo(args) => with_interrupt(|interrupt| demo::run(&args, interrupt)),
            Command::Bench(args) => with_interrupt(|_| bench::run(&args).map(|()| ExitCode::SUCCESS)),
            Command::Estimate(args) => with_interrupt(|_| estimate::run(&args)),
            Command::Soak(args) => with_interrupt(|interrupt| soak::run(&args, interrupt)),
            Command::Thousand(options) => experiment(|| thousand::run(&options)),
            Command::Memory(options) => experiment(|| memory::run(&options)),
            Command::Adjustable(options) => experiment(|| adjustable::run(&options)),
            Command::Starvation(options) => experiment(|| starvation::run(&options)),
            Command::Threshold(options) => experiment(|| threshold::run(&options)),
            Command::Hints(options) => experiment(|| hints::run(&options)),
            Command::Restart(options) => experiment(|| restart::run(&options)),
            Command::Misdelivery(options) => experiment(|| misdelivery::run(&options)),
            Command::Changes(options) => experiment(|| changes::run(&options)),
            Command::Flows(options) => experiment(|| flows::run(&options)),
            Command::Waits(options) => experiment(|| waits::run(&options)),
            Command::Clean => clean_up(),
        }
    }
}

/// Runs an experiment; what must hold and does not is a failure.
fn experiment(run: impl FnOnce() -> Result<bool>) -> ExitCode {
    with_interrupt(|_| run().map(|is_sound| if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Runs a part of the lab; Ctrl-C ends it early and is no failure of its own.
fn with_interrupt(part: impl FnOnce(&Interrupt) -> Result<ExitCode>) -> ExitCode {
    let interrupt = match Interrupt::install() {
        Ok(interrupt) => interrupt,
        Err(error) => return fail(&error),
    };
    match part(&interrupt) {
        _ if interrupt.is_set() => {
            println!("\nStopped by a signal; everything is torn down.");
            ExitCode::from(interrupt::EXIT_STATUS)
        }
        Ok(status) => status,
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("forebay-lab: {error}");
    ExitCode::FAILURE
}

fn clean_up() -> ExitCode {
    let removed = clean::dead_labs();
    removed.iter().for_each(|name| println!("removed {name}"));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
