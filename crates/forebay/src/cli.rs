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
/// `forebay run` starts the daemon. The other commands ask a running daemon over its unix socket; `doctor`,
/// `pool estimate`, `completions`, `man` and `openapi` need no daemon.
///
/// Members of the socket's group may use every command. Members of the read-only socket's group (forebay-ro.sock) may
/// use those that only read.
///
/// Exit status: 0 the command succeeded, 1 the request was refused, 2 the command line is wrong.
///
/// A first try, as root: `forebay run`, then in another terminal `forebay port add veth1 veth2` and
/// `forebay port list`.
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
    /// Show and change the forwarding database: which Ethernet address is behind which port
    #[command(subcommand)]
    Fdb(FdbCommand),
    /// Show and change rules, and show flows: decisions that the kernel repeats without the daemon
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Show packet counters
    Stats(StatsArgs),
    /// Show and change the pool: the packet memory that all ports share
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Show every ring that holds frames, as `ynl --family netdev --dump page-pool-get` shows page pools
    ///
    /// The list has one entry for each RX ring of a port, then one for each fill ring of a worker.
    ///
    /// id: number of the ring. An RX ring has the port's id times the number of workers, plus the worker, plus 1. Fill
    /// rings have the numbers after those.
    ///
    /// ifindex: number of the port's netdev, or of the collector's netdev for a fill ring. Absent without a netdev.
    ///
    /// napi-id: the worker that serves the ring, from 0.
    ///
    /// inflight: frames in the ring. In an RX ring they hold packets; in a fill ring they wait for packets.
    ///
    /// inflight-mem: bytes of these frames.
    PagePoolGet(Json),
    /// Show and change settings of the whole switch
    #[command(subcommand)]
    Eswitch(EswitchCommand),
    /// Show and change receive queues: how deep they are, where they lie, how they are refilled
    #[command(subcommand)]
    Rxq(RxqCommand),
    /// Show and change hints: facts about a packet that the device or an XDP program writes below it
    #[command(subcommand)]
    Hints(HintsCommand),
    /// Write the packets that a port receives to a file in pcapng format, with their hints as comments
    Capture(CaptureArgs),
    /// Check whether this machine can run the switch, and say what to change
    ///
    /// Needs no daemon. The exit status is 1 if the switch can't start on this machine.
    Doctor(Json),
    /// Print a completion script for a shell, as in `forebay completions bash`
    Completions {
        /// The shell to complete in
        shell: Shell,
    },
    /// Write the man pages, one for each command
    Man {
        /// Directory to write them to; it is made if it is missing
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print the description of the HTTP API (OpenAPI)
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
    /// Configuration file in TOML; the daemon reads it again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Number of workers, the threads that forward packets, 1 to 64
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// CPUs to pin the workers to, one CPU for each worker, as in 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub cpus: Option<CpuList>,
    /// Least severity of the messages to log: off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", value_parser = parse_log_level)]
    pub log_level: Option<LogLevel>,
    /// Allow `forebay hints set PORT --program FILE`, which loads an XDP program
    ///
    /// Such a program can read kernel memory, so with this every member of the socket's group can. The configuration
    /// file has the same setting: allow_programs in [api].
    #[arg(long)]
    pub allow_programs: bool,
    /// Address and TCP port to serve Prometheus metrics on, as in 127.0.0.1:9100 [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics_listen: Option<std::net::SocketAddr>,
    /// Let the kernel repeat decisions about flows without the daemon: on or off
    #[arg(long, value_name = "ON|OFF", value_parser = word::<Offload>)]
    pub offload: Option<Offload>,
    /// Leave ports, flows and counters to the next daemon, and take over what the last one left
    ///
    /// A daemon that serves the same socket with --handover is asked to leave by the signal SIGUSR1. A daemon that was
    /// killed has left everything, too. The kernel forwards packets of known flows until the next daemon starts. The
    /// signal SIGTERM stops the daemon and removes everything.
    #[arg(long)]
    pub handover: bool,
    /// Remove what an earlier daemon with --handover left, and take over nothing
    #[arg(long)]
    pub clean: bool,
    /// Directory on a BPF file system for the programs and tables that --handover keeps
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
    /// Make network devices (netdevs) ports of the switch
    Add(PortAddArgs),
    /// Delete ports; their netdevs stay
    Del {
        /// Names of the ports
        #[arg(required = true, value_name = "PORT")]
        names: Vec<String>,
    },
    /// Change the VLANs of a port, or isolate it, while it carries packets
    Set(PortSetArgs),
    /// Show all ports
    List(Json),
    /// Show one port with its counters
    Show {
        /// Name of the port
        #[arg(value_name = "PORT")]
        name: String,
        /// How to print.
        #[command(flatten)]
        json: Json,
    },
}

