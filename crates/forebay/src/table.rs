//! Tables for people: columns side by side, no borders, numbers to the right.

mod channels;
mod coalesce;
mod flows;
mod hints;
mod observe;
mod rss;
mod workers;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use forebay_control::PortCounters;
use forebay_control::doctor::{Answer, Check, DoctorReport, Severity};
use forebay_control::eswitch::{EswitchSetReply, EswitchShow};
use forebay_control::fdb::FdbEntry;
use forebay_control::group::MemberShow;
use forebay_control::pool::PoolShow;
use forebay_control::port::PortShow;
use forebay_control::rxq::{RxqBinding, RxqCollector, RxqShow};
use forebay_control::stats::{Balance, StatsCheck, StatsShow};

pub(crate) use channels::{channel_plan, channels, channels_dot};
pub(crate) use coalesce::{coalesce, coalesce_rates};
pub(crate) use flows::flows;
pub(crate) use hints::{hints, latency};
pub(crate) use observe::{estimate, netdev_napis, netdev_queues, occupancy, page_pools};
pub(crate) use rss::rss;
pub(crate) use workers::workers_show;

/// A table under construction; `>` before a heading puts its column to the right.
struct Grid {
    table: Table,
    right: Vec<bool>,
}

impl Grid {
    fn new(headings: &[&str]) -> Grid {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let mut grid =
            Grid { table, right: headings.iter().map(|heading| heading.starts_with('>')).collect() };
        let cells = grid.cells(headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()));
        grid.table.set_header(cells);
        grid
    }

    fn cells(&self, texts: impl Iterator<Item = String>) -> Vec<Cell> {
        let align = |right: &bool| if *right { CellAlignment::Right } else { CellAlignment::Left };
        texts.zip(&self.right).map(|(text, right)| Cell::new(text).set_alignment(align(right))).collect()
    }

    fn row<const N: usize>(&mut self, texts: [String; N]) {
        let cells = self.cells(texts.into_iter());
        self.table.add_row(cells);
    }

    fn finish(self) -> String {
        let lines = self.table.to_string();
        let trimmed: Vec<&str> =
            lines.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
        trimmed.join("\n") + "\n"
    }
}

pub(crate) fn ports(ports: &[PortShow]) -> String {
    let headings = [
        ">id",
        "name",
        "netdev",
        "attach",
        "state",
        "vlan",
        "isolated",
        ">rx packets",
        ">tx packets",
        ">drops",
    ];
    let mut grid = Grid::new(&headings);
    for port in ports {
        grid.row([
            port.id.to_string(),
            port.name.clone(),
            port.netdev.clone(),
            port.attach.to_string(),
            port.state.to_string(),
            port.vlan.to_string(),
            yes_no(port.isolated),
            port.counters.rx_packets.to_string(),
            port.counters.tx_packets.to_string(),
            port.counters.drops.total().to_string(),
        ]);
    }
    grid.finish()
}

pub(crate) fn port(port: &PortShow) -> String {
    let state = match port.state_reason.as_str() {
        "" => port.state.to_string(),
        reason => format!("{}: {reason}", port.state),
    };
    let workers: Vec<String> = port.worker.iter().map(u32::to_string).collect();
    let ifindex = port.ifindex.map_or_else(|| "none".to_owned(), |ifindex| ifindex.to_string());
    let unicast_filter = port.unicast_filter.map_or_else(
        || "not needed".to_owned(),
        |stations| format!("{stations} stations behind other ports"),
    );
    let netdevs = if port.members.is_empty() { port.netdev.clone() } else { members(&port.members) };
    if let Some(guest) = &port.vhost_user {
        let facts = facts(&[
            ("name", port.name.clone()),
            ("id", port.id.to_string()),
            ("socket", guest.path.clone()),
            ("the switch", if guest.client { "connects" } else { "listens" }.to_owned()),
            ("state", state),
            ("queue pairs offered", guest.queues.to_string()),
            ("mtu", port.mtu.to_string()),
            ("queues running", words(guest.running.iter().map(u32::to_string))),
            ("features", words(guest.features.iter().cloned())),
            ("vlan", port.vlan.to_string()),
            ("isolated", yes_no(port.isolated)),
            ("workers", workers.join(",")),
        ]);
        return format!("{facts}\n{}", counters(&port.counters));
    }
    let facts = facts(&[
        ("name", port.name.clone()),
        ("id", port.id.to_string()),
        ("netdev", netdevs),
        ("ifindex", ifindex),
        ("state", state),
        ("attach", format!("{} (requested: {})", port.attach, port.requested)),
        ("vlan", port.vlan.to_string()),
        ("isolated", yes_no(port.isolated)),
        ("mtu", port.mtu.to_string()),
        ("promiscuous", yes_no(port.promiscuous)),
        ("unicast filter", unicast_filter),
        ("workers", workers.join(",")),
        ("rx ring depth", port.rx_ring_depth.to_string()),
    ]);
    format!("{facts}\n{}", counters(&port.counters))
}

