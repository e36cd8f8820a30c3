//! All flows at once: how fast they are installed, what they take, how fast they carry, how fast they go.

use std::time::{Duration, Instant};

use forebay_control::flow::FlowTable;
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::{Result, wait};

use super::super::thousand::Point;
use super::Options;
use super::scene::{LONG_IDLE, Scene};

const INSTALL_LIMIT: Duration = Duration::from_secs(120);
const EXPIRE_LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);
/// The idle time that flows expire by.
pub(super) const IDLE_SECONDS: u32 = 1;

/// What was measured.
pub(super) struct Grid {
    pub(super) install: Install,
    pub(super) memory: Memory,
    /// Millions of frames a second, by round: with one flow and with all.
    pub(super) rates: Vec<[f64; 2]>,
    pub(super) expiry: Expiry,
    pub(super) table: FlowTable,
}

/// While all were new.
pub(super) struct Install {
    pub(super) installed: u64,
    /// From the first to the last.
    pub(super) duration: Duration,
    /// Of the middle eight tenths, a second.
    pub(super) rate: f64,
}

/// Bytes.
pub(super) struct Memory {
    pub(super) without: Point,
    pub(super) with: Point,
}

/// After the last packet.
pub(super) struct Expiry {
    pub(super) flows: u64,
    pub(super) left: u64,
    /// From the last packet until all were gone.
    pub(super) duration: Duration,
}

pub(super) fn measure(scene: &mut Scene, options: &Options) -> Result<Grid> {
    eprintln!("installing {} flows", options.all());
    let sink = scene.sink(2)?;
    let without = Point::read(&scene.pids())?;
    let install = install(scene, options)?;
    eprintln!("reading memory");
    let memory = Memory { without, with: Point::read(&scene.pids())? };
    let table = scene.table()?;
    eprintln!("measuring rates");
    let seconds = Duration::from_secs(options.seconds.into());
    let round = |_| Ok([rate(scene, &sink, 1, seconds)?, rate(scene, &sink, options.side(), seconds)?]);
    let rates = (0..options.rounds).map(round).collect::<Result<_>>()?;
    eprintln!("letting flows go");
    let expiry = expire(scene, options)?;
    scene.set_idle(LONG_IDLE)?;
    Ok(Grid { install, memory, rates, expiry, table })
}

pub(super) fn install(scene: &Scene, options: &Options) -> Result<Install> {
    let source = scene.source(options.side())?;
    let (start, mut seen) = (Instant::now(), Vec::new());
    while start.elapsed() < INSTALL_LIMIT {
        let flows = scene.flows()?;
        seen.push((start.elapsed(), flows));
        if flows >= options.all() {
            break;
        }
        std::thread::sleep(LOOK);
    }
    source.finish()?;
    Ok(of_course(&seen, options.all()))
}

/// From looks at the number of flows: when, and how many.
fn of_course(seen: &[(Duration, u64)], all: u64) -> Install {
    let installed = seen.last().map_or(0, |(_, flows)| *flows);
    let reached = |share: f64| seen.iter().find(|(_, flows)| *flows as f64 >= share * all as f64);
    let first = seen.iter().rev().find(|(_, flows)| *flows == 0).or(seen.first());
    let span = |from: &(Duration, u64), to: &(Duration, u64)| to.0.saturating_sub(from.0);
    let duration = first.zip(seen.last()).map_or(Duration::ZERO, |(from, to)| span(from, to));
    let rate = match (reached(0.1), reached(0.9)) {
        // Too fast to be looked at in between: the whole.
        (Some(from), Some(to)) if from == to => installed as f64 / duration.as_secs_f64(),
        (Some(from), Some(to)) => (to.1 - from.1) as f64 / span(from, to).as_secs_f64(),
        _ => installed as f64 / duration.as_secs_f64(),
    };
    Install { installed, duration, rate }
}

/// Millions of frames that arrive a second, of so many senders and receivers.
pub(super) fn rate(scene: &Scene, sink: &Sink, side: u16, duration: Duration) -> Result<f64> {
    let source = scene.source(side)?;
    let before = sink.counted()?.packets;
    wait::until("the first frame behind the switch", duration * 10, || {
        sink.counted().is_ok_and(|counted| counted.packets > before)
    })?;
    let rate = rate_at(sink, duration)?;
    source.finish()?;
    Ok(rate)
}

/// Millions of frames a second that arrive at a sink.
pub(super) fn rate_at(sink: &Sink, duration: Duration) -> Result<f64> {
    let (start, before) = (Instant::now(), sink.counted()?.packets);
    std::thread::sleep(duration);
    Ok((sink.counted()?.packets - before) as f64 / start.elapsed().as_secs_f64() / 1e6)
}

fn expire(scene: &mut Scene, options: &Options) -> Result<Expiry> {
    let source = scene.source(options.side())?;
    scene.set_idle(IDLE_SECONDS)?;
    let flows = scene.flows()?;
    source.finish()?;
    let start = Instant::now();
    let mut left = flows;
    while left > 0 && start.elapsed() < EXPIRE_LIMIT {
        left = scene.flows()?;
        std::thread::sleep(LOOK);
    }
    Ok(Expiry { flows, left, duration: start.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(flows: &[u64]) -> Vec<(Duration, u64)> {
        (0..).map(|n| Duration::from_millis(n * 100)).zip(flows.iter().copied()).collect()
    }

    #[test]
    fn the_rate_is_that_of_the_middle_and_the_time_that_of_the_whole() {
        let install = of_course(&looks(&[0, 0, 100, 500, 900, 950, 1000]), 1000);
        assert_eq!(install.installed, 1000);
        assert_eq!(install.duration, Duration::from_millis(500));
        assert!((install.rate - 4000.0).abs() < 1.0, "{}", install.rate);
    }

    #[test]
    fn what_is_there_at_the_second_look_has_the_rate_of_the_whole() {
        let install = of_course(&looks(&[0, 1000]), 1000);
        assert!((install.rate - 10_000.0).abs() < 1.0, "{}", install.rate);
        assert_eq!(of_course(&looks(&[0, 10]), 1000).installed, 10);
    }
}
