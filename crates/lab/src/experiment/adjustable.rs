//! Adjustable receive queues: a web server under load over depths, refilled statically and adaptively.
//!
//! One host fetches a page from another through the switch, a connection for every request, a hundred at a time, as the
//! design's authors did. What the switch holds for it is read when nobody speaks, and many times during the load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Cell, Chart, OutputOptions, Refill, Report, Series, Setup, Shape, Table, published};
use crate::dut::counters::{Moved, Reading};
use crate::dut::{self, Client, Dut};
use crate::host::{Host, PortKind};
use crate::lab::Lab;
use crate::programs::load::{LoadReport, WebLoad};
use crate::programs::web::WebServer;
use crate::{Result, wait};

const PAGE_BYTES: usize = 1024;
/// The low watermark: twice a worker's turn.
const LOW_WATERMARK: u32 = 128;
/// Between two looks at the pool under load.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How long the pool may take to come to rest.
const REST_LIMIT: Duration = Duration::from_secs(10);
/// How long they must stay the same: longer than a switch waits before it takes a burst to be over.
const REST: Duration = Duration::from_secs(2);
/// Drops for want of something to receive into, by where the packet was lost.
const OUT_OF_BUFFER: [&str; 4] = ["no_frame", "collector_full", "rx_ring_full", "over_threshold"];

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Requests in every row
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub requests: u64,
    /// Requests at a time
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub concurrency: u32,
    /// Depths of a port's ring
    #[arg(long, value_delimiter = ',', default_value = "64,128,256,512,1024,2048", value_name = "LIST")]
    pub depths: Vec<u32>,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a request failed.
///
/// # Errors
/// When the lab can't be made or a program fails.
pub fn run(options: &Options) -> Result<bool> {
    let Options { requests, concurrency, .. } = options;
    let about = format!(
        "ab fetches a page of {PAGE_BYTES} bytes from nginx through the switch: {requests} requests, {concurrency} at a \
         time, a connection each. Out of buffer: packets that the switch lost for want of a frame or of room in a ring, \
         by whatever limit. Frames are those posted in fill rings and those with packets in them. Client, server and \
         switch share this machine's processors; the slides had two servers and mlx5."
    );
    let mut report = Report::begin("adjustable", "Receive queues, static and adaptive", about);
    let mut rows = Vec::new();
    let outcome = measure(options, &mut report, &mut rows);
    fill(&mut report, options, &rows);
    report.conclude(outcome, &options.output)
}

/// One load.
#[derive(Debug, Clone)]
struct Row {
    depth: u32,
    refill: Refill,
    load: LoadReport,
    out_of_buffer: u64,
    /// Before the load, at its peak, and once nobody speaks any more.
    idle_frames: u64,
    peak_frames: u64,
    idle_again_frames: u64,
}

fn measure(options: &Options, report: &mut Report, rows: &mut Vec<Row>) -> Result<()> {
    for depth in &options.depths {
        for refill in [Refill::Static, Refill::Adaptive] {
            if refill == Refill::Adaptive && *depth <= LOW_WATERMARK {
                report.skip(format!(
                    "adaptive at depth {depth}: no more than the low watermark, {LOW_WATERMARK}"
                ));
                continue;
            }
            eprintln!("depth {depth}, {}", refill.name());
            let setup = Setup { refill, depth: Some(*depth), ..Setup::default() };
            rows.extend(row(options, setup, report)?);
        }
    }
    Ok(())
}

fn row(options: &Options, setup: Setup, report: &mut Report) -> Result<Option<Row>> {
    let mut lab = Lab::new("adjustable")?;
    let hosts = lab.hosts(2, PortKind::VethTcx)?;
    let Some(mut forebay) = setup.start(&lab, report)? else { return Ok(None) };
    forebay.add_ports(&dut::ports_of(&hosts))?;
    let (client, server) = (&hosts[0], &hosts[1]);
    dut::wait_until_it_carries(client, server)?;
    // The server's side closes first and keeps the connection's port; the client must have enough of them.
    client.netns().set("ipv4/ip_local_port_range", "1024 65535")?;
    let _server = WebServer::start(&lab, server, PAGE_BYTES)?;
    let (before, idle_frames) = (Reading::settled(forebay.client())?, frames_at_rest(forebay.client())?);
    let load = WebLoad { requests: options.requests, concurrency: options.concurrency };
    let (load, peak_frames) = watched(forebay.client(), load, client, server)?;
    let moved = Reading::settled(forebay.client())?.since(&before);
    Ok(Some(Row {
        depth: setup.depth.unwrap_or_default(),
        refill: setup.refill,
        load,
        out_of_buffer: lost(&moved),
        idle_frames,
        peak_frames,
        idle_again_frames: frames_at_rest(forebay.client())?,
    }))
}

fn lost(moved: &Moved) -> u64 {
    OUT_OF_BUFFER.iter().map(|reason| moved.total(reason)).sum()
}

/// Frames posted or with a packet in them.
fn frames(client: &Client) -> Result<u64> {
    let pool = client.pool()?;
    Ok(pool.frames_posted + pool.frames_held)
}

/// What they are once they have not changed for [`REST`].
fn frames_at_rest(client: &Client) -> Result<u64> {
    let (mut last, mut since) = (frames(client)?, Instant::now());
    wait::until_some("the pool to come to rest", REST_LIMIT, || {
        let now = frames(client).ok()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() >= REST).then_some(now)
    })
}

/// The load's report, and the most frames that were seen meanwhile.
fn watched(switch: &Client, load: WebLoad, client: &Host, server: &Host) -> Result<(LoadReport, u64)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let peak = scope.spawn(|| peak_until(switch, &over));
        let report = load.run(client, server);
        over.store(true, Ordering::Relaxed);
        let peak = peak.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((report?, peak))
    })
}

