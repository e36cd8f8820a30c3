//! A machine with an unmodified Linux.
//!
//! ```text
//!   container ── the switch ── virtual machine (Linux 6.1 in user mode, its own virtio_net)
//! ```
//!
//! The machine is booted once a round; policies are set in turn while it runs, so that all have the same machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use forebay_testbed::dut::{Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::host::{Host, PortKind};
use forebay_testbed::lab::Lab;
use forebay_testbed::machine::{Machine, MachineOptions};
use forebay_testbed::measure::cpu::{self, process_time};
use forebay_testbed::measure::latency::{self, Latency};
use forebay_testbed::programs::iperf::{Iperf, IperfReport};
use forebay_testbed::{LabError, Result};

use super::figures::{Figures, interrupts, rates};
use super::turns::{Column, Plan};
use super::ways::Way;
use crate::experiment::WORKER_CPU;

const NAME: &str = "vm1";
const V4: Ipv4Addr = Ipv4Addr::new(10, 66, 200, 1);
const ECHO_PORT: u16 = 5002;
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(V4), ECHO_PORT);
/// Time for a turn's first exchanges, which do not count.
const BEFORE_A_TURN: Duration = Duration::from_millis(400);
const SERVING: &str = "Server listening";
/// Sends each datagram back.
const ECHO_DATAGRAMS: &str = "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Proto => \"udp\", LocalPort => 5002); \
                              while (defined($p = $s->recv($d, 2048))) { $s->send($d, 0, $p) }'";

/// What the machine is not offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mask {
    /// It is offered everything
    None,
    /// No event suppression
    EventIdx,
    /// No joined segments
    GuestTso,
}

impl Mask {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mask::None => "with event suppression and joined segments",
            Mask::EventIdx => "without event suppression",
            Mask::GuestTso => "without joined segments",
        }
    }

    fn features(self) -> &'static str {
        match self {
            Mask::None => "",
            Mask::EventIdx => "-event-idx",
            Mask::GuestTso => "-guest-tso",
        }
    }
}

/// Congestion control of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Congestion {
    /// Linux's default: sends what the windows allow
    Cubic,
    /// Sends at the rate that it measures
    Bbr,
}

impl Congestion {
    fn name(self) -> &'static str {
        match self {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        }
    }
}

/// A machine, and what is measured with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) mask: Mask,
    pub(super) memory_mb: u32,
    pub(super) congestion: Congestion,
    /// Of each measurement.
    pub(super) duration: Duration,
    pub(super) streams_only: bool,
}

impl Case {
    pub(super) fn title(&self) -> String {
        format!("Linux with {} MB, {}, {}", self.memory_mb, self.mask.name(), self.congestion.name())
    }
}

/// One machine, and all policies in turn.
pub(super) fn round(case: &Case, ways: &[Way]) -> Result<Vec<Figures>> {
    let scene = Scene::new(case)?;
    // The first stream into a machine is faster than later ones.
    scene.stream(0)?;
    let of = |way: &Way| {
        eprintln!("  {}", way.name());
        way.set(scene.client(), NAME)?;
        scene.measure()
    };
    ways.iter().map(of).collect()
}

/// Exchanges by TCP and UDP, by themselves and beside a stream, with policies in turns.
pub(super) fn in_turns(case: &Case, plan: &Plan) -> Result<Vec<Column>> {
    let scene = Scene::new(case)?;
    scene.stream(1)?;
    let (tcp, udp) = (|| scene.tcp(plan.turn), || scene.udp(plan.turn));
    let kinds: [(_, bool, &dyn Fn() -> Result<Latency>); 4] = [
        ("TCP alone", false, &tcp),
        ("TCP beside a stream", true, &tcp),
        ("UDP alone", false, &udp),
        ("UDP beside a stream", true, &udp),
    ];
    let mut columns = Vec::new();
    for (name, is_beside, exchange) in kinds {
        eprintln!("{name}");
        let turn = |way: &Way| {
            way.set(scene.client(), NAME)?;
            exchange()
        };
        let cycles = plan.follow(|ways| {
            let turns = || ways.iter().map(turn).collect::<Result<Vec<_>>>();
            if !is_beside {
                return turns();
            }
            // Setting a policy and exchanges before those that count take time, too.
            let longer = (plan.turn + BEFORE_A_TURN) * ways.len() as u32;
            scene.beside_stream(longer.as_secs() as u32 + 1, turns)
        })?;
        columns.extend(Column::of_exchanges(name, &cycles));
    }
    Ok(columns)
}