/// Arguments of `port add`.
#[derive(Debug, Args)]
pub struct PortAddArgs {
    /// Names of the netdevs, in the daemon's network namespace, as in veth1
    #[arg(required = true, value_name = "NETDEV")]
    pub netdevs: Vec<String>,
    /// Where the kernel hands packets to the switch: tcx (veth, tap), xdp (network cards) or auto
    #[arg(long, default_value = "auto")]
    pub attach: Attach,
    /// VLANs that the port carries: all, access:VLAN[,tagged] or trunk:VLAN,VLAN[,native:VLAN]
    ///
    /// all: every VLAN, tags unchanged. access:10: packets without a tag, or with priority alone; `access:10,tagged` also
    /// takes packets with the tag of its VLAN. trunk:10,20,native:1: several VLANs with tags, and VLAN 1 without.
    #[arg(long, default_value = "all", value_name = "MODE")]
    pub vlan: VlanMode,
    /// Isolate the port, so that it reaches only ports that are not isolated
    #[arg(long)]
    pub isolated: bool,
    /// Name of the port, if there is one netdev [default: the netdev's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Also add a port whose netdev is not there or cannot be used now; it comes up when its netdev can
    #[arg(long)]
    pub wait: bool,
}

/// Arguments of `port set`.
#[derive(Debug, Args)]
pub struct PortSetArgs {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub name: String,
    /// VLANs that the port carries: all, access:VLAN[,tagged] or trunk:VLAN,VLAN[,native:VLAN]
    ///
    /// all: every VLAN, tags unchanged. access:10: packets without a tag, or with priority alone; `access:10,tagged` also
    /// takes packets with the tag of its VLAN. trunk:10,20,native:1: several VLANs with tags, and VLAN 1 without.
    #[arg(long, value_name = "MODE", required_unless_present = "isolated")]
    pub vlan: Option<VlanMode>,
    /// Isolate the port, so that it reaches only ports that are not isolated: on or off
    #[arg(long, value_name = "ON|OFF", value_parser = parse_switch, required_unless_present = "vlan")]
    pub isolated: Option<bool>,
}

/// `forebay fdb`
#[derive(Debug, Subcommand)]
pub enum FdbCommand {
    /// Show the entries
    List {
        /// Which entries.
        #[command(flatten)]
        filter: FdbFilter,
        /// How to print.
        #[command(flatten)]
        json: Json,
    },
    /// Add a static entry, which is neither learned nor forgotten
    Add {
        /// Ethernet address, as in 02:00:00:00:00:01
        mac: MacAddr,
        /// Name of the port that the address is behind
        #[arg(long)]
        port: String,
        /// VLAN of the address, 0 to 4094; 0: untagged packets of ports with --vlan all
        #[arg(long, value_name = "VID", default_value = "0")]
        vlan: Vid,
    },
    /// Delete one entry, static or learned
    Del {
        /// Ethernet address, as in 02:00:00:00:00:01
        mac: MacAddr,
        /// VLAN of the address, 0 to 4094; 0: untagged packets of ports with --vlan all
        #[arg(long, value_name = "VID", default_value = "0")]
        vlan: Vid,
    },
    /// Delete learned entries: all of them, or those of one port or VLAN
    Flush(FdbFilter),
}

/// Which entries.
#[derive(Debug, Clone, Args)]
pub struct FdbFilter {
    /// Only entries behind this port
    #[arg(long)]
    pub port: Option<String>,
    /// Only entries of this VLAN, 0 to 4094
    #[arg(long, value_name = "VID")]
    pub vlan: Option<Vid>,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Show only this port
    pub port: Option<String>,
    /// Check that every packet was counted exactly once; the exit status is 1 if not
    #[arg(long, conflicts_with = "port")]
    pub check: bool,
    /// Show what each worker did: rounds, processor cycles, bursts, lookups
    #[arg(long, conflicts_with_all = ["port", "check"])]
    pub workers: bool,
    /// Show the time from a packet's arrival to its forwarding decision, for ports with hints
    #[arg(long, conflicts_with_all = ["port", "check", "workers"])]
    pub latency: bool,
    /// With --workers: measure for SECONDS, 1 to 3600, instead of since the last --clear
    #[arg(long, value_name = "SECONDS", requires = "workers", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: Option<u64>,
    /// With --workers: show the numbers, then set them to zero
    #[arg(long, requires = "workers", conflicts_with = "interval")]
    pub clear: bool,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// `forebay pool`
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Show how much packet memory there is, and how much each port holds
    Show(Json),
    /// Change how much of the pool a port may hold, or the pool itself
    ///
    /// Examples: forebay pool set web --th 8, forebay pool set --frames 32768
    Set(PoolSetArgs),
    /// Take and show snapshots of how much each port holds and held at most, as `devlink sb occupancy` does
    #[command(subcommand)]
    Occupancy(OccupancyCommand),
    /// Compute how much memory a configuration would take; needs no daemon
    Estimate(EstimateArgs),
}

