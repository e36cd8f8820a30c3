//! What the hosts do: ping each other, stream, serve. Each act says what it saw.

use std::thread;
use std::time::{Duration, Instant};

use forebay_testbed::dut;
use forebay_testbed::dut::counters::Reading;
use forebay_testbed::machine::Machine;
use forebay_testbed::programs::iperf::{Iperf, IperfReport, IperfServer};
use forebay_testbed::programs::ping::Ping;
use forebay_testbed::programs::web::{self, WebReport, WebServer};
use forebay_testbed::{Host, LabError, Result, wait};

use super::stage::{GUEST, GUEST_V4, Stage};
use super::words;

const STREAM_SECONDS: u32 = 6;
const FETCHES: u32 = 5000;
const PAGE_BYTES: usize = 16 << 10;
/// The tables are shown when this many packets of the stream have passed.
const UNDER_WAY_PACKETS: u64 = 5000;

/// What the virtual machine writes when it has pinged every host.
const ALL_PINGED: &str = "all pinged";

/// The servers that the acts and, later, the audience talk to.
#[derive(Debug)]
pub(super) struct Servers {
    _iperf: IperfServer,
    _web: WebServer,
}

/// The hosts' netdevs become ports.
pub(super) fn add_ports(stage: &mut Stage) -> Result<()> {
    words::step(
        "One switch",
        "The daemon, `forebay run`, is up in a namespace of its own. Now the hosts' other ends\n\
         become its ports; netdevs that are purely virtual take tcx unless told otherwise.",
    );
    stage.add_ports()?;
    println!();
    for port in dut::ports_of(&stage.hosts) {
        println!("   $ forebay port add {} --attach {}", port.netdev, port.attach.name());
    }
    Ok(())
}

/// Every host pings every other over both families; true when all replies came.
pub(super) fn ping_everybody(stage: &Stage) -> Result<bool> {
    words::step(
        "Everybody pings everybody",
        "Three requests each; the cells say how many were answered over IPv4 and over IPv6.",
    );
    let rows = stage.hosts.iter().map(|from| ping_row(stage, from)).collect::<Result<Vec<_>>>()?;
    let mut headings = vec!["from \\ to"];
    headings.extend(stage.hosts.iter().map(Host::name));
    let cells: Vec<Vec<String>> = rows.iter().map(|(cells, _)| cells.clone()).collect();
    words::table(&headings, &cells);
    Ok(rows.iter().all(|(_, is_complete)| *is_complete))
}

fn ping_row(stage: &Stage, from: &Host) -> Result<(Vec<String>, bool)> {
    let (mut cells, mut is_complete) = (vec![from.name().to_owned()], true);
    for to in &stage.hosts {
        if to.name() == from.name() {
            cells.push("·".to_owned());
            continue;
        }
        let (v4, v6) = (Ping::new(to.v4()).from(from)?, Ping::new(to.v6()).from(from)?);
        is_complete &= v4.is_complete() && v6.is_complete();
        cells.push(format!("{}/{}  {}/{}", v4.received, v4.sent, v6.received, v6.sent));
    }
    Ok((cells, is_complete))
}

/// A Linux boots behind a vhost-user port, pings every host and is pinged; true when all replies came, or when there is no
/// such Linux here.
pub(super) fn boot_machine(stage: &mut Stage) -> Result<bool> {
    words::step(
        "A virtual machine",
        "Debian's Linux boots as a process, without KVM. Its own virtio_net driver talks with the\n\
         switch by vhost-user: packets lie in the machine's memory, which both map.",
    );
    if !Machine::is_installed() {
        words::note("NOT SHOWN: /usr/bin/linux.uml is missing. `apt-get install user-mode-linux` brings it.");
        return Ok(true);
    }
    let socket = stage.guest_socket();
    println!("\n   $ forebay port add {GUEST} --vhost-user {}", socket.display());
    let targets: String = stage.hosts.iter().map(|host| format!("{}={} ", host.name(), host.v4())).collect();
    // The last line is what it does for the audience, if the stage is kept.
    let script = format!(
        "echo \"kernel $(uname -r), eth0 by $(basename $(readlink /sys/class/net/eth0/device/driver))\"\n\
         for target in {targets}; do\n\
             echo \"pinged ${{target%=*}}: $(ping -q -c 3 -i 0.2 ${{target#*=}} | grep received)\"\n\
         done\n\
         echo '{ALL_PINGED}'\n\
         iperf3 -s >/dev/null"
    );
    let began = Instant::now();
    let machine = stage.boot(&script)?;
    let booted = began.elapsed().as_secs_f64();
    machine.wait_for_output(ALL_PINGED)?;
    let said = machine.output();
    let kernel = said.lines().find_map(|line| line.trim().strip_prefix("kernel ")).unwrap_or("unknown");
    words::note(&format!("{GUEST} ({GUEST_V4}) booted in {booted:.1} s: Linux {kernel}"));
    let mut is_good = true;
    for host in &stage.hosts {
        let pinged = format!("pinged {}: ", host.name());
        let summary = said.lines().find_map(|line| line.trim().strip_prefix(&*pinged)).unwrap_or("no reply");
        let has_all = summary.contains("3 packets transmitted, 3 received");
        words::result(has_all, format_args!("{GUEST} → {}: {summary}", host.name()));
        is_good &= has_all;
    }
    let report = Ping::new(GUEST_V4).from(stage.host("app"))?;
    words::result(
        report.is_complete(),
        format_args!("app → {GUEST}: {} packets transmitted, {} received", report.sent, report.received),
    );
    words::shell("forebay port show guest", &stage.client().ok(&["port", "show", GUEST])?.stdout);
    Ok(is_good && report.is_complete())
}