struct Scene {
    case: Case,
    // In this order: the machine before its switch, both before the lab they are in.
    machine: Machine,
    forebay: Forebay,
    host: Host,
    _lab: Lab,
}

impl Scene {
    fn new(case: &Case) -> Result<Scene> {
        let mut lab = Lab::new("moderation")?;
        let host = lab.host("h1", PortKind::VethTcx)?;
        let forebay = Forebay::start(&lab, ForebayOptions::default().pinned_to(WORKER_CPU))?;
        let client = forebay.client();
        client.ok(&["port", "add", host.name()])?;
        let socket = lab.path("vm1.sock");
        let (path, features) = (socket.display().to_string(), format!("--features={}", case.mask.features()));
        client.ok(&["port", "add", NAME, "--vhost-user", &path, &features])?;
        let script =
            format!("busybox nc -ll -p {ECHO_PORT} -e cat & ({ECHO_DATAGRAMS}) & iperf3 -s --forceflush");
        let options =
            MachineOptions { memory_mb: case.memory_mb, ..MachineOptions::new(NAME, &socket, V4, &script) };
        // Its kernel and its programs are processes that would else be on two processors, or with the worker, by chance.
        let mut machine = cpu::away_from(WORKER_CPU, || Machine::boot(&lab, &options))?;
        machine.wait_for_output(SERVING)?;
        Ok(Scene { case: *case, machine, forebay, host, _lab: lab })
    }

    fn measure(&self) -> Result<Figures> {
        self.forget()?;
        let (before, time, began) = (interrupts(self.client(), NAME)?, self.times(), Instant::now());
        let stream = self.stream(0)?;
        let (seconds, after) = (began.elapsed().as_secs_f64(), self.times());
        let interrupts = rates(before, interrupts(self.client(), NAME)?, seconds);
        let share = |which: usize| (after[which].saturating_sub(time[which])).as_secs_f64() / seconds;
        let exchanges = if self.case.streams_only { Vec::new() } else { self.exchanges()? };
        Ok(Figures {
            gigabits: stream.received_bits_per_second / 1e9,
            interrupts,
            guest: share(0),
            switch: share(1),
            exchanges,
        })
    }

    /// A stream to the machine, for so many seconds more than a measurement takes.
    fn stream(&self, more: u32) -> Result<IperfReport> {
        let seconds = self.case.duration.as_secs() as u32 + more;
        Iperf::seconds(seconds).congestion(self.case.congestion.name()).to(&self.host, V4.into())
    }

    fn exchanges(&self) -> Result<Vec<Latency>> {
        let duration = self.case.duration;
        let (tcp, udp) = (|| self.tcp(duration), || self.udp(duration));
        Ok(vec![tcp()?, self.beside_stream(1, tcp)?, udp()?, self.beside_stream(1, udp)?])
    }

    fn tcp(&self, duration: Duration) -> Result<Latency> {
        latency::tcp_to(&self.host, SERVER, duration)
    }

    fn udp(&self, duration: Duration) -> Result<Latency> {
        latency::udp_to(&self.host, SERVER, duration)
    }

    /// Measures beside a stream, which lasts `more` seconds longer than one measurement. If it ends before, the same is measured
    /// again beside a longer one.
    fn beside_stream<T>(&self, more: u32, measure: impl Fn() -> Result<T>) -> Result<T> {
        for more in [more, 2 * more, 4 * more] {
            if let Some(measured) = self.beside_one_stream(more, &measure)? {
                return Ok(measured);
            }
            eprintln!("  once more: the stream ended before what was measured beside it");
        }
        Err(LabError::output("iperf3", "three streams ended before what was measured beside them"))
    }

    /// `None` if the stream ended before.
    fn beside_one_stream<T>(&self, more: u32, measure: impl Fn() -> Result<T>) -> Result<Option<T>> {
        self.forget()?;
        std::thread::scope(|scope| {
            let stream = scope.spawn(|| self.stream(more));
            let measured = measure();
            let has_ended = stream.is_finished();
            stream.join().expect("a stream does not panic")?;
            Ok((!has_ended).then_some(measured?))
        })
    }

    /// Has the sender's kernel forget how earlier connections went: it begins later ones with smaller windows.
    fn forget(&self) -> Result<()> {
        self.host.netns().run("ip", &["tcp_metrics", "flush"]).map(drop)
    }

    fn client(&self) -> &Client {
        self.forebay.client()
    }

    /// Of the machine and the switch.
    fn times(&self) -> [Duration; 2] {
        let sum = |pids: &[u32]| pids.iter().map(|pid| process_time(*pid)).sum();
        [sum(&self.machine.pids()), sum(&self.forebay.pids())]
    }
}
