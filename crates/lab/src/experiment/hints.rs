//! Hints under load: ports with different layouts, one of which changes its layout many times a second, and each
//! packet's hash, as the switch read it, held against the packet.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_control::hints::{self, HintsSet};
use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::dut::{self, Client, Dut};
use forebay_testbed::host::{Host, PortKind};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::flood::{small_frame, teach};
use forebay_testbed::measure::paced;
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::measure::source::Source;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::programs::hints::{HintsProgram, PROGRAMS};
use forebay_testbed::programs::watch::{Seen, Watch};
use forebay_testbed::{LabError, Result, wait};

use super::{OutputOptions, Report, SENDER_CPU, Setup, Table};

/// Senders: two with a layout each, and one that changes between two more.
const SENDERS: usize = 3;
const CHANGING: usize = 2;
/// UDP source ports in turn, so that each packet's hash is not that of the one before.
const FLOWS: u32 = 1024;
/// Packets that must have been compared.
const PACKETS: u64 = 10_000_000;
/// Frames a second of each port where they are not to be more than the switch carries, and for how long.
const PACE: u32 = 20_000;
const PACED: Duration = Duration::from_secs(10);
const START_LIMIT: Duration = Duration::from_secs(10);
const ONE_LAYOUT: &str = "full speed, one layout a port";
const ONE_CHANGES: &str = "full speed, one port changes";
/// For captures to end by themselves.
const MARGIN: Duration = Duration::from_secs(1);

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seconds with one layout for each port, and again with one port that changes its layout
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Number of measurements of both, in turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub rounds: u32,
    /// Changes of layout a second
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub changes: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a hash was wrong, or too few were compared.
///
/// # Errors
/// When the lab can't be made or the switch refuses a program.
pub fn run(options: &Options) -> Result<bool> {
    let about = format!(
        "{SENDERS} XDP ports send 60-byte UDP at full speed. Each has a program of its own that writes hints in a layout \
         of its own; one of them is replaced {} times a second by one with another layout. `forebay capture` reads every \
         packet with its hints, and the hash is computed again from the packet.",
        options.changes
    );
    let mut report = Report::begin("hints", "Hints in layouts that differ and change", about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let mut lab = Lab::new("hints")?;
    let hosts = lab.hosts(SENDERS + 1, PortKind::VethXdp)?;
    let Some(mut forebay) = Setup::default().start(&lab, report)? else { return Ok(()) };
    forebay.add_ports(&dut::ports_of(&hosts))?;
    let request = |program: &HintsProgram<'_>| request(&program.compile(&lab)?);
    let programs = PROGRAMS.iter().map(request).collect::<Result<Vec<_>>>()?;
    let scene = Scene { client: forebay.client(), hosts: &hosts, programs: &programs };
    for (host, program) in hosts.iter().zip(&programs).take(SENDERS) {
        scene.load(host, program)?;
    }
    let duration = Duration::from_secs(options.seconds);
    let mut outcomes = Vec::new();
    let full = Load::Full(duration);
    let mut parts = Vec::new();
    for _ in 0..options.rounds {
        parts.extend([(ONE_LAYOUT, full, None), (ONE_CHANGES, full, Some(options.changes))]);
    }
    parts.push(("at a pace, one layout a port", Load::Paced(PACED), None));
    parts.push(("at a pace, one port changes", Load::Paced(PACED), Some(options.changes)));
    for (name, load, changes) in parts {
        eprintln!("{name}");
        outcomes.push((name, scene.play(load, changes)?));
    }
    fill(report, &outcomes);
    Ok(())
}

/// What sets a port's program, as the command line sends it.
fn request(object: &Path) -> Result<HintsSet> {
    let bytes = std::fs::read(object).map_err(|error| LabError::system("reading a program", error))?;
    let name = object.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let program = hints::HintsProgram { name, object: hints::Bytes(bytes) };
    Ok(HintsSet { enabled: None, program: Some(program) })
}

/// How much the senders send, and for how long.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// As much as they can: most of it is more than the switch carries.
    Full(Duration),
    /// [`PACE`].
    Paced(Duration),
}

impl Load {
    fn duration(self) -> Duration {
        match self {
            Load::Full(duration) | Load::Paced(duration) => duration,
        }
    }
}

struct Scene<'a> {
    client: &'a Client,
    hosts: &'a [Host],
    programs: &'a [HintsSet],
}

/// What one part showed.
struct Outcome {
    seen: Vec<Seen>,
    changes: u64,
    /// The switch's counters.
    moved: Moved,
    senders: Vec<String>,
    stale: u64,
}

