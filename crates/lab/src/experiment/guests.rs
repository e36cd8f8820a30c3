//! Many virtual machines at one switch: how long their ports take, what they cost while they are idle, and whether each is
//! served.
//!
//! The machines are small ones in this process: a pair of split rings of 64 entries each, driven by code, with a memory
//! file, a connection and four eventfds as every front end has. Figures are for each number of machines in turn, with a
//! daemon of its own.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_control::port::{PortAdd, PortAddReply, PortSpec, PortState};
use forebay_control::vhost_user::VhostUser;
use forebay_testbed::dut::{Client, Dut, Forebay, ForebayOptions};
use forebay_testbed::frame::{Frame, mark_of};
use forebay_testbed::host::PortKind;
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::cpu;
use forebay_testbed::packet_io::FrameSocket;
use forebay_testbed::{Host, LabError, Result, wait};
use forebay_vhost::Features;
use forebay_vhost::driver::{FrontEnd, FrontEndOptions};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{Cell, OutputOptions, Report, Table};

/// Entries of a ring, and bytes of a buffer.
const RING: FrontEndOptions =
    FrontEndOptions { features: Features::MRG_RXBUF, size: 64, buffer_bytes: 2048, keeps_notes: false };
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// Descriptors of one machine. The daemon has a listener, a connection, two for calls and two for kicks; this process has the
/// machine's memory instead of the listener. `MORE_FILES` are for everything else.
const FILES: u64 = 6;
const MORE_FILES: u64 = 512;
/// Promises: a hundred idle machines cost less than a hundredth of a processor, each at most 64 KB.
const PROMISED: (u32, f64, f64) = (100, 0.01, 65_536.0);

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Numbers of virtual machines
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    pub guests: Vec<u32>,
    /// Seconds for which the idle switch is measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub idle_seconds: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a machine was not served, or costs more than promised.
///
/// # Errors
/// When the lab can't be made or the switch refuses the ports.
pub fn run(options: &Options) -> Result<bool> {
    let about = "Each machine has a port, a vhost-user connection and a pair of split rings of 64 entries. Seconds: one \
                 request that adds all ports; connecting all machines one after the other. Idle: share of one processor that \
                 the daemon uses while nobody sends. Memory: the daemon's own pages (RSS) less those of the machines' \
                 memory, for each port; the kernel's part is not counted. Served: machines whose packet reached a host, and \
                 that a host's broadcast reached.";
    let mut report = Report::begin("guests", "Virtual machines that are idle", about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let columns = ["machines", "ports added, s", "connected, s", "idle, %", "KB a port", "sent", "received"];
    let mut table = Table::new("Machines at one switch", columns);
    for guests in &options.guests {
        eprintln!("{guests} virtual machines");
        let found = Found::of(*guests, Duration::from_secs(options.idle_seconds.into()))?;
        found.judge(*guests, report);
        table.row(found.row(*guests));
    }
    report.table(table);
    Ok(())
}

/// What was measured with one number of machines.
struct Found {
    added: Duration,
    connected: Duration,
    idle: f64,
    bytes_a_port: f64,
    sent: usize,
    received: usize,
    is_balanced: bool,
}

impl Found {
    fn of(guests: u32, idle: Duration) -> Result<Found> {
        raise_file_limit(guests)?;
        let mut lab = Lab::new("guests")?;
        let host = lab.host("h1", PortKind::VethTcx)?;
        let config = "[flood]\ncopies_per_second = 0\n";
        let forebay = Forebay::start(&lab, ForebayOptions::with_config(config).pinned_to(super::WORKER_CPU))?;
        let client = forebay.client();
        client.ok(&["port", "add", host.name()])?;
        let mut crowd = (0..guests).map(|_| guest()).collect::<Result<Vec<_>>>()?;
        let socket = |number: u32| lab.path(&format!("{number}"));
        let before = own_bytes(&forebay.pids());
        let began = Instant::now();
        add(client, guests, socket)?;
        let added = began.elapsed();
        let began = Instant::now();
        for (number, guest) in (0..).zip(&mut crowd) {
            connect(guest, &socket(number))?;
        }
        wait::until("all ports to be up", LIMIT, || up(client) == crowd.len())?;
        let connected = began.elapsed();
        let idle = cpu::share_of(&forebay.pids(), idle);
        let (sent, received) = serve(&host, &mut crowd)?;
        let bytes_a_port = (own_bytes(&forebay.pids()) as f64 - before as f64) / f64::from(guests);
        let is_balanced = client.stats_check()?.balanced;
        Ok(Found { added, connected, idle, bytes_a_port, sent, received, is_balanced })
    }

    fn row(&self, guests: u32) -> [Cell; 7] {
        let count = |count: usize| Cell::Number(count as f64);
        [
            Cell::Number(guests.into()),
            Cell::Number(self.added.as_secs_f64()),
            Cell::Number(self.connected.as_secs_f64()),
            Cell::Number(100.0 * self.idle),
            Cell::Number(self.bytes_a_port / 1024.0),
            count(self.sent),
            count(self.received),
        ]
    }

    fn judge(&self, guests: u32, report: &mut Report) {
        let (few, share, bytes) = PROMISED;
        if [self.sent, self.received] != [guests as usize; 2] {
            report.broken(format!("of {guests} machines {} sent and {} received", self.sent, self.received));
        }
        if guests <= few && self.idle >= share {
            report.broken(format!("{guests} idle machines take {:.4} of a processor", self.idle));
        }
        if self.bytes_a_port > bytes {
            report.broken(format!("a port takes {:.0} bytes", self.bytes_a_port));
        }
        if !self.is_balanced {
            report.broken("the counters do not balance");
        }
    }
}

/// Lets the daemon and this process have as many open files as so many machines need.
///
/// # Errors
/// When that is not allowed. Beyond the hard limit it takes CAP_SYS_RESOURCE.
pub(super) fn raise_file_limit(guests: u32) -> Result<()> {
    let needed = u64::from(guests) * FILES + MORE_FILES;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|error| LabError::system("reading the limit of open files", std::io::Error::from(error)))?;
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).map_err(|error| {
        let most = hard.saturating_sub(MORE_FILES) / FILES;
        let what = format!(
            "raising the limit of open files to {needed} for {guests} machines (it is {hard}, which is enough for {most})"
        );
        LabError::system(what, std::io::Error::from(error))
    })
}