fn peak_until(switch: &Client, over: &AtomicBool) -> u64 {
    let mut peak = 0;
    while !over.load(Ordering::Relaxed) {
        // A look that fails leaves what was seen before; a switch that is gone fails the load.
        peak = peak.max(frames(switch).unwrap_or(0));
        std::thread::sleep(LOOK_INTERVAL);
    }
    peak
}

const COLUMNS: [&str; 15] = [
    "depth",
    "refill",
    "seconds",
    "out of buffer",
    "requests/s",
    "connect, ms",
    "SD, ms",
    "frames idle",
    "frames peak",
    "frames idle again",
    "slides: seconds",
    "slides: out of buffer, K",
    "slides: requests/s, K",
    "slides: connect, ms",
    "slides: SD, ms",
];

fn cells(row: &Row) -> [Cell; 15] {
    let theirs = published::web_load(row.depth, row.refill == Refill::Adaptive);
    let published = |figure: fn(&published::WebLoad) -> f64| Cell::from(theirs.map(figure));
    [
        row.depth.into(),
        row.refill.name().into(),
        row.load.seconds.into(),
        row.out_of_buffer.into(),
        row.load.requests_per_second.into(),
        row.load.connect_ms.into(),
        row.load.connect_sd_ms.into(),
        row.idle_frames.into(),
        row.peak_frames.into(),
        row.idle_again_frames.into(),
        published(|row| row.seconds),
        published(|row| row.out_of_buffer_k),
        published(|row| row.requests_per_second_k),
        published(|row| row.connect_ms),
        published(|row| row.connect_sd_ms),
    ]
}

fn fill(report: &mut Report, options: &Options, rows: &[Row]) {
    let mut table = Table::new("ab through the switch, over the depth of a port's ring", COLUMNS);
    rows.iter().for_each(|row| table.row(cells(row)));
    report.table(table);
    let failed: u64 = rows.iter().map(|row| row.load.failed).sum();
    if failed > 0 {
        report.broken(format!("{failed} requests failed"));
    }
    adaptive_against_static(report, rows);
    charts(report, options, rows);
}

/// What adaptive refill costs in requests, depth by depth.
fn adaptive_against_static(report: &mut Report, rows: &[Row]) {
    for adaptive in rows.iter().filter(|row| row.refill == Refill::Adaptive) {
        let is_its_static = |row: &&Row| row.refill == Refill::Static && row.depth == adaptive.depth;
        if let Some(fixed) = rows.iter().find(is_its_static) {
            let ratio = adaptive.load.requests_per_second / fixed.load.requests_per_second;
            report.note(format!(
                "Depth {}: adaptive answers {:+.1} % requests a second, idle with {} frames instead of {}.",
                adaptive.depth,
                100.0 * (ratio - 1.0),
                adaptive.idle_frames,
                fixed.idle_frames
            ));
        }
    }
}

fn charts(report: &mut Report, options: &Options, rows: &[Row]) {
    let chart = |title: &str, unit: &str, figure: fn(&Row) -> f64, theirs: fn(&published::WebLoad) -> f64| {
        let labels = options.depths.iter().map(u32::to_string);
        let mut chart = Chart::new(title, unit, Shape::Lines, labels);
        for refill in [Refill::Static, Refill::Adaptive] {
            let row = |depth: &u32| rows.iter().find(|row| row.depth == *depth && row.refill == refill);
            let ours = options.depths.iter().map(|depth| row(depth).map(figure));
            let slides = options
                .depths
                .iter()
                .map(|d| published::web_load(*d, refill == Refill::Adaptive).map(theirs));
            chart = chart.with(Series::new(refill.name(), ours));
            chart = chart.with(Series::published(format!("slides: {}", refill.name()), slides));
        }
        chart
    };
    report.chart(chart(
        "Requests a second",
        "thousands",
        |row| row.load.requests_per_second / 1000.0,
        |row| row.requests_per_second_k,
    ));
    report.chart(chart(
        "Out of buffer",
        "thousand packets",
        |row| row.out_of_buffer as f64 / 1000.0,
        |row| row.out_of_buffer_k,
    ));
    report.chart(chart(
        "Connection time, standard deviation",
        "ms",
        |row| row.load.connect_sd_ms,
        |row| row.connect_sd_ms,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(refill: Refill, requests_per_second: f64, failed: u64) -> Row {
        let load = LoadReport {
            complete: 1000,
            failed,
            seconds: 1.0,
            requests_per_second,
            connect_ms: 2.0,
            connect_sd_ms: 1.0,
            connect_max_ms: 9.0,
        };
        Row {
            depth: 1024,
            refill,
            load,
            out_of_buffer: 7,
            idle_frames: 128,
            peak_frames: 900,
            idle_again_frames: 128,
        }
    }

    fn report_of(rows: &[Row]) -> Report {
        let mut report = Report::begin("adjustable", "t", "a");
        let output = OutputOptions::default();
        fill(&mut report, &Options { requests: 1000, concurrency: 100, depths: vec![1024], output }, rows);
        report
    }

    #[test]
    fn adaptive_is_held_against_static_of_the_same_depth() {
        let text =
            report_of(&[row_of(Refill::Static, 10_000.0, 0), row_of(Refill::Adaptive, 9_900.0, 0)]).text();
        assert!(text.contains("Depth 1024: adaptive answers -1.0 %"), "{text}");
        assert!(text.contains("24.1"), "the slides' seconds in\n{text}");
    }

    #[test]
    fn failed_requests_are_not_passed_over() {
        assert!(report_of(&[row_of(Refill::Static, 1.0, 3)]).text().contains("BROKEN: 3 requests failed"));
    }
}
