//! The command line's definition: help, completions and man pages follow from it.

mod flow;
mod observe;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use forebay_control::config::{DEFAULT_SOCKET, LogLevel};
use forebay_control::eswitch::{Offload, SpoolMode};
use forebay_control::pool::PoolPolicy;
use forebay_control::port::Attach;
use forebay_control::rxq::{RefillKind, RxqBinding};
use forebay_control::vlan::VlanMode;
use forebay_control::{MacAddr, Vid};

pub use flow::{FlowAddArgs, FlowCommand};
pub use observe::{EstimateArgs, OccupancyCommand};

/// A software switch for hosts with thousands of ports.
///
/// `forebay run` is the daemon; every other command asks a running daemon over its socket. Exit status: 0 done,
/// 1 the request was refused, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// Path of the daemon's unix socket [default: /run/forebay/forebay.sock]
    #[arg(long, global = true, env = "FOREBAY_SOCKET", value_name = "PATH", hide_env_values = true)]
    pub socket: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The socket to ask at.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| DEFAULT_SOCKET.into())
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground
    Run(RunArgs),
    /// Add, delete, change and show ports
    #[command(subcommand)]
    Port(PortCommand),
    /// Show and change which station is behind which port
    #[command(subcommand)]
    Fdb(FdbCommand),
    /// Rules, and flows: decisions that the kernel programs repeat
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Show packet counters
    Stats(StatsArgs),
    /// Show the pool of packet memory
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Show every ring that holds frames, as `ynl --family netdev --dump page-pool-get` shows page pools
    ///
    /// One entry for each RX ring of a port, then one for each worker's fill ring. id: port id times workers, plus
    /// worker, plus 1; fill rings come behind those of all ports there may be. ifindex: the port's netdev, of a fill
    /// ring the collector's transmit end; left out while there is none. napi-id: the worker, from 0. inflight: frames
    /// that the ring holds, with packets in them in an RX ring, posted for the kernel in a fill ring. inflight-mem:
    /// their bytes.
    PagePoolGet(Json),
    /// Show the switch as a whole
    #[command(subcommand)]
    Eswitch(EswitchCommand),
    /// Receive queues: depth, binding, refill
    #[command(subcommand)]
    Rxq(RxqCommand),
    /// Hints: what the device or an XDP program knows about packets when they come in
    #[command(subcommand)]
    Hints(HintsCommand),
    /// Capture a port's packets as the switch receives them, with their hints, as pcapng
    Capture(CaptureArgs),
    /// Check what this machine offers, and say what to do
    ///
    /// Needs no daemon. Exit status 1 if the switch can't start here.
    Doctor(Json),
    /// Print a completion script for a shell
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write man pages
    Man {
        /// The directory to write to.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print the API's OpenAPI document
    Openapi,
}

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
pub struct Json {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `run`; what is given here goes before the configuration file.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Configuration file (TOML); read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Number of workers
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// CPUs to pin the workers to, one each, as in 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub cpus: Option<CpuList>,
    /// How much to log: off, error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", value_parser = parse_log_level)]
    pub log_level: Option<LogLevel>,
    /// Let clients give the daemon XDP programs to load (`hints set PORT --program FILE`)
    ///
    /// Such a program can read kernel memory, so members of the socket's group could, too. Also allow_programs in
    /// [api] of the configuration file.
    #[arg(long)]
    pub allow_programs: bool,
    /// Serve /metrics, read-only, on this address and TCP port
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics_listen: Option<std::net::SocketAddr>,
    /// Whether the kernel programs repeat what was decided once: on or off
    #[arg(long, value_name = "ON|OFF", value_parser = word::<Offload>)]
    pub offload: Option<Offload>,
    /// Leave ports, flows and counters to the next daemon, and take over what the last one left
    ///
    /// A daemon that serves the same socket with --handover is asked to leave (SIGUSR1). One that was killed has left
    /// everything as well: the kernel goes on following flows meanwhile. SIGTERM is a full stop.
    #[arg(long)]
    pub handover: bool,
    /// Remove what an earlier daemon with --handover left, and start anew
    #[arg(long)]
    pub clean: bool,
    /// Directory on a BPF file system for what outlives the daemon
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/forebay")]
    pub pin_dir: PathBuf,
    /// Check the configuration file and exit
    #[arg(long, requires = "config")]
    pub check: bool,
}

/// CPUs in the order they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(pub Vec<u32>);

/// `forebay port`
#[derive(Debug, Subcommand)]
pub enum PortCommand {
    /// Make netdevs ports of the switch
    Add(PortAddArgs),
    /// Remove ports; their netdevs stay
    Del {
        /// The ports' names
        #[arg(required = true, value_name = "PORT")]
        names: Vec<String>,
    },
    /// Change a port while it carries traffic
    Set(PortSetArgs),
    /// Show all ports
    List(Json),
    /// Show one port with its counters
    Show {
        /// The port's name
        #[arg(value_name = "PORT")]
        name: String,
        /// How to print.
        /// How to print the reply
        #[command(flatten)]
        json: Json,
    },
}

