//! The daemon is killed again and again under load, and another takes over: what connections notice.
//!
//! ```text
//!   h1 ── one TCP stream ───────────► h2
//!   h3 ── 100 HTTP connections ─────► h4        kill -9, start, kill -9, start …; then another format of what is pinned
//!   h3 ── request and response ─────► h2
//! ```

use std::process::Command;
use std::time::{Duration, Instant};

use forebay_testbed::bpffs::BpfFs;
use forebay_testbed::dut::{self, Client, Dut as _, Forebay, ForebayOptions};
use forebay_testbed::host::{Host, PortKind};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::latency::{self, Latency};
use forebay_testbed::programs::iperf::{Iperf, IperfReport, IperfServer};
use forebay_testbed::programs::web::WebServer;
use forebay_testbed::programs::wrk::{WrkLoad, WrkReport};
use forebay_testbed::{LabError, Result, command};
use serde_json::Value;

use super::{Cell, OutputOptions, Report, Table};

/// What a connection may stall.
const LONGEST: Duration = Duration::from_millis(200);
/// Where the format has changed.
const LONGEST_REPLACED: Duration = Duration::from_secs(1);
const CONNECTIONS: u32 = 100;
const PAGE_BYTES: usize = 16 << 10;
/// Between two kills, and before the first.
const PAUSE: Duration = Duration::from_secs(1);
/// What a round may take, with its pause.
const ROUND_SECONDS: u32 = 2;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of times that the daemon is killed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub kills: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when something asked for does not hold.
///
/// # Errors
/// When the lab can't be made, or the daemon does not come back.
pub fn run(options: &Options) -> Result<bool> {
    let title = format!("{} kills of the daemon under load", options.kills);
    let about = "One TCP stream, 100 HTTP connections that are kept, and one connection with requests of a byte, all \
                 carried by the kernel while the daemon is killed with SIGKILL and started again. Then the version in \
                 the pinned format is changed between kill and start, so that nothing can be adopted.";
    let mut report = Report::begin("restart", title, about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let columns = [
        "what",
        "daemon away, longest ms",
        "stream, Gbit/s",
        "stream: fifths of a second with nothing sent",
        "HTTP requests/s",
        "HTTP failures",
        "HTTP longest, ms",
        "request and response: longest, ms",
        "asked, ms",
        "flows before",
        "after",
        "packets counted by the kernel before",
        "after",
        "verdict",
    ];
    let mut table = Table::new("What connections noticed", columns);
    for (what, kills, is_replaced) in [
        ("nobody is killed", 0, false),
        ("killed, adopted", options.kills, false),
        ("killed, another format", 1, true),
    ] {
        eprintln!("{what}");
        let seen = Scene::new()?.play(kills, is_replaced)?;
        // The first row is what the others are to be seen beside.
        if kills > 0 && !seen.holds(is_replaced) {
            report.broken(format!("{what}: connections noticed more than they may, or something was lost"));
        }
        table.row(seen.row(what, kills > 0, is_replaced));
    }
    report.table(table);
    Ok(())
}

struct Scene {
    // In this order: the daemon before what it has pinned.
    daemon: Forebay,
    hosts: Vec<Host>,
    lab: Lab,
    options: ForebayOptions,
    pins: BpfFs,
}

/// What was noticed.
struct Seen {
    away: Duration,
    stream: IperfReport,
    web: WrkReport,
    probe: Latency,
    flows: [usize; 2],
    counted: [u64; 2],
}

impl Scene {
    fn new() -> Result<Scene> {
        let mut lab = Lab::new("restart")?;
        let pins = BpfFs::mount(&lab)?;
        let options = ForebayOptions::default().offloaded().handing_over(&pins);
        let hosts = lab.hosts(4, PortKind::VethTcx)?;
        let mut daemon = Forebay::start(&lab, options.clone())?;
        daemon.add_ports(&dut::ports_of(&hosts))?;
        for (from, to) in [(0, 1), (2, 3), (2, 1)] {
            dut::wait_until_it_carries(&hosts[from], &hosts[to])?;
        }
        Ok(Scene { daemon, hosts, lab, options, pins })
    }

    fn play(mut self, kills: u32, is_replaced: bool) -> Result<Seen> {
        let seconds = (kills.max(3) + 2) * ROUND_SECONDS;
        let Scene { daemon, hosts, lab, options, pins } = &mut self;
        let (hosts, lab, options, pins) = (&*hosts, &*lab, &*options, &*pins);
        let _server = IperfServer::start(lab, &hosts[1])?;
        let _web = WebServer::start(lab, &hosts[3], PAGE_BYTES)?;
        let before = counted(daemon.client())?;
        std::thread::scope(|scope| {
            let stream = scope.spawn(|| Iperf::seconds(seconds).run(&hosts[0], &hosts[1]));
            let web = WrkLoad { connections: CONNECTIONS, seconds };
            let web = scope.spawn(move || web.run(&hosts[2], &hosts[3]));
            let duration = Duration::from_secs(seconds.into());
            let probe = scope.spawn(move || latency::tcp(&hosts[2], &hosts[1], duration));
            let mut again = || {
                daemon.kill()?;
                if is_replaced {
                    change_format(pins)?;
                }
                *daemon = Forebay::start(lab, options.clone())?;
                Ok(())
            };
            let away = again_and_again(kills, &mut again)?;
            let (stream, web, probe) = (finished(stream)?, finished(web)?, finished(probe)?);
            let after = counted(daemon.client())?;
            let (flows, counted) = ([before.0, after.0], [before.1, after.1]);
            Ok(Seen { away, stream, web, probe, flows, counted })
        })
    }
}

/// The longest time that there was no daemon.
fn again_and_again(kills: u32, again: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    std::thread::sleep(PAUSE);
    for _ in 0..kills {
        let killed = Instant::now();
        again()?;
        longest = longest.max(killed.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(longest)
}

fn finished<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Flows in the kernel, and packets that it counted at all ports.
fn counted(client: &Client) -> Result<(usize, u64)> {
    let list = client.ok(&["flow", "list", "--json"])?.stdout;
    let list: Value =
        serde_json::from_str(&list).map_err(|_| LabError::output("the list of flows", list.clone()))?;
    let flows = list["flows"]
        .as_array()
        .map_or(0, |flows| flows.iter().filter(|flow| flow["runs"] == "kernel").count());
    let packets = client.ports()?.iter().map(|port| port.counters.offloaded_packets).sum();
    Ok((flows, packets))
}

/// Another version in front of the pinned format.
fn change_format(pins: &BpfFs) -> Result<()> {
    let missing = || LabError::output("what is pinned", "there is no format".to_owned());
    let path = pins.find("format").ok_or_else(missing)?;
    let key = ["key", "0", "0", "0", "0"];
    let mut lookup = Command::new("bpftool");
    lookup.args(["-j", "map", "lookup", "pinned"]).arg(&path).args(key);
    let shown = command::run_ok(lookup)?.stdout;
    let shown: Value =
        serde_json::from_str(&shown).map_err(|_| LabError::output("bpftool", shown.clone()))?;
    let bytes = shown["value"].as_array().ok_or_else(missing)?;
    let mut bytes: Vec<&str> = bytes.iter().filter_map(Value::as_str).collect();
    bytes[0] = "0xfe";
    let mut update = Command::new("bpftool");
    update.args(["map", "update", "pinned"]).arg(&path).args(key).arg("value").args(bytes);
    command::run_ok(update).map(drop)
}

impl Seen {
    fn limit(is_replaced: bool) -> Duration {
        if is_replaced { LONGEST_REPLACED } else { LONGEST }
    }

    fn holds(&self, is_replaced: bool) -> bool {
        let limit = Seen::limit(is_replaced);
        let is_quick = self.web.longest <= limit && self.probe.max <= limit;
        let has_all = is_replaced || (self.flows[1] >= self.flows[0] && self.counted[1] >= self.counted[0]);
        is_quick && has_all && !self.web.has_failures && (is_replaced || self.stream.silent_intervals == 0)
    }

    fn row(&self, what: &str, is_asked: bool, is_replaced: bool) -> [Cell; 14] {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        [
            what.into(),
            millis(self.away).into(),
            (self.stream.received_bits_per_second / 1e9).into(),
            (self.stream.silent_intervals as u64).into(),
            self.web.requests_per_second.into(),
            (if self.web.has_failures { "SOME" } else { "none" }).into(),
            millis(self.web.longest).into(),
            millis(self.probe.max).into(),
            millis(Seen::limit(is_replaced)).into(),
            (self.flows[0] as u64).into(),
            (self.flows[1] as u64).into(),
            self.counted[0].into(),
            self.counted[1].into(),
            match (is_asked, self.holds(is_replaced)) {
                (false, _) => "–".into(),
                (true, true) => "holds".into(),
                (true, false) => "DOES NOT HOLD".into(),
            },
        ]
    }
}
