//! The demo: four hosts, a virtual machine, one switch, real programs, and the switch's tables while they run.
//!
//! Every number on the screen is what a program or the switch said during this run; a step that does not do what
//! its line says ends the demo with exit status 1. `stage` puts up the hosts and the switch, `acts` lets them talk,
//! `words` writes.

mod acts;
mod stage;
mod words;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use forebay_testbed::Result;

use crate::interrupt::Interrupt;
use stage::Stage;

/// Between two looks whether the kept switch is still running.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the switch and the hosts running afterwards, until Ctrl-C
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Plays the demo; the status says whether all of it worked.
///
/// # Errors
/// When a program or the switch says no.
pub(crate) fn run(args: &DemoArgs, interrupt: &Interrupt) -> Result<ExitCode> {
    words::opening();
    let mut stage = Stage::build()?;
    match play(&mut stage, args, interrupt) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        // When the switch is gone, that is why everything else fails.
        Err(error) => stage.ensure_running().and(Err(error)),
    }
}

fn play(stage: &mut Stage, args: &DemoArgs, interrupt: &Interrupt) -> Result<bool> {
    words::hosts(stage);
    acts::add_ports(stage)?;
    let mut is_good = acts::ping_everybody(stage)?;
    is_good &= acts::boot_machine(stage)?;
    let _servers = acts::serve(stage)?;
    is_good &= acts::stream_and_fetch(stage)?;
    is_good &= acts::balance(stage)?;
    words::verdict(is_good);
    if args.keep {
        keep_running(stage, interrupt)?;
    } else {
        words::how_to_keep();
    }
    Ok(is_good)
}

fn keep_running(stage: &mut Stage, interrupt: &Interrupt) -> Result<()> {
    words::what_to_try(stage);
    while !interrupt.wait(LOOK_INTERVAL) {
        stage.ensure_running()?;
    }
    Ok(())
}
