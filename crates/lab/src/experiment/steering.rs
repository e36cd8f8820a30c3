//! What it is worth that packets of an uplink go to the worker that serves the port where they leave.
//!
//! ```text
//!   far ═ one member of a group, two queues ══► c1 … c4, whose ports are worker 0's and worker 1's in turn
//! ```

use std::time::{Duration, Instant};

use forebay_control::port::PortState;
use forebay_control::rss::RssShow;
use forebay_testbed::dut::{self, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::frame::{BROADCAST, Frame};
use forebay_testbed::host::{Host, PortKind};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::latency;
use forebay_testbed::measure::sink::Sink;
use forebay_testbed::measure::source::{FIRST_RECEIVER, FIRST_SENDER, Source};
use forebay_testbed::measure::spread::Spread;
use forebay_testbed::sys::packet_socket::PacketSocket;
use forebay_testbed::{LabError, Result, wait};

use super::{OutputOptions, Report, SENDER_CPU, Table, numbered};

const CONTAINERS: usize = 4;
/// Stations, by turns behind the containers: many more than workers, so that hashes spread them.
const STATIONS: u16 = 64;
const GROUP: &str = "uplink";
const LEARN_LIMIT: Duration = Duration::from_secs(10);
/// Worker 0 is not where the frames are made.
const CONFIG: &str = "[switch]\nworkers = 2\ncpus = [1, 0]\n[fdb]\nageing_seconds = 100000\n\
                      [flood]\ncopies_per_second = 0\n";

/// How packets go to workers: what it is called, and how it is set.
const WAYS: [(&str, &[&str]); 3] = [
    ("all to one worker", &["--steering", "hash", "--equal", "1"]),
    ("by a hash of addresses", &["--steering", "hash", "--equal", "0"]),
    ("to the worker of their output", &["--steering", "output", "--equal", "0"]),
];

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Number of rounds; each measures every way once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Of one way, by round.
#[derive(Default)]
struct Measured {
    /// Millions of frames that arrive a second.
    rate: Vec<f64>,
    /// Packets a second that had another worker than that of their output, and their share.
    away: Vec<f64>,
    share: Vec<f64>,
    /// Request and response over TCP, in microseconds.
    p50: Vec<f64>,
    p99: Vec<f64>,
}

/// Measures and reports.
///
/// # Errors
/// When the lab can't be made or the switch does not take its configuration.
pub fn run(options: &Options) -> Result<bool> {
    let about = "An uplink sends to 64 stations behind four containers, two of each of two workers, and every packet \
                 goes through user space. Frames of 60 bytes come from a source in the kernel on processor 0, which \
                 worker 1 shares; request and response go between the uplink's host and each container in turn.";
    let mut report = Report::begin("steering", "Packets to the worker of their output", about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

struct Scene {
    // In this order: the switch and hosts before the lab they are in.
    forebay: Forebay,
    containers: Vec<Host>,
    far: Host,
    _lab: Lab,
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let scene = Scene::set()?;
    let duration = Duration::from_secs(options.seconds.into());
    let mut measured: [Measured; WAYS.len()] = Default::default();
    for round in 1..=options.rounds {
        for ((name, way), measured) in WAYS.iter().zip(&mut measured) {
            eprintln!("round {round}: {name}");
            scene.client(&[&["rss", "set", GROUP], *way].concat())?;
            scene.times(duration, measured)?;
            scene.rate(duration, measured)?;
        }
    }
    let check = scene.forebay.client().stats_check()?;
    if !check.balanced {
        report.broken("not every packet was counted once");
    }
    report.table(table(&measured));
    Ok(())
}

fn table(measured: &[Measured]) -> Table {
    let columns = ["packets go", "Mpps", "away, packets a second", "away, %", "p50, µs", "p99, µs"];
    let mut table =
        Table::new("60-byte frames, and request and response over TCP: median (least–most)", columns);
    for ((name, _), measured) in WAYS.iter().zip(measured) {
        let Measured { rate, away, share, p50, p99 } = measured;
        let cell = |numbers: &Vec<f64>| {
            Spread::of(numbers.iter().copied()).map_or_else(String::new, Spread::text).into()
        };
        table.row([(*name).into(), cell(rate), cell(away), cell(share), cell(p50), cell(p99)]);
    }
    table
}

impl Scene {
    fn set() -> Result<Scene> {
        let mut lab = Lab::new("steering")?;
        let far = lab.host("far", PortKind::VethTcx)?;
        let mut containers = Vec::new();
        for number in 1..=CONTAINERS {
            containers.push(lab.host(&format!("c{number}"), PortKind::VethTcx)?);
        }
        // What the source sends are frames of an XDP program, which a veth takes with GRO alone.
        lab.switch().ethtool("far", &["gro", "on"])?;
        lab.switch().run("ethtool", &["-L", "far", "rx", "2", "tx", "2"])?;
        far.netns().run("ethtool", &["-L", "eth0", "rx", "2", "tx", "2"])?;
        let mut forebay = Forebay::start(&lab, ForebayOptions::with_config(CONFIG))?;
        for container in &containers {
            forebay.add_ports(&[dut::port_of(container)])?;
        }
        // The second member is for a name alone: a group has at least two.
        let scene = Scene { forebay, containers, far, _lab: lab };
        scene.client(&["port", "add", GROUP, "--group", "far,spare", "--members", "any", "--wait"])?;
        scene.forebay.client().wait_port_state(GROUP, PortState::Up)?;
        scene.client(&["eswitch", "set", "offload", "off"])?;
        scene.teach()?;
        Ok(scene)
    }

    fn client(&self, words: &[&str]) -> Result<()> {
        self.forebay.client().ok(words).map(drop)
    }

    /// The switch hears of every station at its container.
    fn teach(&self) -> Result<()> {
        let sockets = self.containers.iter().map(socket_of).collect::<Result<Vec<_>>>()?;
        let known = || self.forebay.client().fdb().map_or(0, |stations| stations.len());
        wait::until("all stations to be known", LEARN_LIMIT, || {
            for number in 0..STATIONS {
                let mac = numbered::mac_of(FIRST_RECEIVER + number);
                // What is lost is sent again at the next look.
                let _ =
                    sockets[usize::from(number) % CONTAINERS].send(&Frame::marked(mac, BROADCAST, 1).build());
            }
            known() >= usize::from(STATIONS)
        })
    }

    fn counted(&self) -> Result<RssShow> {
        let mut shown: Vec<RssShow> = self.forebay.client().json(&["rss", "show", GROUP])?;
        shown.pop().ok_or_else(|| LabError::output("rss show", "no port".to_owned()))
    }

    fn rate(&self, duration: Duration, measured: &mut Measured) -> Result<()> {
        let sinks = self.containers.iter().map(|host| Sink::attach(host.netns(), "eth0"));
        let sinks = sinks.collect::<Result<Vec<_>>>()?;
        let arrived = || sinks.iter().map(|sink| Ok(sink.counted()?.packets)).sum::<Result<u64>>();
        let end = |number| (numbered::mac_of(number), [10, 68, 0, 1], 9);
        let mut frame = Frame::udp4(end(FIRST_SENDER), end(FIRST_RECEIVER), &[0; 18]).build();
        frame[40..42].copy_from_slice(&[0, 0]);
        let source = Source::start_grid(self.far.netns(), "eth0", frame, (1, STATIONS), SENDER_CPU)?;
        let none = arrived()?;
        wait::until("the first frames behind the switch", duration * 10, || {
            arrived().is_ok_and(|now| now > none + u64::from(STATIONS))
        })?;
        let (start, before, counted) = (Instant::now(), arrived()?, self.counted()?);
        std::thread::sleep(duration);
        let (seconds, after, now) = (start.elapsed().as_secs_f64(), arrived()?, self.counted()?);
        source.finish()?;
        let away = now.away_packets - counted.away_packets;
        let all = (now.steered_packets - counted.steered_packets).max(1);
        measured.rate.push((after - before) as f64 / seconds / 1e6);
        measured.away.push(away as f64 / seconds);
        measured.share.push(away as f64 / all as f64 * 100.0);
        Ok(())
    }

    /// With each container for a part of the time; the worst of them counts.
    fn times(&self, duration: Duration, measured: &mut Measured) -> Result<()> {
        let each = duration / CONTAINERS as u32;
        let times = self.containers.iter().map(|container| latency::tcp(&self.far, container, each));
        let times = times.collect::<Result<Vec<_>>>()?;
        let worst = |of: fn(&latency::Latency) -> Duration| {
            times.iter().map(of).max().unwrap_or_default().as_secs_f64() * 1e6
        };
        measured.p50.push(worst(|times| times.p50));
        measured.p99.push(worst(|times| times.p99));
        Ok(())
    }
}

fn socket_of(host: &Host) -> Result<PacketSocket> {
    let ifindex = host.netns().ifindex("eth0")?;
    let opened = host.netns().enter(|| PacketSocket::open(ifindex))?;
    opened.map_err(|error| LabError::system("a packet socket at a container", error))
}
