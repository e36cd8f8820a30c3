//! Machines are killed.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use forebay_control::port::PortState;
use forebay_testbed::command::Background;
use forebay_testbed::dut::{self, Client, Dut, Forebay, ForebayOptions};
use forebay_testbed::host::PortKind;
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::measure::held::Held;
use forebay_testbed::measure::memory;
use forebay_testbed::programs::ping::{Ping, PingReport};
use forebay_testbed::{Host, Lab, Result, wait};

use super::pings::{lost_none, ping_cells};
use super::{Report, Table};

/// The machine that is killed, and the one that is not.
const KILLED: &str = "vm1";
const KILLED_V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
const SPARED: &str = "vm2";
const SPARED_V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 2);
const ECHO_PORT: u16 = 5002;
/// Kills before it is first read what the daemon holds: some of it is made once.
const FIRST_KILLS: u32 = 4;
/// Packets that a machine has sent, and as many that it got, before it is killed.
const PACKETS: u64 = 1000;
const PAUSE: Duration = Duration::from_millis(5);
const LIMIT: Duration = Duration::from_secs(30);
/// Growth of the daemon's memory, during the second half of the kills, that is no leak. In the first half it grows by what
/// is used for the first time: frames of the pool, stacks, what allocators keep.
const SLACK_BYTES: u64 = 1 << 20;

/// What the daemon has when nothing is under way.
#[derive(Debug, Clone, Copy)]
struct Rest {
    held: Held,
    bytes: u64,
    frames: u64,
}

struct Scene {
    // In this order: machine, daemon and programs before the lab they are in.
    spared: Machine,
    forebay: Forebay,
    _echo: Background,
    hosts: Vec<Host>,
    lab: Lab,
}

