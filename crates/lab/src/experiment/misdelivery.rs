//! Whether anything arrives where it must not, while everything changes.
//!
//! Every port's host sends marked packets to every other station, the kernel carries what it can, and meanwhile stations
//! move, ports are deleted and added, VLANs and isolation change. Every packet that a host receives is held against what
//! the switch was told: see [`oracle`].
//!
//! ```text
//!   two senders ──► q1 … q64 ═ veths ═ p1 … p64 (even: XDP, odd: tcx; access:10, :20, :30; some isolated)
//!   one listener ◄─ q1 … q64          the changer: requests, and stations that speak elsewhere
//! ```

mod changer;
mod oracle;
mod senders;
mod tables;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use changer::Changer;
use forebay_testbed::Result;
use oracle::{History, Oracle};
use senders::Senders;
use world::World;

use super::{OutputOptions, Report, listen};

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of ports, half of them tcx and half XDP
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(12..=512))]
    pub ports: u16,
    /// Seconds of changes under load
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Packets a second, of all hosts together
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1000..=200_000))]
    pub rate: u32,
    /// Seed of the random choice of changes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a packet arrived where it must not.
///
/// # Errors
/// When the lab can't be made or the switch refuses a change.
pub fn run(options: &Options) -> Result<bool> {
    let title = format!("{} ports for {} s, with everything changing", options.ports, options.seconds);
    let about = "Stations on all ports send marked packets to each other, the fast path on, while stations move and ports, \
                 VLANs and isolation change, one change at a time. A packet may arrive where some state of the switch \
                 sends it: one of those from the last change that was complete when the packet was sent to the last that \
                 had begun when it was received. Flooded packets count as such only where the destination was unknown.";
    let mut report = Report::begin("misdelivery", title, about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    eprintln!("making {} hosts", options.ports);
    let world = World::start(options.ports)?;
    let history = History::new(world.first_state());
    let senders = Senders::new(&history, options.rate);
    let heard_all = AtomicBool::new(false);
    eprintln!("changing everything for {} s, seed {}", options.seconds, options.seed);
    let (made, oracle) = std::thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let mut oracle = Oracle::default();
            listen::listen(&world.sockets, &heard_all, |port, frame, tag| {
                let stamp = oracle.hear(&history, port as u16, frame, tag);
                stamp.into_iter().for_each(|stamp| senders.heard(stamp));
            })
            .map(|()| oracle)
        });
        let (senders, sockets) = (&senders, &world.sockets);
        let speak = |thread| scope.spawn(move || senders.send(sockets, thread));
        let speakers: Vec<_> = (0..senders::THREADS).map(speak).collect();
        let mut changer = Changer::new(&world, &history, senders, options.seed);
        let made = changer.go_on_for(Duration::from_secs(options.seconds.into()));
        senders.end();
        speakers.into_iter().for_each(|speaker| drop(speaker.join()));
        heard_all.store(true, Ordering::SeqCst);
        let oracle = listener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (made, oracle)
    });
    let (made, oracle) = (made?, oracle?);
    let carried = world.carried(report)?;
    tables::fill(report, &made, &oracle, senders.sent(), &carried);
    Ok(())
}