/// Arguments of `pool set`.
#[derive(Debug, Args)]
pub struct PoolSetArgs {
    /// Name of the port; leave it out to change the whole pool
    #[arg(value_name = "PORT", required_unless_present_any = ["policy", "frames"])]
    pub name: Option<String>,
    /// Dynamic threshold: the port may hold 2^(TH-10) times what is free; 3 to 16
    ///
    /// 10: as much as is free. 8: a quarter of that. 11: twice as much.
    #[arg(long, value_name = "TH", conflicts_with = "static_bytes")]
    pub th: Option<u8>,
    /// Static threshold: the port may hold this many bytes, as in 65536
    #[arg(long = "static", value_name = "BYTES")]
    pub static_bytes: Option<u64>,
    /// Frames that the port may hold even if its threshold is lower
    #[arg(long, value_name = "FRAMES", required_unless_present_any = ["th", "static_bytes", "policy", "frames"])]
    pub reserve: Option<u32>,
    /// How ports share the pool: dt (Dynamic Thresholds), or headroom (dt, with room for a quiet port's first burst)
    #[arg(long, value_parser = word::<PoolPolicy>,
        conflicts_with_all = ["name", "th", "static_bytes", "reserve"])]
    pub policy: Option<PoolPolicy>,
    /// Number of frames in the pool; ports move to a new pool while they carry packets
    #[arg(long, conflicts_with_all = ["name", "th", "static_bytes", "reserve"])]
    pub frames: Option<u32>,
}

/// `forebay rxq`
#[derive(Debug, Subcommand)]
pub enum RxqCommand {
    /// Show the receive queues of all ports, and the fill rings that supply them with frames
    Show(Json),
    /// Change the receive queues of a port, or the collectors' fill rings
    Set(RxqSetArgs),
}

/// Arguments of `rxq set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").multiple(true).required(true).args(["depth", "refill", "low", "binding"]))]
pub struct RxqSetArgs {
    /// Name of the port
    #[arg(value_name = "PORT", required_unless_present = "collector")]
    pub name: Option<String>,
    /// Change the fill rings of the collectors, which supply all ports with --binding collector
    #[arg(long, conflicts_with_all = ["name", "depth", "binding"])]
    pub collector: bool,
    /// Packets that an RX ring holds: a power of two from 64 to 4096
    #[arg(long, value_name = "PACKETS")]
    pub depth: Option<u32>,
    /// How full fill rings are kept: static (always full) or adaptive (at --low frames while the port is quiet)
    #[arg(long, value_parser = word::<RefillKind>)]
    pub refill: Option<RefillKind>,
    /// With --refill adaptive: frames in the fill ring of a quiet port
    #[arg(long, value_name = "FRAMES")]
    pub low: Option<u32>,
    /// Where the port's packets wait in spool mode spp: collector, or direct (on the netdev's own queues, XDP ports only)
    #[arg(long, value_parser = word::<RxqBinding>)]
    pub binding: Option<RxqBinding>,
}

/// `forebay hints`
#[derive(Debug, Subcommand)]
pub enum HintsCommand {
    /// Show which program writes hints at which port, their layouts, and how many packets had hints
    Show(HintsShowArgs),
    /// Change which program writes the hints of a port, while it carries packets
    Set(HintsSetArgs),
}

/// Arguments of `hints show`.
#[derive(Debug, Args)]
pub struct HintsShowArgs {
    /// Show only this port
    #[arg(value_name = "PORT")]
    pub name: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `hints set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("writer").required(true).args(["enabled", "program"]))]
pub struct HintsSetArgs {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub name: String,
    /// on: the built-in program writes the hints that the driver supports; off: no program writes hints
    #[arg(value_name = "ON|OFF", value_parser = parse_switch)]
    pub enabled: Option<bool>,
    /// Object file with an XDP program that writes hints, compiled with forebay_hints.h, as in mine.bpf.o
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub name: String,
    /// File to write to, as in web.pcapng [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Number of packets after which the capture ends; 0: no limit
    #[arg(short = 'c', long, default_value_t = 0)]
    pub packets: u64,
    /// Number of seconds after which the capture ends, 1 to 100
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub seconds: u32,
    /// Number of bytes to keep of each packet, 1 to 65535
    #[arg(short, long, value_name = "BYTES", default_value_t = 65_535, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub snaplen: u32,
}

/// `forebay eswitch`
#[derive(Debug, Subcommand)]
pub enum EswitchCommand {
    /// Show the settings of the switch, its workers, and its limits
    Show(Json),
    /// Change a setting of the whole switch while it carries packets
    #[command(subcommand)]
    Set(EswitchSetCommand),
}

/// `forebay eswitch set`
#[derive(Debug, Subcommand)]
pub enum EswitchSetCommand {
    /// Change how ports share packet memory: none, basic or spp
    ///
    /// none: every port has its own memory. basic: all ports share one RX ring. spp: every port has its own RX ring,
    /// and all rings share one pool.
    SpoolMode {
        /// none, basic or spp
        #[arg(value_parser = word::<SpoolMode>)]
        mode: SpoolMode,
        /// How to print the reply
        #[command(flatten)]
        json: Json,
    },
    /// Let the kernel repeat decisions about flows, or not: on or off
    ///
    /// on: the kernel forwards the packets of a known flow without the daemon. off: every packet goes through the
    /// daemon.
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
