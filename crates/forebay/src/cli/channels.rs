//! `forebay channels`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Json;

/// `forebay channels`
#[derive(Debug, Subcommand)]
pub enum ChannelsCommand {
    /// Show the channels of a port, or of all ports that are groups or devices
    Show(ChannelsShowArgs),
    /// Show how the channels of a port with several members should lie on this machine's processors; needs no daemon
    ///
    /// Channel c is queue c div P of member c mod P, where P is the number of members. Every processor sends by one channel,
    /// of a member on its own NUMA node or the nearest one.
    Plan(ChannelsPlanArgs),
}

/// Arguments of `channels show`.
#[derive(Debug, Args)]
pub struct ChannelsShowArgs {
    /// Show only this port
    #[arg(value_name = "PORT")]
    pub name: Option<String>,
    /// Print a picture for Graphviz, as in `forebay channels show --dot | dot -Tsvg`
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `channels plan`.
#[derive(Debug, Args)]
pub struct ChannelsPlanArgs {
    /// Members: netdevs, or PCI functions by their addresses, as in 0000:3b:00.0
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Number of channels [default: as many as processors]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub channels: Option<u32>,
    /// Directory to read instead of /sys, for a machine that is not this one
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}
