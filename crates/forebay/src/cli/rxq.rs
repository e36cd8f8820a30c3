//! `forebay rxq`

use clap::{Args, Subcommand};
use forebay_control::rxq::{RefillKind, RxqBinding};

use super::Json;
use super::words::word;

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
    /// With --refill adaptive: frames in the fill ring of a quiet port, from 1 to the ring's depth
    #[arg(long, value_name = "FRAMES")]
    pub low: Option<u32>,
    /// Where the port's packets wait in spool mode spp: collector, or direct (on the netdev's own queues, XDP ports only)
    #[arg(long, value_parser = word::<RxqBinding>)]
    pub binding: Option<RxqBinding>,
}