/// Arguments of `port add`.
#[derive(Debug, Args)]
pub struct PortAddArgs {
    /// The netdevs, in the daemon's network namespace
    #[arg(required = true, value_name = "NETDEV")]
    pub netdevs: Vec<String>,
    /// How to attach: auto, tcx or xdp
    #[arg(long, default_value = "auto")]
    pub attach: Attach,
    /// VLANs it carries: all, access:10 or trunk:10,20[,native:1]
    #[arg(long, default_value = "all", value_name = "MODE")]
    pub vlan: VlanMode,
    /// Let it reach only ports that are not isolated
    #[arg(long)]
    pub isolated: bool,
    /// The port's name, for a single netdev [default: the netdev's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Also add a port whose netdev is not there or cannot be used now; it comes up when its netdev can
    #[arg(long)]
    pub wait: bool,
}

/// Arguments of `port set`.
#[derive(Debug, Args)]
pub struct PortSetArgs {
    /// The port's name
    #[arg(value_name = "PORT")]
    pub name: String,
    /// VLANs it carries: all, access:10 or trunk:10,20[,native:1]
    #[arg(long, value_name = "MODE", required_unless_present = "isolated")]
    pub vlan: Option<VlanMode>,
    /// Let it reach only ports that are not isolated: on or off
    #[arg(long, value_name = "ON|OFF", value_parser = parse_switch, required_unless_present = "vlan")]
    pub isolated: Option<bool>,
}

/// `forebay fdb`
#[derive(Debug, Subcommand)]
pub enum FdbCommand {
    /// Show entries
    List {
        /// Which entries.
        #[command(flatten)]
        filter: FdbFilter,
        /// How to print.
        /// How to print the reply
        #[command(flatten)]
        json: Json,
    },
    /// Add a static entry
    Add {
        /// The station's address
        mac: MacAddr,
        /// The port it is behind
        #[arg(long)]
        port: String,
        /// The station's VLAN; 0 for untagged on a transparent port
        #[arg(long, value_name = "VID", default_value = "0")]
        vlan: Vid,
    },
    /// Delete one entry, static or learned
    Del {
        /// The station's address
        mac: MacAddr,
        /// The station's VLAN; 0 for untagged on a transparent port
        #[arg(long, value_name = "VID", default_value = "0")]
        vlan: Vid,
    },
    /// Forget learned entries: all, or those of one port or VLAN
    Flush(FdbFilter),
}

/// Which entries.
#[derive(Debug, Clone, Args)]
pub struct FdbFilter {
    /// Only those behind this port
    #[arg(long)]
    pub port: Option<String>,
    /// Only those of this VLAN
    #[arg(long, value_name = "VID")]
    pub vlan: Option<Vid>,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Only this port
    pub port: Option<String>,
    /// Show that every packet was counted out exactly once; exit status 1 if not
    #[arg(long, conflicts_with = "port")]
    pub check: bool,
    /// What each worker does: iterations, cycles, bursts, lookups
    #[arg(long, conflicts_with_all = ["port", "check"])]
    pub workers: bool,
    /// How long packets with hints had been under way when it was decided where they go
    #[arg(long, conflicts_with_all = ["port", "check", "workers"])]
    pub latency: bool,
    /// Of workers: what they do in so many seconds from now, and not since the last --clear
    #[arg(long, value_name = "SECONDS", requires = "workers", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: Option<u64>,
    /// Of workers: show the numbers once more and count anew
    #[arg(long, requires = "workers", conflicts_with = "interval")]
    pub clear: bool,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// `forebay pool`
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Show how much memory there is and who holds it
    Show(Json),
    /// Change how much of it a port may hold
    Set(PoolSetArgs),
    /// Snapshots of what ports hold and held at most, as devlink-sb takes them
    #[command(subcommand)]
    Occupancy(OccupancyCommand),
    /// Say how much memory a configuration takes, before it is started
    Estimate(EstimateArgs),
}

/// Arguments of `pool set`.
#[derive(Debug, Args)]
pub struct PoolSetArgs {
    /// The port's name; without one the whole pool is meant
    #[arg(value_name = "PORT", required_unless_present_any = ["policy", "frames"])]
    pub name: Option<String>,
    /// Dynamic threshold: 2^(TH-10) times what is free, TH from 3 to 16
    #[arg(long, value_name = "TH", conflicts_with = "static_bytes")]
    pub th: Option<u8>,
    /// Static threshold in bytes
    #[arg(long = "static", value_name = "BYTES")]
    pub static_bytes: Option<u64>,
    /// Frames it may hold whatever its threshold says
    #[arg(long, value_name = "FRAMES", required_unless_present_any = ["th", "static_bytes", "policy", "frames"])]
    pub reserve: Option<u32>,
    /// How all ports share: dt (Dynamic Thresholds) or headroom (the same, and room for everybody's first burst)
    #[arg(long, value_parser = word::<PoolPolicy>,
        conflicts_with_all = ["name", "th", "static_bytes", "reserve"])]
    pub policy: Option<PoolPolicy>,
    /// Frames in the pool: a new one is made beside the old one, which is drained and released
    #[arg(long, conflicts_with_all = ["name", "th", "static_bytes", "reserve"])]
    pub frames: Option<u32>,
}