impl Scene<'_> {
    fn load(&self, host: &Host, program: &HintsSet) -> Result<()> {
        self.client.api().change("PATCH", &format!("/v1/hints/ports/{}", host.name()), program)
    }

    fn play(&self, load: Load, changes: Option<u32>) -> Result<Outcome> {
        let (senders, target) = (&self.hosts[..SENDERS], &self.hosts[SENDERS]);
        let _sink = Sink::attach(target.netns(), "eth0")?;
        teach(target)?;
        let before = Reading::settled(self.client)?;
        let seconds = (load.duration() + 2 * MARGIN).as_secs();
        let watch = |(index, host): (usize, &Host)| {
            let seeds = if index == CHANGING { vec![3, 4] } else { vec![index as u32 + 1] };
            Watch::start(self.client, host.name(), seconds, seeds)
        };
        let watches = senders.iter().enumerate().map(watch).collect::<Result<Vec<_>>>()?;
        let begin = || watches.iter().all(Watch::has_begun);
        wait::until("the captures to begin", START_LIMIT, begin)?;
        let made = self.send(load, changes)?;
        let seen = watches.into_iter().map(Watch::finish).collect::<Result<Vec<_>>>()?;
        let moved = Reading::settled(self.client)?.since(&before);
        let shown: hints::HintsShow = self.client.json(&["hints", "show"])?;
        let senders = senders.iter().map(|host| host.name().to_owned()).collect();
        Ok(Outcome {
            seen,
            changes: made,
            moved,
            senders,
            stale: shown.stale_packets + shown.unknown_packets,
        })
    }

    /// Has every sender send; says how often a layout was changed meanwhile.
    fn send(&self, load: Load, changes: Option<u32>) -> Result<u64> {
        let (senders, target) = (&self.hosts[..SENDERS], &self.hosts[SENDERS]);
        match load {
            Load::Full(duration) => {
                let start = |host: &Host| {
                    let frame = small_frame(host, target);
                    Source::start(host.netns(), "eth0", frame, FLOWS, SENDER_CPU)
                };
                let sources = senders.iter().map(start).collect::<Result<Vec<_>>>()?;
                let made = self.change(duration, changes)?;
                sources.into_iter().try_for_each(|source| source.finish().map(drop))?;
                Ok(made)
            }
            Load::Paced(duration) => std::thread::scope(|scope| {
                let send = |host| scope.spawn(move || send_paced(host, target, duration));
                let threads: Vec<_> = senders.iter().map(send).collect();
                let made = self.change(duration, changes);
                for thread in threads {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                }
                made
            }),
        }
    }

    /// Waits, and meanwhile changes the layout of one port so many times a second.
    fn change(&self, duration: Duration, changes: Option<u32>) -> Result<u64> {
        let (began, mut made) = (Instant::now(), 0u64);
        let Some(changes) = changes else {
            std::thread::sleep(duration);
            return Ok(made);
        };
        while began.elapsed() < duration {
            let next = began + Duration::from_secs(1) * made as u32 / changes;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            self.load(&self.hosts[CHANGING], &self.programs[CHANGING + (made as usize + 1) % 2])?;
            made += 1;
        }
        Ok(made)
    }
}

fn send_paced(from: &Host, to: &Host, duration: Duration) -> Result<()> {
    paced::send(&FrameSocket::open(from)?, &small_frame(from, to), PACE, duration).map(drop)
}

impl Outcome {
    /// Of what `port`, or without one all senders, gave the switch, in percent.
    fn lost(&self, port: Option<&str>) -> f64 {
        let ports = self.senders.iter().filter(|sender| port.is_none_or(|port| port == *sender));
        let (received, forwarded) = ports.fold((0, 0), |(received, forwarded), port| {
            let get = |counter| self.moved.get(port, counter);
            (received + get("rx_packets"), forwarded + get("forwarded_packets"))
        });
        100.0 * received.saturating_sub(forwarded) as f64 / received.max(1) as f64
    }
}

fn fill(report: &mut Report, parts: &[(&str, Outcome)]) {
    let columns = [
        "part",
        "port",
        "received",
        "compared",
        "wrong",
        "of no layout of its",
        "without hints",
        "missed by the capture",
        "lost, %",
    ];
    let mut table = Table::new("Hashes as the switch read them, beside the packets", columns);
    let mut all = 0;
    for (part, outcome) in parts {
        for (port, seen) in outcome.senders.iter().zip(&outcome.seen) {
            let received = outcome.moved.get(port, "rx_packets");
            table.row([
                (*part).into(),
                port.as_str().into(),
                received.into(),
                seen.compared.into(),
                seen.wrong.into(),
                seen.foreign.into(),
                seen.bare.into(),
                seen.missed.into(),
                outcome.lost(Some(port)).into(),
            ]);
        }
        let sum = |count: fn(&Seen) -> u64| outcome.seen.iter().map(count).sum::<u64>();
        let (compared, wrong) =
            (sum(|seen| seen.compared), sum(|seen| seen.wrong + seen.foreign + seen.bare));
        report.note(format!(
            "{part}: {compared} hashes compared, {} changes of layout, {} packets of stale or unknown layouts.",
            outcome.changes, outcome.stale
        ));
        if wrong > 0 || outcome.stale > 0 {
            report.broken(format!(
                "{part}: {wrong} packets had a wrong hash or none, {} no layout",
                outcome.stale
            ));
        }
        all += compared;
    }
    if all < PACKETS {
        report.note(format!("Fewer than {PACKETS} were compared; give more --seconds."));
    }
    for part in [ONE_LAYOUT, ONE_CHANGES] {
        let outcomes = parts.iter().filter(|(name, _)| *name == part);
        let lost: Vec<String> = outcomes.map(|(_, outcome)| format!("{:.2}", outcome.lost(None))).collect();
        report.note(format!("{part}: lost of all ports' packets, %, round by round: {}.", lost.join(", ")));
    }
    report.note(
        "At full speed most packets are more than the switch carries; how many it carries says what a change costs. At a \
         pace there is room for all, so that a change would show what it loses by itself.",
    );
    report.table(table);
}
