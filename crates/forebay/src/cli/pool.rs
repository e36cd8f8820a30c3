//! `forebay pool`

use clap::{Args, Subcommand};
use forebay_control::pool::PoolPolicy;

use super::words::word;
use super::{EstimateArgs, Json, OccupancyCommand};

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
#[command(group = clap::ArgGroup::new("change").multiple(true).required(true)
    .args(["th", "static_bytes", "reserve", "policy", "frames"]))]
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
    #[arg(long, value_name = "FRAMES")]
    pub reserve: Option<u32>,
    /// How ports share the pool: dt (Dynamic Thresholds), or headroom (dt, with room for a quiet port's first burst)
    #[arg(long, value_parser = word::<PoolPolicy>,
        conflicts_with_all = ["name", "th", "static_bytes", "reserve"])]
    pub policy: Option<PoolPolicy>,
    /// Number of frames in the pool, 1024 to 1048576; ports move to a new pool while they carry packets
    #[arg(long, conflicts_with_all = ["name", "th", "static_bytes", "reserve"])]
    pub frames: Option<u32>,
}
