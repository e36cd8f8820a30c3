//! `forebay rss`

use clap::{Args, Subcommand};
use forebay_control::rss::RssSteering;

use super::Json;
use super::words::word;

/// `forebay rss`
#[derive(Debug, Subcommand)]
pub enum RssCommand {
    /// Show which worker takes the packets of a port's channels, and how many had the wrong one
    Show(RssShowArgs),
    /// Change how a port's packets are spread over workers
    Set(RssSetArgs),
}

/// Arguments of `rss show`.
#[derive(Debug, Args)]
pub struct RssShowArgs {
    /// Only this port
    #[arg(value_name = "PORT")]
    pub name: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `rss set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").multiple(true).required(true).args(["steering", "equal", "weights"]))]
pub struct RssSetArgs {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub name: String,
    /// What a packet's worker is chosen by: output (the worker that serves the port where it leaves) or hash (of its addresses)
    #[arg(long, value_parser = word::<RssSteering>)]
    pub steering: Option<RssSteering>,
    /// The first N channels have equal parts of all hashes; 0: all channels
    #[arg(long, value_name = "N", conflicts_with = "weights")]
    pub equal: Option<u32>,
    /// The first channels have parts of all hashes like these weights, from 0 to 1000
    #[arg(long, value_name = "W,…", value_delimiter = ',')]
    pub weights: Option<Vec<u32>>,
}
