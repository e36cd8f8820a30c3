//! `forebay coalesce`

use clap::{Args, Subcommand};
use forebay_control::coalesce::{CoalesceGuest, CoalescePlace, CoalescePolicy};

use super::Json;
use super::words::word;

/// `forebay coalesce`
#[derive(Debug, Subcommand)]
pub enum CoalesceCommand {
    /// Show how interrupts of virtual machines and netdevs are moderated, and how many there were
    Show(CoalesceShowArgs),
    /// Change how interrupts of a virtual machine or of a port's netdevs are moderated
    Set(CoalesceSetArgs),
}

/// Arguments of `coalesce show`.
#[derive(Debug, Args)]
pub struct CoalesceShowArgs {
    /// Only this port
    #[arg(value_name = "PORT")]
    pub name: Option<String>,
    /// Print what each queue and netdev did in each second that follows, until interrupted
    #[arg(long, conflicts_with = "json")]
    pub follow: bool,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `coalesce set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").multiple(true).required(true)
    .args(["policy", "place", "guest", "usecs", "frames", "profile"]))]
pub struct CoalesceSetArgs {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub name: String,
    /// Only the virtual machine's queues of this pair, from 0 on
    #[arg(long, value_name = "N")]
    pub queue: Option<u16>,
    /// Only packets to the virtual machine, or such that a netdev receives
    #[arg(long, conflicts_with = "tx")]
    pub rx: bool,
    /// Only packets from the virtual machine, or such that a netdev sends
    #[arg(long)]
    pub tx: bool,
    /// How limits are chosen: off, static (--usecs and --frames), dim (Linux's table), adaptive, or driver (of netdevs: by
    /// the driver itself)
    #[arg(long, value_parser = word::<CoalescePolicy>)]
    pub policy: Option<CoalescePolicy>,
    /// Where limits are chosen: offload (by the worker, after each turn; not for netdevs) or onload (by one thread for all,
    /// every 10 ms)
    #[arg(long = "where", value_name = "WHERE", value_parser = word::<CoalescePlace>)]
    pub place: Option<CoalescePlace>,
    /// What becomes of limits that the guest asks for: limits (the policy keeps within them), decides or ignored
    #[arg(long, value_parser = word::<CoalesceGuest>)]
    pub guest: Option<CoalesceGuest>,
    /// With --policy static: microseconds after the first packet, up to 65535; 0: no packet waits (rx-usecs, tx-usecs)
    #[arg(long, value_name = "USECS")]
    pub usecs: Option<u32>,
    /// With --policy static: packets, up to 65535; 0: no packet waits, or by time alone for a netdev (rx-frames, tx-frames)
    #[arg(long, value_name = "PACKETS")]
    pub frames: Option<u32>,
    /// With --policy dim: five lines as in 1,256,n_8,256,n_64,256,n_128,256,n_256,256,n; or eqe or cqe, Linux's tables
    #[arg(long, value_name = "TABLE")]
    pub profile: Option<String>,
}
