//! The command line's definition: help, completions and man pages follow from it.

mod capture;
mod channels;
mod coalesce;
mod eswitch;
mod fdb;
mod flow;
mod hints;
mod observe;
mod pool;
mod port;
mod rss;
mod run;
mod rxq;
mod stats;
mod words;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use forebay_control::config::DEFAULT_SOCKET;

pub use capture::CaptureArgs;
pub use channels::{ChannelsCommand, ChannelsPlanArgs, ChannelsShowArgs};
pub use coalesce::{CoalesceCommand, CoalesceSetArgs, CoalesceShowArgs};
pub use eswitch::{EswitchCommand, EswitchSetCommand};
pub use fdb::{FdbCommand, FdbFilter};
pub use flow::{FlowAddArgs, FlowCommand};
pub use hints::{HintsCommand, HintsSetArgs, HintsShowArgs};
pub use observe::{EstimateArgs, NetdevArgs, OccupancyCommand};
pub use pool::{PoolCommand, PoolSetArgs};
pub use port::{PortAddArgs, PortCommand, PortSetArgs};
pub use rss::{RssCommand, RssSetArgs, RssShowArgs};
pub use run::{CpuList, RunArgs};
pub use rxq::{RxqCommand, RxqSetArgs};
pub use stats::StatsArgs;

/// A software switch for hosts with thousands of ports.
///
/// `forebay run` starts the daemon. The other commands ask a running daemon over its unix socket; `doctor`,
/// `pool estimate`, `channels plan`, `completions`, `man` and `openapi` need no daemon.
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
    /// Show the queues of ports' netdevs, as `ynl --family netdev --dump queue-get` shows them
    ///
    /// id: number of the queue among the netdev's queues of the same type. ifindex: number of the netdev. type: rx or tx.
    /// napi-id: the kernel's NAPI instance that polls the queue; absent if the driver does not tell it.
    QueueGet(NetdevArgs),
    /// Show the NAPI instances of ports' netdevs, as `ynl --family netdev --dump napi-get` shows them
    ///
    /// id: number of the instance. ifindex: number of the netdev. irq: its interrupt. pid: the thread that polls it.
    /// defer-hard-irqs: empty polls before the interrupt is on again. gro-flush-timeout, irq-suspend-timeout:
    /// nanoseconds. What the driver or the kernel does not tell is absent.
    NapiGet(NetdevArgs),
    /// Show and change settings of the whole switch
    #[command(subcommand)]
    Eswitch(EswitchCommand),
    /// Show and change receive queues: how deep they are, where they lie, how they are refilled
    #[command(subcommand)]
    Rxq(RxqCommand),
    /// Show and change receive-side scaling: which workers take the packets of a port with several members
    #[command(subcommand)]
    Rss(RssCommand),
    /// Show and change interrupt moderation of virtual machines
    #[command(subcommand)]
    Coalesce(CoalesceCommand),
    /// Show and change hints: facts about a packet that its device or an XDP program hands over with it
    #[command(subcommand)]
    Hints(HintsCommand),
    /// Write the packets that a port receives to a file in pcapng format, with their hints as comments
    Capture(CaptureArgs),
    /// Show how channels lie: queues of a port's members, with their interrupts, processors and NUMA nodes
    #[command(subcommand)]
    Channels(ChannelsCommand),
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

#[cfg(test)]
mod tests;