fn words(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join(",") }
}

/// Members in one line, the leader first.
fn members(members: &[MemberShow]) -> String {
    let show = |member: &MemberShow| {
        let pci = member.pci.map_or_else(String::new, |pci| format!(" ({pci})"));
        let carrier = if member.carries { "" } else { ", down" };
        format!("{}{pci}{carrier}", member.netdev)
    };
    members.iter().map(show).collect::<Vec<_>>().join("; ")
}

/// All counters of one port or of all; the rarer ones only where there were any.
pub(crate) fn counters(counters: &PortCounters) -> String {
    let mut grid = Grid::new(&["counter", ">packets", ">bytes"]);
    let mut row = |name: &str, packets: u64, bytes: Option<u64>| {
        grid.row([
            name.to_owned(),
            packets.to_string(),
            bytes.map_or_else(String::new, |bytes| bytes.to_string()),
        ]);
    };
    row("rx", counters.rx_packets, Some(counters.rx_bytes));
    row("tx", counters.tx_packets, Some(counters.tx_bytes));
    row("forwarded", counters.forwarded_packets, None);
    row("flooded", counters.flooded_packets, None);
    row("offloaded", counters.offloaded_packets, None);
    let notes = [
        ("not learned", counters.not_learned_packets),
        ("station moved here", counters.moved_packets),
        ("move limited", counters.move_limited_packets),
        ("checksum completed", counters.completed_checksums),
        ("loop probes out", counters.tx_loop_probes),
        ("loop probes in", counters.rx_loop_probes),
    ];
    for (note, count) in notes.into_iter().filter(|(_, count)| *count > 0) {
        row(note, count, None);
    }
    for (reason, count) in counters.drops.iter().filter(|(_, count)| *count > 0) {
        row(&format!("drop {reason}"), count, None);
    }
    for (cause, count) in counters.bad_frames.iter().filter(|(_, count)| *count > 0) {
        row(&format!("  of bad_frame: {cause}"), count, None);
    }
    grid.finish()
}

pub(crate) fn stats(stats: &StatsShow) -> String {
    let mut grid = Grid::new(&[
        ">id",
        "name",
        ">rx packets",
        ">rx bytes",
        ">tx packets",
        ">tx bytes",
        ">offloaded",
        ">drops",
    ]);
    let total = ("".to_owned(), "total".to_owned(), stats.total);
    let ports = stats.ports.iter().map(|port| (port.id.to_string(), port.name.clone(), port.counters));
    for (id, name, counters) in ports.chain([total]) {
        let numbers = [counters.rx_packets, counters.rx_bytes, counters.tx_packets, counters.tx_bytes];
        let [rx, rx_bytes, tx, tx_bytes] = numbers.map(|number| number.to_string());
        let [offloaded, drops] =
            [counters.offloaded_packets, counters.drops.total()].map(|number| number.to_string());
        grid.row([id, name, rx, rx_bytes, tx, tx_bytes, offloaded, drops]);
    }
    format!("{}\n{}\n{}", grid.finish(), counters(&stats.total), workers(stats))
}