/// `forebay rxq`
#[derive(Debug, Subcommand)]
pub enum RxqCommand {
    /// Show depths, bindings and fill rings
    Show(Json),
    /// Change the receive queues of a port, or the collectors' fill rings
    Set(RxqSetArgs),
}

/// Arguments of `rxq set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").multiple(true).required(true).args(["depth", "refill", "low", "binding"]))]
pub struct RxqSetArgs {
    /// The port's name
    #[arg(value_name = "PORT", required_unless_present = "collector")]
    pub name: Option<String>,
    /// The collectors' fill rings, which supply all ports that are not bound directly
    #[arg(long, conflicts_with_all = ["name", "depth", "binding"])]
    pub collector: bool,
    /// Packets that an RX ring holds: a power of two from 64 to 4096
    #[arg(long, value_name = "PACKETS")]
    pub depth: Option<u32>,
    /// How full fill rings are kept: static or adaptive
    #[arg(long, value_parser = word::<RefillKind>)]
    pub refill: Option<RefillKind>,
    /// Frames that adaptive refill keeps in a fill ring at rest
    #[arg(long, value_name = "FRAMES")]
    pub low: Option<u32>,
    /// Where the port's packets wait, in spool mode spp: collector or direct
    #[arg(long, value_parser = word::<RxqBinding>)]
    pub binding: Option<RxqBinding>,
}

/// `forebay hints`
#[derive(Debug, Subcommand)]
pub enum HintsCommand {
    /// Show who writes them, in which layouts, and how many packets came with them
    Show(HintsShowArgs),
    /// Change who writes a port's hints, while packets flow
    Set(HintsSetArgs),
}

/// Arguments of `hints show`.
#[derive(Debug, Args)]
pub struct HintsShowArgs {
    /// Only this port
    #[arg(value_name = "PORT")]
    pub name: Option<String>,
    /// The output's form.
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `hints set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("writer").required(true).args(["enabled", "program"]))]
pub struct HintsSetArgs {
    /// The port's name
    #[arg(value_name = "PORT")]
    pub name: String,
    /// on: our own program writes what the driver can tell; off: nobody writes any
    #[arg(value_name = "ON|OFF", value_parser = parse_switch)]
    pub enabled: Option<bool>,
    /// An object file that writes hints of its own, made with forebay_hints.h
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// The port's name
    #[arg(value_name = "PORT")]
    pub name: String,
    /// Where to; standard output if not given
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Packets after which it ends; 0: no limit
    #[arg(short = 'c', long, default_value_t = 0)]
    pub packets: u64,
    /// Seconds after which it ends
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub seconds: u32,
    /// Bytes of each packet that are kept
    #[arg(short, long, value_name = "BYTES", default_value_t = 65_535, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub snaplen: u32,
}

/// `forebay eswitch`
#[derive(Debug, Subcommand)]
pub enum EswitchCommand {
    /// Show mode, offload, workers, collectors and limits
    Show(Json),
    /// Change how ports share packet memory, and what the kernel programs do, under traffic
    #[command(subcommand)]
    Set(EswitchSetCommand),
}

/// `forebay eswitch set`
#[derive(Debug, Subcommand)]
pub enum EswitchSetCommand {
    /// none: a memory of its own for every port; basic: one RX ring for all; spp: a ring a port on one shared pool
    SpoolMode {
        /// none, basic or spp
        #[arg(value_parser = word::<SpoolMode>)]
        mode: SpoolMode,
        /// How to print the reply
        #[command(flatten)]
        json: Json,
    },
    /// on: the kernel programs repeat what was decided once; off: every packet goes through user space
    Offload {
        /// on or off
        #[arg(value_parser = word::<Offload>)]
        offload: Offload,
        /// How to print the reply
        #[command(flatten)]
        json: Json,
    },
}

/// A word as the API spells it.
fn word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let value = serde_json::Value::String(text.to_owned());
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

fn parse_log_level(text: &str) -> Result<LogLevel, String> {
    use LogLevel::{Debug, Error, Info, Off, Trace, Warn};
    let levels = [Off, Error, Warn, Info, Debug, Trace];
    let level = levels.into_iter().find(|level| level.name() == text);
    level.ok_or_else(|| "write off, error, warn, info, debug or trace".to_owned())
}

/// Linux takes at most 8192 CPUs (CONFIG_NR_CPUS on x86-64), which bounds what a range can expand to.
const CPU_LIMIT: u32 = 8192;

fn parse_cpus(text: &str) -> Result<CpuList, String> {
    let mut cpus = Vec::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < CPU_LIMIT => cpus.extend(first..=last),
            _ => {
                return Err(format!(
                    "`{item}` is not a CPU below {CPU_LIMIT} or a range of them, as in 0,2-3"
                ));
            }
        }
    }
    Ok(CpuList(cpus))
}

#[cfg(test)]
mod tests;
