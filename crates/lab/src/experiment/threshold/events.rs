//! Random events: packets of any length from anybody to anybody, while whatever decides about frames changes.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use forebay_control::pool::PoolShow;
use forebay_testbed::dut::counters::Reading;
use forebay_testbed::dut::{self, Client, Dut, Forebay};
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::host::Host;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::standstill::while_stopped;
use forebay_testbed::{Result, wait};

use super::saturate::Arena;

/// Packets between two changes, at most.
const RUN: u32 = 4000;
/// Bytes of a packet.
const BYTES: RangeInclusive<usize> = 60..=1514;
/// Of so many runs, one arrives while the switch stands still.
const STANDSTILL: u32 = 8;
/// How long frames may take to come back.
const BACK_LIMIT: Duration = Duration::from_secs(10);

/// What happened, and what was left of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) packets: u64,
    pub(super) changes: u64,
    pub(super) dropped: u64,
    /// Frames that ports hold when nothing happens any more.
    pub(super) left: u64,
    /// Frames that are neither free nor posted then.
    pub(super) astray: u64,
    pub(super) took: Duration,
}

/// Makes them happen.
struct Events<'a> {
    forebay: &'a mut Forebay,
    hosts: &'a [Host],
    sockets: &'a [FrameSocket],
    random: fastrand::Rng,
    client: Client,
}

/// So many events, the same for the same seed as far as this machine lets them be.
pub(super) fn run(arena: &mut Arena, count: u64, seed: u64) -> Result<Outcome> {
    let start = Instant::now();
    let (forebay, hosts, sockets) = arena.parts();
    let client = forebay.client().clone();
    let mut events = Events { forebay, hosts, sockets, random: fastrand::Rng::with_seed(seed), client };
    let (mut packets, mut changes) = (0, 0);
    while packets + changes < count {
        packets += events.send()?;
        events.change()?;
        changes += 1;
    }
    let client = events.client;
    let total = Reading::settled(&client)?.since(&Reading::default());
    let dropped = total.drops().iter().map(|(_, _, count)| count).sum();
    let rest = || client.pool().ok().filter(|pool| held(pool) == 0 && astray(pool) == 0);
    // What is not back by then is reported.
    let pool = wait::until_some("all frames to be back", BACK_LIMIT, rest).or_else(|_| client.pool())?;
    Ok(Outcome { packets, changes, dropped, left: held(&pool), astray: astray(&pool), took: start.elapsed() })
}

fn held(pool: &PoolShow) -> u64 {
    pool.ports.iter().map(|port| port.used).sum()
}

fn astray(pool: &PoolShow) -> u64 {
    pool.frames_total.abs_diff(pool.frames_free + pool.frames_posted)
}

impl Events<'_> {
    /// A run of packets; says how many.
    fn send(&mut self) -> Result<u64> {
        let packets = self.random.u32(1..=RUN);
        let pid = self.forebay.daemon().pid();
        let stands_still = self.random.u32(..STANDSTILL) == 0;
        let mut send_all = || (0..packets).try_for_each(|_| self.send_one());
        if stands_still {
            while_stopped(pid, send_all)?
        } else {
            send_all()?
        }
        Ok(packets.into())
    }

    fn send_one(&mut self) -> Result<()> {
        let from = self.random.usize(..self.hosts.len());
        // Beyond the hosts: a station that nobody has heard of, and everybody.
        let destination = match self.random.usize(..self.hosts.len() + 2) {
            to if to < self.hosts.len() => station(to),
            to if to == self.hosts.len() => [2, 0, 0, 0, 9, self.random.u8(..)],
            _ => BROADCAST,
        };
        let mut frame = Frame::marked(station(from), destination, 3).build();
        frame.resize(self.random.usize(BYTES), 0);
        self.sockets[from].send(&frame)
    }

    fn change(&mut self) -> Result<()> {
        match self.random.u32(..8) {
            0 => self.recreate(),
            1 => self.static_threshold(),
            2 => self.ring_depth(),
            3 => self.policy(),
            4 => self.spool_mode(),
            5 => self.pool_size(),
            _ => self.dynamic_threshold(),
        }
    }

    fn set(&self, words: &[&str]) -> Result<()> {
        self.client.ok(words).map(drop)
    }

    fn port(&mut self) -> &str {
        self.hosts[self.random.usize(..self.hosts.len())].name()
    }

    fn dynamic_threshold(&mut self) -> Result<()> {
        let (th, reserve) = (self.random.u8(3..=16).to_string(), self.random.u32(..64).to_string());
        let port = self.port().to_owned();
        self.set(&["pool", "set", &port, "--th", &th, "--reserve", &reserve])
    }

    fn static_threshold(&mut self) -> Result<()> {
        let bytes = self.random.u32(2048..2 << 20).to_string();
        let port = self.port().to_owned();
        self.set(&["pool", "set", &port, "--static", &bytes])
    }

    fn ring_depth(&mut self) -> Result<()> {
        let depth = (64 << self.random.u32(..6)).to_string();
        let port = self.port().to_owned();
        self.set(&["rxq", "set", &port, "--depth", &depth])
    }

    fn policy(&mut self) -> Result<()> {
        let policy = ["dt", "headroom"][self.random.usize(..2)];
        self.set(&["pool", "set", "--policy", policy])
    }

    fn spool_mode(&mut self) -> Result<()> {
        let mode = ["spp", "basic", "none"][self.random.usize(..3)];
        self.set(&["eswitch", "set", "spool-mode", mode])
    }

    fn pool_size(&mut self) -> Result<()> {
        let frames = [16384, 24576, 32768][self.random.usize(..3)].to_string();
        self.set(&["pool", "set", "--frames", &frames])
    }

    fn recreate(&mut self) -> Result<()> {
        let host = self.random.usize(..self.hosts.len());
        self.set(&["port", "del", self.hosts[host].name()])?;
        self.forebay.add_ports(&dut::ports_of(&self.hosts[host..=host]))
    }
}

fn station(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 8, host as u8]
}
