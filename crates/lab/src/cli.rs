//! What the command line offers, and where each word leads.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay_lab::bench;
use forebay_lab::experiment::{
    adjustable, changes, flows, guest_flood, guest_kills, guests, hints, memory, misdelivery, moderation,
    moderation_loads, moderation_scale, restart, starvation, steering, takeover, thousand, threshold, waits,
};
use forebay_testbed::{Result, clean};

use crate::interrupt::Interrupt;
use crate::{channels, demo, estimate, interrupt, soak};

/// Starts Forebay and hosts in network namespaces, sends real traffic, and measures. Needs root; leaves nothing behind.
#[derive(Debug, Parser)]
#[command(name = "forebay-lab", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show four hosts and a virtual machine that talk through Forebay (under three minutes)
    Demo(demo::DemoArgs),
    /// Measure Forebay, the kernel bridge and Open vSwitch in turn
    Bench(bench::BenchOptions),
    /// Compare the answer of `forebay pool estimate` with the memory that a daemon takes
    Estimate(estimate::EstimateArgs),
    /// Send mixed traffic while ports come and go and the daemon is killed; look for losses and leftovers
    Soak(soak::SoakArgs),
    /// Measure a thousand or more ports on one pool of 32 MB: memory, time to attach, idle CPU, reachable hosts
    Thousand(thousand::Options),
    /// Measure the memory of a port by ring depth, number of workers and spool mode, and that of Open vSwitch
    Memory(memory::Options),
    /// Measure web requests (ab, nginx) by ring depth, with static and with adaptive refill
    Adjustable(adjustable::Options),
    /// Flood one port, and measure what two others notice, in every spool mode
    Starvation(starvation::Options),
    /// Compare the frames that saturated ports hold with the formula, and measure what a quiet port gets
    Threshold(threshold::Options),
    /// Check the hash in every packet's hints while layouts differ and change under load
    Hints(hints::Options),
    /// Kill the daemon again and again under load, and measure what connections notice
    Restart(restart::Options),
    /// Replace the daemon of a full switch, and measure how long `port list` waits
    Takeover(takeover::Options),
    /// Move stations, replace ports and change VLANs under load, and look for packets at wrong ports
    Misdelivery(misdelivery::Options),
    /// Change rules, ports and stations under a stream, and check that each change is obeyed once it is complete
    Changes(changes::Options),
    /// Measure a hundred thousand flows: memory, rate, installing, expiry, first packets, and a flood of 5-tuples
    Flows(flows::Options),
    /// Measure what it is worth that an uplink's packets go to the worker that serves the port where they leave
    Steering(steering::Options),
    /// Interrupt moderation of a virtual machine: throughput, interrupts, processors and latency by policy
    Moderation(moderation::Options),
    /// Policies of interrupt moderation under loads that change, simulated: settling, overshoot, moves at rest
    ModerationLoads(moderation_loads::Options),
    /// What moderation of many idle virtual machines costs, in workers and in one thread for all
    ModerationScale(moderation_scale::Options),
    /// What policies of interrupt moderation cost an exchange or a window, in short turns that all have the same noise
    ModerationLatency(moderation::latency::Options),
    /// Measure how long requests wait while others change hundreds of ports, with the daemon as a service
    Waits(waits::Options),
    /// Connect a hundred and a thousand virtual machines: time, idle CPU, memory a port, and whether each is served
    Guests(guests::Options),
    /// Let a virtual machine flood, and measure what a container and another machine notice
    GuestFlood(guest_flood::Options),
    /// Kill virtual machines under traffic, and the daemon below virtual machines; look for losses and leftovers
    GuestKills(guest_kills::Options),
    /// Compare how channels cover a machine's processors with the rule that the kernel has for such NICs
    Channels(channels::ChannelsArgs),
    /// Remove what a killed lab left behind
    Clean,
}

impl Cli {
    /// Does what was asked for; every lab is gone when this returns.
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Demo(args) => with_interrupt(|interrupt| demo::run(&args, interrupt)),
            Command::Bench(args) => with_interrupt(|_| bench::run(&args).map(|()| ExitCode::SUCCESS)),
            Command::Channels(args) => with_interrupt(|_| channels::run(&args)),
            Command::Estimate(args) => with_interrupt(|_| estimate::run(&args)),
            Command::Soak(args) => with_interrupt(|interrupt| soak::run(&args, interrupt)),
            Command::Thousand(options) => experiment(|| thousand::run(&options)),
            Command::Memory(options) => experiment(|| memory::run(&options)),
            Command::Adjustable(options) => experiment(|| adjustable::run(&options)),
            Command::Starvation(options) => experiment(|| starvation::run(&options)),
            Command::Threshold(options) => experiment(|| threshold::run(&options)),
            Command::Hints(options) => experiment(|| hints::run(&options)),
            Command::Restart(options) => experiment(|| restart::run(&options)),
            Command::Takeover(options) => experiment(|| takeover::run(&options)),
            Command::Misdelivery(options) => experiment(|| misdelivery::run(&options)),
            Command::Changes(options) => experiment(|| changes::run(&options)),
            Command::Flows(options) => experiment(|| flows::run(&options)),
            Command::Steering(options) => experiment(|| steering::run(&options)),
            Command::Moderation(options) => experiment(|| moderation::run(&options)),
            Command::ModerationLoads(options) => experiment(|| moderation_loads::run(&options)),
            Command::ModerationScale(options) => experiment(|| moderation_scale::run(&options)),
            Command::ModerationLatency(options) => experiment(|| moderation::latency::run(&options)),
            Command::Waits(options) => experiment(|| waits::run(&options)),
            Command::Guests(options) => experiment(|| guests::run(&options)),
            Command::GuestFlood(options) => experiment(|| guest_flood::run(&options)),
            Command::GuestKills(options) => experiment(|| guest_kills::run(&options)),
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
