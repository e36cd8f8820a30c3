//! A daemon with thousands of ports and a full forwarding table hands over to the next: how long `port list` waits.
//!
//! One client asks for the list of ports all the time. A request that finds no daemon is tried again until there is an
//! answer, as an operator's script would. So a wait has everything in it: the old daemon's last writes, the time without
//! a daemon, and what the new one does before and after it answers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use forebay_control::port::PortState;
use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{Api, Forebay, ForebayOptions};
use forebay_testbed::lab::Lab;
use forebay_testbed::netns::Netns;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::{LabError, Result, wait};
use nix::sys::signal::Signal;
use serde::de::IgnoredAny;

use super::{Cell, OutputOptions, Report, Table};

/// Between two requests, and between two attempts at one.
const PAUSE: Duration = Duration::from_millis(2);
/// How long the list is asked for when the next daemon has begun to answer: it saves and sweeps then.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// A daemon with thousands of ports needs so long to be ready, at most.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// The kernel needs so long to clear away a daemon with thousands of ports, at most.
const GONE_LIMIT: Duration = Duration::from_secs(120);
/// Dropped by every switch, but its sender is learned.
const NOBODY: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
/// The lab sends frames of this many stations, then asks the daemon whether it knows them.
const STATIONS_A_ROUND: u32 = 4096;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Ports, each with stations behind it
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub ports: u32,
    /// Stations in the forwarding table
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub stations: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when ports or stations are lost.
///
/// # Errors
/// When the lab can't be made, or a daemon does not come back.
pub fn run(options: &Options) -> Result<bool> {
    let title = format!("Takeover with {} ports and {} stations", options.ports, options.stations);
    let about = "One client lists the ports without a break while the daemon is replaced. A wait is the time from the \
                 first attempt to the answer, whether a daemon was there or not.";
    let mut report = Report::begin("takeover", title, about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let columns = [
        "what",
        "lists",
        "longest wait, ms",
        "longest answer, ms",
        "next daemon ready after, ms",
        "the old one gone after, ms",
        "stations before",
        "after",
    ];
    let mut table = Table::new("What a client waited", columns);
    let mut scene = Scene::new(options)?;
    let rounds = [
        ("the daemon stays", Change::None),
        ("another takes over", Change::TakeOver),
        ("killed, another takes over", Change::Kill),
    ];
    for (what, how) in rounds {
        eprintln!("{what}");
        let seen = scene.play(how)?;
        eprintln!("  longest wait {:?}, longest answer {:?}", seen.waits.longest, seen.waits.longest_answer);
        // A station may be heard again in between, but none is forgotten.
        if seen.stations[1] < seen.stations[0] || seen.ports != options.ports as usize {
            report.broken(format!("{what}: {} ports are up, stations {:?}", seen.ports, seen.stations));
        }
        table.row(seen.row(what));
    }
    // One that is killed leaves its programs to the kernel, which then needs seconds to clear away the hosts.
    scene.daemon.stop()?;
    report.table(table);
    Ok(())
}

/// What happens to the daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    TakeOver,
    Kill,
}

struct Scene {
    // In this order: the daemon before what it has pinned, and before the hosts, with which the ports' netdevs go.
    daemon: Forebay,
    lab: Lab,
    options: ForebayOptions,
    hosts: Netns,
    _pins: BpfFs,
}

/// What a client noticed.
struct Seen {
    waits: Waits,
    replaced: Option<Replaced>,
    ports: usize,
    stations: [usize; 2],
}

/// After what times the next daemon had taken everything over, and the old process had ended.
struct Replaced {
    ready: Duration,
    gone: Duration,
}

/// How long requests took.
#[derive(Debug, Default)]
struct Waits {
    answered: u64,
    /// From the first attempt to the answer.
    longest: Duration,
    /// Of the attempt that was answered.
    longest_answer: Duration,
}

impl Scene {
    fn new(options: &Options) -> Result<Scene> {
        let lab = Lab::new("takeover")?;
        let pins = BpfFs::mount(&lab)?;
        eprintln!("making {} hosts", options.ports);
        let hosts = lab.bulk_veths(options.ports as usize)?;
        let (ports, stations) = (options.ports, options.stations);
        // A port never has more entries than are free, so a table that is nearly full takes no further station.
        let mut config =
            format!("[switch]\nmax_ports = {}\n[fdb]\nmax_entries = {}\n", ports + 1, stations * 2);
        config.extend((1..=ports).map(|n| format!("[[port]]\nnetdev = \"p{n}\"\nattach = \"tcx\"\n")));
        let options = ForebayOptions::with_config(config).offloaded().handing_over(&pins);
        let daemon = Forebay::launch(&lab, options.clone())?;
        let scene = Scene { daemon, lab, options, hosts, _pins: pins };
        wait::until("the daemon to be ready", READY_LIMIT, || scene.daemon.log().contains(READY))?;
        eprintln!("making {stations} stations known");
        learn(&scene.daemon.client().api(), &scene.hosts, ports, stations)?;
        Ok(scene)
    }

