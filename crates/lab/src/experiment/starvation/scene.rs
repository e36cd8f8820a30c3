//! The scene: four hosts on a switch, one of which floods another.

use std::time::Duration;

use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::dut::{self, Client, Dut};
use forebay_testbed::host::Host;
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::cpu;
use forebay_testbed::measure::flood::{Flood, Flooded};
use forebay_testbed::measure::latency::{self, Latency};
use forebay_testbed::programs::ping::{Ping, PingReport};
use forebay_testbed::{Result, wait};

/// Hosts of the scene: attacker, whom it floods, victim, with whom the victim talks.
pub(crate) const HOSTS: usize = 4;
/// Pings of the victim unless told otherwise.
pub(crate) const PINGS: u32 = 10_000;
/// Between two of them.
const PING_PAUSE: Duration = Duration::from_millis(1);
/// How long the counters may take to come to rest after a flood.
const REST_LIMIT: Duration = Duration::from_secs(20);

/// Hosts and how long they do what they do.
pub(crate) struct Scene<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) hosts: &'a [Host],
    /// Of TCP request and response, quiet and flooded.
    pub(crate) duration: Duration,
    pub(crate) pings: u32,
    /// The processor that the flood has for itself.
    pub(crate) attacker_cpu: usize,
}

/// What the victim noticed, and what became of the flood.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) quiet: Latency,
    /// An error when the victim was not answered at all.
    pub(crate) flooded: Result<Latency>,
    pub(crate) pings: PingReport,
    pub(crate) flood: Flooded,
    /// Where its losses are counted, for a switch whose counters can be asked.
    pub(crate) ledger: Option<Ledger>,
}

/// Frames of a flood that did not arrive, by where they were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Drops that the attacker's port counted.
    pub(crate) on_attacker: u64,
    /// Drops that the target's port counted: its transmit queue was full.
    pub(crate) on_target: u64,
    /// Sent, and never seen by the port's program.
    pub(crate) before_switch: u64,
}

impl Ledger {
    fn of(moved: &Moved, attacker: &str, target: &str, flood: &Flooded) -> Ledger {
        let drops = moved.drops();
        let on = |port: &str, is_output: bool| {
            let wanted =
                |(at, name, _): &&(&str, &str, u64)| *at == port && name.starts_with("tx_") == is_output;
            drops.iter().filter(wanted).map(|(_, _, count)| count).sum()
        };
        let received = moved.get(attacker, "rx_packets");
        Ledger {
            on_attacker: on(attacker, false),
            on_target: on(target, true),
            before_switch: flood.sent.saturating_sub(received),
        }
    }

    /// The part of what a flood lost that is counted somewhere; nothing when it lost nothing.
    pub(crate) fn found_percent(&self, flood: &Flooded) -> Option<f64> {
        let found = self.on_attacker + self.on_target + self.before_switch;
        (flood.lost() > 0).then(|| 100.0 * found as f64 / flood.lost() as f64)
    }
}

impl Scene<'_> {
    /// Plays it on a switch that has no ports yet; `client` asks for its counters.
    pub(crate) fn play(&self, dut: &mut dyn Dut, client: Option<&Client>) -> Result<Seen> {
        let [attacker, target, victim, server] = self.hosts else {
            panic!("the scene has {HOSTS} hosts, not {}", self.hosts.len())
        };
        self.set_up(dut)?;
        let exchange = || cpu::away_from(self.attacker_cpu, || latency::tcp(victim, server, self.duration));
        let quiet = exchange()?;
        let before = client.map(Reading::settled).transpose()?;
        let flood = Flood::start(self.lab, attacker, target, self.attacker_cpu)?;
        let flooded = exchange();
        let ping =
            Ping::new(server.v4()).count(self.pings).every(PING_PAUSE).within(5 * PING_PAUSE * self.pings);
        let pings = cpu::away_from(self.attacker_cpu, || ping.from(victim))?;
        let flood = flood.finish()?;
        let moved = before.zip(client).map(|(before, client)| moved_since(&before, client)).transpose()?;
        let ledger = moved.map(|moved| Ledger::of(&moved, attacker.name(), target.name(), &flood));
        Ok(Seen { quiet, flooded, pings, flood, ledger })
    }

    fn set_up(&self, dut: &mut dyn Dut) -> Result<()> {
        dut.add_ports(&dut::ports_of(self.hosts))?;
        dut::set_up_hosts(dut, self.hosts)?;
        self.hosts.chunks(2).try_for_each(|pair| dut::wait_until_it_carries(&pair[0], &pair[1]))
    }
}

/// What moved, once the switch has worked off what it still holds.
fn moved_since(before: &Reading, client: &Client) -> Result<Moved> {
    let settled = || Reading::settled(client).ok();
    Ok(wait::until_some("the counters after the flood", REST_LIMIT, settled)?.since(before))
}