fn workers(stats: &StatsShow) -> String {
    let mut grid =
        Grid::new(&[">worker", ">cpu", ">packets", ">copies", ">departed", ">batches", ">sleeps", ">busy s"]);
    for worker in &stats.workers {
        grid.row([
            worker.worker.to_string(),
            worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            worker.packets.to_string(),
            worker.copies.to_string(),
            worker.departed.to_string(),
            worker.batches.to_string(),
            worker.sleeps.to_string(),
            format!("{}.{:03}", worker.busy_ns / 1_000_000_000, worker.busy_ns / 1_000_000 % 1000),
        ]);
    }
    grid.finish()
}

pub(crate) fn check(check: &StatsCheck) -> String {
    let mut grid = Grid::new(&["balance", ">left", ">right", ">difference", ">moving"]);
    for balance in &check.balances {
        let Balance { name, left, right, difference, moving } = balance;
        let [left, right, moving] = [left, right, moving].map(u64::to_string);
        grid.row([name.clone(), left, right, difference.to_string(), moving]);
    }
    let is_exact = check.balances.iter().all(|balance| balance.difference == 0);
    let verdict = match (check.balanced, is_exact) {
        (true, true) => "balanced: every packet was counted exactly once",
        (true, false) => {
            "balanced, as far as packets under way let it be told: no difference is larger than what is moving"
        }
        (false, _) => "NOT balanced: packets were lost or counted twice",
    };
    format!("{}\n{verdict}\n", grid.finish())
}

pub(crate) fn fdb(entries: &[FdbEntry]) -> String {
    let mut grid = Grid::new(&[">vlan", "mac", "port", "kind", ">age s"]);
    for entry in entries {
        let (vlan, mac) = (entry.vlan.to_string(), entry.mac.to_string());
        grid.row([
            vlan,
            mac,
            entry.port.clone(),
            entry.kind.name().to_owned(),
            entry.age_seconds.to_string(),
        ]);
    }
    grid.finish()
}

pub(crate) fn pool(pool: &PoolShow) -> String {
    let facts = facts(&[
        ("policy", pool.policy.to_string()),
        ("frame size", format!("{} bytes", pool.frame_size)),
        ("frames", pool.frames_total.to_string()),
        ("free", pool.frames_free.to_string()),
        ("posted", pool.frames_posted.to_string()),
        ("held", pool.frames_held.to_string()),
        ("for ports", pool.frames_shared.to_string()),
        ("headroom", pool.frames_headroom.to_string()),
        ("pool memory", mebibytes(pool.bytes_total)),
        ("huge pages", if pool.huge_pages { "yes" } else { "no" }.to_owned()),
        ("kernel memory", mebibytes(pool.kernel_bytes)),
    ]);
    let mut grid = Grid::new(&[
        "port",
        ">used",
        ">max",
        "threshold",
        ">reserve",
        ">limit",
        ">drop over_threshold",
        ">drop no_frame",
        ">drop rx_ring_full",
    ]);
    for port in &pool.ports {
        let drops = [port.drops_over_threshold, port.drops_no_frame, port.drops_rx_ring_full];
        let [over_threshold, no_frame, ring_full] = drops.map(|number| number.to_string());
        let [used, max, limit] = [port.used, port.max, port.limit].map(|number| number.to_string());
        let (threshold, reserve) = (port.threshold.to_string(), port.reserve.to_string());
        let name = port.name.clone();
        grid.row([name, used, max, threshold, reserve, limit, over_threshold, no_frame, ring_full]);
    }
    format!("{facts}\n{}", grid.finish())
}

pub(crate) fn eswitch(eswitch: &EswitchShow) -> String {
    facts(&[
        ("spool-mode", eswitch.spool_mode.to_string()),
        ("offload", format!("{}, flows: {}", eswitch.offload, eswitch.flows)),
        ("workers", eswitch.workers.to_string()),
        ("collectors", format!("{}, queues: {}", eswitch.collectors.join(" "), eswitch.queues)),
        ("ports", format!("{} of {}", eswitch.ports, eswitch.max_ports)),
        ("uptime", format!("{} s", eswitch.uptime_seconds)),
        ("version", eswitch.version.clone()),
        ("pid", eswitch.pid.to_string()),
    ])
}

