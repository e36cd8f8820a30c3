//! What policies do under a load.

use forebay_policy::moderation::simulation::{Costs, ENTRIES, Simulation};
use forebay_policy::moderation::{Adaptive, Dim, Direction, Policy, Profile};

use super::loads::{Constant, Course};

/// What comes before the stretch that counts, in microseconds.
const BEFORE_US: u64 = 200_000;
const SECOND_US: u64 = 1_000_000;
const MS_US: u64 = 1_000;
/// Milliseconds of a step's end that are looked at.
const END_MS: usize = 50;

/// A policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Off,
    Dim,
    Adaptive,
}

impl Name {
    pub(super) const ALL: [Name; 3] = [Name::Off, Name::Dim, Name::Adaptive];

    pub(super) fn text(self) -> &'static str {
        match self {
            Name::Off => "off",
            Name::Dim => "dim",
            Name::Adaptive => "adaptive",
        }
    }

    fn policy(self) -> Policy {
        match self {
            Name::Off => Policy::Off,
            Name::Dim => Policy::Dim(Dim::new(Profile::RX_EQE)),
            Name::Adaptive => Policy::Adaptive(Box::new(Adaptive::new(Direction::Receive, ENTRIES))),
        }
    }
}

/// What a policy does under a constant load.
#[derive(Debug, Clone)]
pub(super) struct Played {
    pub(super) packets_a_second: f64,
    pub(super) gigabits: f64,
    pub(super) calls_a_second: f64,
    pub(super) guest_share: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) moves_an_hour: f64,
}

/// What a policy does after a step.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) settled_ms: f64,
    pub(super) moves: usize,
    pub(super) overshoot: f64,
    pub(super) usecs: u32,
    pub(super) calls_a_second: f64,
    /// By millisecond: the hold in force in µs, and thousands of calls a second.
    pub(super) holds: Vec<f64>,
    pub(super) calls: Vec<f64>,
}

impl Played {
    pub(super) fn constant(constant: &Constant, name: Name, seconds: u32) -> Played {
        let policies = (0..constant.queues).map(|_| name.policy()).collect();
        let mut simulation = Simulation::with(policies, constant.costs, 0);
        simulation.load_queues(&constant.loads);
        simulation.run(BEFORE_US);
        // Rates and latencies are of the first second, moves of all.
        let first = simulation.run(SECOND_US);
        let later = (1..seconds).map(|_| simulation.run(SECOND_US).moves.len());
        let moves = first.moves.len() + later.sum::<usize>();
        Played {
            packets_a_second: first.taken.iter().sum::<u64>() as f64 / first.seconds,
            gigabits: first.gigabits(),
            calls_a_second: first.calls_a_second(),
            guest_share: first.guest_share(),
            p50_us: first.latency_us(0, 50.0),
            p99_us: first.latency_us(0, 99.0),
            moves_an_hour: moves as f64 * 3600.0 / f64::from(seconds),
        }
    }

    pub(super) fn course(course: &Course, name: Name) -> Vec<Step> {
        let mut simulation = Simulation::with(vec![name.policy()], Costs::default(), 0);
        let mut usecs = 0;
        let steps = course.steps.iter().map(|step| {
            simulation.load(&step.loads);
            let mut found = Step {
                settled_ms: 0.0,
                moves: 0,
                overshoot: 0.0,
                usecs,
                calls_a_second: 0.0,
                holds: Vec::new(),
                calls: Vec::new(),
            };
            let mut longest = 0;
            for ms in 0..step.millis {
                let out = simulation.run(MS_US);
                for (at, settings) in &out.moves {
                    found.settled_ms = ms as f64 + *at as f64 / 1e6;
                    found.moves += 1;
                    usecs = settings.limits.usecs;
                    longest = longest.max(usecs);
                }
                found.holds.push(usecs.into());
                found.calls.push(out.calls as f64);
            }
            let end = &found.calls[found.calls.len().saturating_sub(END_MS)..];
            found.calls_a_second = 1e3 * end.iter().sum::<f64>() / end.len().max(1) as f64;
            found.usecs = usecs;
            found.overshoot = f64::from(longest.saturating_sub(usecs)) / f64::from(usecs.max(1));
            found
        });
        steps.collect()
    }
}
