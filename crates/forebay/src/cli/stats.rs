//! `forebay stats`

use clap::Args;

use super::Json;

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