pub(crate) fn eswitch_changed(reply: &EswitchSetReply) -> String {
    let ms = format!("{}.{:03}", reply.elapsed_us / 1000, reply.elapsed_us % 1000);
    let EswitchShow { spool_mode, ports, .. } = &reply.eswitch;
    let lost = reply.lost_packets;
    let heading =
        format!("spool-mode {spool_mode}: {ports} ports in {ms} ms, {lost} packets without a ring\n");
    let not_moved =
        reply.not_moved.iter().map(|port| format!("{}: stays on the collector: {}\n", port.name, port.error));
    std::iter::once(heading).chain(not_moved).collect()
}

pub(crate) fn offload_changed(reply: &EswitchSetReply) -> String {
    let EswitchShow { offload, flows, .. } = &reply.eswitch;
    format!("offload {offload}: {flows} flows in the kernel\n")
}

pub(crate) fn rxq(rxq: &RxqShow) -> String {
    let mut grid =
        Grid::new(&["port", "binding", "lane", ">queues", ">depth", "refill", ">low", ">posted", ">used"]);
    for RxqCollector { lane, depth, refill, low, posted } in &rxq.collectors {
        grid.row([
            "(collector)".to_owned(),
            String::new(),
            lane.to_string(),
            String::new(),
            depth.to_string(),
            refill.to_string(),
            low.to_string(),
            posted.to_string(),
            String::new(),
        ]);
    }
    for port in &rxq.ports {
        let when = |binding, text: String| if port.binding == binding { text } else { String::new() };
        let own = |text| when(RxqBinding::Direct, text);
        grid.row([
            port.name.clone(),
            port.binding.to_string(),
            when(RxqBinding::Collector, port.lane.to_string()),
            port.queues.to_string(),
            port.depth.to_string(),
            own(port.refill.to_string()),
            own(port.low.to_string()),
            own(port.posted.to_string()),
            port.used.to_string(),
        ]);
    }
    grid.finish()
}

/// One line per check, then the verdict, then what to do about what is missing.
pub(crate) fn doctor(report: &DoctorReport) -> String {
    let lines: String = report.checks.iter().map(doctor_line).collect();
    let remedies: String = report.checks.iter().filter_map(remedy_line).collect();
    let heading = if remedies.is_empty() { "" } else { "What to do:\n" };
    format!("{lines}\n{}\n{heading}{remedies}", report.summary)
}

fn doctor_line(check: &Check) -> String {
    let (answer, why) = match &check.answer {
        Answer::Available => ("available", String::new()),
        Answer::Unknown { why } => ("unknown", why.clone()),
        Answer::NotSupported { since: Some(since), why } => {
            ("not supported", format!("{why} (needs {since})"))
        }
        Answer::NotSupported { since: None, why } => ("not supported", why.clone()),
    };
    let needed = match check.severity {
        Severity::Required => "required",
        Severity::Degraded => "useful",
        Severity::Info => "info",
    };
    let known = [check.detail.as_str(), why.as_str()].into_iter().filter(|part| !part.is_empty());
    let known = known.collect::<Vec<_>>().join("; ");
    let line = format!("{:<30} {answer:<14} {needed:<9} {known}", check.name);
    line.trim_end().to_owned() + "\n"
}

/// What is missing and needless asks for nothing.
fn remedy_line(check: &Check) -> Option<String> {
    let asks = check.answer != Answer::Available && check.severity != Severity::Info;
    let remedy = check.remedy.as_deref().filter(|_| asks)?;
    Some(format!("  {}: {remedy}\n", check.name))
}

fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

/// One decimal is enough to compare with other programs' figures; the exact bytes are in --json.
fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1024 * 1024);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests;
