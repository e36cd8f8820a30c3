//! A guest that is a driver in this process, and charges a stated cost for each interrupt.
//!
//! ```text
//!   sender (a guest, unmoderated) ── the switch ── receiver (a guest, moderated)
//! ```
//!
//! Both guests are one thread on a processor of its own, and the worker has the other one.

use std::time::{Duration, Instant};

use forebay_testbed::dut::{Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::guest_load::{GuestLoad, Seen, Stream};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::cpu::{self, process_time};
use forebay_testbed::measure::latency::Latency;
use forebay_testbed::{LabError, Result, wait};

use super::figures::{Figures, interrupts, rates};
use super::turns::{Column, Plan};
use super::ways::Way;
use crate::experiment::guests::{LIMIT, up};
use crate::experiment::{SENDER_CPU, WORKER_CPU};

const NAME: &str = "vm1";
const SENDER: &str = "vm2";
const MAC: [u8; 6] = [2, 0xfd, 0, 0, 0, 1];
const SENDER_MAC: [u8; 6] = [2, 0xfd, 0, 0, 0, 2];
/// A policy has found its limits after this time.
const SETTLING: Duration = Duration::from_millis(200);

/// A stream to the guest, with a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    name: &'static str,
    stream: Stream,
}

impl Load {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

/// What the sender does.
pub(super) const LOADS: [Load; 3] = [
    Load {
        name: "50,000 packets a second of 1000 bytes, at random",
        stream: Stream::Random { rate: 50_000, bytes: 1000 },
    },
    Load {
        name: "a window of 16 packets of 1000 bytes",
        stream: Stream::Window { packets: 16, bytes: 1000 },
    },
    Load {
        name: "a window of 128 packets of 1000 bytes",
        stream: Stream::Window { packets: 128, bytes: 1000 },
    },
];

/// One pair of guests, and all policies in turn.
pub(super) fn round(load: Load, cost: Duration, ways: &[Way], duration: Duration) -> Result<Vec<Figures>> {
    let mut scene = Scene::new(cost)?;
    let mut found = Vec::new();
    for way in ways {
        eprintln!("  {}", way.name());
        way.set(scene.client(), NAME)?;
        found.push(scene.measure(load.stream, duration)?);
    }
    Ok(found)
}

/// Exchanges by themselves and beside streams, and streams with a window by themselves, with policies in turns.
pub(super) fn in_turns(cost: Duration, plan: &Plan) -> Result<Vec<Column>> {
    let mut scene = Scene::new(cost)?;
    let exchanges = [
        ("alone", None),
        ("beside packets at random", Some(LOADS[0].stream)),
        ("beside a window", Some(LOADS[1].stream)),
    ];
    let mut columns = Vec::new();
    for (name, stream) in exchanges {
        eprintln!("{name}");
        let cycles = scene.follow(plan, |scene| {
            scene.run(stream, true, SETTLING)?;
            scene.answered(stream, plan.turn)
        })?;
        columns.extend(Column::of_exchanges(name, &cycles));
    }
    for load in &LOADS[1..] {
        eprintln!("{}", load.name);
        let cycles = scene.follow(plan, |scene| {
            scene.run(Some(load.stream), false, SETTLING)?;
            scene.run(Some(load.stream), false, plan.turn)
        })?;
        let gigabits = |seen: &Seen| seen.bytes as f64 * 8.0 / plan.turn.as_secs_f64() / 1e9;
        columns.push(Column::of(load.name.to_owned(), "Gbit/s", &cycles, gigabits));
    }
    Ok(columns)
}

struct Scene {
    // In this order: the guests before their switch, both before the lab they are in.
    guests: GuestLoad,
    forebay: Forebay,
    _lab: Lab,
}

impl Scene {
    fn new(cost: Duration) -> Result<Scene> {
        let lab = Lab::new("moderation")?;
        let forebay = Forebay::start(&lab, ForebayOptions::default().pinned_to(WORKER_CPU))?;
        let client = forebay.client();
        let ports = [(SENDER, SENDER_MAC), (NAME, MAC)];
        let sockets = ports.map(|(name, _)| lab.path(&format!("{name}.sock")));
        for ((name, mac), socket) in ports.iter().zip(&sockets) {
            client.ok(&["port", "add", name, "--vhost-user", &socket.display().to_string()])?;
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            client.ok(&["fdb", "add", &mac, "--port", name])?;
        }
        let guests = GuestLoad::connect([&sockets[0], &sockets[1]], ports.map(|(_, mac)| mac), cost)?;
        wait::until("both guests to be up", LIMIT, || up(client) == ports.len())?;
        Ok(Scene { guests, forebay, _lab: lab })
    }

    fn measure(&mut self, stream: Stream, duration: Duration) -> Result<Figures> {
        self.run(Some(stream), false, SETTLING)?;
        let (before, time, began) = (interrupts(self.client(), NAME)?, self.switch_time(), Instant::now());
        let seen = self.run(Some(stream), false, duration)?;
        let (wall, time) = (began.elapsed().as_secs_f64(), self.switch_time().saturating_sub(time));
        let [_, from] = rates(before, interrupts(self.client(), NAME)?, wall);
        let seconds = duration.as_secs_f64();
        self.run(None, true, SETTLING)?;
        let alone = self.answered(None, duration)?;
        self.run(Some(stream), true, SETTLING)?;
        let beside = self.answered(Some(stream), duration)?;
        Ok(Figures {
            gigabits: seen.bytes as f64 * 8.0 / seconds / 1e9,
            interrupts: [seen.interrupts as f64 / seconds, from],
            guest: seen.worked.as_secs_f64() / seconds,
            switch: time.as_secs_f64() / wall,
            exchanges: vec![alone, beside],
        })
    }

    /// Has `turn` done in every turn of the plan, with the policy whose turn it is.
    fn follow<T>(&mut self, plan: &Plan, turn: impl Fn(&mut Scene) -> Result<T>) -> Result<Vec<Vec<T>>> {
        plan.follow(|ways| {
            let of = |way: &Way| {
                way.set(self.client(), NAME)?;
                turn(self)
            };
            ways.iter().map(of).collect()
        })
    }

    /// How long requests took.
    fn answered(&mut self, stream: Option<Stream>, duration: Duration) -> Result<Latency> {
        let none = || LabError::output("requests to the guest", "none was answered");
        self.run(stream, true, duration)?.latency.ok_or_else(none)
    }

    /// Runs the guests by a thread on their processor. A stream that stands still for half of the time is none.
    fn run(&mut self, stream: Option<Stream>, asks: bool, duration: Duration) -> Result<Seen> {
        let guests = &mut self.guests;
        let seen = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                cpu::pin_to(SENDER_CPU)?;
                Ok(guests.run(stream, asks, duration))
            });
            thread.join().expect("guests do not panic")
        })?;
        if 2 * seen.stood_still() < duration {
            return Ok(seen);
        }
        Err(LabError::output(
            "a stream with a window",
            format!("it stood still for {:?}", seen.stood_still()),
        ))
    }

    fn client(&self) -> &Client {
        self.forebay.client()
    }

    fn switch_time(&self) -> Duration {
        self.forebay.pids().iter().map(|pid| process_time(*pid)).sum()
    }
}
