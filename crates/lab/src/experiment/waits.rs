//! How long requests wait for others: what readers and a change of another port wait while long requests run.
//!
//! The daemon runs as a service, where grace periods cannot be shortened. One thread lists ports, one asks for counters,
//! one adds and deletes a port of its own, each as often as it is answered. The longest answers count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_testbed::dut::{Api, Client};
use forebay_testbed::lab::Lab;
use forebay_testbed::systemd::Systemd;
use forebay_testbed::{Result, wait};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::{Cell, OutputOptions, Report, Table};

/// Frames of the pool at first, and what they are changed to.
const FRAMES: [u32; 2] = [8192, 16384];
const START_LIMIT: Duration = Duration::from_secs(30);

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Ports that one request adds or deletes; one more is added and deleted meanwhile
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub ports: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when the counters do not balance afterwards.
///
/// # Errors
/// When the lab can't be made or the switch refuses a request.
pub fn run(options: &Options) -> Result<bool> {
    let title = format!("Waits for requests about {} ports", options.ports);
    let about = "A daemon as a service, tcx ports on veths without traffic. While one long request runs, one thread lists \
                 ports, one asks for counters, and one adds and deletes another port: the longest that each waited for an \
                 answer, in ms.";
    let mut report = Report::begin("waits", title, about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let lab = Lab::new("waits")?;
    let _peers = lab.bulk_veths(options.ports as usize + 1)?;
    let systemd = Systemd::boot(&lab, &format!("[pool]\nframes = {}\n", FRAMES[0]))?;
    systemd.systemctl(&["start", "forebay"])?;
    let client = systemd.client()?;
    wait::until("the daemon to answer", START_LIMIT, || client.ports().is_ok())?;
    let columns = ["request", "took", "port list", "stats", "port add or del of another"];
    let mut table = Table::new("Longest waits, ms", columns);
    let another = format!("p{}", options.ports + 1);
    for (what, request) in requests(options.ports) {
        eprintln!("{what}");
        table.row(row(&client.api(), &another, &what, &request)?);
    }
    report.table(table);
    judge(&client, report)?;
    systemd.systemctl(&["stop", "forebay"])?;
    Ok(())
}

fn judge(client: &Client, report: &mut Report) -> Result<()> {
    let check = client.stats_check()?;
    if !check.balanced {
        report.broken(format!("the counters do not balance: {check:?}"));
    }
    Ok(())
}

/// Method, path and body.
type Request = (&'static str, &'static str, Value);

/// Long requests, in the order in which they are made.
fn requests(ports: u32) -> Vec<(String, Request)> {
    let names: Vec<String> = (1..=ports).map(|number| format!("p{number}")).collect();
    let specs: Vec<Value> = names.iter().map(|name| json!({"netdev": name, "attach": "tcx"})).collect();
    let mode = |mode: &str| {
        (format!("eswitch set spool-mode {mode}"), change("/v1/eswitch", "spool_mode", json!(mode)))
    };
    let [_, frames] = FRAMES;
    vec![
        (format!("port add, {ports} ports"), ("POST", "/v1/ports", json!({"ports": specs}))),
        (format!("pool set --frames {frames}"), change("/v1/pool", "frames", json!(frames))),
        mode("basic"),
        mode("none"),
        mode("spp"),
        (format!("port del, {ports} ports"), ("POST", "/v1/ports/delete", json!({"names": names}))),
    ]
}

fn change(path: &'static str, field: &str, value: Value) -> Request {
    ("PATCH", path, json!({ field: value }))
}

fn row(api: &Api, netdev: &str, what: &str, (method, path, body): &Request) -> Result<[Cell; 5]> {
    let is_done = AtomicBool::new(false);
    let list = || api.get::<IgnoredAny>("/v1/ports").map(drop);
    let stats = || api.get::<IgnoredAny>("/v1/stats").map(drop);
    let mut is_there = false;
    let another = || {
        is_there = !is_there;
        add_or_delete(api, netdev, is_there)
    };
    let (took, list, stats, another) = thread::scope(|scope| {
        let list = scope.spawn(|| longest(&is_done, list));
        let stats = scope.spawn(|| longest(&is_done, stats));
        let another = scope.spawn(|| longest(&is_done, another));
        let began = Instant::now();
        let answered = api.change(method, path, body);
        let took = began.elapsed();
        is_done.store(true, Ordering::Relaxed);
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Duration>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let waits = (join(list)?, join(stats)?, join(another)?);
        answered.map(|()| (took, waits.0, waits.1, waits.2))
    })?;
    if is_there {
        add_or_delete(api, netdev, false)?;
    }
    let ms = |duration: Duration| Cell::Number(duration.as_secs_f64() * 1e3);
    Ok([Cell::Text(what.to_owned()), ms(took), ms(list), ms(stats), ms(another)])
}

/// Adds or deletes the port that no long request is about.
fn add_or_delete(api: &Api, netdev: &str, adds: bool) -> Result<()> {
    if adds {
        let body = json!({"ports": [{"netdev": netdev, "attach": "tcx"}]});
        api.change("POST", "/v1/ports", &body)
    } else {
        api.change("POST", "/v1/ports/delete", &json!({"names": [netdev]}))
    }
}

/// The longest that an answer took, of those that were asked for until all is done, and at least one.
fn longest(is_done: &AtomicBool, mut ask: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    loop {
        let began = Instant::now();
        ask()?;
        longest = longest.max(began.elapsed());
        if is_done.load(Ordering::Relaxed) {
            return Ok(longest);
        }
    }
}
