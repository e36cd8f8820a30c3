//! Adjustable receive queues: a web server under load over depths, refilled statically and adaptively.
//!
//! One host fetches a page from another through the switch, a connection for every request, a hundred at a time, as the
//! design's authors did. What the switch holds for it is read when nobody speaks, and many times during the load.
//!
//! One run cannot tell a few percent from noise. So there may be rounds: each row once a round, static and adaptive one
//! right after the other, and whoever goes second in one round goes first in the next.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_testbed::dut::counters::{Moved, Reading};
use forebay_testbed::dut::{self, Client, Dut};
use forebay_testbed::host::{Host, PortKind};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::spread::Spread;
use forebay_testbed::programs::load::{LoadReport, WebLoad};
use forebay_testbed::programs::web::WebServer;
use forebay_testbed::{Result, wait};

use super::{Cell, Chart, OutputOptions, Refill, Report, Series, Setup, Shape, Table, published};

const PAGE_BYTES: usize = 1024;
/// The low watermark: twice the NAPI budget.
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
    /// Number of requests for each row of the table
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub requests: u64,
    /// Number of requests at a time
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub concurrency: u32,
    /// Depths of a port's ring
    #[arg(long, value_delimiter = ',', default_value = "64,128,256,512,1024,2048", value_name = "LIST")]
    pub depths: Vec<u32>,
    /// Number of measurements of each row; the table shows the one of median speed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
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
    for depth in options.depths.iter().filter(|depth| **depth <= LOW_WATERMARK) {
        report.skip(format!("adaptive at depth {depth}: no more than the low watermark, {LOW_WATERMARK}"));
    }
    for round in 0..options.rounds {
        for depth in &options.depths {
            for refill in order(round) {
                if refill == Refill::Adaptive && *depth <= LOW_WATERMARK {
                    continue;
                }
                eprintln!("round {}: depth {depth}, {}", round + 1, refill.name());
                let setup = Setup { refill, depth: Some(*depth), ..Setup::default() };
                rows.extend(row(options, setup, report)?);
            }
        }
    }
    Ok(())
}

fn order(round: u32) -> [Refill; 2] {
    if round.is_multiple_of(2) {
        [Refill::Static, Refill::Adaptive]
    } else {
        [Refill::Adaptive, Refill::Static]
    }
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
    let medians = medians(options, rows);
    medians.iter().for_each(|row| table.row(cells(row)));
    report.table(table);
    let failed: u64 = rows.iter().map(|row| row.load.failed).sum();
    if failed > 0 {
        report.broken(format!("{failed} requests failed"));
    }
    report.table(adaptive_against_static(options, rows));
    charts(report, options, &medians);
}

fn of(rows: &[Row], depth: u32, refill: Refill) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.depth == depth && row.refill == refill)
}

/// Of each depth and refill the row with the median of requests a second; of two in the middle the slower one.
fn medians(options: &Options, rows: &[Row]) -> Vec<Row> {
    let each = options.depths.iter().flat_map(|depth| order(0).map(|refill| (*depth, refill)));
    let median = |(depth, refill)| {
        let mut rounds: Vec<&Row> = of(rows, depth, refill).collect();
        rounds.sort_by(|a, b| a.load.requests_per_second.total_cmp(&b.load.requests_per_second));
        rounds.get(rounds.len().saturating_sub(1) / 2).map(|row| (*row).clone())
    };
    each.filter_map(median).collect()
}

/// What adaptive refill costs in requests, depth by depth, each round held against its own neighbour.
fn adaptive_against_static(options: &Options, rows: &[Row]) -> Table {
    let columns = ["depth", "rounds", "adaptive answers more, %", "frames idle, adaptive", "static"];
    let mut table = Table::new("Adaptive against static: median (least–most) of the rounds", columns);
    for depth in &options.depths {
        let pairs: Vec<(&Row, &Row)> =
            of(rows, *depth, Refill::Adaptive).zip(of(rows, *depth, Refill::Static)).collect();
        let more = |(adaptive, fixed): &(&Row, &Row)| {
            100.0 * (adaptive.load.requests_per_second / fixed.load.requests_per_second - 1.0)
        };
        if let (Some(more), Some((adaptive, fixed))) = (Spread::of(pairs.iter().map(more)), pairs.last()) {
            table.row([
                Cell::from(*depth),
                (pairs.len() as u64).into(),
                more.text().into(),
                adaptive.idle_frames.into(),
                fixed.idle_frames.into(),
            ]);
        }
    }
    table
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
        let options = Options { requests: 1000, concurrency: 100, depths: vec![1024], rounds: 3, output };
        fill(&mut report, &options, rows);
        report
    }

    #[test]
    fn adaptive_is_held_against_the_static_of_its_round() {
        let round =
            |fixed, adaptive| [row_of(Refill::Static, fixed, 0), row_of(Refill::Adaptive, adaptive, 0)];
        let rows = [round(10_000.0, 9_900.0), round(5_000.0, 5_100.0), round(8_000.0, 8_000.0)].concat();
        let text = report_of(&rows).text();
        assert!(text.contains("0.00 (-1.00–2.00)"), "{text}");
        assert!(text.contains("24.1"), "the slides' seconds in\n{text}");
        assert_eq!(text.matches("9900").count(), 0, "only the rows of median speed are in\n{text}");
    }

    #[test]
    fn failed_requests_are_not_passed_over() {
        assert!(report_of(&[row_of(Refill::Static, 1.0, 3)]).text().contains("BROKEN: 3 requests failed"));
    }
}
