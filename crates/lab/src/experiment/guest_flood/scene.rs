//! The scene: three containers, a virtual machine, and the port of a guest that floods.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::dut::{self, Client, Dut, Forebay, ForebayOptions};
use forebay_testbed::host::PortKind;
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::measure::cpu;
use forebay_testbed::measure::flood;
use forebay_testbed::measure::latency::{self, Latency};
use forebay_testbed::programs::ping::{Ping, PingReport};
use forebay_testbed::{Host, Lab, LabError, Result, wait};

use super::attacker::{Attacker, Kind, Targets};
use super::{SENDER_CPU, WORKER_CPU};

const MACHINE: &str = "vm1";
const MACHINE_V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
const ATTACKER: &str = "vm2";
const ECHO_PORT: u16 = 5002;
const SERVING: &str = "serving";
/// Victim, whom it talks with, and whom the flood is for.
const HOSTS: usize = 3;
/// Between two pings.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the flood may take to begin, and the counters to come to rest after it.
const LIMIT: Duration = Duration::from_secs(20);

/// What one of those who are pinged noticed.
pub(super) struct Victim {
    pub(super) name: &'static str,
    pub(super) quiet_pings: PingReport,
    pub(super) pings: PingReport,
    /// Packets for it that the switch dropped while it was pinged under the flood, by reason.
    pub(super) drops: Vec<(&'static str, u64)>,
    pub(super) quiet: Latency,
    /// An error when there was no response at all.
    pub(super) flooded: Result<Latency>,
}

pub(super) struct Seen {
    pub(super) victims: [Victim; 2],
    pub(super) offered_mpps: f64,
    pub(super) taken_mpps: f64,
    pub(super) is_balanced: bool,
}

pub(super) struct Scene {
    // In this order: machine, daemon and hosts before the lab they are in.
    _machine: Machine,
    forebay: Forebay,
    hosts: Vec<Host>,
    lab: Lab,
}

impl Scene {
    pub(super) fn new() -> Result<Scene> {
        let mut lab = Lab::new("guest-flood")?;
        let hosts = lab.hosts(HOSTS, PortKind::VethTcx)?;
        let mut forebay = Forebay::start(&lab, ForebayOptions::default().pinned_to(WORKER_CPU))?;
        forebay.add_ports(&dut::ports_of(&hosts))?;
        for port in [MACHINE, ATTACKER] {
            forebay.add_guest(port, &lab.path(port))?;
        }
        let script = format!("echo {SERVING}; busybox nc -ll -p {ECHO_PORT} -e cat");
        let socket = lab.path(MACHINE);
        let options = MachineOptions::new(MACHINE, &socket, MACHINE_V4, &script);
        let mut machine = cpu::away_from(SENDER_CPU, || Machine::boot(&lab, &options))?;
        machine.wait_for_output(SERVING)?;
        // It shares a processor with a busy worker and with programs that spin between two pings. There it would wait for
        // its turn for up to seconds, and pings alone would fill its ring.
        machine.run_before_others()?;
        Ok(Scene { _machine: machine, forebay, hosts, lab })
    }

    /// Measures without the flood, and with it.
    pub(super) fn play(&self, kind: Kind, pings: u32, duration: Duration) -> Result<Seen> {
        let [victim, server, target] = &self.hosts[..] else {
            panic!("the scene has {HOSTS} hosts, not {}", self.hosts.len())
        };
        let client = self.forebay.client();
        let container = || cpu::away_from(SENDER_CPU, || latency::tcp(victim, server, duration));
        let echo = SocketAddr::new(MACHINE_V4.into(), ECHO_PORT);
        let machine = || cpu::away_from(SENDER_CPU, || latency::tcp_to(victim, echo, duration));
        flood::teach(target)?;
        wait::until_some("the machine to answer", LIMIT, || latency::tcp_to(victim, echo, PAUSE).ok())?;
        let quiet = [container()?, machine()?];
        let pinged = || cpu::away_from(SENDER_CPU, || both_pinged(victim, server, pings));
        let quiet_pings = pinged()?;

        let targets = Targets { container: target.mac(), machine: station_at(client, MACHINE)? };
        let attacker = Attacker::start(kind, &self.lab, &self.lab.path(ATTACKER), targets)?;
        let taken = || client.port(ATTACKER).map(|port| port.counters.rx_packets);
        wait::until("the flood", LIMIT, || taken().is_ok_and(|packets| packets > 0))?;
        let (before, began) = (taken()?, Instant::now());
        let flooded = [container(), machine()];
        let counters = reading(client)?;
        let pings = pinged()?;
        let moved = reading(client)?.since(&counters);
        let taken_mpps = (taken()? - before) as f64 / began.elapsed().as_secs_f64() / 1e6;
        let offered_mpps = attacker.finish()?.mpps();

        let is_balanced = || client.stats_check().is_ok_and(|check| check.balanced);
        let is_balanced = wait::until("the counters to balance", LIMIT, is_balanced).is_ok();
        let victim = |index: usize, name, port: &str, flooded| Victim {
            name,
            quiet_pings: quiet_pings[index],
            pings: pings[index],
            drops: drops_at(&moved, port),
            quiet: quiet[index],
            flooded,
        };
        let [first, second] = flooded;
        let victims = [victim(0, "container", server.name(), first), victim(1, "machine", MACHINE, second)];
        Ok(Seen { victims, offered_mpps, taken_mpps, is_balanced })
    }
}

/// The address of the one station at a port.
fn station_at(client: &Client, port: &str) -> Result<[u8; 6]> {
    let entries = client.fdb()?;
    let found = entries.iter().find(|entry| entry.port == port).map(|entry| entry.mac.0);
    found.ok_or_else(|| LabError::output("the forwarding table", format!("{entries:?}")))
}

/// The counters while packets are under way.
fn reading(client: &Client) -> Result<Reading> {
    Ok(Reading::of(&client.stats()?))
}

fn drops_at(moved: &Moved, port: &str) -> Vec<(&'static str, u64)> {
    let drops = moved.drops().into_iter().filter(|(at, _, _)| *at == port);
    drops.map(|(_, reason, packets)| (reason, packets)).collect()
}

/// Pings the container and the machine at the same time.
fn both_pinged(from: &Host, server: &Host, count: u32) -> Result<[PingReport; 2]> {
    let ping =
        |target: Ipv4Addr| Ping::new(target).count(count).every(PAUSE).within(5 * PAUSE * count).from(from);
    std::thread::scope(|scope| {
        let machine = scope.spawn(|| ping(MACHINE_V4));
        let container = ping(server.v4());
        let machine = machine.join().map_err(|_| LabError::output("pinging the machine", "it panicked"))?;
        Ok([container?, machine?])
    })
}