pub(super) fn measure(kills: u32, report: &mut Report) -> Result<()> {
    let scene = Scene::new()?;
    (0..FIRST_KILLS).try_for_each(|number| scene.kill_one(number))?;
    let before = scene.rest()?;
    let began = Instant::now();
    let mut bytes_at_half = before.bytes;
    let (pings, pings_to_spared) = scene.pinged(|| {
        (0..kills).try_for_each(|number| {
            eprintln!("machine {} of {kills}", number + 1);
            if number == kills / 2 {
                bytes_at_half = memory::own(scene.pid());
            }
            scene.kill_one(number)
        })
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let held = before.held.wait_until_again_by(scene.pid(), LIMIT);
    let after = scene.rest()?;
    let grown = after.bytes.saturating_sub(bytes_at_half);

    let mut table = Table::new("Pings beside", ["from, to", "sent", "lost", "in a row"]);
    for (name, (pings, outage)) in
        [("container, container", pings), ("container, machine that is not killed", pings_to_spared)]
    {
        let [sent, lost, row] = ping_cells(&pings, outage);
        table.row([name.into(), sent, lost, row]);
        if !lost_none(&pings) {
            report.broken(format!("{name}: {pings:?}"));
        }
    }
    report.table(table);
    let columns = [
        "machines killed",
        "seconds",
        "files",
        "threads",
        "mapped files",
        "frames in use",
        "MB, also at half",
    ];
    let mut table = Table::new("What the daemon holds, before and after", columns);
    let megabytes =
        [before.bytes, bytes_at_half, after.bytes].map(|bytes| format!("{:.2}", bytes as f64 / 1e6));
    let both = |before: u64, after: u64| format!("{before}, {after}");
    let size = |value: usize| value as u64;
    table.row([
        u64::from(kills).into(),
        seconds.into(),
        both(size(before.held.files), size(after.held.files)).as_str().into(),
        both(size(before.held.threads), size(after.held.threads)).as_str().into(),
        both(size(before.held.mappings), size(after.held.mappings)).as_str().into(),
        both(before.frames, after.frames).as_str().into(),
        megabytes.join(", ").as_str().into(),
    ]);
    report.table(table);
    if let Err(error) = held {
        report.broken(error.to_string());
    }
    if after.frames > before.frames {
        report.broken(format!("{} frames are in use, {} before", after.frames, before.frames));
    }
    if grown > SLACK_BYTES {
        report.broken(format!("the daemon's memory has grown by {grown} bytes in the second half"));
    }
    scene.judge(report)
}

impl Scene {
    fn new() -> Result<Scene> {
        let mut lab = Lab::new("guest-kills")?;
        let hosts = lab.hosts(3, PortKind::VethTcx)?;
        let mut forebay = Forebay::start(&lab, ForebayOptions::default().offloaded())?;
        forebay.add_ports(&dut::ports_of(&hosts))?;
        for port in [KILLED, SPARED] {
            forebay.add_guest(port, &lab.path(port))?;
        }
        let mut echo = hosts[2].netns().command("busybox");
        echo.args(["nc", "-ll", "-p", &ECHO_PORT.to_string(), "-e", "cat"]);
        let echo = Background::start(echo, &lab.path("echo.log"))?;
        let spared = boot(&lab, SPARED, SPARED_V4, "while true; do sleep 60; done")?;
        dut::wait_until_it_carries(&hosts[0], &hosts[1])?;
        Ok(Scene { spared, forebay, _echo: echo, hosts, lab })
    }

    fn client(&self) -> &Client {
        self.forebay.client()
    }

    fn pid(&self) -> u32 {
        self.forebay.pids()[0]
    }

    /// Boots a machine and kills it when packets go both ways.
    fn kill_one(&self, number: u32) -> Result<()> {
        let host = self.hosts[2].v4();
        let traffic = match number.is_multiple_of(2) {
            true => format!("ping -f -s 1000 {host} >/dev/null"),
            false => format!("busybox nc {host} {ECHO_PORT} </dev/zero >/dev/null"),
        };
        let counters = || self.client().port(KILLED).map(|port| port.counters);
        let before = counters()?;
        let machine = boot(&self.lab, KILLED, KILLED_V4, &traffic)?;
        let passes = || {
            counters().is_ok_and(|now| {
                let more = |now: u64, before: u64| now.saturating_sub(before) > PACKETS;
                more(now.rx_packets, before.rx_packets) && more(now.tx_packets, before.tx_packets)
            })
        };
        wait::until("the machine's packets", LIMIT, passes)?;
        machine.kill();
        self.client().wait_port_state(KILLED, PortState::Waiting)
    }

    /// Has a container ping another, and the machine that is not killed, while this is done.
    fn pinged(&self, work: impl FnOnce() -> Result<()>) -> Result<((PingReport, u32), (PingReport, u32))> {
        let [from, to, _] = &self.hosts[..] else { panic!("the scene has three hosts") };
        let logs = ["ping.log", "ping-machine.log"].map(|name| self.lab.path(name));
        let ((_, spared, spared_outage), pings, outage) =
            Ping::new(to.v4())
                .every(PAUSE)
                .during(from, &logs[0], || Ping::new(SPARED_V4).every(PAUSE).during(from, &logs[1], work))?;
        Ok(((pings, outage), (spared, spared_outage)))
    }

    /// Waits until the number of frames in use stands still, and reads what there is.
    fn rest(&self) -> Result<Rest> {
        let (mut frames, mut still) = (u64::MAX, 0);
        wait::until("the pool to come to rest", LIMIT, || {
            let now = self.client().pool().map_or(frames, |pool| pool.frames_held);
            still = if now == frames { still + 1 } else { 0 };
            frames = now;
            still > 20
        })?;
        Ok(Rest { held: Held::by(self.pid()), bytes: memory::own(self.pid()), frames })
    }

    /// The counters balance, and ports are in the states that they should be in.
    fn judge(mut self, report: &mut Report) -> Result<()> {
        let check = || self.client().stats_check().is_ok_and(|check| check.balanced);
        if wait::until("the counters to balance", LIMIT, check).is_err() {
            report.broken("the counters do not balance");
        }
        for (port, wanted) in [(KILLED, PortState::Waiting), (SPARED, PortState::Up)] {
            let state = self.client().port(port)?.state;
            if state != wanted {
                report.broken(format!("{port} is {state:?} and not {wanted:?}"));
            }
        }
        if !self.spared.is_running() {
            report.broken("the machine that is not killed has ended");
        }
        Ok(())
    }
}

fn boot(lab: &Lab, name: &str, v4: Ipv4Addr, script: &str) -> Result<Machine> {
    Machine::boot(lab, &MachineOptions::new(name, &lab.path(name), v4, script))
}