pub(super) fn guest() -> Result<FrontEnd> {
    FrontEnd::new(RING).map_err(|error| LabError::system("making a machine", std::io::Error::other(error)))
}

pub(super) fn add(client: &Client, guests: u32, socket: impl Fn(u32) -> PathBuf) -> Result<()> {
    let spec = |number: u32| {
        let vhost_user = Some(VhostUser::new(socket(number).display().to_string()));
        PortSpec { name: Some(format!("vm{number}")), vhost_user, ..PortSpec::new("") }
    };
    let request = PortAdd { ports: (0..guests).map(spec).collect(), wait: false };
    let reply: PortAddReply = client.api().send("POST", "/v1/ports", &request)?;
    match reply.refused.first() {
        Some(refused) => Err(LabError::output("the reply to port add", refused.error.to_string())),
        None => Ok(()),
    }
}

pub(super) fn connect(guest: &mut FrontEnd, socket: &Path) -> Result<()> {
    let failed = |error| LabError::system("connecting a machine", std::io::Error::other(error));
    let stream = UnixStream::connect(socket).map_err(|error| LabError::system("connecting", error))?;
    guest.connect(stream).map_err(failed)
}

/// Number of machines' ports that are up.
pub(super) fn up(client: &Client) -> usize {
    let is_up =
        |port: &forebay_control::port::PortShow| port.state == PortState::Up && port.vhost_user.is_some();
    client.ports().map_or(0, |ports| ports.into_iter().filter(is_up).count())
}

/// Number of machines that send, and of those that receive.
fn serve(host: &Host, crowd: &mut [FrontEnd]) -> Result<(usize, usize)> {
    let mac = |number: usize| [2, 0xfd, 0, 0, (number >> 8) as u8, number as u8];
    let mut socket = FrameSocket::open(host)?;
    let mut sent = 0;
    for (number, guest) in crowd.iter_mut().enumerate() {
        let mark = number as u32 + 1;
        guest.transmit(&Frame::marked(mac(number), host.mac(), mark).build());
        sent += socket.collect(1, LIMIT, |frame| mark_of(frame) == Some(mark))?.len();
    }
    let mark = crowd.len() as u32 + 1;
    socket.send(&Frame::marked(host.mac(), [0xff; 6], mark).build())?;
    let mut has = vec![false; crowd.len()];
    wait::until("the broadcast at all machines", LIMIT, || {
        for (has, guest) in has.iter_mut().zip(crowd.iter_mut()) {
            *has |= std::iter::from_fn(|| guest.receive()).any(|packet| mark_of(&packet) == Some(mark));
        }
        has.iter().all(|has| *has)
    })
    // Too few are in the report.
    .or_else(|error| if matches!(error, LabError::Waited { .. }) { Ok(()) } else { Err(error) })?;
    Ok((sent, has.into_iter().filter(|has| *has).count()))
}

/// Pages of the processes that are present, but for those of machines' memory (proc_pid_smaps(5)).
fn own_bytes(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let (mut counts, mut bytes) = (true, 0);
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            match words.next().and_then(|word| word.strip_suffix(':')) {
                None => counts = !line.contains("memfd:guest"),
                Some("Rss") if counts => {
                    bytes += words.next().and_then(|word| word.parse().ok()).unwrap_or(0) * 1024
                }
                Some(_) => {}
            }
        }
        bytes
    };
    pids.iter().map(of).sum()
}