    fn play(&mut self, how: Change) -> Result<Seen> {
        let api = self.daemon.client().api();
        let before = stations(&api)?;
        let is_over = AtomicBool::new(false);
        let (waits, replaced) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&api, &is_over));
            let replaced = self.replace(how);
            std::thread::sleep(AFTERWARDS);
            is_over.store(true, Relaxed);
            let waits = asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, LabError>((waits, replaced?))
        })?;
        let ports = self.daemon.client().ports()?;
        let ports = ports.iter().filter(|port| port.state == PortState::Up).count();
        Ok(Seen { waits, replaced, ports, stations: [before, stations(&api)?] })
    }

    fn replace(&mut self, how: Change) -> Result<Option<Replaced>> {
        if how == Change::None {
            return Ok(None);
        }
        let (started, before) = (Instant::now(), self.times_ready());
        if how == Change::Kill {
            self.daemon.daemon().signal(Signal::SIGKILL);
        }
        // At once: the kernel needs long to clear away what a killed daemon had.
        let next = Forebay::launch(&self.lab, self.options.clone())?;
        let mut old = std::mem::replace(&mut self.daemon, next);
        wait::until("the next daemon to be ready", READY_LIMIT, || self.times_ready() > before)
            .map_err(|error| LabError::output(error.to_string(), self.daemon.log()))?;
        let ready = started.elapsed();
        old.daemon().wait(GONE_LIMIT)?;
        Ok(Some(Replaced { ready, gone: started.elapsed() }))
    }

    fn times_ready(&self) -> usize {
        self.daemon.log().matches(READY).count()
    }
}

/// What a daemon logs when all its ports are there.
const READY: &str = "the daemon is ready";

/// Sends frames from stations behind all ports until all are in the table.
fn learn(api: &Api, hosts: &Netns, ports: u32, wanted: u32) -> Result<()> {
    let sockets: Vec<FrameSocket> =
        (1..=ports).map(|n| FrameSocket::open_on(hosts, &format!("q{n}"))).collect::<Result<_>>()?;
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&NOBODY);
    let speak = |frame: &mut [u8; 60], station: u32| {
        frame[6..8].copy_from_slice(&[2, 0xfb]);
        frame[8..12].copy_from_slice(&station.to_be_bytes());
        sockets[(station % ports) as usize].send(frame)
    };
    let mut first = 0;
    while first < wanted {
        let round = first..wanted.min(first + STATIONS_A_ROUND);
        let known = round.end as usize;
        // Frames may be lost where rings are full.
        wait::until("stations to be known", READY_LIMIT, || {
            let spoken = round.clone().try_for_each(|station| speak(&mut frame, station));
            spoken.is_ok() && stations(api).is_ok_and(|count| count >= known)
        })?;
        first = round.end;
    }
    Ok(())
}

fn stations(api: &Api) -> Result<usize> {
    Ok(api.get::<Vec<IgnoredAny>>("/v1/fdb")?.len())
}

fn ask(api: &Api, is_over: &AtomicBool) -> Waits {
    let mut waits = Waits::default();
    let mut asked = Instant::now();
    while !is_over.load(Relaxed) {
        let attempt = Instant::now();
        if api.get::<IgnoredAny>("/v1/ports").is_ok() {
            waits.longest_answer = waits.longest_answer.max(attempt.elapsed());
            waits.longest = waits.longest.max(asked.elapsed());
            waits.answered += 1;
            asked = Instant::now();
        }
        std::thread::sleep(PAUSE);
    }
    waits
}

impl Seen {
    fn row(&self, what: &str) -> [Cell; 8] {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let replaced = |time: fn(&Replaced) -> Duration| -> Cell {
            self.replaced.as_ref().map_or_else(|| "–".into(), |replaced| millis(time(replaced)).into())
        };
        [
            what.into(),
            self.waits.answered.into(),
            millis(self.waits.longest).into(),
            millis(self.waits.longest_answer).into(),
            replaced(|replaced| replaced.ready),
            replaced(|replaced| replaced.gone),
            (self.stations[0] as u64).into(),
            (self.stations[1] as u64).into(),
        ]
    }
}
