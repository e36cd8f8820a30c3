//! The soak: many ports, mixed traffic, ports and links that come and go, a daemon that is killed and started again.
//!
//! It looks for what only time brings out: a frame that is lost, a counter that does not balance, a descriptor or a
//! BPF object that stays behind. Every choice follows from the seed that is printed; what the choices meet, traffic
//! under way, is real and never twice the same. A finding does not end the run: the verdict at the end names them all.
//!
//! ```text
//!   start ─ checkpoint 0 ─┬─ traffic + churn ─ quiet ─ checkpoint ─┬─ … ─ stop, nothing left behind
//!                         └─ …  kill -9, start again under traffic ┘
//! ```

mod census;
mod checkpoint;
mod churn;
mod ledger;
mod restart;
mod traffic;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use forebay_testbed::Result;

use crate::interrupt::{EXIT_STATUS, Interrupt};
use checkpoint::Inspector;
use churn::Churn;
use ledger::Ledger;
use traffic::Traffic;
use world::World;

/// How often the daemon is killed.
const KILLS: u32 = 3;
/// Traffic between two checkpoints lasts about this long, and shorter in a short soak.
const PHASE: Duration = Duration::from_secs(60);
/// There are at least so many checkpoints to each start of the daemon: growth needs two to show.
const PHASES_A_LIFE: u32 = 2;
/// Lines of the daemons' logs that are shown at most.
const LOG_LINES_MAX: usize = 50;

/// Arguments of `soak`.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Duration of traffic and disturbances
    #[arg(long, value_name = "M", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1440))]
    minutes: u32,
    /// Number of ports, each with a host
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u16).range(16..=1000))]
    ports: u16,
    /// Change the spool mode, the pool's size and its policy every second
    #[arg(long)]
    modes: bool,
    /// Seed of all random choices [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs it; the status says whether nothing was found.
///
/// # Errors
/// When the lab itself can't be built. What goes wrong with the switch is a finding.
pub(crate) fn run(args: &SoakArgs, interrupt: &Interrupt) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let modes = if args.modes { " --modes" } else { "" };
    println!("forebay-lab soak --minutes {} --ports {} --seed {seed}{modes}", args.minutes, args.ports);
    let ledger = Arc::new(Ledger::new(interrupt.clone()));
    let mut world = World::build(args.ports, &ledger)?;
    let mut soak = Soak {
        inspector: Inspector::new(),
        churn: Churn::new(fastrand::Rng::with_seed(seed), interrupt.clone(), args.modes),
        random: fastrand::Rng::with_seed(seed ^ u64::MAX),
        interrupt: interrupt.clone(),
    };
    soak.live(&mut world, Duration::from_secs(60) * args.minutes)?;
    if interrupt.is_set() {
        return Ok(ExitCode::from(EXIT_STATUS));
    }
    restart::end(&mut world);
    let log = world.switch.log();
    drop(world);
    restart::check_nothing_left(&ledger);
    soak.inspector.judge_kernel_memory(&ledger);
    Ok(verdict(&ledger, &log, seed))
}

struct Soak {
    inspector: Inspector,
    churn: Churn,
    random: fastrand::Rng,
    interrupt: Interrupt,
}

impl Soak {
    fn live(&mut self, world: &mut World, duration: Duration) -> Result<()> {
        let phases = phases_in(duration / (KILLS + 1));
        let phase = duration / (KILLS + 1) / phases;
        self.inspector.inspect(world)?;
        for life in 0..=KILLS {
            for number in 0..phases {
                self.go_through(world, phase, life > 0 && number == 0)?;
                if self.interrupt.is_set() {
                    return Ok(());
                }
                self.restore(world)?;
                self.inspector.inspect(world)?;
            }
        }
        Ok(())
    }

    /// Traffic and churn for this long, with the daemon's violent end in the middle if asked for.
    fn go_through(&mut self, world: &mut World, length: Duration, with_kill: bool) -> Result<()> {
        let traffic = Traffic::start(world, &mut self.random);
        if with_kill {
            self.disturb_for(world, length / 2);
            restart::kill_and_start_again(world)?;
            self.churn.forget_absent();
            self.disturb_for(world, length / 2);
        } else {
            self.disturb_for(world, length);
        }
        self.inspector.note_traffic(traffic.stop(), self.churn.summary());
        Ok(())
    }

    /// A daemon with all ports, whatever happened.
    fn restore(&mut self, world: &mut World) -> Result<()> {
        restart::ensure_running(world, &mut self.churn)?;
        self.churn.restore(world);
        Ok(())
    }

    fn disturb_for(&mut self, world: &mut World, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() < end && !self.interrupt.is_set() && world.is_running() {
            self.churn.disturb(world);
        }
    }
}

fn phases_in(life: Duration) -> u32 {
    let wanted = life.as_secs() / PHASE.as_secs();
    u32::try_from(wanted).unwrap_or(u32::MAX).max(PHASES_A_LIFE)
}

fn verdict(ledger: &Ledger, log: &str, seed: u64) -> ExitCode {
    let findings = ledger.findings();
    print_unusual(log);
    if findings.is_empty() {
        println!("\nVerdict: nothing found.");
        return ExitCode::SUCCESS;
    }
    println!("\nVerdict: {} finding(s)", findings.len());
    findings.iter().for_each(|finding| println!("  {finding}"));
    keep(log, seed);
    ExitCode::FAILURE
}

/// Lines of the daemons' logs that neither a disturbance nor a start explains.
fn print_unusual(log: &str) {
    let is_unusual = |line: &&str| line.contains("panicked") || !line.contains(" INFO ");
    let lines: Vec<&str> = log.lines().filter(is_unusual).collect();
    println!("\nLines in the daemons' logs above INFO: {}", lines.len());
    lines.iter().take(LOG_LINES_MAX).for_each(|line| println!("  {line}"));
}

/// The lab's directory is gone by now; what the daemons said may explain a finding.
fn keep(log: &str, seed: u64) {
    let path = std::env::temp_dir().join(format!("forebay-soak-{seed}.log"));
    match std::fs::write(&path, log) {
        Ok(()) => println!("The daemons' logs are kept in {}", path.display()),
        Err(error) => println!("The daemons' logs could not be kept in {}: {error}", path.display()),
    }
}
