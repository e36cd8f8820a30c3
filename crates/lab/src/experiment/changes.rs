//! Whether the fast path obeys: one change after the other under a stream that the kernel carries.
//!
//! Host A sends numbered frames to station S. Each change is made, and when it is complete the number of the next frame
//! is noted: every frame from that one on must obey, wherever in the switch it is decided. What a frame may do between a
//! change's beginning and its end is left open: before or after.
//!
//! ```text
//!   A (p1, access:10, isolated) ──► switch ──► B (p2), where S is at home
//!                                         └──► C (p3), where S moves to and what is flooded or sent astray by rules
//! ```

mod course;
mod judge;
mod places;
mod stream;
mod tables;
mod world;

use course::{COURSE, Step};
use forebay_testbed::Result;
use forebay_testbed::host::PortKind;
use judge::Judge;
use world::World;

use super::{OutputOptions, Report};

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of changes, half of them with tcx ports and half with XDP ports
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(34..=1_000_000))]
    pub changes: u32,
    /// Frames a second that host A sends to station S
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1000..=100_000))]
    pub rate: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a frame did not obey.
///
/// # Errors
/// When the lab can't be made or the switch refuses a change.
pub fn run(options: &Options) -> Result<bool> {
    let title = format!("{} changes under a stream that the kernel carries", options.changes);
    let about = "A sends numbered frames to a station at B. When a change is complete (its request was answered; of a \
                 station that speaks elsewhere: the table shows it there, and a frame that it sent afterwards was \
                 received) the number of the next frame is noted. Every frame from that one on must arrive where the \
                 change says, or nowhere. Before the next change, the new way must be carried by the kernel again, \
                 where the kernel can carry it.";
    let mut report = Report::begin("changes", title, about);
    let outcome = [PortKind::VethTcx, PortKind::VethXdp].into_iter().try_for_each(|kind| {
        eprintln!("{} changes with {} ports", options.changes / 2, kind.name());
        let judge = measure(options, kind)?;
        tables::fill(&mut report, kind, &judge);
        Ok(())
    });
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, kind: PortKind) -> Result<Judge> {
    let world = World::start(kind)?;
    let stream = stream::Shared::default();
    let (changes, rate) = (options.changes / 2, options.rate);
    std::thread::scope(|scope| {
        let listener = scope.spawn(|| stream.hear(&world.sockets));
        let sender = scope.spawn(|| stream.send(&world.sockets[places::A], rate));
        let done = go_through(&world, &stream, changes);
        stream.end();
        let heard = listener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut judge = done?;
        heard.into_iter().for_each(|heard| judge.hear(heard));
        Ok(judge)
    })
}

fn go_through(world: &World, stream: &stream::Shared, changes: u32) -> Result<Judge> {
    let mut judge = Judge::default();
    world.set_out(stream)?;
    let first = Step::HOME;
    judge.completed(first, stream.next());
    judge.carried(world.wait_until_carried(first)?);
    for step in COURSE.iter().cycle().take(changes as usize) {
        judge.begins(stream.begin());
        world.change(step.what, stream)?;
        judge.completed(*step, stream.next());
        judge.carried(world.wait_until_carried(*step)?);
    }
    judge.begins(stream.next());
    judge.refused = Some(world.refused()?);
    Ok(judge)
}