/// Starts the servers on `web`.
pub(super) fn serve(stage: &Stage) -> Result<Servers> {
    let host = stage.host("web");
    Ok(Servers {
        _iperf: IperfServer::start(&stage.lab, host)?,
        _web: WebServer::start(&stage.lab, host, PAGE_BYTES)?,
    })
}

/// A TCP stream and page fetches at the same time, and the switch's tables meanwhile.
pub(super) fn stream_and_fetch(stage: &Stage) -> Result<bool> {
    words::step(
        "A TCP stream and a web server",
        "app streams to web with iperf3, while vm fetches pages from nginx on web with ab.\n\
         What the switch says in the meantime:",
    );
    let (app, web, vm) = (stage.host("app"), stage.host("web"), stage.host("vm"));
    let (streamed, fetched, shown) = thread::scope(|scope| {
        let stream = scope.spawn(|| Iperf::seconds(STREAM_SECONDS).run(app, web));
        let fetch = scope.spawn(|| web::fetch(vm, web, false, FETCHES));
        let shown = show_tables(stage);
        (stream.join(), fetch.join(), shown)
    });
    shown?;
    let stream = streamed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let fetch = fetched.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let reverse = Iperf::seconds(STREAM_SECONDS / 2).v6(true).run(stage.host("edge"), web)?;
    println!();
    words::note(
        "Known flows stay in the kernel. Between edge, an XDP port, and web each packet takes the\n\
         slow path: web's netdev takes no frames of XDP programs (forebay flow list says so).\n\
         A segment that comes faster than the worker takes it is dropped, counted and sent again.",
    );
    Ok(report_stream("app → web, IPv4 alongside the fetches", &stream)
        & report_fetch(&fetch)
        & report_stream("edge → web, IPv6 alone", &reverse))
}

fn show_tables(stage: &Stage) -> Result<()> {
    let client = stage.client();
    let has_begun = || {
        let packets = client.port("app").map(|port| port.counters.rx_packets);
        packets.is_ok_and(|packets| packets > UNDER_WAY_PACKETS)
    };
    wait::until("the stream to begin", Duration::from_secs(10), has_begun)?;
    for words in [["port", "list"], ["pool", "show"], ["fdb", "list"]] {
        words::shell(&format!("forebay {}", words.join(" ")), &client.ok(&words)?.stdout);
    }
    Ok(())
}

fn report_stream(name: &str, report: &IperfReport) -> bool {
    let is_good = report.received_bytes > 0;
    let gigabits = report.received_bits_per_second / 1e9;
    let resent = report.retransmits;
    words::result(is_good, format_args!("{name}: {gigabits:.2} Gbit/s, {resent} segments sent again"));
    is_good
}

fn report_fetch(report: &WebReport) -> bool {
    let is_good = report.failed == 0 && report.complete == u64::from(FETCHES);
    let (complete, failed, rate) = (report.complete, report.failed, report.requests_per_second);
    let kilobytes = PAGE_BYTES >> 10;
    words::result(
        is_good,
        format_args!("vm → web: {complete} pages of {kilobytes} KiB, {failed} failed, {rate:.0} a second"),
    );
    is_good
}

/// Every packet was counted out exactly once.
pub(super) fn balance(stage: &Stage) -> Result<bool> {
    words::step(
        "Where did every packet go?",
        "A packet that enters is forwarded, flooded or dropped for one counted reason;\n\
         both sides of each equation are counted in different places.",
    );
    let client = stage.client();
    // A few packets, of neighbour discovery perhaps, may be under way at any moment.
    let settled = Reading::settled(client);
    let check = client.call(&["stats", "--check"])?;
    words::shell("forebay stats --check", &format!("{}{}", check.stdout, check.stderr));
    match settled {
        Ok(_) => Ok(check.status.success()),
        Err(LabError::Waited { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
